"""Streams over real gRPC: refused early, left early, broken, cancelled, retried."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from seed.sessions.v1 import attachments_pb2 as pb
from seed.sessions.v1 import attachments_pb2_grpc
from structlog.testing import capture_logs

from libs.errors import Internal, NotFound, TooMany, Unauthenticated, Unavailable
from libs.rpc import Caller, Peer, RpcServer, TokenSigner, TokenVerifier
from libs.rpc.server import MESSAGE_BYTES

KEY = "internal-key-of-the-tests-of-rpc"
SERVICE = pb.DESCRIPTOR.services_by_name["AttachmentsService"]
PIECE = b"x" * (1 << 20)


class Servicer:
    """Takes and gives pieces; `refuse` raises, `hold` stops it in the middle; `ended` says how its streams ended."""

    def __init__(self) -> None:
        self.refuse: Exception | None = None
        self.refuse_at = 0
        self.hold = asyncio.Event()
        self.hold.set()
        self.reached = asyncio.Event()
        self.ended: list[str] = []
        self.callers: list[Caller] = []

    async def UploadAttachment(self, requests: AsyncIterator[Any], caller: Caller) -> pb.UploadAttachmentResponse:
        self.callers.append(caller)
        size = count = 0
        try:
            async for request in requests:
                if self.refuse is not None and count >= self.refuse_at:
                    raise self.refuse
                size += len(request.content)
                count += 1
                self.reached.set()
                await self.hold.wait()
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        return pb.UploadAttachmentResponse(attachment=pb.Attachment(size=size))

    async def ReadAttachment(self, request: Any, caller: Caller) -> AsyncGenerator[pb.ReadAttachmentResponse, None]:
        self.callers.append(caller)
        try:
            for at in range(int(request.attachment_id)):
                if self.refuse is not None and at >= self.refuse_at:
                    raise self.refuse
                yield pb.ReadAttachmentResponse(content=PIECE)
                self.reached.set()
                await self.hold.wait()
        finally:
            self.ended.append("closed")


class World:
    """A server with the servicer, and a peer of it."""

    def __init__(self) -> None:
        self.servicer = Servicer()
        self.server = self._made(0)

    def _made(self, port: int) -> RpcServer:
        server = RpcServer(TokenVerifier("sessions", KEY), host="127.0.0.1", port=port)
        server.add(SERVICE, self.servicer)
        return server

    async def start(self) -> None:
        await self.server.start()
        self.peer = Peer("sessions", f"127.0.0.1:{self.server.port}", TokenSigner("edge", KEY))
        self.stub: Any = self.peer.stub(attachments_pb2_grpc.AttachmentsServiceStub)

    async def restart(self) -> None:
        self.server = self._made(self.server.port)
        await self.server.start()

    async def close(self) -> None:
        self.servicer.hold.set()
        await self.peer.close()
        await self.server.stop(0)

    async def send(self, requests: Any, **options: Any) -> int:
        answer = await self.peer.send(self.stub.UploadAttachment, requests, **options)
        return answer.attachment.size

    def read(self, count: int, **options: Any) -> Any:
        request = pb.ReadAttachmentRequest(attachment_id=str(count))
        return self.peer.stream(self.stub.ReadAttachment, request, **options)

    async def until(self, condition: Callable[[], Any]) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + 10
        while not condition():
            assert loop.time() < end, "condition not met in time"
            await asyncio.sleep(0.01)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    await world.start()
    yield world
    await world.close()


def pieces(count: int) -> Iterator[pb.UploadAttachmentRequest]:
    for _ in range(count):
        yield pb.UploadAttachmentRequest(content=PIECE)


async def test_a_stream_of_requests_arrives_whole_and_names_its_caller(world: World) -> None:
    assert await world.send(pieces(9), account="acc", signer="sig") == 9 << 20

    async def later() -> AsyncIterator[Any]:
        for request in pieces(2):
            yield request

    assert await world.send(later()) == 2 << 20
    assert await world.send([]) == 0
    assert world.servicer.callers == [Caller("edge", "acc", "sig"), Caller("edge"), Caller("edge")]


@pytest.mark.parametrize("at", [0, 1, 7])
@pytest.mark.parametrize("count", [1, 2, 8, 40])
async def test_a_refusal_arrives_as_it_was_raised_whatever_is_still_being_sent(
    world: World, at: int, count: int
) -> None:
    world.servicer.refuse, world.servicer.refuse_at = TooMany("no more", retry_after_s=3), at
    if at >= count:
        assert await world.send(pieces(count)) == count << 20
        return
    with pytest.raises(TooMany) as e:
        await world.send(pieces(count))
    assert (e.value.message, e.value.retry_after_s) == ("no more", 3)


async def test_requests_are_taken_only_when_there_is_room(world: World) -> None:
    world.servicer.hold.clear()
    taken: list[int] = []

    def counted() -> Iterator[Any]:
        for index, request in enumerate(pieces(60)):
            taken.append(index)
            yield request

    sending = asyncio.create_task(world.send(counted()))
    await world.servicer.reached.wait()
    await world.until(lambda: len(taken) > 1)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(taken) < 30
    world.servicer.hold.set()
    assert await sending == 60 << 20


async def test_a_caller_that_is_cancelled_cancels_the_service(world: World) -> None:
    world.servicer.hold.clear()
    sending = asyncio.create_task(world.send(pieces(5)))
    await world.servicer.reached.wait()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    await world.until(lambda: world.servicer.ended == ["cancelled"])


async def test_a_deadline_ends_a_stream_of_requests(world: World) -> None:
    world.servicer.hold.clear()
    with pytest.raises(Unavailable):
        await world.send(pieces(5), timeout_s=0.3)
    await world.until(lambda: world.servicer.ended == ["cancelled"])


async def test_a_stream_of_answers_arrives_whole(world: World) -> None:
    async with world.read(12, account="acc", signer="sig") as answers:
        got = [answer.content async for answer in answers]
    assert got == [PIECE] * 12
    async with world.read(0) as answers:
        assert [answer async for answer in answers] == []
    assert world.servicer.callers == [Caller("edge", "acc", "sig"), Caller("edge")]
    await world.until(lambda: world.servicer.ended == ["closed", "closed"])


async def test_a_stream_that_is_left_early_ends_at_the_service(world: World) -> None:
    for count in range(1, 6):
        async with world.read(1000) as answers:
            async for answer in answers:
                assert answer.content == PIECE
                break
        await world.until(lambda count=count: len(world.servicer.ended) == count)


async def test_a_reader_that_is_cancelled_ends_the_stream(world: World) -> None:
    world.servicer.hold.clear()

    async def read() -> None:
        async with world.read(10) as answers:
            async for _ in answers:
                pass

    reading = asyncio.create_task(read())
    await world.servicer.reached.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await world.until(lambda: world.servicer.ended == ["closed"])


async def test_a_refusal_instead_of_the_first_answer_is_raised_on_entering(world: World) -> None:
    world.servicer.refuse = NotFound("Session not found")
    with pytest.raises(NotFound, match="Session not found"):
        async with world.read(3):
            pytest.fail("entered")


async def test_a_refusal_in_the_middle_is_raised_where_it_comes(world: World) -> None:
    world.servicer.refuse, world.servicer.refuse_at = NotFound("gone"), 2
    got = 0
    with pytest.raises(NotFound, match="gone"):
        async with world.read(5) as answers:
            async for _ in answers:
                got += 1
    assert got == 2


async def test_a_fault_is_masked_on_either_kind_of_stream(world: World) -> None:
    world.servicer.refuse, world.servicer.refuse_at = ValueError("what the user wrote"), 1
    with capture_logs() as logs:
        with pytest.raises(Internal, match="Internal server error"):
            await world.send(pieces(4))
        with pytest.raises(Internal, match="Internal server error"):
            async with world.read(4) as answers:
                async for _ in answers:
                    pass
    faults = [entry for entry in logs if entry.get("method")]
    assert [entry["method"] for entry in faults] == [
        "AttachmentsService.UploadAttachment",
        "AttachmentsService.ReadAttachment",
    ]


async def test_a_wrong_token_lets_no_stream_in(world: World) -> None:
    stranger = Peer("sessions", f"127.0.0.1:{world.server.port}", TokenSigner("edge", "another-key".ljust(32, "x")))
    stub: Any = stranger.stub(attachments_pb2_grpc.AttachmentsServiceStub)
    try:
        with pytest.raises((Internal, Unauthenticated)):
            await stranger.send(stub.UploadAttachment, pieces(3))
        with pytest.raises((Internal, Unauthenticated)):
            async with stranger.stream(stub.ReadAttachment, pb.ReadAttachmentRequest(attachment_id="1")):
                pytest.fail("entered")
    finally:
        await stranger.close()
    assert not world.servicer.callers


async def test_entering_waits_for_a_service_that_is_away(world: World) -> None:
    await world.server.stop(0)
    with pytest.raises(Unavailable):
        async with world.read(1):
            pytest.fail("entered")

    async def read() -> int:
        async with world.read(3, retry=True, timeout_s=20) as answers:
            return sum([len(answer.content) async for answer in answers])

    reading = asyncio.create_task(read())
    await asyncio.sleep(0)
    await world.restart()
    assert await reading == 3 << 20


async def test_a_service_that_dies_breaks_its_streams(world: World) -> None:
    world.servicer.hold.clear()
    got = 0
    with pytest.raises(Unavailable):
        async with world.read(5, retry=True, timeout_s=10) as answers:
            async for _ in answers:
                got += 1
                await world.server.stop(0)
    assert got == 1, "what has been handed out is not read again"


async def test_streams_that_have_ended_leave_nothing_behind(world: World) -> None:
    for _ in range(3):
        await world.send(pieces(2))
        async with world.read(5) as answers:
            async for _ in answers:
                break
    await world.until(lambda: len(world.servicer.ended) == 3)
    gc.collect()
    await world.until(lambda: not [t for t in asyncio.all_tasks() if "_consume_request_iterator" in repr(t.get_coro())])


async def test_one_message_has_its_limit_a_stream_has_none(world: World) -> None:
    assert await world.send(pieces(90), timeout_s=60) == 90 << 20 > MESSAGE_BYTES
