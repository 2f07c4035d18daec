"""Memory files over HTTP with the SDK: rules, roles, hints, uploads through kills of memory, deletion."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest
from msgspec import UNSET

from libs import wire
from libs.client import ApiError
from libs.protocol.actions import (
    AbortFileUpload,
    CommitFileUpload,
    DeleteAgent,
)
from libs.protocol.memory import AgentMemoryBinaryFile, AgentMemoryTextFile
from libs.stack import Stack
from tests.integration.conftest import ENVIRONMENT
from tests.integration.test_uploads import CHUNK, RECOVERY_S, append, go_on, killed, some
from tests.support.kit import NOWHERE, World, refused, until
from tests.support.memory import begin, commit, content, delete, listed, only_owned_objects_are_left, read, sql, write

MIB = 1 << 20
STORAGE = 200 * MIB


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack of two edges whose memory sweeps often."""
    env = {
        **ENVIRONMENT,
        "SEED_AGENTS_STORAGE_PER_ACCOUNT_BYTES": str(STORAGE),
        "SEED_AGENTS_MEMORY_SWEEP_MS": "100",
    }
    with Stack(tmp_path_factory.mktemp("memory") / "data", 0, edges=2, workers=1, env=env) as running:
        yield running


@pytest.fixture
async def world(home: Stack) -> AsyncIterator[World]:
    async with World(home.urls) as made:
        yield made


async def test_files_and_the_directories_they_imply(world: World) -> None:
    owner = await world.owner()
    c, agent = owner.client, owner.agent
    there = world.at(c, 1)
    assert await listed(c, agent) == []
    first = await write(c, agent, "/notes//a.md", "# héllo\n")
    assert (first.path, first.type, first.size, first.mime_type) == ("notes/a.md", "file", 9, "text/markdown")
    await write(there, agent, "notes\\deep/b", b"\xff\x00")
    await write(c, agent, "notes-2", "")
    await write(c, agent, "Z", "z")
    assert await listed(there, agent) == [
        ("Z", "file", 1),
        ("notes", "dir", 0),
        ("notes-2", "file", 0),
        ("notes/a.md", "file", 9),
        ("notes/deep", "dir", 0),
        ("notes/deep/b", "file", 2),
    ]
    told = await read(there, agent, "./notes/a.md")
    assert told == AgentMemoryTextFile(
        path="notes/a.md", size=9, updated_at=first.updated_at, mime_type="text/markdown", content="# héllo\n"
    )
    binary = await read(c, agent, "notes/deep/b")
    assert isinstance(binary, AgentMemoryBinaryFile) and (binary.data, binary.mime_type) == (b"\xff\x00", UNSET)
    assert (await content(c, agent, "notes-2"), await content(c, agent, "Z")) == ("", "z")
    newer = await write(c, agent, "notes/a.md", b"plain bytes are text")
    assert newer.updated_at >= first.updated_at and await content(there, agent, "notes/a.md") == "plain bytes are text"
    assert not await delete(c, agent, "note")
    assert await delete(c, agent, "notes/")
    assert [path for path, _, _ in await listed(c, agent)] == ["Z", "notes-2"]
    assert not await delete(c, agent, "notes")


async def test_what_is_refused(world: World) -> None:
    owner = await world.owner()
    c, agent = owner.client, owner.agent
    await write(c, agent, "dir/file", "x")

    async def fails(status: int, text: str, action: str, **fields: Any) -> None:
        with refused(status, text):
            await c.call(action, agentId=agent, **fields)

    for action, more in (
        ("ReadAgentMemoryFile", {}),
        ("WriteAgentMemoryFile", {"content": "x"}),
        ("DeleteAgentMemoryFile", {}),
        ("UploadAgentMemoryFileToIpfs", {}),
        ("DownloadAgentMemoryFile", {"url": "http://127.0.0.1:9/x"}),
    ):
        for path, text in (
            (5, "Memory path must be a string"),
            (None, "Memory path must be a string"),
            ("a\0", "Memory path contains an invalid character"),
            ("/./", "Memory path is required"),
            ("a/" * 16 + "a", "Memory path is nested too deeply"),
            ("a/../b", 'Memory path cannot contain ".."'),
            ("x" * 513, "Memory path is too long"),
        ):
            await fails(400, text, action, path=path, **more)
    for nothing in (5, None, ["x"], {"a": 1}):
        await fails(
            400, "Memory file content must be a string or bytes", "WriteAgentMemoryFile", path="..", content=nothing
        )
    await fails(400, "Memory file content must be a string or bytes", "WriteAgentMemoryFile", path="..")
    for action in ("ReadAgentMemoryFile", "UploadAgentMemoryFileToIpfs"):
        await fails(404, "Memory file not found: dir/none", action, path="dir//none")
        await fails(404, "Memory file not found: dir/file/below", action, path="dir/file/below")
        await fails(400, "Memory path is a directory, not a file: dir", action, path="/dir/")
    await fails(400, "Memory path is a directory, not a file: dir", "WriteAgentMemoryFile", path="dir", content="x")
    below = "Memory path is not writable: dir/file/below/it"
    await fails(400, below, "WriteAgentMemoryFile", path="dir/file/below/it", content="x")
    assert await listed(c, agent) == [("dir", "dir", 0), ("dir/file", "file", 1)]
    for action in ("ListAgentMemory", "ReadAgentMemoryFile", "WriteAgentMemoryFile", "DeleteAgentMemoryFile"):
        with refused(404, "Agent not found"):
            await c.call(action, agentId=NOWHERE, path="..", content=5)


