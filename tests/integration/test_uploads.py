"""Attachments and uploads over HTTP with the SDK: by two edges, through kills of sessions, byte for byte."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest
from msgspec import UNSET

from libs.client import ApiError, Client, ConnectionLost
from libs.protocol.actions import (
    AbortFileUpload,
    AppendFileUploadChunk,
    BeginFileUpload,
    CommitFileUpload,
    DeleteSession,
    ReadSessionAttachment,
    UploadSessionAttachment,
)
from libs.protocol.sessions import AttachmentUploadTarget, SessionAttachmentInfo
from libs.stack import ManagedProcess, Stack
from tests.integration.conftest import ENVIRONMENT
from tests.support.kit import NOWHERE, World, refused, until

CHUNK = 8 << 20
RECOVERY_S = 60.0
_RECEIVED = re.compile(r"Chunk offset \d+ does not match (\d+) bytes received")


def some(size: int, seed: int = 7) -> bytes:
    """Bytes in which no two megabytes are alike."""
    block = hashlib.shake_256(seed.to_bytes(2, "big")).digest(1 << 16)
    return b"".join(
        hashlib.sha256(bytes([seed]) + at.to_bytes(4, "big")).digest() + block for at in range((size >> 16) + 1)
    )[:size]


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


async def begin(client: Client, session: str, size: int, name: str = "a.bin") -> str:
    target = AttachmentUploadTarget(session_id=session, name=name)
    answer = await client.call(BeginFileUpload(target=target, size=size))
    assert answer.max_chunk_bytes == CHUNK
    return answer.upload_id


async def append(client: Client, upload: str, offset: int, content: bytes) -> int:
    return (await client.call(AppendFileUploadChunk(upload_id=upload, offset=offset, content=content))).received


async def commit(client: Client, upload: str) -> SessionAttachmentInfo:
    answer = await client.call(CommitFileUpload(upload_id=upload))
    assert answer.entry is UNSET
    return answer.attachment


async def read(client: Client, session: str, attachment: str) -> tuple[SessionAttachmentInfo, bytes]:
    answer = await client.call(ReadSessionAttachment(session_id=session, attachment_id=attachment))
    return answer.attachment, answer.data


async def go_on(client: Client, upload: str, data: bytes, at: int) -> int:
    """Append the next chunk; after an answer that was lost, the server tells where to go on."""
    try:
        return await append(client, upload, at, data[at : at + CHUNK])
    except ApiError as e:
        told = _RECEIVED.fullmatch(e.message)
        if e.status == 409 and told:
            return int(told[1])
        if e.status == 503:
            return at
        raise
    except ConnectionLost:
        return at


async def test_an_attachment_by_one_edge_is_read_by_the_other(world: World) -> None:
    owner = await world.owner()
    session = await owner.session()
    data = some(3_000_000)
    stored = (
        await owner.client.call(UploadSessionAttachment(session_id=session, name="folder/notes.md", content=data))
    ).attachment
    assert (stored.id, stored.session_id, stored.name, stored.size) == (sha(data), session, "notes.md", len(data))
    assert stored.mime_type == "text/markdown"
    there = world.at(owner.client, 1)
    assert await read(there, session, stored.id) == (stored, data)
    with refused(404, f"Attachment not found: {'0' * 64}"):
        await read(there, session, "0" * 64)
    with refused(400, "Invalid attachment id: nonsense"):
        await read(there, session, "nonsense")
    with refused(404, "Session not found"):
        await read(there, NOWHERE, stored.id)


async def test_what_is_not_bytes_is_refused_like_nothing(world: World) -> None:
    owner = await world.owner()
    session = await owner.session()
    for content in (b"", "text", None, 5, [1]):
        with refused(400, "Attachment content must be non-empty bytes"):
            await owner.client.call("UploadSessionAttachment", sessionId=session, name="a", content=content)
    upload = await begin(owner.client, session, 4)
    with refused(400, "Chunk content must be non-empty bytes"):
        await owner.client.call("AppendFileUploadChunk", uploadId=upload, offset=0, content="text")
    for offset in ("0", None, -1, 0.5):
        with refused(400, "Chunk offset must be a non-negative integer"):
            await owner.client.call("AppendFileUploadChunk", uploadId=upload, offset=offset, content=b"x")
    for size in (0, -1, 1.5, "5", None, True):
        with refused(400, "Upload size must be a positive integer"):
            await owner.client.call("BeginFileUpload", target={"kind": "session-attachment"} | {
                "sessionId": session, "name": "a"}, size=size)  # fmt: skip
    for target in ({"kind": "Memory"}, {"kind": "nope"}, {}):
        with refused(400, "Unsupported upload target"):
            await owner.client.call("BeginFileUpload", target=target, size=1)


async def test_chunks_by_turns_through_two_edges(world: World) -> None:
    owner = await world.owner()
    session = await owner.session()
    clients = (owner.client, world.at(owner.client, 1))
    data = some(20_000_000)
    upload = await begin(clients[0], session, len(data), "big.pdf")
    at = turn = 0
    while at < len(data):
        at = await append(clients[turn % 2], upload, at, data[at : at + CHUNK])
        turn += 1
    stored = await commit(clients[turn % 2], upload)
    assert (stored.id, stored.mime_type, stored.size) == (sha(data), "application/pdf", len(data))
    assert await read(clients[0], session, stored.id) == (stored, data)
    for action in (CommitFileUpload(upload_id=upload), AbortFileUpload(upload_id=upload)):
        with refused(404, "Upload not found"):
            await clients[0].call(action)
    await owner.client.call(
        "MessageSession",
        sessionId=session,
        content=[{"type": "text", "text": "see"}, {"type": "attachment", "id": stored.id}],
    )
    first = (await owner.events(session))[0].event
    assert [a["id"] for a in first["attachments"]] == [stored.id]


async def test_a_deleted_session_takes_its_files_and_uploads_along(world: World) -> None:
    owner = await world.owner()
    session, kept = await owner.session(), await owner.session()
    for place in (session, kept):
        await owner.client.call(UploadSessionAttachment(session_id=place, name="a", content=b"x"))
    upload = await begin(owner.client, session, 1)
    await append(owner.client, upload, 0, b"y")
    await owner.client.call(DeleteSession(session_id=session))
    with refused(404, "Upload not found"):
        await commit(owner.client, upload)
    with refused(404, "Session not found"):
        await read(owner.client, session, sha(b"x"))
    assert (await read(owner.client, kept, sha(b"x")))[1] == b"x"


async def test_a_large_file_is_streamed_to_a_slow_reader(world: World) -> None:
    owner = await world.owner()
    session = await owner.session()
    data = some(40 << 20)
    stored = (await owner.client.call(UploadSessionAttachment(session_id=session, name="a", content=data))).attachment
    async with aiohttp.ClientSession() as http, _reading(http, owner.client, session, stored.id) as response:
        assert response.status == 200
        assert int(response.headers["Content-Length"]) > len(data)
        digest, size, tail = hashlib.sha256(), 0, b""
        async for piece in response.content.iter_chunked(1 << 16):
            size += len(piece)
            digest.update(piece)
            tail = piece
    assert size == int(response.headers["Content-Length"])
    assert tail
    assert (await read(owner.client, session, stored.id))[1] == data


def _reading(http: aiohttp.ClientSession, client: Client, session: str, attachment: str):
    action = {"_": "ReadSessionAttachment", "sessionId": session, "attachmentId": attachment}
    body = client.signer.sign(action, client._principal)
    return http.post(f"{client.url}/api/message", data=body, headers={"Content-Type": "application/cbor"})


@pytest.fixture(scope="module")
def frail(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack to break."""
    with Stack(tmp_path_factory.mktemp("frail") / "data", 0, edges=2, workers=1, env=ENVIRONMENT) as running:
        yield running


