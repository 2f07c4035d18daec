"""A scripted model provider on loopback that speaks four wire formats: chat completions, Responses, messages,
generateContent. Nothing in it knows the code under test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass
class Say:
    """A reply: text in chunks, then tool calls. `gate` holds the stream open after the first frame with content.

    `torn` cuts the connection, and `ends_early` ends the body properly, before the frames that say the reply is over.
    """

    chunks: Sequence[str] = ()
    calls: Sequence[tuple[str, dict[str, Any] | str]] = ()
    thinking: str = ""
    finish: str = ""
    input_tokens: int = 10
    output_tokens: int = 5
    cache_read: int = 0
    cache_write: int = 0
    gate: asyncio.Event | None = None
    torn: bool = False
    ends_early: bool = False
    error_inside: str = ""


@dataclass
class Refuse:
    """An HTTP error in the form of the format that was asked, or with `body` as it is."""

    status: int
    message: str = "boom"
    headers: dict[str, str] = field(default_factory=dict)
    body: str | None = None


@dataclass
class HangUp:
    """Close the connection without any answer."""


@dataclass
class Frames:
    """Ready-made SSE data lines, in order."""

    frames: Sequence[dict[str, Any] | str]


Answer = Say | Refuse | HangUp | Frames | str


@dataclass
class Received:
    """One request as it arrived; header names in lower case."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    query: dict[str, str]
    connection: int