async def test_roles(world: World) -> None:
    owner = await world.owner()
    agent, stranger = owner.agent, world.client()
    writer, reader = await world.member(owner, "writer"), await world.member(owner, "reader")
    await write(writer, agent, "a", "by the writer")
    assert await content(reader, agent, "a") == "by the writer" and await listed(reader, agent)
    upload = await begin(owner.client, agent, "b", 1)
    assert await append(writer, upload, 0, b"x") == 1, "whoever may write there goes on with it"
    for who, status, text in ((reader, 403, "Write access is required"), (stranger, 404, "{} not found")):
        for action, fields in (
            ("WriteAgentMemoryFile", {"path": "..", "content": 5}),
            ("DeleteAgentMemoryFile", {"path": ".."}),
            ("DownloadAgentMemoryFile", {"url": ""}),
            ("UploadAgentMemoryFileToIpfs", {"path": ".."}),
            ("BeginFileUpload", {"target": {"kind": "memory", "agentId": agent, "path": ".."}, "size": 0}),
        ):
            with refused(status, text.format("Agent")):
                await who.call(action, agentId=agent, **fields)
        for action in ("AppendFileUploadChunk", "CommitFileUpload", "AbortFileUpload"):
            with refused(status, text.format("Upload")):
                await who.call(action, uploadId=upload, offset=7, content=b"")
    for action in ("ListAgentMemory", "ReadAgentMemoryFile"):
        with refused(404, "Agent not found"):
            await stranger.call(action, agentId=agent, path="..")
    await owner.client.call("SetAgentPublicRead", agentId=agent, publicRead=True)
    assert await content(stranger, agent, "a") == "by the writer"
    with refused(403, "Write access is required"):
        await write(stranger, agent, "a", "by a stranger")
    assert await content(reader, agent, "a") == "by the writer"


async def test_changes_are_hinted_to_who_can_see_them(world: World) -> None:
    owner = await world.owner()
    member = await world.member(owner, "reader")
    watches = [
        world.watch(owner.client, f"account/{owner.client.account}"),
        world.watch(world.at(member, 1), f"account/{member.account}"),
        world.watch(owner.client, f"agents/{owner.agent}"),
    ]
    for watch in watches:
        await until(lambda w=watch: w.events, what="subscribed")

    async def heard(times: int) -> None:
        for watch in watches:
            await until(
                lambda w=watch: w.hints().count("agent-memory-changed") == times, what=f"{watch.key}: {times} hints"
            )

    await write(owner.client, owner.agent, "a/b", "x")
    await heard(1)
    assert not await delete(owner.client, owner.agent, "none")
    assert await delete(owner.client, owner.agent, "a")
    await heard(2)
    upload = await begin(owner.client, owner.agent, "c", 1)
    await append(owner.client, upload, 0, b"x")
    await commit(owner.client, upload)
    await heard(3)


async def test_replaced_and_deleted_content_leaves_the_object_store(world: World, home: Stack) -> None:
    owner = await world.owner()
    for n in range(3):
        await write(owner.client, owner.agent, "a", some(100_000 + n, seed=n))
        await write(owner.client, owner.agent, f"d/{n}", "x")
    await only_owned_objects_are_left(home)
    assert await content(owner.client, owner.agent, "a") == some(100_002, seed=2)
    await delete(owner.client, owner.agent, "d")
    await delete(owner.client, owner.agent, "a")
    await only_owned_objects_are_left(home)
    (space,) = await sql(home, "SELECT files, bytes FROM memory.spaces WHERE agent_id = $1", owner.agent)
    assert (space["files"], space["bytes"]) == (0, 0)


