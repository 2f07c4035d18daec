"""Replies of every wire format, against a scripted provider that speaks it on loopback."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from services.runs.providers import (
    AssistantMessage,
    ModelConfig,
    ModelGateway,
    ReplyDone,
    TextDelta,
    TextPart,
    ToolCallPart,
    ToolCallReady,
    ToolResultMessage,
    Usage,
)
from tests.support.gateways import CONFIGS, FORMATS, HELLO, READ, ask, gateway_to
from tests.support.providers import Frames, ProviderServer, Say, collect


@pytest.fixture
async def server() -> AsyncIterator[ProviderServer]:
    async with ProviderServer() as running:
        yield running


@pytest.fixture
async def gateway(server: ProviderServer) -> AsyncIterator[ModelGateway]:
    async with gateway_to(server) as made:
        yield made


@FORMATS
async def test_text_arrives_piece_by_piece(server: ProviderServer, gateway: ModelGateway, config: ModelConfig) -> None:
    server.reply = Say([" Grüße ", "an", " alle\n"], cache_read=7, input_tokens=11, output_tokens=3)
    events = await ask(gateway, config)
    assert events[:-1] == [TextDelta(" Grüße "), TextDelta("an"), TextDelta(" alle\n")]
    assert events[-1] == ReplyDone(" Grüße an alle\n", [], Usage(11, 3, 7, 0), "stop")
    assert events[-1].usage.total == 21


@FORMATS
async def test_the_first_piece_does_not_wait_for_the_rest(
    server: ProviderServer, gateway: ModelGateway, config: ModelConfig
) -> None:
    gate = asyncio.Event()
    server.reply = Say(["one", "two"], gate=gate)
    async with gateway.stream(config, "", HELLO, []) as reply:
        assert await anext(reply) == TextDelta("one")
        assert server.open_streams == 1
        gate.set()
        rest = await collect(reply)
    assert rest[0] == TextDelta("two") and rest[-1].text == "onetwo"


@FORMATS
async def test_tool_calls_in_provider_order(server: ProviderServer, gateway: ModelGateway, config: ModelConfig) -> None:
    first, second = {"address": "~/memory/", "options": {"n": 1, "ü": [True, None]}}, {"address": "b"}
    server.reply = Say(["Let me look."], calls=[("read", first), ("read", second)])
    events = await ask(gateway, config, tools=[READ])
    done = events[-1]
    assert isinstance(done, ReplyDone)
    assert [(call.name, call.arguments) for call in done.tool_calls] == [("read", first), ("read", second)]
    assert len({call.id for call in done.tool_calls}) == 2 and all(call.id for call in done.tool_calls)
    assert events[1:-1] == [ToolCallReady(call) for call in done.tool_calls]
    assert done.finish == "tool_calls" and done.text == "Let me look."
    if config.provider_type != "google":
        assert [call.id for call in done.tool_calls] == ["call_1", "call_2"]


@FORMATS
async def test_a_call_without_text(server: ProviderServer, gateway: ModelGateway, config: ModelConfig) -> None:
    server.reply = Say(calls=[("read", {})])
    events = await ask(gateway, config, tools=[READ])
    assert [type(event) for event in events] == [ToolCallReady, ReplyDone]
    assert events[-1].text == "" and events[-1].tool_calls[0].arguments == {}


@FORMATS
async def test_a_reply_cut_at_the_token_limit(
    server: ProviderServer, gateway: ModelGateway, config: ModelConfig
) -> None:
    server.reply = Say(["half a sen"], finish="length")
    assert (await ask(gateway, config))[-1].finish == "length"


@FORMATS
async def test_thinking_is_not_text_and_returns_within_the_turn(
    server: ProviderServer, gateway: ModelGateway, config: ModelConfig
) -> None:
    server.reply = Say(["So:"], calls=[("read", {"address": "a"})], thinking="Let me think.")
    done = (await ask(gateway, config, tools=[READ]))[-1]
    assert done.text == "So:" and "think" not in repr(done)
    call = done.tool_calls[0]
    again = [*HELLO, AssistantMessage([TextPart("So:"), call], native=done.native), result_of(call, "found")]
    server.reply = "Done."
    assert (await ask(gateway, config, again, [READ]))[-1].text == "Done."
    sent = repr(server.received[-1].body)
    proof = {"openrouter": "So:", "openai": "sealed", "anthropic": "signed", "google": "c2lnbmVk"}
    assert proof[config.provider_type] in sent and "found" in sent


def result_of(call: ToolCallPart, text: str, is_error: bool = False) -> ToolResultMessage:
    return ToolResultMessage(call.id, call.name, text, is_error)


@FORMATS
async def test_connections_are_used_again(server: ProviderServer, gateway: ModelGateway, config: ModelConfig) -> None:
    for _ in range(3):
        await ask(gateway, config)
    assert len({request.connection for request in server.received}) == 1


@FORMATS
async def test_leaving_early_closes_the_connection(
    server: ProviderServer, gateway: ModelGateway, config: ModelConfig
) -> None:
    server.reply = Say(["one", "two"], gate=asyncio.Event())
    async with gateway.stream(config, "", HELLO, []) as reply:
        await anext(reply)
    await server.until(lambda s: s.left == 1 and s.open_streams == 0)


@FORMATS
async def test_cancelling_closes_the_connection(
    server: ProviderServer, gateway: ModelGateway, config: ModelConfig
) -> None:
    server.reply = Say(["one", "two"], gate=asyncio.Event())
    started = asyncio.Event()

    async def turn() -> None:
        async with gateway.stream(config, "", HELLO, []) as reply:
            async for _ in reply:
                started.set()

    task = asyncio.create_task(turn())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await server.until(lambda s: s.left == 1 and s.open_streams == 0)


@FORMATS
async def test_an_error_of_the_reader_stays_what_it_is(
    server: ProviderServer, gateway: ModelGateway, config: ModelConfig
) -> None:
    server.reply = Say(["one", "two"], gate=asyncio.Event())
    with pytest.raises(LookupError, match="mine"):
        async with gateway.stream(config, "", HELLO, []) as reply:
            await anext(reply)
            raise LookupError("mine")
    await server.until(lambda s: s.left == 1)


async def test_interleaved_chat_calls_are_joined_by_index(server: ProviderServer, gateway: ModelGateway) -> None:
    def chunk(delta: dict, finish: str | None = None) -> dict:
        return {"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    def piece(index: int, arguments: str, **more: object) -> dict:
        name = {"name": more.pop("name")} if "name" in more else {}
        return chunk({"tool_calls": [{"index": index, "function": {**name, "arguments": arguments}, **more}]})

    server.reply = Frames(
        [
            piece(0, '{"a', id="x", name="read"),
            piece(1, '{"b"', id="y", name="call"),
            piece(0, '": 1'),
            piece(1, ": 2}"),
            piece(0, "}"),
            chunk({}, "tool_calls"),
            "[DONE]",
        ]
    )
    done = (await ask(gateway, CONFIGS["chat"]))[-1]
    assert done.tool_calls == [ToolCallPart("x", "read", {"a": 1}), ToolCallPart("y", "call", {"b": 2})]


async def test_arguments_that_are_no_object_stay_text(server: ProviderServer, gateway: ModelGateway) -> None:
    server.reply = Say(
        calls=[("read", "[1"), ("read", "[1]"), ("read", "  "), ("read", '{"s": "\\ud800x\\ud83d\\ude00"}')]
    )
    done = (await ask(gateway, CONFIGS["chat"]))[-1]
    assert [call.arguments for call in done.tool_calls] == ["[1", "[1]", {}, {"s": "�x😀"}]
    assert done.native is None


async def test_a_surrogate_pair_split_over_two_chunks(server: ProviderServer, gateway: ModelGateway) -> None:
    server.reply = Say(["a\ud83d", "\ude00b", "\ud800"])
    events = await ask(gateway, CONFIGS["chat"])
    assert events[-1].text == "a😀b�"
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == events[-1].text


async def test_liberal_chunks_of_compatible_servers(server: ProviderServer, gateway: ModelGateway) -> None:
    server.reply = Frames(
        [
            {"choices": [{"delta": {"content": "a"}}], "service_tier": "odd", "created": None},
            {"choices": None},
            {"choices": [{"index": 0, "delta": {"content": None}, "finish_reason": "stop"}], "usage": None},
            {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
            "[DONE]",
        ]
    )
    assert (await ask(gateway, CONFIGS["chat"]))[-1] == ReplyDone("a", [], Usage(3, 2), "stop")


async def test_a_refusal_is_what_the_reader_gets(server: ProviderServer, gateway: ModelGateway) -> None:
    server.reply = Frames(
        [
            {"id": "c", "choices": [{"index": 0, "delta": {"refusal": "I will not."}, "finish_reason": None}]},
            {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            "[DONE]",
        ]
    )
    done = (await ask(gateway, CONFIGS["chat"]))[-1]
    assert done.text == "I will not." and done.finish == "content_filter"


async def test_anthropic_counts_cache_writes(server: ProviderServer, gateway: ModelGateway) -> None:
    server.reply = Say(["x"], input_tokens=10, output_tokens=4, cache_read=5, cache_write=3)
    assert (await ask(gateway, CONFIGS["messages"]))[-1].usage == Usage(10, 4, 5, 3)
