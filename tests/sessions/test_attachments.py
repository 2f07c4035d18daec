"""Attachments uploaded at once and read, who may, and what becomes of their objects."""

from __future__ import annotations

import asyncio
import json

import pytest

from libs import wire
from libs.errors import Forbidden, Invalid, NotFound, SeedError, TooLarge
from tests.sessions.files import objects, owned, read, sha, swept, upload
from tests.sessions.world import NIL, Client, World

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def room(world: World) -> tuple[Client, str, str]:
    c = world.account()
    agent_id = await c.agent()
    return c, agent_id, await c.session(agent_id)


async def refused(kind: type[SeedError], text: str, call: object) -> None:
    with pytest.raises(kind) as e:
        await call  # pyright: ignore[reportGeneralTypeIssues]
    assert (type(e.value), e.value.message) == (kind, text)


@pytest.mark.parametrize("size", [1, 1000, 3_000_000, 11_000_000])
async def test_what_was_uploaded_is_read(world: World, size: int) -> None:
    c, _, session_id = await room(world)
    data = bytes(i * 7 % 253 for i in range(1000)) * (size // 1000 + 1)
    data = data[:size]
    got = await upload(c, session_id, data, piece=700_001, name="dir/x.md")
    assert (got.id, got.session_id, got.name, got.size) == (sha(data), session_id, "x.md", size)
    assert got.mime_type == "text/markdown" and got.created_at > 0
    assert await read(c, session_id, got.id) == (got, data)
    assert await c.events(session_id) == [], "uploading leaves no event"


async def test_the_same_bytes_keep_their_first_metadata(world: World) -> None:
    c, agent_id, session_id = await room(world)
    first = await upload(c, session_id, b"same", name="a")
    assert not first.HasField("mime_type")
    assert await upload(c, session_id, b"same", name="b.txt") == first
    other = await upload(c, await c.session(agent_id), b"same", name="c.txt")
    assert (other.id, other.name) == (first.id, "c.txt")
    await swept(world)
    assert objects(world) == await owned(world), "bytes that were known are not kept twice in a session"


async def test_equal_uploads_at_once_are_one_attachment(world: World) -> None:
    c, _, session_id = await room(world)
    got = await asyncio.gather(*(upload(c, session_id, b"z" * 2_000_000, name=f"{i}") for i in range(6)))
    assert all(a == got[0] for a in got)
    assert (await read(c, session_id, got[0].id))[1] == b"z" * 2_000_000
    await swept(world)
    assert objects(world) == await owned(world)


async def test_who_may_upload_and_read(world: World) -> None:
    c, agent_id, session_id = await room(world)
    a = await upload(c, session_id, b"x")
    writer, reader, stranger = (
        await world.member(c, agent_id),
        await world.member(c, agent_id, "reader"),
        world.account(),
    )
    await upload(writer, session_id, b"y")
    assert (await read(reader, session_id, a.id))[1] == b"x"
    await refused(Forbidden, "Chat access is required", upload(reader, session_id, b"z"))
    await refused(NotFound, "Session not found", upload(stranger, session_id, b"z"))
    await refused(NotFound, "Session not found", read(stranger, session_id, a.id))
    await c("SetAgentPublicRead", agent_id=agent_id, public_read=True)
    assert (await read(stranger, session_id, a.id))[1] == b"x"
    await refused(Forbidden, "Chat access is required", upload(stranger, session_id, b"z"))
    await c("SetAgentPublicChat", agent_id=agent_id, public_chat=True)
    assert (await upload(stranger, session_id, b"z")).size == 1


async def test_access_is_checked_before_the_rules(world: World) -> None:
    c, agent_id, session_id = await room(world)
    reader, stranger = await world.member(c, agent_id, "reader"), world.account()
    await refused(NotFound, "Session not found", upload(stranger, session_id, b""))
    await refused(Forbidden, "Chat access is required", upload(reader, session_id, b""))
    await refused(Invalid, "Attachment content must be non-empty bytes", upload(c, session_id, b""))
    await refused(NotFound, "Session not found", read(stranger, session_id, "bad"))
    await refused(Invalid, "Invalid attachment id: bad", read(reader, session_id, "bad"))
    await refused(NotFound, "Session not found", upload(c, NIL, b"x"))
    await refused(Invalid, "Session ID is required", upload(c, " ", b"x"))


async def test_what_is_announced_is_what_must_come(world: World) -> None:
    c, _, session_id = await room(world)
    before = await owned(world)
    await refused(Invalid, "The bytes are fewer than announced", upload(c, session_id, b"abc", size=4))
    await refused(Invalid, "The bytes are more than announced", upload(c, session_id, b"abcd", piece=1, size=3))
    await refused(TooLarge, "Attachment exceeds the 100 MiB limit", upload(c, session_id, b"x", size=(100 << 20) + 1))
    await swept(world)
    assert await owned(world) == before == objects(world)


async def test_a_session_has_at_most_200_however_many_come_at_once(world: World) -> None:
    c, _, session_id = await room(world)
    await world.sql(
        "INSERT INTO attachments SELECT $1, 'filler-' || i, 'n', NULL, 1, 1 FROM generate_series(1, 195) i", session_id
    )
    got = await asyncio.gather(*(upload(c, session_id, bytes([i])) for i in range(12)), return_exceptions=True)
    assert sum(not isinstance(a, BaseException) for a in got) == 5
    assert {str(a) for a in got if isinstance(a, BaseException)} == {"Session already has 200 attachments"}
    (known,) = [i for i, a in enumerate(got) if not isinstance(a, BaseException)][:1]
    assert (await upload(c, session_id, bytes([known]))).id == sha(bytes([known])), "known bytes are no addition"
    await swept(world)
    assert objects(world) == await owned(world)


async def test_reading_what_is_not_there(world: World) -> None:
    c, agent_id, session_id = await room(world)
    a = await upload(c, session_id, b"x")
    other = await c.session(agent_id)
    await refused(NotFound, f"Attachment not found: {a.id}", read(c, other, a.id))
    (row,) = await world.sql("SELECT blob FROM attachments WHERE session_id = $1", session_id)
    (world.blobs / row["blob"]).unlink()
    await refused(NotFound, f"Attachment content missing: {a.id}", read(c, session_id, a.id))
    await world.sql("DELETE FROM attachments WHERE session_id = $1", session_id)


@pytest.mark.parametrize("agent", [False, True])
async def test_objects_go_with_their_session_and_no_others(world: World, agent: bool) -> None:
    c, agent_id, session_id = await room(world)
    kept = await c.session(await c.agent())
    for data in (b"x", b"y" * 3_000_000):
        await upload(c, session_id, data)
    await upload(c, kept, b"x")
    gone = await world.sql("SELECT blob FROM attachments WHERE session_id = $1", session_id)
    assert all((world.blobs / row["blob"]).exists() for row in gone)
    await (c("DeleteAgent", agent_id=agent_id) if agent else c("DeleteSession", session_id=session_id))
    await swept(world)
    assert not any((world.blobs / row["blob"]).exists() for row in gone)
    assert (await read(c, kept, sha(b"x")))[1] == b"x"
    assert objects(world) == await owned(world)


async def test_uploads_into_a_session_that_is_being_deleted(world: World) -> None:
    c, _, session_id = await room(world)
    uploads = [upload(c, session_id, bytes([i]) * 50_000) for i in range(10)]
    got = await asyncio.gather(*uploads, c("DeleteSession", session_id=session_id), return_exceptions=True)
    assert {str(a) for a in got if isinstance(a, BaseException)} <= {"Session not found"}
    assert not await world.sql("SELECT 1 FROM attachments WHERE session_id = $1", session_id)
    await swept(world)
    assert objects(world) == await owned(world)


async def test_a_message_refers_to_attachments_of_its_session(world: World) -> None:
    c, _, session_id = await room(world)
    a = await upload(c, session_id, b"x", name="x.txt")
    content = wire.encode([{"type": "text", "text": "see"}, {"type": "attachment", "id": a.id}])
    await c.say(session_id, content=content)
    (event,) = (await c("GetSession", session_id=session_id, without_prompt=True)).events
    assert json.loads(event.payload)["attachments"] == [
        {
            "id": a.id,
            "sessionId": session_id,
            "name": "x.txt",
            "mimeType": "text/plain",
            "size": 1,
            "createdAt": a.created_at,
        }
    ]
