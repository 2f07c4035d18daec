"""A model provider that says what it is told: chat completions on loopback, for the demo, the tests and the bench.

Answers come from `script`, used up first, then from `reply`. A gate holds an answer back in the middle, so that a test
decides when the model goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from aiohttp import web

MODEL = "scripted-1"
_EVENT_STREAM = {"Content-Type": "text/event-stream"}


@dataclass(frozen=True, slots=True)
class Say:
    """Text in chunks.

    With a `gate`, the answer stops before chunk number `gate_at` until the gate is set (len(chunks): after the last
    one). `delay_s` passes before each chunk. A chunk may be a function, called when it is sent. `cut` breaks the
    connection off in place of the ending.
    """

    chunks: Sequence[str | Callable[[], str]] = ("Hello from the scripted model.",)
    gate: asyncio.Event | None = None
    gate_at: int = 1
    delay_s: float = 0.0
    input_tokens: int = 5
    output_tokens: int = 5
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Calls:
    """Tool calls, as (name, arguments) pairs, after the text `before`. Arguments given as text go out as they are."""

    calls: Sequence[tuple[str, Mapping[str, Any] | str]]
    before: str = ""
    input_tokens: int = 5
    output_tokens: int = 5


@dataclass(frozen=True, slots=True)
class Fail:
    """An HTTP error in OpenAI's form."""

    status: int = 500
    message: str = "scripted failure"
    headers: Mapping[str, str] = field(default_factory=dict)


Answer = str | Say | Calls | Fail
Reply = Answer | Callable[[dict[str, Any]], Answer]
"""An answer, or a function of the request body that gives one."""


