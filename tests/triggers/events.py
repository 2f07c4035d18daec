"""Events of the activity feed in the shapes that an HM server sends."""

from __future__ import annotations

from typing import Any


def unpacked(uid: str, *path: str, version: str | None = None) -> dict[str, Any]:
    """An id as resolved events carry it."""
    return {
        "id": "/".join([f"hm://{uid}", *path]),
        "uid": uid,
        "path": list(path) or None,
        "version": version,
        "blockRef": None,
        "blockRange": None,
        "hostname": None,
        "scheme": "hm",
    }


def contact(uid: str, *path: str, name: str = "") -> dict[str, Any]:
    """An account or document with metadata."""
    return {"id": unpacked(uid, *path), "metadata": {"name": name} if name else {}}


def block(text: str = "", *embeds: str, children: list[Any] | None = None) -> dict[str, Any]:
    """A paragraph whose annotations embed the given links."""
    annotations = [{"type": "Embed", "link": link, "starts": [0], "ends": [1]} for link in embeds]
    return {"block": {"type": "Paragraph", "text": text, "annotations": annotations}, "children": children or []}


def comment(
    cid: str = "bafycomment",
    *,
    by: str = "alice",
    on: tuple[str, ...] = ("site", "notes"),
    content: list[Any] | None = None,
    parent_by: str = "",
    authors: tuple[str, ...] = (),
    at: int = 1_700_000_000_000,
) -> dict[str, Any]:
    """A resolved comment."""
    account, *path = on
    parent = {"id": f"{parent_by}/t0", "author": parent_by, "content": []} if parent_by else None
    return {
        "id": cid,
        "type": "comment",
        "feedEventId": f"blob-{cid}",
        "eventAtMs": at,
        "time": "2023-11-14T22:13:20Z",
        "author": contact(by, name=by.title()),
        "comment": {
            "id": f"{by}/t1",
            "version": cid,
            "author": by,
            "targetAccount": account,
            "targetPath": "/" + "/".join(path) if path else "",
            "content": content if content is not None else [block("Hello")],
            **({"replyParent": f"{parent_by}/t0"} if parent_by else {}),
        },
        "replyingComment": parent,
        "replyParentAuthor": contact(parent_by) if parent_by else None,
        "commentId": unpacked(by, "t1"),
        "target": contact(account, *path, name="Notes"),
        "targetAuthorUids": list(authors),
        "replyCount": 0,
    }


def citation(
    cid: str = "bafycomment",
    *,
    target: tuple[str, ...] = ("bob", ":profile"),
    source: tuple[str, ...] = ("site", "notes"),
    by: str = "alice",
    kind: str = "c",
    at: int = 1_700_000_000_000,
) -> dict[str, Any]:
    """A resolved citation, of a comment (`c`) or a document (`d`)."""
    return {
        "id": cid,
        "type": "citation",
        "citationType": kind,
        "feedEventId": f"mention-{cid}--{unpacked(*target)['id']}",
        "eventAtMs": at,
        "author": contact(by),
        "source": contact(*source, name="Source"),
        "target": contact(*target, name="Bob"),
    }


def doc_update(
    cid: str = "bafyref", *, doc: tuple[str, ...] = ("site", "docs", "spec"), by: str = "alice", at: int = 1
):
    """A resolved update of a document."""
    return {
        "id": cid,
        "type": "doc-update",
        "feedEventId": f"blob-{cid}",
        "eventAtMs": at,
        "author": contact(by),
        "docId": unpacked(*doc, version="bafyv"),
        "document": {"account": doc[0], "path": "/" + "/".join(doc[1:])},
    }


def raw_blob(
    cid: str = "bafyblob",
    *,
    kind: str = "Comment",
    by: str = "alice",
    resource: str = "hm://site/docs/spec",
    form: str = "camel",
) -> dict[str, Any]:
    """A raw new blob: `camel`, `snake`, or under `data` (`case`)."""
    blob = {"cid": cid, "blobType": kind, "author": by, "resource": resource}
    if form == "snake":
        return {"new_blob": {"cid": cid, "blob_type": kind, "author": by, "resource": resource}, "account": by}
    return {"newBlob": blob, "account": by} if form == "camel" else {"data": {"case": "newBlob", "value": blob}}


def raw_mention(
    cid: str = "bafyblob",
    *,
    target: str = "hm://bob",
    source: str = "hm://site/docs/spec",
    mention_type: str = "",
    form: str = "camel",
) -> dict[str, Any]:
    """A raw new mention: `camel`, `snake`, or under `data` (`case`)."""
    if form == "snake":
        inner = {"source": source, "source_blob": {"cid": cid}, "mention_type": mention_type, "target": target}
        return {"new_mention": inner}
    inner = {"source": source, "sourceBlob": {"cid": cid}, "mentionType": mention_type, "target": target}
    return {"newMention": inner} if form == "camel" else {"data": {"case": "newMention", "value": inner}}
