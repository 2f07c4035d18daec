"""One turn: from a claimed run to its outcome (runtime.md, section 2)."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from typing import Any

import msgspec
from seed.sessions.v1 import turns_pb2, types_pb2

from libs import telemetry
from libs.errors import Canceled, Invalid, NotFound, SeedError, StaleAttempt, Unavailable
from libs.protocol import json_bytes
from services.runs.domain import continuation, obligations, titles, transcript, verbs
from services.runs.domain import plan as plans
from services.runs.domain.usage import usage_json, usage_of
from services.runs.providers.contract import (
    AssistantMessage,
    ConfigError,
    Message,
    ModelConfig,
    ProviderError,
    ReplyDone,
    TextDelta,
    TextPart,
    ToolCallPart,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from services.runs.store.endings import Ending
from services.runs.store.family import Park
from services.runs.worker import endings, session_plan
from services.runs.worker.claim import Held, Parts, Verdict
from services.runs.worker.space import Space
from services.runs.worker.tools import RESULT_ATTEMPTS, Spawned, Story, ToolBox

log = telemetry.get_logger("turn")

STOPPED = "Stopped."
UNDELIVERED = "The result was taken, but nobody waits for it any more: nothing was delivered upstream."
CRASHED = "The run was given up: every process that executed it died"
MOST_EXPIRIES = 5
"""Leases in a row that may run out without any progress before a run is given up."""
PAUSED = "The run has used up its time of {} s. A signal lets it go on."
NO_TEXT = "Model response did not include assistant text"
ENDED_BADLY = "The provider ended the reply with an error"


@dataclass(slots=True)
class _Progress:
    """What has happened in the turn so far."""

    usage: Usage = field(default_factory=Usage)
    replied: bool = False
    wrote_text: bool = False
    reminders: int = 0
    unsaved: turns_pb2.NewEvent | None = None
    """Text of a complete reply that is not known to be durable yet."""


class Turn:
    """Executes one claimed agent run."""

    def __init__(self, parts: Parts, held: Held) -> None:
        self._parts, self._held = parts, held
        self._log = parts.log_of(held.run_id, held.attempt)
        self._stream = parts.stream_of(held.row)
        self._progress = _Progress(usage=usage_of(held.row["usage"]))
        self._model: ModelConfig | None = None
        self._plan: dict[str, Any] | None = None
        self._box: ToolBox | None = None
        self._reply_started = 0.0
        self._step = 0
        self._unnamed = False

    async def run(self) -> Verdict | None:
        """Execute to a verdict; None when the claim was lost and nothing more may be written."""
        try:
            self._held.started = True
            if self._held.stop:
                raise asyncio.CancelledError
            return await self._guarded()
        except asyncio.CancelledError:
            if self._held.stop == "canceled":
                return await self._canceled()
            if self._held.stop == "drain":
                return Verdict(again_at=self._parts.now())
            if self._held.stop == "lost":
                return None
            raise

    async def _guarded(self) -> Verdict | None:
        try:
            return await self._execute()
        except Canceled:
            return await self._canceled()
        except StaleAttempt:
            return None
        except NotFound as e:
            return await self._gone(e)
        except (Unavailable, OSError):
            return Verdict(again_at=self._parts.now() + 1_000)
        except ProviderError as e:
            return await self._failed("provider-error", e.message, 502, retryable=e.retryable)
        except ConfigError as e:
            return await self._failed("config-error", e.message, e.status, retryable=False)
        except Exception as e:  # a fault of ours ends this run, not the worker
            log.error("turn crashed", run=self._held.run_id, error=type(e).__name__, exc_info=e)
            return await self._failed("executor-error", "Internal server error", 500, retryable=False)

    async def _execute(self) -> Verdict | None:
        if self._held.row["cancel_requested"]:
            await self._clear_earlier()
            return await self._canceled()
        if self._held.row["expiries"] >= MOST_EXPIRIES:
            return await self._failed("executor-error", CRASHED, 500, retryable=False)
        if self._overdue() and (await self._log.finish("waiting")).status == "waiting":
            return Verdict(park=Park(pause=PAUSED.format(self._held.row["budget_ms"] // 1000)))
        begin = await self._log.begin()
        await self._clear_earlier()
        if begin.HasField("outcome"):
            return Verdict(endings.recorded(begin.outcome, self._held.row))
        if begin.canceled:
            return await self._canceled()
        if begin.pending_children:
            # An earlier attempt delegated and died before it parked.
            return await self._park(list(begin.pending_children))
        self._stream.activity("starting", usage=usage_json(self._progress.usage))
        plan = self._plan = await session_plan.current(self._parts, self._log, self._held.run_id, begin.session)
        self._model = await self._parts.models.resolve(begin)
        events = [transcript.LogEvent(e.id, msgspec.json.decode(e.payload)) for e in begin.events]
        self._unnamed = titles.wanted(begin.title_source, begin.title_attempts)
        self._name()
        messages = transcript.assemble(
            events, own=list(begin.own_event_ids), queued_behind=begin.queued_behind, plan=plan
        )
        self._progress.wrote_text = transcript.spoke_since(events, list(begin.own_event_ids), self._held.attempt)
        tools = self._box = ToolBox(
            self._log,
            self._parts.queue,
            self._parts.family,
            self._held.row,
            plan=plan,
            spec=msgspec.json.decode(begin.spec) if begin.spec else {},
            story=Story(begin.session.id, begin.session.title, events, list(begin.own_event_ids)),
            limits=self._parts.limits,
            now=self._parts.now,
            space=Space.of_turn(self._parts.verbs, begin, self._model, events),
        )
        if self._held.attempt > 1:
            tools.recover(transcript.behind(events, list(begin.own_event_ids)))
        return await self._typed_end(tools) or await self._converse(begin.system_prompt, messages, tools)

    def _name(self) -> None:
        """Have the session named if it has no name yet: beside the turn, which never waits for it."""
        if self._unnamed and self._model is not None:
            self._parts.title(self._held.row["session_id"], self._model, self._log)

    def _overdue(self) -> bool:
        row = self._held.row
        return row["budget_ms"] is not None and self._parts.now() - row["created_at"] > row["budget_ms"]

    async def _clear_earlier(self) -> None:
        if self._held.attempt > 1:
            await self._stream.clear_earlier()

    async def _converse(self, system: str, messages: list[Message], tools: ToolBox) -> Verdict | None:
        assert self._model is not None
        while True:
            reply = await self._reply(system, messages, tools)
            if reply.finish == "error":
                return await self._failed("provider-error", ENDED_BADLY, 502, retryable=True)
            if not reply.tool_calls:
                debts = await self._debts(tools)
                if not debts or self._progress.reminders >= obligations.REMINDERS:
                    return await self._finish(reply, tools, debts)
                messages.extend(await self._remind(reply, debts))
                continue
            self._parts_of(messages, reply)
            await self._parts.queue.store_usage(self._held.run_id, self._held.attempt, self._usage() or b"{}")
            results = await self._tools(reply, tools)
            if tools.continued is not None:
                return await self._continued(tools.continued)
            ended = await self._typed_end(tools)
            if ended is not None:
                return ended
            if tools.spawned:
                return await self._park([spawned.turn for spawned in tools.spawned])
            messages.extend(results)
            messages.extend(tools.space.shown())

    async def _typed_end(self, tools: ToolBox) -> Verdict | None:
        """The end of a typed child that has delivered its result, or something else too often."""
        if tools.returned:
            return await self._finish_typed(tools)
        if tools.refused >= RESULT_ATTEMPTS:
            return await self._failed(endings.NOT_TYPED, endings.RESULT_REFUSED, 502, retryable=False)
        return None

    async def _continued(self, done: turns_pb2.ContinueSessionResponse) -> Verdict:
        """The end of a turn whose successor answers. Should its run get lost here, sessions starts it."""
        with contextlib.suppress(SeedError, OSError):
            await self._parts.queue.start(done.turn, "")
        return Verdict(endings.of(done.outcome, usage=self._usage()))

    async def _debts(self, tools: ToolBox) -> list[obligations.Obligation]:
        plan = tools.plan = await session_plan.marked(self._parts.family, self._held.row, tools.plan, self._parts.now())
        open_plan = plan is not None and not plans.settled(plan)
        live = bool(await self._parts.family.live_children(self._held.run_id)) if open_plan else False
        return obligations.open_obligations(
            typed=tools.typed, returned=tools.returned, plan=plan, run_id=self._held.run_id, live_children=live
        )

    async def _remind(self, reply: ReplyDone, debts: list[obligations.Obligation]) -> list[Message]:
        """Tell the model what is still open, in the log and in the conversation with it."""
        self._progress.reminders += 1
        note = obligations.reminder(debts)
        events = [await self._whole_text(reply)] if reply.text.strip() else []
        await self._log.append(*events, self._event("reminder", obligations.message(note)))
        await self._text_saved()
        said: list[Message] = [AssistantMessage([TextPart(reply.text)])] if reply.text.strip() else []
        return [*said, UserMessage([TextPart(note)])]

    async def _park(self, children: list[types_pb2.TurnStart]) -> Verdict | None:
        """Wait for delegated calls: the turn is put down, its run gives the worker free."""
        await self._log.finish("waiting")
        self._name()
        calls = [child.parent_tool_call_id for child in children]
        return Verdict(park=Park(children, calls, usage=self._usage()))

    async def end_canceled(self) -> Verdict | None:
        """The end of a run that a cancel reached while it was parking."""
        return await self._canceled()

    def _parts_of(self, messages: list[Message], reply: ReplyDone) -> None:
        text = [TextPart(reply.text)] if reply.text.strip() else []
        messages.append(AssistantMessage([*text, *reply.tool_calls], native=reply.native))

    async def _reply(self, system: str, messages: list[Message], tools: ToolBox) -> ReplyDone:
        assert self._model is not None
        self._reply_started = time.monotonic()
        self._step += 1
        done: ReplyDone | None = None
        async with self._parts.gateway.stream(self._model, system, messages, tools.specs) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    self._stream.add(event.text)
                elif isinstance(event, ReplyDone):
                    done = event
        if done is None:
            raise ProviderError("The provider's reply broke off", retryable=True)
        self._add_usage(done.usage)
        await self._stream.drain()
        self._stream.activity("thinking", usage=self._usage() or b"")
        return done

    def _add_usage(self, usage: Usage) -> None:
        old = self._progress.usage
        self._progress.usage = Usage(
            old.input + usage.input,
            old.output + usage.output,
            old.cache_read + usage.cache_read,
            old.cache_write + usage.cache_write,
        )
        self._progress.replied = True

    def _usage(self) -> bytes | None:
        return usage_json(self._progress.usage) if self._progress.replied else None

    def _text_event(self, text: str, usage: Usage | None) -> turns_pb2.NewEvent:
        assert self._model is not None
        meta: dict[str, Any] = {"model": self._model.model, "provider": self._model.provider_type}
        if usage is not None:
            meta["usage"] = msgspec.json.decode(usage_json(usage))
        meta["durationMs"] = int((time.monotonic() - self._reply_started) * 1000)
        return self._event("text", {"type": "message", "role": "assistant", "content": text, "meta": meta})

    def _event(self, name: str, payload: dict[str, Any]) -> turns_pb2.NewEvent:
        return turns_pb2.NewEvent(step=self._step_name(name), payload=json_bytes(payload))

    def _step_name(self, name: str) -> str:
        # Older attempts are fenced off, so a step is named within its attempt: a repeated call finds it stored.
        return f"{self._held.attempt}:{self._step}:{name}"

    async def _tools(self, reply: ReplyDone, tools: ToolBox) -> list[ToolResultMessage]:
        """Append the text and the calls, run the calls side by side, append each result when it is there."""
        events: list[turns_pb2.NewEvent] = []
        if reply.text.strip():
            events.append(await self._whole_text(reply))
        for n, call in enumerate(reply.tool_calls):
            if not tools.logged(call.name):
                continue
            shown = verbs.detail(call.arguments)
            more = {"toolName": call.name, "toolCallId": call.id, **({"detail": shown} if shown else {})}
            self._stream.activity("tool", more=more)
            events.append(
                self._event(
                    f"call:{n}", {"type": "tool_call", "id": call.id, "name": call.name, "input": call.arguments}
                )
            )
        if events:
            await self._stream.settle()
            await self._log.append(*events)
            await self._text_saved()
        # What ends the turn comes last: nothing can be written behind it.
        last = [n for n, call in enumerate(reply.tool_calls) if call.name == continuation.NAME and tools.continues][:1]
        running = [
            asyncio.create_task(self._tool(n, call, tools)) for n, call in enumerate(reply.tool_calls) if n not in last
        ]
        try:
            results = [
                *await asyncio.gather(*running),
                *[await self._go_on(n, reply.tool_calls[n], tools) for n in last],
            ]
            return [result for result in results if result is not None]
        finally:
            # One that fails ends the turn: nothing of the turn may go on behind its end.
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(running)

    async def _whole_text(self, reply: ReplyDone) -> turns_pb2.NewEvent:
        """Close the block of a complete reply and give its event, which a cancel still keeps while it is unsaved."""
        self._progress.unsaved = event = self._text_event(reply.text, reply.usage)
        await self._stream.end_block()
        return event

    async def _text_saved(self) -> None:
        self._progress.wrote_text = self._progress.wrote_text or self._progress.unsaved is not None
        self._progress.unsaved = None
        await self._stream.clear()

    async def _tool(self, n: int, call: ToolCallPart, tools: ToolBox) -> ToolResultMessage | None:
        started = time.monotonic()
        payload: dict[str, Any] = {"type": "tool_result", "toolCallId": call.id, "name": call.name}
        try:
            payload["output"] = await tools.execute(call, f"{self._held.attempt}:{self._step}:{n}")
            if isinstance(payload["output"], Spawned):
                return None
        except (verbs.VerbError, Invalid) as e:
            payload["error"] = str(e)
        return await self._result(n, call, payload, started, tools)

    async def _result(
        self, n: int, call: ToolCallPart, payload: dict[str, Any], started: float, tools: ToolBox
    ) -> ToolResultMessage:
        payload["meta"] = {"durationMs": int((time.monotonic() - started) * 1000)}
        if tools.logged(call.name):
            self._stream.activity("thinking")
            await self._log.append(self._event(f"result:{n}", payload))
        return ToolResultMessage(call.id, call.name, transcript.result_text(payload), "error" in payload)

    async def _go_on(self, n: int, call: ToolCallPart, tools: ToolBox) -> ToolResultMessage | None:
        """Let a successor answer; None when it does: the result stands in the log already."""
        started = time.monotonic()
        try:
            await tools.go_on(call, self._step_name(f"result:{n}"), started)
            return None
        except (verbs.VerbError, Invalid) as e:
            payload: dict[str, Any] = {"type": "tool_result", "toolCallId": call.id, "name": call.name, "error": str(e)}
        return await self._result(n, call, payload, started, tools)

    async def _finish(self, reply: ReplyDone, tools: ToolBox, debts: list[obligations.Obligation]) -> Verdict | None:
        events: list[turns_pb2.NewEvent] = []
        if reply.text.strip():
            events.append(await self._whole_text(reply))
        elif not self._progress.wrote_text:
            return await self._failed("provider-error", NO_TEXT, 502, retryable=True)
        unmet = msgspec.json.encode(debts) if debts else None
        if debts:
            events.append(self._event("unmet", obligations.message(obligations.record(debts))))
        if any(debt["kind"] == "typed-result" for debt in debts):
            await self._log.append(*events)
            await self._text_saved()
            return await self._failed(endings.NOT_TYPED, endings.RESULT_MISSING, 502, retryable=False, unmet=unmet)
        await self._settle_plan(succeeded=True)
        output = msgspec.json.encode({"text": reply.text}) if self._held.row["parent_run_id"] else None
        await self._keep(output, unmet)
        outcome = await self._log.finish("succeeded", events)
        self._name()
        await self._text_saved()
        return Verdict(
            Ending(
                "succeeded",
                assistant_event_id=outcome.assistant_event_id,
                usage=self._usage(),
                output=output,
                unmet_obligations=unmet,
            )
        )

    async def _finish_typed(self, tools: ToolBox) -> Verdict | None:
        """A typed child has delivered: that ends it."""
        events: list[turns_pb2.NewEvent] = []
        if not self._held.row["parent_run_id"]:
            # A later run of the session delivers to nobody: the call was answered when its own run ended.
            events.append(self._event("undelivered", obligations.message(UNDELIVERED)))
        await self._settle_plan(succeeded=True)
        output = json_bytes(tools.result)
        await self._keep(output, None)
        outcome = await self._log.finish("succeeded", events)
        return Verdict(
            Ending("succeeded", assistant_event_id=outcome.assistant_event_id, usage=self._usage(), output=output)
        )

    async def _keep(self, output: bytes | None, unmet: bytes | None) -> None:
        if output is not None or unmet is not None:
            await self._parts.queue.keep(
                self._held.run_id, self._held.attempt, output=output, unmet=unmet, used=self._usage()
            )

    async def _settle_plan(self, *, succeeded: bool) -> None:
        plan = self._box.plan if self._box is not None else self._plan
        await session_plan.settle(self._parts, self._log, self._held.row, plan, succeeded=succeeded)

    async def _canceled(self) -> Verdict | None:
        """Keep the text streamed so far; without any text of this turn the session says that it was stopped."""
        # The hint or the heartbeat may bring the same cancel once more: it must not interrupt its own handling.
        self._held.stop = self._held.stop or "canceled"
        await self._stream.drain()
        text = self._stream.text
        events = [self._progress.unsaved] if self._progress.unsaved is not None else []
        if text.strip() and self._model is not None:
            await self._stream.end_block()
            events = events or [self._text_event(text, None)]
        try:
            outcome = await self._log.finish("canceled", events, stopped_text=STOPPED)
        except NotFound as e:
            return await self._gone(e)
        except StaleAttempt:
            return None
        except Unavailable:
            return Verdict(again_at=self._parts.now() + 1_000)
        await self._stream.clear()
        # The turn may have ended otherwise just before the cancel reached it: what is recorded stands.
        return Verdict(endings.of(outcome, usage=self._usage()))

    async def _gone(self, error: NotFound) -> Verdict:
        await self._stream.clear()
        gone = "Agent" if error.message.startswith("Agent") else "Session"
        return Verdict(Ending("canceled", gone=gone, usage=self._usage()))

    async def _failed(
        self, code: str, message: str, status: int, *, retryable: bool, unmet: bytes | None = None
    ) -> Verdict | None:
        row = self._held.row
        failures = row["failures"] + 1
        await self._stream.drain()
        if self._stream.text:
            await self._stream.end_block()
        if retryable and failures < row["max_failures"]:
            await self._stream.clear()
            return Verdict(again_at=self._parts.now() + self._parts.backoff_ms(failures), failed=True)
        try:
            await self._settle_plan(succeeded=False)
            await self._keep(None, unmet)
            event = self._event("error", {"type": "error", "message": message})
            await self._log.finish("failed", [event], error_message=message, error_status=status)
        except Canceled:
            return await self._canceled()
        except StaleAttempt:
            return None
        except NotFound as e:
            return await self._gone(e)
        except Unavailable:
            return Verdict(again_at=self._parts.now() + 1_000)
        await self._stream.clear()
        return Verdict(
            Ending(
                "failed",
                error=endings.error(code, message),
                error_status=status,
                usage=self._usage(),
                unmet_obligations=unmet,
            )
        )