async def test_writes_to_one_file_by_turns_leave_one_of_them(world: World, home: Stack) -> None:
    owner = await world.owner()
    clients = (owner.client, world.at(owner.client, 1))
    texts = [f"{n} " * 1000 for n in range(12)]
    await asyncio.gather(*(write(clients[n % 2], owner.agent, "a", text) for n, text in enumerate(texts)))
    found = await content(clients[0], owner.agent, "a")
    assert found in texts
    assert await listed(clients[1], owner.agent) == [("a", "file", len(found))]
    conflicts = [write(clients[n % 2], owner.agent, path, "x") for n, path in enumerate(["b", "b/c"] * 4)]
    ended = await asyncio.gather(*conflicts, return_exceptions=True)
    wrong = [e.message for e in ended if isinstance(e, ApiError)]
    assert set(wrong) <= {"Memory path is a directory, not a file: b", "Memory path is not writable: b/c"}
    assert len(wrong) == 4
    (space,) = await sql(home, "SELECT files, bytes FROM memory.spaces WHERE agent_id = $1", owner.agent)
    assert (space["files"], space["bytes"]) == (2, len(found) + 1)
    await only_owned_objects_are_left(home)


async def test_a_large_file_is_streamed_to_a_slow_reader(world: World) -> None:
    owner = await world.owner()
    data = some(40 * MIB)
    assert (await write(owner.client, owner.agent, "big.bin", data)).size == len(data)
    action = {"_": "ReadAgentMemoryFile", "agentId": owner.agent, "path": "big.bin"}
    body = owner.client.signer.sign(action, owner.client._principal)
    headers = {"Content-Type": "application/cbor"}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{owner.client.url}/api/message", data=body, headers=headers) as response,
    ):
        assert response.status == 200 and int(response.headers["Content-Length"]) > len(data)
        # Replaced while it is read: the reader gets the whole of what was there.
        start = await response.content.readexactly(1000)
        await write(owner.client, owner.agent, "big.bin", "small now")
        whole = start + await response.content.read()
    answer = wire.decode(whole)
    assert answer["file"]["data"] == data and answer["file"]["encoding"] == "binary"
    text = "é" * MIB
    await write(owner.client, owner.agent, "big.bin", text)
    assert await content(owner.client, owner.agent, "big.bin") == text


async def test_uploads(world: World, home: Stack) -> None:
    owner = await world.owner()
    c, agent = owner.client, owner.agent
    clients = (c, world.at(c, 1))
    data = some(20_000_000)
    upload = await begin(c, agent, "up/big.pdf", len(data))
    at = turn = 0
    while at < len(data):
        with refused(400, f"Upload has {at} of {len(data)} bytes; cannot commit"):
            await commit(clients[turn % 2], upload)
        at = await append(clients[turn % 2], upload, at, data[at : at + CHUNK])
        turn += 1
    stored = await commit(clients[turn % 2], upload)
    assert (stored.path, stored.size, stored.mime_type) == ("up/big.pdf", len(data), "application/pdf")
    assert await content(c, agent, "up/big.pdf") == data
    for action in (CommitFileUpload(upload_id=upload), AbortFileUpload(upload_id=upload)):
        with refused(404, "Upload not found"):
            await c.call(action)
    text = await begin(c, agent, "up/text.txt", 6)
    for at, part in enumerate(("日本".encode()[:4], "日本".encode()[4:])):
        await append(c, text, at * 4, part)
    await commit(c, text)
    assert await content(c, agent, "up/text.txt") == "日本", "characters may be cut by chunks"
    await only_owned_objects_are_left(home)


async def test_what_is_refused_of_uploads(world: World, home: Stack) -> None:
    owner = await world.owner()
    c, agent = owner.client, owner.agent
    for size in (0, -1, 1.5, "5", None, True):
        with refused(400, "Upload size must be a positive integer"):
            await c.call("BeginFileUpload", target={"kind": "memory", "agentId": agent, "path": ".."}, size=size)
    for path, text in ((5, "Memory path must be a string"), ("..", 'Memory path cannot contain ".."')):
        with refused(400, text):
            await c.call("BeginFileUpload", target={"kind": "memory", "agentId": agent, "path": path}, size=1)
    with refused(413, "Upload exceeds the maximum file size"):
        await begin(c, agent, "a", (2 << 30) + 1)
    with refused(413, "Account storage is full"):
        await begin(c, agent, "a", STORAGE + 1)
    upload = await begin(c, agent, "a", 4)
    for fields, status, text in (
        ({"content": "text"}, 400, "Chunk content must be non-empty bytes"),
        ({"content": b"x" * (CHUNK + 1)}, 413, "Chunk is too large"),
        ({"offset": "0"}, 400, "Chunk offset must be a non-negative integer"),
        ({"offset": 2}, 409, "Chunk offset 2 does not match 0 bytes received"),
        ({"content": b"12345"}, 400, "Upload exceeds its declared size"),
    ):
        with refused(status, text):
            await c.call("AppendFileUploadChunk", uploadId=upload, **{"offset": 0, "content": b"x", **fields})
    for missing in ("mem-none", "mem-\0"):
        with refused(404, "Upload not found"):
            await append(c, missing, 0, b"x")
    rest = [await begin(c, agent, "a", 4) for _ in range(7)]
    with refused(429, "Too many uploads in progress"):
        await begin(c, agent, "a", 4)
    await c.call(AbortFileUpload(upload_id=rest[0]))
    await begin(c, agent, "a", 4)
    await append(c, upload, 0, b"1234")
    await write(c, agent, "a/b", "in the way")
    with refused(400, "Memory path is a directory, not a file: a"):
        await commit(c, upload)
    with refused(404, "Upload not found"):
        await commit(c, upload)
    await append(c, rest[1], 0, b"12")
    await sql(home, "UPDATE memory.uploads SET updated_at = 1 WHERE agent_id = $1", agent)
    with refused(404, "Upload not found"):
        await append(c, rest[1], 2, b"34")
    await only_owned_objects_are_left(home)
    await until(lambda: sql_empty(home, agent), what="no upload")


