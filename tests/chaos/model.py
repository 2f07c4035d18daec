"""The model of a chaos run: what a message asks for by its tag, it gets."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from typing import Any

from libs.stack.scripted import Answer, Calls, Fail, Say
from tests.chaos.history import TAG, Shown

WORK = (
    *("instant", "instant", "instant", "slow", "slow", "long", "tools", "tools", "delegate", "delegate"),
    *("flaky", "refused", "broken", "switch"),
)
"""What a message may ask for; repeated ones more often."""
CHILD_WORK = ("instant", "slow", "tools", "long", "refused")
FAILURE = "scripted failure"

# Seconds that an answer takes. A long one still runs elsewhere when the worker that was frozen in it wakes up.
_TAKES_S = {"slow": 0.3, "long": 2.5}
# How many requests of a tag fail, with which status: the gateway itself asks three times after a 500.
_FAILS = {"flaky": (1, 500), "refused": (1, 400), "broken": (3, 500)}
_PLACEHOLDER = re.compile(r'"status":\s*"running"')


class Model:
    """Gives each request its answer, and keeps what it was shown.

    Which call a delegated child gets is decided by its parent's tag, so it is the same in every attempt.
    """

    def __init__(self) -> None:
        self._finals = itertools.count(1)
        self._asked: Counter[str] = Counter()
        self._children = itertools.count(1)
        self.shown: dict[str, Shown] = {}
        self.requests = 0

    def answer(self, body: dict[str, Any]) -> Answer:
        """The answer to a request body of chat completions."""
        self.requests += 1
        messages: list[dict[str, Any]] = body["messages"]
        tools = self._tools(messages)
        self._note(messages, tools)
        tag, kind = _asks(messages)
        self._asked[tag] += 1
        fails, status = _FAILS.get(kind, (0, 0))
        if self._asked[tag] <= fails:
            return Fail(status, f"{FAILURE} of {tag}")
        asked = any(f"{tag} " in arguments for _, arguments in tools.values())
        if kind in ("tools", "delegate") and not asked:
            return self._work(tag, kind)
        if kind == "switch" and not asked and not _text(messages[1]["content"]).startswith("<session_continuation>"):
            handoff = {"purpose": f"{tag} goes on", "currentRequest": f"{tag} is to be answered"}
            call = {"reason": "refocus", "title": f"{tag} moved", "description": "Elsewhere.", "handoff": handoff}
            return Calls([("continue_session", call)], before=f"Moving {tag}.")
        return self._final(tag, _TAKES_S.get(kind, 0.0))

    def _final(self, tag: str, seconds: float) -> Say:
        words = f"final {next(self._finals)} to {tag}.".split(" ")
        chunks = [*(word + " " for word in words[:-1]), words[-1]]
        return Say(chunks, delay_s=seconds / len(chunks))

    def _work(self, tag: str, kind: str) -> Calls:
        if kind == "tools":
            step = {"id": "s", "label": f"{tag} step", "status": "done"}
            return Calls(
                [("status", {"description": f"{tag} at work"}), ("plan", {"steps": [step]}), ("status", {"bad": tag})],
                before=f"Looking into {tag}.",
            )
        briefs = []
        for n in range(1 + len(tag) % 2):
            work = CHILD_WORK[(int(re.sub(r"\D", "", tag)) + n) % len(CHILD_WORK)]
            briefs.append(f"[c-{next(self._children)} {work}] for {tag} of its parent")
        return Calls([("delegate", {"brief": brief}) for brief in briefs])

    def _tools(self, messages: list[dict[str, Any]]) -> dict[str, tuple[str, str]]:
        return {
            call["id"]: (call["function"]["name"], call["function"]["arguments"] + " ")
            for message in messages
            for call in message.get("tool_calls") or ()
        }

    def _note(self, messages: list[dict[str, Any]], tools: dict[str, tuple[str, str]]) -> None:
        for message in messages:
            if message["role"] != "tool":
                continue
            call, text = message["tool_call_id"], _text(message["content"])
            name = tools.get(call, ("", ""))[0]
            if name == "delegate" and _PLACEHOLDER.search(text):
                continue
            shown = self.shown.setdefault(call, Shown(call, name))
            if text not in shown.texts:
                shown.texts.append(text)


def _asks(messages: list[dict[str, Any]]) -> tuple[str, str]:
    for message in reversed(messages):
        if message["role"] == "user" and (found := TAG.findall(_text(message["content"]))):
            return found[-1]
    raise AssertionError(f"a request without a message: {json.dumps(messages)[:500]}")


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return str(content)