class ProviderServer:
    """Answers from `script` first, then `reply`; keeps every request in `received`.

    `open_streams` counts replies being written; `left` counts clients that went away before the end.
    """

    def __init__(self, reply: Answer | Callable[[Received], Answer] = "Hello.") -> None:
        self.reply = reply
        self.script: list[Answer] = []
        self.received: list[Received] = []
        self.open_streams = 0
        self.left = 0
        self.changed = asyncio.Condition()
        self._runner: web.AppRunner | None = None
        self._ids = 0
        self.port = 0

    async def __aenter__(self) -> ProviderServer:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/v1/chat/completions", self._handler(chat_frames, openai_error))
        app.router.add_post("/v1/responses", self._handler(responses_frames, openai_error))
        app.router.add_post("/backend-api/codex/responses", self._handler(responses_frames, openai_error))
        app.router.add_post("/v1/messages", self._handler(messages_frames, anthropic_error))
        app.router.add_post("/v1beta/models/{call}", self._handler(google_frames, google_error))
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    @property
    def root(self) -> str:
        """The URL without a path; add `/v1` or `/v1beta` as the format wants it."""
        return f"http://127.0.0.1:{self.port}"

    async def until(self, condition: Callable[[ProviderServer], bool], timeout_s: float = 5.0) -> None:
        """Wait until a condition on this server holds."""
        async with asyncio.timeout(timeout_s), self.changed:
            await self.changed.wait_for(lambda: condition(self))

    async def _note(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    def _handler(
        self, frames: Callable[[Say, Received, Callable[[], str]], Iterator[str]], error: Callable[[Refuse], str]
    ) -> Callable[[web.Request], Any]:
        async def handle(request: web.Request) -> web.StreamResponse:
            seen = Received(
                request.path,
                {name.lower(): value for name, value in request.headers.items()},
                await request.json(),
                dict(request.query),
                id(request.transport),
            )
            self.received.append(seen)
            answer = self.script.pop(0) if self.script else self.reply
            if callable(answer):
                answer = answer(seen)
            if isinstance(answer, str):
                answer = Say([answer])
            await self._note()
            if isinstance(answer, HangUp):
                assert request.transport is not None
                request.transport.abort()
                return web.Response()
            if isinstance(answer, Refuse):
                text = error(answer) if answer.body is None else answer.body
                return web.Response(
                    status=answer.status, text=text, content_type="application/json", headers=answer.headers
                )
            return await self._stream(request, answer, frames, seen)

        return handle

    async def _stream(
        self, request: web.Request, answer: Say | Frames, frames: Any, seen: Received
    ) -> web.StreamResponse:
        out = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await out.prepare(request)
        self.open_streams += 1
        await self._note()
        try:
            if isinstance(answer, Frames):
                for frame in answer.frames:
                    await out.write(data(frame).encode())
            else:
                await self._say(out, request, answer, frames, seen)
            await out.write_eof()
        except (asyncio.CancelledError, ConnectionError):
            self.left += 1
            raise
        finally:
            self.open_streams -= 1
            await asyncio.shield(asyncio.ensure_future(self._note()))
        return out

    async def _say(
        self, out: web.StreamResponse, request: web.Request, answer: Say, frames: Any, seen: Received
    ) -> None:
        for frame in frames(answer, seen, self._next_id):
            if frame == GATE:
                if answer.gate is not None:
                    await answer.gate.wait()
                if answer.error_inside:
                    await out.write(error_frame(seen.path, answer.error_inside).encode())
                    return
                if answer.torn:
                    assert request.transport is not None
                    request.transport.abort()
                    return
                if answer.ends_early:
                    return
                continue
            await out.write(frame.encode())

    def _next_id(self) -> str:
        self._ids += 1
        return f"call_{self._ids}"


GATE = "<gate>"
"""Stands in a list of frames where a held, torn or broken reply stops."""


def data(value: dict[str, Any] | str, event: str = "") -> str:
    """One SSE event."""
    text = value if isinstance(value, str) else json.dumps(value)
    return (f"event: {event}\n" if event else "") + f"data: {text}\n\n"


def error_frame(path: str, message: str) -> str:
    """An error said inside a stream, in the form of the format at `path`."""
    if path.endswith("/messages"):
        return data({"type": "error", "error": {"type": "overloaded_error", "message": message}}, "error")
    if path.endswith("/responses"):
        return data({"type": "error", "code": "server_error", "message": message, "param": None}, "error")
    if "/models/" in path:
        return data({"error": {"code": 503, "message": message, "status": "UNAVAILABLE"}})
    return data({"error": {"message": message, "type": "server_error", "code": None}})


def openai_error(refusal: Refuse) -> str:
    return json.dumps({"error": {"message": refusal.message, "type": "stub", "code": None}})


def anthropic_error(refusal: Refuse) -> str:
    return json.dumps({"type": "error", "error": {"type": "api_error", "message": refusal.message}})


def google_error(refusal: Refuse) -> str:
    return json.dumps({"error": {"code": refusal.status, "message": refusal.message, "status": "UNAVAILABLE"}})


def _text(arguments: dict[str, Any] | str) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def chat_frames(say: Say, seen: Received, next_id: Callable[[], str]) -> Iterator[str]:
    """Chat completions. The arguments of several calls arrive interleaved, two halves each, joined by index."""
    head = {"id": "c1", "created": 1, "model": seen.body["model"], "object": "chat.completion.chunk"}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> str:
        return data({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield chunk({"role": "assistant", "content": ""})
    if say.thinking:
        yield chunk({"reasoning_content": say.thinking})
    for position, text in enumerate(say.chunks):
        yield chunk({"content": text})
        if position == 0:
            yield GATE
    halves = []
    for index, (name, arguments) in enumerate(say.calls):
        text = _text(arguments)
        half = len(text) // 2
        call = {"index": index, "id": next_id(), "type": "function", "function": {"name": name, "arguments": ""}}
        yield chunk({"tool_calls": [call]})
        halves.append((index, text[:half], text[half:]))
    for part in (1, 2):
        for half in halves:
            yield chunk({"tool_calls": [{"index": half[0], "function": {"arguments": half[part]}}]})
    if not say.chunks:
        yield GATE
    yield chunk({}, say.finish or ("tool_calls" if say.calls else "stop"))
    usage: dict[str, Any] = {
        "prompt_tokens": say.input_tokens + say.cache_read,
        "completion_tokens": say.output_tokens,
        "total_tokens": say.input_tokens + say.cache_read + say.output_tokens,
        "prompt_tokens_details": {"cached_tokens": say.cache_read},
    }
    if seen.body.get("stream_options", {}).get("include_usage"):
        yield data({**head, "choices": [], "usage": usage})
    yield data("[DONE]")


def responses_frames(say: Say, seen: Received, next_id: Callable[[], str]) -> Iterator[str]:
    """OpenAI Responses."""
    sequence = 0

    def event(kind: str, **fields: Any) -> str:
        nonlocal sequence
        sequence += 1
        return data({"type": kind, "sequence_number": sequence, **fields}, kind)

    response = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": seen.body["model"],
        "status": "in_progress",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    yield event("response.created", response=response)
    output: list[dict[str, Any]] = []
    if say.thinking:
        item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}
        yield event("response.output_item.added", output_index=len(output), item=item)
        yield event("response.output_item.done", output_index=len(output), item=item)
        output.append(item)
    if say.chunks:
        at = len(output)
        message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "in_progress", "content": []}
        yield event("response.output_item.added", output_index=at, item=message)
        where = {"item_id": "msg_1", "output_index": at, "content_index": 0}
        part = {"type": "output_text", "text": "", "annotations": []}
        yield event("response.content_part.added", **where, part=part)
        for position, text in enumerate(say.chunks):
            yield event("response.output_text.delta", **where, delta=text, logprobs=[])
            if position == 0:
                yield GATE
        text = "".join(say.chunks)
        yield event("response.output_text.done", **where, text=text, logprobs=[])
        done = {**message, "status": "completed", "content": [{**part, "text": text}]}
        yield event("response.output_item.done", output_index=at, item=done)
        output.append(done)
    for name, arguments in say.calls:
        at, call_id, text = len(output), next_id(), _text(arguments)
        item = {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": name, "arguments": ""}
        yield event("response.output_item.added", output_index=at, item=item)
        for piece in (text[: len(text) // 2], text[len(text) // 2 :]):
            yield event("response.function_call_arguments.delta", item_id=item["id"], output_index=at, delta=piece)
        yield event(
            "response.function_call_arguments.done", item_id=item["id"], output_index=at, name=name, arguments=text
        )
        done = {**item, "arguments": text, "status": "completed"}
        yield event("response.output_item.done", output_index=at, item=done)
        output.append(done)
    if not say.chunks:
        yield GATE
    usage = {
        "input_tokens": say.input_tokens + say.cache_read,
        "input_tokens_details": {"cached_tokens": say.cache_read, "cache_write_tokens": 0},
        "output_tokens": say.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": say.input_tokens + say.cache_read + say.output_tokens,
    }
    complete = {**response, "status": "completed", "output": output, "usage": usage}
    if say.finish == "length":
        complete |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    yield event(f"response.{complete['status']}", response=complete)


def messages_frames(say: Say, seen: Received, next_id: Callable[[], str]) -> Iterator[str]:
    """Anthropic messages."""

    def event(kind: str, **fields: Any) -> str:
        return data({"type": kind, **fields}, kind)

    start = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": seen.body["model"],
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": say.input_tokens,
            "cache_read_input_tokens": say.cache_read,
            "cache_creation_input_tokens": say.cache_write,
            "output_tokens": 1,
        },
    }
    yield event("message_start", message=start)
    index = 0
    if say.thinking:
        yield event(
            "content_block_start", index=index, content_block={"type": "thinking", "thinking": "", "signature": ""}
        )
        for delta in (
            {"type": "thinking_delta", "thinking": say.thinking},
            {"type": "signature_delta", "signature": "signed"},
        ):
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
        index += 1
    if say.chunks:
        yield event("content_block_start", index=index, content_block={"type": "text", "text": ""})
        for position, text in enumerate(say.chunks):
            yield event("content_block_delta", index=index, delta={"type": "text_delta", "text": text})
            if position == 0:
                yield GATE
        yield event("content_block_stop", index=index)
        index += 1
    for name, arguments in say.calls:
        text = _text(arguments)
        block = {"type": "tool_use", "id": next_id(), "name": name, "input": {}}
        yield event("content_block_start", index=index, content_block=block)
        for piece in (text[: len(text) // 2], text[len(text) // 2 :]):
            yield event("content_block_delta", index=index, delta={"type": "input_json_delta", "partial_json": piece})
        yield event("content_block_stop", index=index)
        index += 1
    if not say.chunks:
        yield GATE
    reason = {"": "tool_use" if say.calls else "end_turn", "length": "max_tokens"}[say.finish]
    yield event(
        "message_delta",
        delta={"stop_reason": reason, "stop_sequence": None},
        usage={"output_tokens": say.output_tokens},
    )
    yield event("message_stop")


def google_frames(say: Say, seen: Received, next_id: Callable[[], str]) -> Iterator[str]:
    """Google generateContent."""

    def frame(parts: list[dict[str, Any]], **more: Any) -> str:
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
        if "finish" in more:
            candidate["finishReason"] = more.pop("finish")
        return data({"candidates": [candidate], "modelVersion": "stub", "responseId": "r1", **more})

    if say.thinking:
        yield frame([{"text": say.thinking, "thought": True}])
    for position, text in enumerate(say.chunks):
        yield frame([{"text": text}])
        if position == 0:
            yield GATE
    for name, arguments in say.calls:
        yield frame([{"functionCall": {"name": name, "args": arguments}, "thoughtSignature": "c2lnbmVk"}])
    if not say.chunks:
        yield GATE
    usage = {
        "promptTokenCount": say.input_tokens + say.cache_read,
        "cachedContentTokenCount": say.cache_read,
        "candidatesTokenCount": say.output_tokens,
        "totalTokenCount": say.input_tokens + say.cache_read + say.output_tokens,
    }
    yield frame([], finish={"": "STOP", "length": "MAX_TOKENS"}[say.finish], usageMetadata=usage)


async def collect(events: AsyncIterator[Any]) -> list[Any]:
    """All events of a reply."""
    return [event async for event in events]
