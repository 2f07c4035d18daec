"""Signed DAG-CBOR blobs of the Hypermedia network: profiles, changes of documents, and refs to their versions.

Each is signed by the rule of envelopes: over its canonical bytes with a zeroed `sig`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from libs import wire


class PublishFailed(Exception):
    """An HM server did not take blobs. The text is a cause fit for the public."""


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes and what they are called by: a binary CID."""

    cid: bytes
    data: bytes

    @property
    def name(self) -> str:
        """The CID as text."""
        return wire.cid_text(self.cid)

    @property
    def link(self) -> wire.Link:
        """The CID as a link inside another blob."""
        return wire.Link(self.cid)


def profile(key: wire.Key, name: str, ts_ms: int, *, avatar: str = "") -> Blob:
    """What an account shows of itself. `avatar` is an `ipfs://` URL."""
    fields: dict[str, Any] = {"name": name}
    if avatar:
        fields["avatar"] = avatar
    return _signed(key, "Profile", ts_ms, fields)


def genesis(key: wire.Key) -> Blob:
    """The first change of an account's home document: empty, and the same whenever it is made."""
    return _signed(key, "Change", 0, {})


def change(key: wire.Key, operations: Sequence[dict[str, Any]], first: Blob, ts_ms: int) -> Blob:
    """A change that follows the genesis `first`."""
    fields = {
        "body": {"ops": list(operations), "opCount": len(operations)},
        "genesis": first.link,
        "deps": [first.link],
        "depth": 1,
    }
    return _signed(key, "Change", ts_ms, fields)


def version_ref(key: wire.Key, first: Blob, heads: Iterable[Blob], ts_ms: int) -> Blob:
    """Names the version of the signer's own home document: the changes that nothing follows."""
    fields = {"genesisBlob": first.link, "generation": ts_ms, "heads": [head.link for head in heads]}
    return _signed(key, "Ref", ts_ms, fields)


def document_operations(attributes: dict[str, Any], blocks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The operations that give a document attributes and a body (blocks of agents.cddl)."""
    attrs = [{"key": [name], "value": value} for name, value in attributes.items()]
    return [*([{"type": "SetAttributes", "attrs": attrs}] if attrs else []), *_placed(blocks, "")]


def home_document(key: wire.Key, name: str, blocks: Sequence[dict[str, Any]], ts_ms: int) -> list[Blob]:
    """A new account's home document: its genesis, the change with name and body, and the ref to it."""
    first = genesis(key)
    content = change(key, document_operations({"name": name}, blocks), first, ts_ms)
    return [first, content, version_ref(key, first, [content], ts_ms)]


def _placed(nodes: Sequence[dict[str, Any]], parent: str) -> list[dict[str, Any]]:
    operations: list[dict[str, Any]] = []
    for node in nodes:
        block: dict[str, Any] = node["block"]
        # In a change a block's attributes stand beside its text.
        flat = {**block.get("attributes", {}), **{name: v for name, v in block.items() if name != "attributes"}}
        operations.append({"type": "ReplaceBlock", "block": flat})
        operations += _placed(node.get("children", ()), block["id"])
    if nodes:
        ids = [node["block"]["id"] for node in nodes]
        operations.append({"type": "MoveBlocks", "blocks": ids, "parent": parent})
    return operations


def _signed(key: wire.Key, kind: str, ts_ms: int, fields: dict[str, Any]) -> Blob:
    data = wire.sign_map(key, {"type": kind, "signer": key.principal, "ts": ts_ms, **fields})
    return Blob(wire.cid_bytes(wire.DAG_CBOR, data), data)
