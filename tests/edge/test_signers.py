"""Sockets of delegated signers: they end with the signer's right, and nobody else's do."""

from __future__ import annotations

from typing import Any

from libs import events, wire
from tests.edge.conftest import Socket, World, until
from tests.edge.test_websocket import Room
from tests.edge.test_websocket import room as room


async def delegated(room: Room, signer: wire.Key) -> Socket:
    """A socket that watches the room's session for its owner, by a key that the owner let sign."""
    room.world.secrets.authorized.add((room.account, signer.id))
    socket = await room.world.socket()
    action: dict[str, Any] = {"_": "Subscribe", "key": room.session_key}
    await socket.ws.send_bytes(wire.sign_envelope(signer, action, account=room.key.principal))
    await socket.wait(lambda e: e["_"] == "subscribed")
    return socket


async def closed(socket: Socket) -> tuple[int | None, list[Any]]:
    """The close code, and the events so far, once it is closed."""
    await until(lambda: socket.ws.closed)
    return socket.ws.close_code, socket.events


def pairs(world: World) -> int:
    return len(world.edge._signers._by_pair) + len(world.edge._signers._pairs)


async def test_a_revocation_closes_the_sockets_of_its_signer_alone(room: Room) -> None:
    gone, stays = wire.Key.generate(), wire.Key.generate()
    first, other, own = await delegated(room, gone), await delegated(room, stays), await room.watch(room.session_key)
    for account, signer in ((room.account, gone.id), (gone.id, stays.id)):
        room.world.secrets.authorized.discard((account, signer))
        room.world.tell(events.signer_revoked(account, signer))
    assert (await closed(first))[0] == 1008
    room.append()
    for socket in (other, own):
        await socket.wait(lambda e: e["_"] == "append")
    assert not first.of("append")
    again = await room.world.socket()
    action = {"_": "Subscribe", "key": room.session_key}
    await again.ws.send_bytes(wire.sign_envelope(gone, action, account=room.key.principal))
    assert (await again.wait(lambda e: e["_"] == "error"))["message"] == "Signer is not authorized for account"


async def test_a_revocation_whose_news_was_lost_is_noticed(room: Room) -> None:
    gone, stays = wire.Key.generate(), wire.Key.generate()
    first, other = await delegated(room, gone), await delegated(room, stays)
    room.world.secrets.authorized.discard((room.account, gone.id))
    await room.world.edge._signers.recheck()
    assert (await closed(first))[0] == 1008
    room.append()
    await other.wait(lambda e: e["_"] == "append")


async def test_nothing_is_kept_of_closed_sockets(room: Room) -> None:
    signer = wire.Key.generate()
    socket = await delegated(room, signer)
    assert pairs(room.world) == 2
    await socket.ws.close()
    await until(lambda: pairs(room.world) == 0)
    own = await room.watch(room.session_key)
    assert pairs(room.world) == 0
    await own.ws.close()
