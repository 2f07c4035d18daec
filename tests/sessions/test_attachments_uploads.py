"""Uploads in chunks: their order, their end, and that nothing is stored twice, lost or left behind."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from libs import wire
from libs.errors import Conflict, Forbidden, Invalid, NotFound, SeedError, TooLarge, TooMany
from tests.sessions.files import append, begin, commit, objects, owned, read, sha, swept, upload
from tests.sessions.test_attachments import refused, room
from tests.sessions.world import Client, World

pytestmark = pytest.mark.asyncio(loop_scope="session")

HOUR_MS = 3_600_000


async def age(world: World, upload_id: str, by_ms: int) -> None:
    """Let an upload have been left alone for so long."""
    await world.sql("UPDATE uploads SET updated_at = updated_at - $2 WHERE id = $1", upload_id, by_ms)


async def gone(c: Client, upload_id: str) -> None:
    """Nothing is left of an upload for anybody."""
    await refused(NotFound, "Upload not found", append(c, upload_id, 0, b"x"))
    await refused(NotFound, "Upload not found", commit(c, upload_id))
    await c.fails(404, "Upload not found", "AbortUpload", upload_id=upload_id)


async def test_an_upload_in_chunks(world: World) -> None:
    c, _, session_id = await room(world)
    data = bytes(i % 251 for i in range(9_000_000))
    begun = await c("BeginUpload", target=_target(session_id, "d/a.txt", "text/x"), size=len(data))
    assert begun.max_chunk_bytes == 8 << 20
    at = 0
    for size in (1, 8 << 20, 500_000, len(data)):
        at = await append(c, begun.upload_id, at, data[at : at + size])
    a = await commit(c, begun.upload_id)
    assert (a.id, a.name, a.mime_type, a.size) == (sha(data), "a.txt", "text/x", len(data))
    assert await read(c, session_id, a.id) == (a, data)
    await gone(c, begun.upload_id)
    await swept(world)
    assert objects(world) == await owned(world), "chunks go with their upload"


def _target(session_id: str, name: str, mime_type: str) -> bytes:
    return wire.encode({"kind": "session-attachment", "sessionId": session_id, "name": name, "mimeType": mime_type})


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.binary(min_size=1, max_size=60),
    cuts=st.sets(st.integers(1, 59), max_size=6),
    wrong=st.lists(st.tuples(st.integers(0, 6), st.integers(-1, 80), st.integers(0, 80)), max_size=4),
    piece=st.integers(1, 70),
)
async def test_any_split_with_any_wrong_chunks_between_gives_the_same_file(
    world: World, data: bytes, cuts: set[int], wrong: list[tuple[int, int, int]], piece: int
) -> None:
    if not hasattr(world, "property_room"):
        world.property_room = await room(world)  # pyright: ignore[reportAttributeAccessIssue]
    c, agent_id, _ = world.property_room  # pyright: ignore[reportAttributeAccessIssue]
    session_id = await c.session(agent_id)
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    upload_id = await begin(c, session_id, len(data))
    for index, (start, end) in enumerate(pairwise(edges)):
        for when, offset, size in wrong:
            fits = offset == start and 0 < size <= len(data) - start
            if when == index and not fits:
                with pytest.raises((Invalid, Conflict)):
                    await append(c, upload_id, offset, b"!" * size)
        assert await append(c, upload_id, start, data[start:end], piece) == end
    a = await commit(c, upload_id)
    assert (a.id, a.size) == (sha(data), len(data))
    assert (await read(c, session_id, a.id))[1] == data
    await c("DeleteSession", session_id=session_id)


async def test_chunks_go_on_where_the_upload_ends(world: World) -> None:
    c, _, session_id = await room(world)
    u = await begin(c, session_id, 6)
    await refused(Invalid, "Upload has 0 of 6 bytes; cannot commit", commit(c, u))
    assert await append(c, u, 0, b"abc") == 3
    for offset in (0, 2, 4, 1 << 60):
        await refused(Conflict, f"Chunk offset {offset} does not match 3 bytes received", append(c, u, offset, b"x"))
    await refused(Invalid, "Chunk offset must be a non-negative integer", append(c, u, -1, b"x"))
    await refused(Invalid, "Chunk content must be non-empty bytes", append(c, u, 3, b""))
    await refused(TooLarge, "Chunk is too large", append(c, u, 3, b"x", size=(8 << 20) + 1))
    await refused(Invalid, "Upload exceeds its declared size", append(c, u, 3, b"defg"))
    await refused(Invalid, "The bytes are fewer than announced", append(c, u, 3, b"d", size=2))
    await refused(Invalid, "The bytes are more than announced", append(c, u, 3, b"def", piece=1, size=2))
    await refused(Invalid, "Upload has 3 of 6 bytes; cannot commit", commit(c, u))
    await append(c, u, 3, b"def")
    await refused(Invalid, "Upload exceeds its declared size", append(c, u, 6, b"x"))
    assert (await commit(c, u)).id == sha(b"abcdef"), "refused chunks left nothing"


async def test_the_same_chunk_at_once_is_stored_once(world: World) -> None:
    c, _, session_id = await room(world)
    u = await begin(c, session_id, 3_000_001)
    first = b"a" * 3_000_000
    got: list[Any] = await asyncio.gather(*(append(c, u, 0, first) for _ in range(5)), return_exceptions=True)
    assert got.count(3_000_000) == 1
    refusals = {str(a) for a in got if isinstance(a, BaseException)}
    assert refusals == {"Chunk offset 0 does not match 3000000 bytes received"}
    await append(c, u, 3_000_000, b"b")
    assert (await commit(c, u)).id == sha(first + b"b")
    await swept(world)
    assert objects(world) == await owned(world)


async def test_commits_and_aborts_at_once_have_one_effect(world: World) -> None:
    c, _, session_id = await room(world)
    for mixed in (False, True):
        u = await begin(c, session_id, 2)
        data = b"ab" if mixed else b"cd"
        await append(c, u, 0, data)
        calls: list[Any] = [commit(c, u) for _ in range(4)]
        if mixed:
            calls.append(c("AbortUpload", upload_id=u))
        got = await asyncio.gather(*calls, return_exceptions=True)
        won = [a for a in got if not isinstance(a, BaseException)]
        assert len(won) == 1
        assert {str(a) for a in got if isinstance(a, BaseException)} == {"Upload not found"}
        await gone(c, u)
    await swept(world)
    assert objects(world) == await owned(world)


async def test_who_may_continue_an_upload(world: World) -> None:
    c, agent_id, session_id = await room(world)
    writer, reader, stranger = (
        await world.member(c, agent_id),
        await world.member(c, agent_id, "reader"),
        world.account(),
    )
    for begun_by in (c, writer):
        u = await begin(begun_by, session_id, 4)
        await append(writer, u, 0, b"ab")
        for who, kind, text in (
            (reader, Forbidden, "Chat access is required"),
            (stranger, NotFound, "Upload not found"),
        ):
            await refused(kind, text, append(who, u, 2, b"c"))
            await refused(kind, text, append(who, u, 9, b""))
            await refused(kind, text, commit(who, u))
            await who.fails(kind.status, text, "AbortUpload", upload_id=u)
        await append(c, u, 2, b"cd")
        assert (await commit(writer, u)).id == sha(b"abcd")
    await refused(Forbidden, "Chat access is required", begin(reader, session_id, 0))
    await refused(NotFound, "Session not found", begin(stranger, session_id, 0))
    u = await begin(writer, session_id, 1)
    await c("RemoveAgentCollaborator", agent_id=agent_id, account_id=writer.id)
    await refused(NotFound, "Upload not found", append(writer, u, 0, b"x"))
    await append(c, u, 0, b"x")


async def test_an_account_has_eight_open_however_many_begin_at_once(world: World) -> None:
    c, agent_id, session_id = await room(world)
    writer = await world.member(c, agent_id)
    begun = await asyncio.gather(*(begin((c, writer)[i % 2], session_id, 5) for i in range(14)), return_exceptions=True)
    ups = [u for u in begun if isinstance(u, str)]
    errors = [e for e in begun if isinstance(e, SeedError)]
    assert len(ups) == 8 and {e.message for e in errors} == {"Too many uploads in progress"}
    assert all(isinstance(e, TooMany) and e.retry_after_s and e.retry_after_s <= 3600 for e in errors)
    other, _, elsewhere = await room(world)
    await begin(other, elsewhere, 5)
    await upload(c, session_id, b"at once")
    await c("AbortUpload", upload_id=ups[0])
    await append(c, ups[1], 0, b"12345")
    await commit(c, ups[1])
    await age(world, ups[2], HOUR_MS)
    for _ in range(3):
        await begin(c, session_id, 5)
    await refused(TooMany, "Too many uploads in progress", begin(c, session_id, 5))


async def test_what_nobody_touches_for_an_hour_is_discarded(world: World) -> None:
    c, _, session_id = await room(world)
    left, used = await begin(c, session_id, 4), await begin(c, session_id, 4)
    for u in (left, used):
        await append(c, u, 0, b"ab")
        await age(world, u, HOUR_MS - 60_000)
    await append(c, used, 2, b"c")
    for u in (left, used):
        await age(world, u, 61_000)
    await gone(c, left)
    assert await append(c, used, 3, b"d") == 4
    end = asyncio.get_running_loop().time() + 10
    while await world.sql("SELECT 1 FROM uploads WHERE id = $1", left):
        assert asyncio.get_running_loop().time() < end
    assert (await commit(c, used)).id == sha(b"abcd")
    await swept(world)
    assert objects(world) == await owned(world)


@pytest.mark.parametrize("agent", [False, True])
async def test_uploads_go_with_their_session(world: World, agent: bool) -> None:
    c, agent_id, session_id = await room(world)
    u = await begin(c, session_id, 4)
    await append(c, u, 0, b"abc")
    racing = [append(c, u, 3, b"d") for _ in range(4)]
    deletion = c("DeleteAgent", agent_id=agent_id) if agent else c("DeleteSession", session_id=session_id)
    got = await asyncio.gather(*racing, deletion, return_exceptions=True)
    texts = {str(a) for a in got if isinstance(a, BaseException)}
    assert texts <= {"Upload not found", "Chunk offset 3 does not match 4 bytes received"}
    await gone(c, u)
    await swept(world)
    assert objects(world) == await owned(world)


async def test_an_upload_that_cannot_become_an_attachment_is_gone(world: World) -> None:
    c, _, session_id = await room(world)
    u = await begin(c, session_id, 1)
    await append(c, u, 0, b"x")
    await world.sql(
        "INSERT INTO attachments SELECT $1, 'filler-' || i, 'n', NULL, 1, 1 FROM generate_series(1, 200) i", session_id
    )
    await refused(TooLarge, "Session already has 200 attachments", commit(c, u))
    await gone(c, u)
    await swept(world)
    assert objects(world) == await owned(world)


async def test_an_upload_whose_chunk_is_lost_is_gone(world: World) -> None:
    c, _, session_id = await room(world)
    u = await begin(c, session_id, 1)
    await append(c, u, 0, b"x")
    (row,) = await world.sql("SELECT blob FROM upload_chunks WHERE upload_id = $1", u)
    (world.blobs / row["blob"]).unlink()
    await refused(NotFound, "Upload not found", commit(c, u))
    await gone(c, u)


async def test_an_upload_of_known_bytes_keeps_the_first_metadata(world: World) -> None:
    c, _, session_id = await room(world)
    first = await upload(c, session_id, b"abc", name="first.txt")
    u = await begin(c, session_id, 3, name="second.md")
    await append(c, u, 0, b"abc")
    assert await commit(c, u) == first
    await swept(world)
    assert objects(world) == await owned(world)


async def test_malformed_targets(world: World) -> None:
    c, _, session_id = await room(world)
    fails = [
        (b"", 1, "Upload target is required"),
        (wire.encode(None), 1, "Upload target is required"),
        (wire.encode([]), 0, "Upload size must be a positive integer"),
        (wire.encode({}), 1, "Unsupported upload target"),
        (wire.encode({"kind": "memory", "agentId": "a", "path": "p"}), 1, "Unsupported upload target"),
        (wire.encode({"kind": "session-attachment"}), 1, "Session ID is required"),
        (wire.encode({"kind": "session-attachment", "sessionId": 5}), 1, "Session ID is required"),
        (wire.encode({"kind": "session-attachment", "sessionId": session_id}), 1, "Attachment name is required"),
    ]
    for target, size, text in fails:
        await c.fails(400, text, "BeginUpload", target=target, size=size)
    await c.fails(404, "Session not found", "BeginUpload", target=wire.encode(
        {"kind": "session-attachment", "sessionId": "none"}), size=0)  # fmt: skip


async def test_a_process_that_dies_in_mid_write_leaves_nothing_for_long(world: World) -> None:
    lost = "sessions/00/lost-in-mid-write"
    path = world.blobs / f"{lost}#1"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"half")
    await world.sql("INSERT INTO loose_blobs (key, due_at) VALUES ($1, 1)", lost)
    await swept(world)
    assert not path.exists()


async def test_an_object_that_the_sweep_has_taken_gets_no_owner(world: World) -> None:
    c, _, session_id = await room(world)
    u = await begin(c, session_id, 3_000_000)
    await world.sql(
        "CREATE FUNCTION take() RETURNS trigger AS 'BEGIN NEW.taken := true; RETURN NEW; END' LANGUAGE plpgsql"
    )
    await world.sql("CREATE TRIGGER take BEFORE INSERT ON loose_blobs FOR EACH ROW EXECUTE FUNCTION take()")
    try:
        with pytest.raises(SeedError) as e:
            await append(c, u, 0, b"x" * 3_000_000)
        assert e.value.status == 503
    finally:
        await world.sql("DROP FUNCTION take() CASCADE")
    assert await append(c, u, 0, b"x" * 3_000_000) == 3_000_000
    await swept(world)
    assert objects(world) == await owned(world)
