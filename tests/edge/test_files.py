"""Files through the edge: in pieces one way, as they come the other."""

from __future__ import annotations

import aiohttp
import pytest

from libs import wire
from libs.errors import NotFound
from tests.edge.conftest import World, until

MIB = 1 << 20


def reading(world: World, key: wire.Key) -> bytes:
    return wire.sign_envelope(key, {"_": "ReadSessionAttachment", "sessionId": "s", "attachmentId": "a"})


async def test_a_file_goes_on_in_pieces(world: World) -> None:
    key = wire.Key.generate()
    content = b"y" * (2 * MIB + 5)
    status, answer = await world.act(key, "UploadSessionAttachment", sessionId="s", name="n", content=content)
    assert (status, answer["attachment"]["size"]) == (200, len(content))
    ((_, sizes, caller),) = [seen for seen in world.sessions.seen if seen[0] == "UploadAttachment"]
    assert sizes == [0, MIB, MIB, 5] and caller.account == key.id


@pytest.mark.parametrize("size", [1, MIB, 3 * MIB + 7])
async def test_an_answer_that_is_streamed_is_like_any_other(world: World, size: int) -> None:
    world.sessions.file = world.sessions.given = size
    status, answer, headers = await world.post(reading(world, wire.Key.generate()))
    assert status == 200 and answer["data"] == b"x" * size and answer["_"] == "ReadSessionAttachmentResponse"
    assert answer["attachment"] == {"id": "a", "sessionId": "s", "name": "n", "size": size, "createdAt": 0}
    assert headers["Content-Type"] == "application/cbor" and headers["X-Agents-Protocol"]
    assert headers["Access-Control-Allow-Origin"] == "*"
    # The connection goes on to be used.
    assert (await world.post(reading(world, wire.Key.generate())))[0] == 200
    await until(lambda: world.sessions.left == 2)


async def test_a_refusal_is_told_instead_of_a_stream(world: World) -> None:
    world.sessions.fail = NotFound("Session not found")
    status, answer, _ = await world.post(reading(world, wire.Key.generate()))
    assert (status, answer["message"]) == (404, "Session not found")


@pytest.mark.parametrize("given", [0, MIB, 5 * MIB])
async def test_a_file_of_another_size_than_announced_breaks_off(world: World, given: int) -> None:
    world.sessions.file, world.sessions.given = 3 * MIB, given
    with pytest.raises((aiohttp.ClientError, wire.DecodeError)):
        await world.post(reading(world, wire.Key.generate()))
    await until(lambda: world.sessions.left == 1)


async def test_a_reader_that_leaves_ends_the_stream(world: World) -> None:
    world.sessions.file = world.sessions.given = 200 * MIB
    headers = {"content-type": "application/cbor"}
    body = reading(world, wire.Key.generate())
    async with world.http.post(world.url + "/api/message", data=body, headers=headers) as response:
        await response.content.readexactly(MIB)
        assert world.sessions.left == 0, "held back by its reader"
    await until(lambda: world.sessions.left == 1)
