"""Values of every wire type, made from its annotations: the smallest, the fullest, and one for each alternative."""

import itertools
import types
import typing
from typing import Any, Literal

import msgspec
from msgspec import UnsetType

from libs.protocol.base import Action, Wire

ACCOUNT = "z6Mkon3Necd6NkkyfoGoHxid2znGc59LU3K7mubaRcFbLfLX"
PRINCIPAL = b"\xed\x01" + bytes(32)
DIGEST = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
CID = "bafyreigur7tvj4htdw6rf25vtnhcg72jrjrxvtedtwupbnbbho5ry7bczu"

BY_FIELD: dict[str, Any] = {
    "account_id": ACCOUNT,
    "owner_account_id": ACCOUNT,
    "signer_id": ACCOUNT,
    "cid": CID,
    "attachment_id": DIGEST,
    "time_of_day": "09:30",
    "days_of_week": [0, 6],
}
"""Fields whose schema is narrower than their Python type."""

BY_TYPE_AND_FIELD: dict[tuple[str, str], Any] = {
    ("AgentInfo", "account"): ACCOUNT,
    ("SessionInfo", "account"): ACCOUNT,
    ("RunInfo", "account"): ACCOUNT,
    ("AgentTriggerInfo", "account"): ACCOUNT,
    ("SessionAttachmentInfo", "id"): DIGEST,
    ("AttachmentPart", "id"): DIGEST,
    ("SetMcpServer", "name"): "docs-1",
    ("RedactedMcpServer", "name"): "docs-1",
    ("AgentToolInput", "name"): "double_it",
    ("Subscribe", "key"): "runs/abc",
    ("Unsubscribe", "key"): "runs/abc",
    ("ImportSigningIdentity", "seed"): bytes(32),
    ("WriteAgentMemoryFile", "content"): "text",
    ("AgentPromptBlock", "block"): {"id": "b1", "type": "Paragraph", "text": "x", "level": 2},
    ("SignedActionEnvelope", "signer"): PRINCIPAL,
    ("SignedActionEnvelope", "account"): PRINCIPAL,
    ("SignedActionEnvelope", "sig"): bytes(64),
    ("CapabilityBlob", "signer"): PRINCIPAL,
    ("CapabilityBlob", "delegate"): PRINCIPAL,
    ("CapabilityBlob", "audience"): PRINCIPAL,
    ("CapabilityBlob", "sig"): bytes(64),
}

WS_KEYS = {
    "WsSubscribed": "agents/a",
    "WsUnsubscribed": "agents/a",
    "WsSessionAppend": "sessions/s",
    "WsSessionPartial": "sessions/s",
    "WsSessionChange": "sessions/s",
    "WsAgentChange": "agents/a",
    "WsAccountChange": f"account/{ACCOUNT}",
    "WsRunChange": "runs/r",
    "WsRunAppend": "runs/r",
    "WsRunPartial": "runs/r",
}

MAX_DEPTH = 4


def samples(kind: type[Wire]) -> list[Wire]:
    """Smallest, fullest, and fullest with each alternative of each field in turn."""
    made = [_make(kind, full=False, pick=0, depth=0), _make(kind, full=True, pick=0, depth=0)]
    made += [_make(kind, full=True, pick=i, depth=0) for i in range(1, _alternatives(kind))]
    return made


def _alternatives(kind: type[Wire]) -> int:
    return max([1, *(len(_choices(hint)) for hint in _hints(kind).values())])


def _hints(kind: type[Wire]) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _choices(hint: Any) -> list[Any]:
    if typing.get_origin(hint) is Literal:
        return list(typing.get_args(hint))
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return [x for x in typing.get_args(hint) if x is not UnsetType]
    if typing.get_origin(hint) is list:
        return _choices(typing.get_args(hint)[0])
    return [hint]


def _make(kind: type[Wire], *, full: bool, pick: int, depth: int) -> Wire:
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        optional = not field.required
        if optional and (not full or depth > MAX_DEPTH) and not (field.name == "ts" and issubclass(kind, Action)):
            continue
        values[field.name] = _field(kind, field.name, _hints(kind)[field.name], full, pick, depth)
    return kind(**values)


def _field(kind: type[Wire], name: str, hint: Any, full: bool, pick: int, depth: int) -> Any:
    if (kind.__name__, name) in BY_TYPE_AND_FIELD:
        return BY_TYPE_AND_FIELD[kind.__name__, name]
    if name == "key" and kind.__name__ in WS_KEYS:
        return WS_KEYS[kind.__name__]
    if name in BY_FIELD:
        return BY_FIELD[name]
    return _value(hint, full, pick, depth)


def _value(hint: Any, full: bool, pick: int, depth: int) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return args[pick % len(args)]
    if origin in (typing.Union, types.UnionType):
        choices = _choices(hint)
        # A shallow pick when the depth is used up: recursive types end here.
        return _value(choices[0 if depth > MAX_DEPTH else pick % len(choices)], full, pick, depth)
    if origin is list:
        # The checker tries only the first literal of a choice inside an array.
        of_literals = typing.get_origin(args[0]) is Literal
        return [] if depth > MAX_DEPTH else [_value(args[0], full, 0 if of_literals else pick, depth)]
    if origin is dict:
        return {} if depth > MAX_DEPTH else {"name": _value(args[1], full, pick, depth + 1)}
    if isinstance(hint, type) and issubclass(hint, Wire):
        return _make(hint, full=full, pick=pick, depth=depth + 1)
    simple: dict[Any, Any] = {
        str: "text é",
        int: 1767225600000,
        float: 0.5,
        bool: True,
        bytes: b"\0\xff",
        type(None): None,
        Any: {"n": [1, None, "x"]},
        msgspec.Raw: msgspec.Raw(b'{"kind":"now","n":1}'),
    }
    return simple[hint]


def all_wire_types() -> dict[str, type[Wire]]:
    """Every concrete type of `libs.protocol`, by class name."""
    import libs.protocol.journal
    import libs.protocol.routes
    import libs.protocol.signed  # noqa: F401 - imported for their subclasses

    found: dict[str, type[Wire]] = {}
    queue: list[type[Wire]] = [Wire]
    for kind in itertools.chain.from_iterable(iter(_below(k) for k in queue)):
        found[kind.__name__] = kind
    return found


def _below(kind: type[Wire]) -> list[type[Wire]]:
    out: list[type[Wire]] = []
    for child in kind.__subclasses__():
        if child.__name__ not in ("Action", "Response", "JournalHead"):
            out.append(child)
        out += _below(child)
    return out
