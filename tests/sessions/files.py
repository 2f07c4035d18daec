"""Uploading and reading files over the service's streams."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from typing import Any

from seed.sessions.v1 import attachments_pb2 as pb

from libs import wire
from tests.sessions.world import Client, World

PIECE = 1 << 20


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _requests(kind: Any, start: Any, data: bytes, piece: int) -> Iterator[Any]:
    yield kind(start=start)
    for at in range(0, len(data), piece):
        yield kind(content=data[at : at + piece])


def _attachment(session_id: str, data: bytes, fields: dict[str, Any], piece: int) -> Iterator[Any]:
    start = pb.UploadAttachmentStart(session_id=session_id, **{"size": len(data), "name": "a.bin", **fields})
    return _requests(pb.UploadAttachmentRequest, start, data, piece)


async def upload(c: Client, session_id: str, data: bytes, piece: int = PIECE, **fields: Any) -> pb.Attachment:
    """UploadAttachment."""
    answer = await c.send("UploadAttachment", _attachment(session_id, data, fields, piece))
    return answer.attachment


async def read(c: Client, session_id: str, attachment_id: str) -> tuple[pb.Attachment, bytes]:
    """ReadAttachment."""
    async with c.stream("ReadAttachment", session_id=session_id, attachment_id=attachment_id) as answers:
        got = [answer async for answer in answers]
    return got[0].attachment, b"".join(answer.content for answer in got[1:])


def target(session_id: str, name: str = "a.bin", **more: Any) -> bytes:
    """DAG-CBOR of a target."""
    return wire.encode({"kind": "session-attachment", "sessionId": session_id, "name": name, **more})


async def begin(c: Client, session_id: str, size: int, **more: Any) -> str:
    """BeginUpload."""
    return (await c("BeginUpload", target=target(session_id, **more), size=size)).upload_id


async def append(c: Client, upload_id: str, offset: int, data: bytes, piece: int = PIECE, **fields: Any) -> int:
    """AppendUploadChunk; returns what has been received."""
    start = pb.AppendUploadChunkStart(upload_id=upload_id, offset=offset, **{"size": len(data), **fields})
    answer = await c.send("AppendUploadChunk", _requests(pb.AppendUploadChunkRequest, start, data, piece))
    return answer.received


async def commit(c: Client, upload_id: str) -> pb.Attachment:
    """CommitUpload."""
    return (await c("CommitUpload", upload_id=upload_id)).attachment


async def swept(world: World) -> None:
    """Wait until no object is without an owner."""
    loop = asyncio.get_running_loop()
    end = loop.time() + 10
    while await world.sql("SELECT 1 FROM loose_blobs WHERE due_at < $1", 10**15):
        assert loop.time() < end, "objects without owner are left"
        await asyncio.sleep(0.05)


def objects(world: World) -> set[str]:
    """Keys of all objects there are, unfinished ones included."""
    return {str(path.relative_to(world.blobs)) for path in world.blobs.rglob("*") if path.is_file()}


async def owned(world: World) -> set[str]:
    """Keys of all objects that something owns."""
    rows = await world.sql("SELECT blob FROM attachments WHERE blob <> '' UNION SELECT blob FROM upload_chunks")
    return {row["blob"] for row in rows}
