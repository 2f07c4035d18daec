"""A signed call that acted before is answered as it was then, where the call itself is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from seed.runs.v1 import runs_pb2

from libs import signatures
from libs.errors import Conflict, Forbidden, NotFound, SeedError, Unavailable
from libs.rpc import Caller
from libs.signatures import SignedCall
from tests.rpc.conftest import World, get

METHOD = "RunsService.GetRun"


class Kept:
    """Answers in memory; `late`: how often they are not there yet."""

    def __init__(self, *besides: str) -> None:
        self.answers: dict[tuple[bytes, str], bytes] = {}
        self.asked = self.late = 0
        self.running = self.closed = False
        self._besides = besides

    def wants(self, method: str) -> bool:
        return method not in self._besides

    def keep(self, call: SignedCall, method: str, answer: bytes) -> None:
        self.answers[call.hash, method] = answer

    async def find(self, call: SignedCall, method: str) -> bytes | None:
        self.asked += 1
        if self.asked <= self.late:
            return None
        return self.answers.get((call.hash, method))

    async def run(self) -> None:
        self.running = True
        await asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        self.closed = True


def acting(refusal: SeedError, *, repeated: bool = False, acts: bool = True) -> Any:
    """Acts once, and refuses from then on."""
    done = False

    async def act(request: Any, caller: Caller) -> Any:
        nonlocal done
        call = signatures.current()
        if done:
            if call is not None:
                call.repeated = repeated
            raise refusal
        done = True
        if call is not None:
            call.recorded = acts
        return runs_pb2.GetRunResponse(access_role=request.run_id)

    return act


SIGNED = {"signature": signatures.header(b"s" * 64, 2**45)}
OTHER = {"signature": signatures.header(b"o" * 64, 2**45)}


@pytest.mark.parametrize("refusal", [NotFound("gone"), Conflict("taken")])
async def test_a_repeat_gets_the_answer_of_the_first(world: World, refusal: SeedError) -> None:
    kept = Kept()
    peer = world.peer((await world.serve(answers=kept)).port)
    world.servicer.act = acting(refusal)
    assert await get(peer, "first", **SIGNED) == await get(peer, "first", **SIGNED) == "first"
    for call in (OTHER, {}):
        with pytest.raises(type(refusal)):
            await get(peer, **call)
    assert kept.running and list(kept.answers) == [(signatures_hash(), METHOD)]


@pytest.mark.parametrize("refusal", [Forbidden("no more"), Unavailable("away")])
async def test_who_may_not_any_more_gets_nothing(world: World, refusal: SeedError) -> None:
    kept = Kept()
    peer = world.peer((await world.serve(answers=kept)).port)
    world.servicer.act = acting(refusal)
    await get(peer, **SIGNED)
    with pytest.raises(type(refusal)):
        await get(peer, **SIGNED)
    assert kept.asked == 0


async def test_an_answer_that_is_just_being_kept_is_waited_for(world: World) -> None:
    kept = Kept()
    kept.late = 1
    peer = world.peer((await world.serve(answers=kept)).port)
    world.servicer.act = acting(Conflict("accepted"), repeated=True)
    assert await get(peer, "r", **SIGNED) == await get(peer, "r", **SIGNED) == "r"
    assert kept.asked == 2


async def test_what_did_not_act_is_not_kept(world: World) -> None:
    kept, none = Kept(), Kept(METHOD)
    for answers, acts in ((kept, False), (none, True)):
        peer = world.peer((await world.serve(answers=answers)).port)
        world.servicer.act = acting(NotFound("gone"), acts=acts)
        await get(peer, **SIGNED)
        with pytest.raises(NotFound):
            await get(peer, **SIGNED)
    assert not kept.answers and not none.answers and none.asked == 0


async def test_the_rest_is_kept_when_the_server_stops(world: World) -> None:
    kept = Kept()
    server = await world.serve(answers=kept)
    await server.stop(0)
    assert kept.closed


def signatures_hash() -> bytes:
    """What stands for the signature of SIGNED."""
    return bytes.fromhex(SIGNED["signature"].partition(".")[0])