async def sql_empty(stack: Stack, agent: str) -> bool:
    return not await sql(stack, "SELECT 1 FROM memory.uploads WHERE agent_id = $1", agent)


async def test_an_upload_goes_on_after_kills_of_memory(world: World, home: Stack) -> None:
    owner = await world.owner()
    clients = (owner.client, world.at(owner.client, 1))
    data = some(3 * CHUNK, seed=13)
    upload = await begin(clients[0], owner.agent, "big", len(data))

    def unfinished() -> set[str]:
        return {path.name for path in (home.data_dir / "blobs" / "memory").rglob("*#*")}

    at = kills = 0
    left: set[str] = set()
    while at < len(data):
        sending = asyncio.create_task(go_on(clients[kills % 2], upload, data, at))
        if kills < 2:
            await until(lambda s=sending, old=left: s.done() or unfinished() - old, RECOVERY_S, "half a chunk")
            left = unfinished()
            await killed(home.process("memory"))
            kills += 1
        at = await sending
        assert at % CHUNK == 0, "a chunk is there whole or not at all"
    assert (await commit(clients[1], upload)).size == len(data)
    assert await content(clients[0], owner.agent, "big") == data
    # What the killed writers left is swept an hour later; it is that now.
    await sql(home, "UPDATE memory.loose_blobs SET due_at = 1")
    await only_owned_objects_are_left(home)


async def test_a_deleted_agent_takes_its_memory_along(world: World, home: Stack) -> None:
    owner = await world.owner()
    other = await owner.client.create_agent(owner.definition())
    await write(owner.client, other, "kept", "kept")
    for path in ("a", "b/c", "b/d"):
        await write(owner.client, owner.agent, path, path)
    upload = await begin(owner.client, owner.agent, "e", 2)
    await append(owner.client, upload, 0, b"x")
    await asyncio.to_thread(home.process("memory").kill)
    try:
        await owner.client.call(DeleteAgent(agent_id=owner.agent))
        with refused(404, "Agent not found"):
            await owner.client.call("GetAgent", agentId=owner.agent)
    finally:
        home.process("memory").start()
        await asyncio.to_thread(home.process("memory").wait_ready, RECOVERY_S)
    for table in ("memory_entries", "uploads", "tool_documents"):
        gone = f"SELECT 1 FROM memory.{table} WHERE agent_id = $1"

        async def empty(statement: str = gone) -> bool:
            return not await sql(home, statement, owner.agent)

        await until(empty, 30, f"nothing in {table}")
    await only_owned_objects_are_left(home)
    for action, fields in (("ListAgentMemory", {}), ("WriteAgentMemoryFile", {"path": "a", "content": "x"})):
        with refused(404, "Agent not found"):
            await owner.client.call(action, agentId=owner.agent, **fields)
    with refused(404, "Upload not found"):
        await append(owner.client, upload, 1, b"y")
    assert await content(owner.client, other, "kept") == "kept"


async def test_while_memory_is_away_reads_wait_and_writes_are_refused(world: World, home: Stack) -> None:
    owner = await world.owner()
    await write(owner.client, owner.agent, "a", "x")
    await asyncio.to_thread(home.process("memory").kill)
    try:
        action = {"_": "WriteAgentMemoryFile", "agentId": owner.agent, "path": "a", "content": "y"}
        envelope = owner.client.signer.sign(action, owner.client._principal)
        with pytest.raises(ApiError) as e:
            await owner.client.send_envelope(envelope, mutating=True, timeout_s=1.0)
        assert e.value.status == 503
        reading = asyncio.create_task(content(owner.client, owner.agent, "a"))
    finally:
        home.process("memory").start()
        await asyncio.to_thread(home.process("memory").wait_ready, RECOVERY_S)
    assert await reading == "x"
