"""Calls over real gRPC: errors, faults, deadlines, cancellation, restarts, sizes, stopping."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from seed.runs.v1 import runs_pb2, runs_pb2_grpc
from structlog.testing import capture_logs

from libs import errors, telemetry
from libs.errors import Conflict, Internal, Invalid, NotFound, SeedError, TooLarge, TooOld, Unavailable
from libs.rpc import Caller
from libs.rpc.server import MESSAGE_BYTES
from libs.telemetry.faults import describe
from tests.rpc.conftest import KEY, World, get

SECRET = "what-the-user-wrote"
ALL = [getattr(errors, name) for name in errors.__all__ if name != "SeedError"]


def raising(error: BaseException) -> Any:
    async def act(request: Any, caller: Caller) -> Any:
        raise error

    return act


async def test_a_call_names_its_caller_and_carries_its_trace(world: World) -> None:
    server = await world.serve()
    seen: list[tuple[Caller, str]] = []

    async def act(request: Any, caller: Caller) -> Any:
        seen.append((caller, telemetry.trace_id()))
        return runs_pb2.GetRunResponse(access_role="ok")

    world.servicer.act = act
    peer = world.peer(server.port)
    trace = telemetry.new_trace()
    assert await get(peer, account="acc", signer="sig") == "ok"
    telemetry.bind_trace("")
    assert await get(peer) == "ok"
    assert seen == [(Caller("edge", "acc", "sig"), trace), (Caller("edge"), "")]


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
async def test_every_public_error_arrives_as_it_was_raised(world: World, kind: type[SeedError]) -> None:
    server = await world.serve()
    peer = world.peer(server.port)
    cases: list[SeedError] = [kind("Größe\n100% “so”")]
    if kind is not TooOld:
        cases += [kind("m", code="some_code", retry_after_s=1234567.25), kind("", retry_after_s=0.0)]
    for error in cases:
        world.servicer.act = raising(error)
        with pytest.raises(SeedError) as e:
            await get(peer)
        got = e.value
        assert type(got) is kind
        assert (got.message, got.status, got.code, got.retry_after_s) == (
            error.message,
            error.status,
            error.code,
            error.retry_after_s,
        )


async def test_an_error_of_a_newer_peer_keeps_its_status(world: World) -> None:
    class Gone(Conflict):
        reason = "GONE_FOR_GOOD"

    server = await world.serve()
    world.servicer.act = raising(Gone("It is gone", code="gone"))
    with pytest.raises(Conflict) as e:
        await get(world.peer(server.port))
    assert (type(e.value), e.value.message, e.value.code) == (Conflict, "It is gone", "gone")


async def test_a_long_text_arrives_cut(world: World) -> None:
    server = await world.serve()
    world.servicer.act = raising(Invalid("€" * 100_000))
    with pytest.raises(Invalid) as e:
        await get(world.peer(server.port))
    assert e.value.message == "€" * 3_999 + "…"


async def test_a_fault_is_masked_and_its_text_is_not_logged(world: World) -> None:
    server = await world.serve()
    world.servicer.act = raising(KeyError(SECRET))
    with capture_logs() as lines, pytest.raises(Internal) as e:
        await get(world.peer(server.port))
    assert e.value.message == "Internal server error"
    assert e.value.__cause__ is None or SECRET not in str(e.value.__cause__)
    (line,) = [line for line in lines if line.get("method") == "RunsService.GetRun"]
    said = describe(line.pop("exc_info"))
    assert said["type"] == "KeyError"
    assert SECRET not in json.dumps([line, said])


async def test_an_answer_of_the_wrong_kind_is_a_fault(world: World) -> None:
    server = await world.serve()

    async def act(request: Any, caller: Caller) -> Any:
        return None

    world.servicer.act = act
    with pytest.raises(Internal):
        await get(world.peer(server.port))


@pytest.mark.parametrize(("key", "audience"), [("x" * 32, "runs"), (KEY, "sessions")])
async def test_a_refused_token_is_our_fault_not_the_clients(world: World, key: str, audience: str) -> None:
    server = await world.serve(audience=audience)
    with pytest.raises(Internal):
        await get(world.peer(server.port, key=key))


async def test_a_call_without_a_token_is_refused(world: World) -> None:
    server = await world.serve()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as e:
            await runs_pb2_grpc.RunsServiceStub(channel).GetRun(runs_pb2.GetRunRequest())
    assert (e.value.code(), e.value.details()) == (grpc.StatusCode.UNAUTHENTICATED, "Internal token is missing")


class Held:
    """An act that goes on until it is canceled, or `let_go`."""

    def __init__(self) -> None:
        self.running = 0
        self.canceled = 0
        self.begun = asyncio.Event()
        self.none_left = asyncio.Event()
        self.let_go = asyncio.Event()

    async def __call__(self, request: Any, caller: Caller) -> Any:
        self.running += 1
        self.begun.set()
        try:
            await self.let_go.wait()
            return runs_pb2.GetRunResponse(access_role="late")
        except asyncio.CancelledError:
            self.canceled += 1
            raise
        finally:
            self.running -= 1
            if not self.running:
                self.none_left.set()


async def test_a_deadline_ends_the_call_on_both_sides(world: World) -> None:
    server = await world.serve()
    world.servicer.act = held = Held()
    began = time.monotonic()
    with pytest.raises(Unavailable) as e:
        await get(world.peer(server.port), timeout_s=0.1)
    assert e.value.message == "The runs service is not available, try again"
    assert time.monotonic() - began < 5
    await asyncio.wait_for(held.none_left.wait(), 5)
    assert held.canceled == 1


async def test_abandoned_calls_do_not_go_on(world: World) -> None:
    server = await world.serve()
    world.servicer.act = held = Held()
    peer = world.peer(server.port)
    calls = [asyncio.create_task(get(peer)) for _ in range(50)]
    async with asyncio.timeout(5):
        while held.running < 50:
            held.begun.clear()
            await held.begun.wait()
    for call in calls:
        call.cancel()
    ended = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(e, asyncio.CancelledError) for e in ended)
    await asyncio.wait_for(held.none_left.wait(), 5)
    assert (held.running, held.canceled) == (0, 50)
    world.servicer.act = world.servicer.echo
    assert await get(peer, "again") == "again"


async def test_a_closed_peer_fails_its_calls_and_cancels_nobody(world: World) -> None:
    server = await world.serve()
    world.servicer.act = held = Held()
    peer = world.peer(server.port)
    call = asyncio.create_task(get(peer))
    await asyncio.wait_for(held.begun.wait(), 5)
    await peer.close()
    with pytest.raises(Unavailable):
        await asyncio.wait_for(call, 5)
    with pytest.raises(Unavailable):
        await get(peer)


async def test_without_retry_an_absent_service_is_told_at_once(world: World) -> None:
    server = await world.serve()
    peer = world.peer(server.port)
    await server.stop(0)
    began = time.monotonic()
    with pytest.raises(Unavailable) as e:
        await get(peer)
    assert time.monotonic() - began < 5
    assert (e.value.status, e.value.retry_after_s) == (503, 1.0)


async def test_with_retry_calls_outlast_a_restart(world: World) -> None:
    server = await world.serve()
    port = server.port
    peer = world.peer(port)
    assert await get(peer) == "r"
    await server.stop(0)
    calls = [asyncio.create_task(get(peer, f"r{n}", timeout_s=20, retry=True)) for n in range(10)]
    with pytest.raises(Unavailable):
        await get(peer)  # so the others have been refused too
    assert not any(call.done() for call in calls)
    await world.serve(port)
    assert await asyncio.gather(*calls) == [f"r{n}" for n in range(10)]


async def test_retry_repeats_only_what_was_away(world: World) -> None:
    server = await world.serve()
    peer = world.peer(server.port)
    for error, tries in ((NotFound("n"), 1), (errors.BadGateway("b"), 1), (Unavailable("u"), 3)):
        calls = 0

        async def act(request: Any, caller: Caller, error: SeedError = error) -> Any:
            nonlocal calls
            calls += 1
            if calls == 3:
                return runs_pb2.GetRunResponse(access_role="third")
            raise error

        world.servicer.act = act
        if tries == 3:
            assert await get(peer, retry=True) == "third"
        else:
            with pytest.raises(type(error)):
                await get(peer, retry=True)
        assert calls == tries


async def test_every_try_has_a_token_of_its_own(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    server = await world.serve()
    peer = world.peer(server.port)
    asked: list[int] = []
    real = peer._tokens.token
    monkeypatch.setattr(peer._tokens, "token", lambda *a: (asked.append(1), real(*a))[1])
    world.servicer.act = raising(Unavailable("u"))
    with pytest.raises(Unavailable):
        await get(peer, retry=True, timeout_s=0.3)
    assert len(asked) >= 2


async def test_messages_beyond_the_limit_are_refused_clearly_both_ways(world: World) -> None:
    server = await world.serve()
    peer = world.peer(server.port)
    almost = "x" * (MESSAGE_BYTES - 100)
    assert await get(peer, almost) == almost
    with pytest.raises(TooLarge) as e:
        await get(peer, "x" * (MESSAGE_BYTES + 1))
    assert (e.value.status, e.value.message) == (413, "Message is too large")

    async def act(request: Any, caller: Caller) -> Any:
        return runs_pb2.GetRunResponse(access_role="x" * (MESSAGE_BYTES + 1))

    world.servicer.act = act
    with pytest.raises(TooLarge):
        await get(peer)
    # A peer with other limits: the server refuses by itself.
    world.servicer.act = world.servicer.echo
    async with grpc.aio.insecure_channel(
        f"127.0.0.1:{server.port}", options=[("grpc.max_send_message_length", -1)]
    ) as channel:
        method = runs_pb2_grpc.RunsServiceStub(channel).GetRun
        with pytest.raises(TooLarge):
            await peer.call(method, runs_pb2.GetRunRequest(run_id="x" * (MESSAGE_BYTES + 1)))
    assert await get(peer, "still there") == "still there"


async def test_health_and_reflection_answer_without_a_token(world: World) -> None:
    server = await world.serve()
    name = "seed.runs.v1.RunsService"
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", name):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING

        asked = [
            reflection_pb2.ServerReflectionRequest(list_services=""),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol=name),
        ]
        stream = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter(asked))
        services, files = [answer async for answer in stream]
        assert {s.name for s in services.list_services_response.service} >= {name, "grpc.health.v1.Health"}
        assert runs_pb2.DESCRIPTOR.serialized_pb in files.file_descriptor_response.file_descriptor_proto


async def test_stop_fails_health_then_lets_running_calls_end(world: World) -> None:
    server = await world.serve()
    world.servicer.act = held = Held()
    peer = world.peer(server.port)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=""))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        running = asyncio.create_task(get(peer))
        await asyncio.wait_for(held.begun.wait(), 5)
        stopping = asyncio.create_task(server.stop(10))
        answer = await asyncio.wait_for(watch.read(), 5)
        assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING
        watch.cancel()
    with pytest.raises(Unavailable):
        await get(world.peer(server.port))
    assert not stopping.done()
    held.let_go.set()
    assert await asyncio.wait_for(running, 5) == "late"
    await asyncio.wait_for(stopping, 5)
    assert held.canceled == 0


async def test_stop_cuts_off_what_does_not_end_in_time(world: World) -> None:
    server = await world.serve()
    world.servicer.act = held = Held()
    running = asyncio.create_task(get(world.peer(server.port)))
    await asyncio.wait_for(held.begun.wait(), 5)
    await asyncio.wait_for(server.stop(0.05), 5)
    with pytest.raises(Unavailable):
        await asyncio.wait_for(running, 5)
    await asyncio.wait_for(held.none_left.wait(), 5)
    assert held.canceled == 1


async def test_an_address_that_is_taken_is_told(world: World) -> None:
    server = await world.serve()
    with pytest.raises(RuntimeError):
        await world.serve(server.port)


async def test_calls_are_counted_by_their_end(world: World) -> None:
    def count(result: str) -> float:
        value = telemetry.RPC_SECONDS.labels("RunsService.GetRun", result)
        return sum(bucket.get() for bucket in value._buckets)

    server = await world.serve()
    peer = world.peer(server.port)
    before = {result: count(result) for result in ("ok", "error", "fault", "canceled")}
    await get(peer)
    for error in (NotFound("n"), KeyError("k")):
        world.servicer.act = raising(error)
        with pytest.raises(SeedError):
            await get(peer)
    world.servicer.act = held = Held()
    with pytest.raises(Unavailable):
        await get(peer, timeout_s=0.05)
    await asyncio.wait_for(held.none_left.wait(), 5)
    assert {result: count(result) - n for result, n in before.items()} == dict.fromkeys(before, 1.0)