class ScriptedProvider:
    """Serve with `async with`, or `start()` and `stop()`. `url` is the base URL for a `custom` provider."""

    def __init__(
        self,
        reply: Reply = "Hello from the scripted model.",
        *,
        script: Iterable[Reply] = (),
        aside: Reply | None = None,
        models: Sequence[str] = (MODEL,),
        keep_requests: bool = True,
    ) -> None:
        self.reply: Reply = reply
        self.script: deque[Reply] = deque(script)
        self.aside = aside
        """Answers requests that offer no tools (for a title) in place of the script, when it is not None."""
        self.models = list(models)
        self.requests: list[dict[str, Any]] = []
        """Bodies of the completion requests, oldest first; empty with `keep_requests=False`."""
        self.headers: list[dict[str, str]] = []
        """Their headers, names in lower case."""
        self.url = ""
        self._keep = keep_requests
        self._instant: dict[str, bytes] = {}
        self._ids = itertools.count(1)
        self._runner: web.ServerRunner | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> Self:
        """Listen; port 0 is any free one."""
        # The plain server, without a router: it must cost next to nothing beside what it helps to measure.
        # Who hangs up while a gate holds the answer is let go.
        server = web.Server(self._handle, access_log=None, handler_cancellation=True)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.2)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        self.url = f"http://{host}:{self._runner.addresses[0][1]}/v1"
        return self

    async def stop(self) -> None:
        """Stop listening; answers under way are broken off."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.stop()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path.endswith("/chat/completions"):
            return await self._complete(request)
        if request.path.endswith("/models"):
            return web.json_response(
                {"object": "list", "data": [{"id": name, "object": "model"} for name in self.models]}
            )
        return web.json_response({"error": {"message": f"no such route: {request.path}"}}, status=404)

    async def _complete(self, request: web.BaseRequest) -> web.StreamResponse:
        raw = await request.read()
        body: dict[str, Any] = {}
        if self._keep or self.aside is not None or callable(self.reply):
            body = json.loads(raw)
        if self.aside is not None and not body.get("tools"):
            reply = self.aside
        else:
            reply = self.script.popleft() if self.script else self.reply
        if self._keep:
            self.requests.append(body)
            self.headers.append({name.lower(): value for name, value in request.headers.items()})
        if not self._keep and isinstance(reply, str):
            return web.Response(body=self._whole_stream(reply), headers=_EVENT_STREAM)
        answer = reply(body or json.loads(raw)) if callable(reply) else reply
        if isinstance(answer, Fail):
            error = {"error": {"message": answer.message, "type": "scripted", "code": None}}
            return web.json_response(error, status=answer.status, headers=answer.headers)
        if isinstance(answer, str):
            answer = Say((answer,))
        if body.get("stream", True):
            return await self._stream(request, answer)
        return web.json_response(self._whole(answer))

    def _whole_stream(self, text: str) -> bytes:
        """The bytes of a stream that holds nothing back, made once a text."""
        known = self._instant.get(text)
        if known is None:
            parts = [_chunk({"role": "assistant", "content": ""}), _chunk({"content": text}), *_ending("stop", 5, 5)]
            known = self._instant[text] = b"".join(parts)
        return known

    async def _stream(self, request: web.BaseRequest, answer: Say | Calls) -> web.StreamResponse:
        out = web.StreamResponse(headers=_EVENT_STREAM)
        # Who asked may leave at any moment: a stopped turn does.
        with contextlib.suppress(ConnectionResetError):
            await out.prepare(request)
            await self._write(request, out, answer)
        return out

    async def _write(self, request: web.BaseRequest, out: web.StreamResponse, answer: Say | Calls) -> None:
        if isinstance(answer, Calls):
            await out.write(_chunk({"role": "assistant", "content": answer.before}))
            await out.write(_chunk({"tool_calls": self._tool_calls(answer)}))
        else:
            await out.write(_chunk({"role": "assistant", "content": ""}))
            for index, chunk in enumerate(answer.chunks):
                if answer.gate is not None and index == answer.gate_at:
                    await answer.gate.wait()
                if answer.delay_s:
                    await asyncio.sleep(answer.delay_s)
                await out.write(_chunk({"content": chunk() if callable(chunk) else chunk}))
            if answer.gate is not None and answer.gate_at >= len(answer.chunks):
                await answer.gate.wait()
            if answer.cut:
                assert request.transport is not None
                request.transport.close()
                return
        finish = "tool_calls" if isinstance(answer, Calls) else "stop"
        for part in _ending(finish, answer.input_tokens, answer.output_tokens):
            await out.write(part)
        await out.write_eof()

    def _whole(self, answer: Say | Calls) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant"}
        if isinstance(answer, Calls):
            message |= {"content": answer.before or None, "tool_calls": self._tool_calls(answer)}
        else:
            message["content"] = "".join(chunk() if callable(chunk) else chunk for chunk in answer.chunks)
        finish = "tool_calls" if isinstance(answer, Calls) else "stop"
        return {
            **_head("chat.completion"),
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": _usage(answer.input_tokens, answer.output_tokens),
        }

    def _tool_calls(self, answer: Calls) -> list[dict[str, Any]]:
        return [
            {
                "index": index,
                "id": f"call_{next(self._ids)}",
                "type": "function",
                "function": {
                    "name": name,
                    "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments),
                },
            }
            for index, (name, arguments) in enumerate(answer.calls)
        ]


def clock_chunk() -> str:
    """A chunk that is the monotonic clock in ns when it is sent: a reader on this machine knows how long it took."""
    return f"{time.monotonic_ns()} "


def _head(kind: str) -> dict[str, Any]:
    return {"id": "scripted", "object": kind, "created": 1, "model": MODEL}


def _usage(input_tokens: int, output_tokens: int) -> dict[str, int]:
    return {
        "prompt_tokens": input_tokens,
        "completion_tokens": output_tokens,
        "total_tokens": input_tokens + output_tokens,
    }


def _chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return _data({**_head("chat.completion.chunk"), "choices": choices})


def _ending(finish: str, input_tokens: int, output_tokens: int) -> list[bytes]:
    usage = _usage(input_tokens, output_tokens)
    last = {**_head("chat.completion.chunk"), "choices": [], "usage": usage}
    return [_chunk({}, finish), _data(last), b"data: [DONE]\n\n"]


def _data(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"