@pytest.fixture
async def broken(frail: Stack) -> AsyncIterator[World]:
    async with World(frail.urls) as made:
        yield made


async def killed(process: ManagedProcess) -> None:
    """`kill -9`, and started again."""
    await asyncio.to_thread(process.kill)
    process.start()
    await asyncio.to_thread(process.wait_ready, RECOVERY_S)


async def test_an_upload_survives_kills_of_sessions_between_its_chunks(broken: World, frail: Stack) -> None:
    owner = await broken.owner()
    session = await owner.session()
    clients = (owner.client, broken.at(owner.client, 1))
    data = some(3_000_000, seed=11)
    upload = await begin(clients[0], session, len(data))
    for turn in range(3):
        at = turn * 1_000_000
        assert await append(clients[turn % 2], upload, at, data[at : at + 1_000_000]) == at + 1_000_000
        await killed(frail.process("sessions"))
    stored = await commit(clients[1], upload)
    assert stored.id == sha(data)
    assert await read(clients[0], session, stored.id) == (stored, data)


async def test_an_upload_goes_on_after_kills_in_the_middle_of_its_chunks(broken: World, frail: Stack) -> None:
    owner = await broken.owner()
    session = await owner.session()
    data = some(3 * CHUNK, seed=13)
    upload = await begin(owner.client, session, len(data))

    def unfinished() -> set[str]:
        return {path.name for path in (frail.data_dir / "blobs").rglob("*#*")}

    at = kills = 0
    left: set[str] = set()
    end = time.monotonic() + RECOVERY_S
    while at < len(data):
        assert time.monotonic() < end
        sending = asyncio.create_task(go_on(owner.client, upload, data, at))
        if kills < 2:
            await until(lambda s=sending, old=left: s.done() or unfinished() - old, RECOVERY_S, "half a chunk")
            left = unfinished()
            await killed(frail.process("sessions"))
            kills += 1
        at = await sending
        assert at % CHUNK == 0, "a chunk is there whole or not at all"
    stored = await commit(owner.client, upload)
    assert stored.id == sha(data)
    assert (await read(owner.client, session, stored.id))[1] == data


async def test_an_answer_that_breaks_off_is_not_taken_for_a_whole_one(broken: World, frail: Stack) -> None:
    owner = await broken.owner()
    session = await owner.session()
    data = some(56 << 20, seed=17)
    stored = (await owner.client.call(UploadSessionAttachment(session_id=session, name="a", content=data))).attachment
    async with aiohttp.ClientSession() as http, _reading(http, owner.client, session, stored.id) as response:
        await response.content.readexactly(1000)
        await killed(frail.process("sessions"))
        with pytest.raises(aiohttp.ClientError):
            while await response.content.readany():
                pass
    assert (await read(owner.client, session, stored.id))[1] == data
