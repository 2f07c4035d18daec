"""What a `delegate` call asks for, and what a turn owes."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libs.protocol.text import byte_length
from services.runs.domain import delegate, obligations
from services.runs.domain import plan as plans
from services.runs.domain.plan import SETTLED, STATUSES, StepRuns
from services.runs.domain.verbs import TITLE_BYTES, VerbError
from tests.protocol.test_schema_subset import OBJECTS, SCALARS, TEXT, VALUES

ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "title": TEXT | SCALARS,
        "brief": TEXT | VALUES,
        "input": VALUES,
        "script": st.none() | TEXT,
        "prompt": TEXT | SCALARS,
        "agentId": TEXT | SCALARS,
        "tools": st.lists(TEXT, max_size=2) | SCALARS,
        "output": OBJECTS | VALUES,
        "await": SCALARS,
    },
)


@given(ARGUMENTS)
@settings(max_examples=150, deadline=None)
def test_every_call_is_a_delegation_or_told_why_not(arguments: dict[str, Any]) -> None:
    try:
        wanted = delegate.parse(arguments)
    except VerbError as e:
        assert str(e)
        return
    assert wanted.brief.strip() and byte_length(wanted.brief) <= delegate.BRIEF_BYTES
    assert wanted.title and "\0" not in wanted.title
    assert wanted.titled == bool(isinstance(arguments.get("title"), str) and wanted.title in arguments["title"])
    assert not ("prompt" in wanted.spec and wanted.agent_id)
    assert wanted.detached == (arguments.get("await") is False)
    if wanted.detached:
        assert not wanted.agent_id and not {"tools", "output"} & set(wanted.spec)
    stored = msgspec.json.decode(delegate.first_message(wanted.brief))
    assert (stored["role"], stored["content"]) == ("user", wanted.brief)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, "requires a `brief`"),
        ({"brief": "  "}, "requires a `brief`"),
        ({"brief": "a", "script": "b"}, "either a brief or a script"),
        ({"brief": "a", "prompt": "b", "agentId": "c"}, "either a prompt or an agentId"),
        ({"brief": "x" * (delegate.BRIEF_BYTES + 1)}, "too large"),
        ({"brief": "a", "title": "x" * (TITLE_BYTES + 1)}, "title is longer"),
        ({"brief": "a", "output": {"oneOf": []}}, "keyword oneOf is not supported"),
        ({"brief": "a", "tools": ["a", 1]}, "list of names"),
        ({"brief": "a", "await": False, "output": {}}, "await false"),
        ({"brief": "a", "agentId": 7}, "agentId must be text"),
    ],
)
def test_refusals(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(VerbError, match=why):
        delegate.parse(arguments)


def test_other_ways_to_give_a_brief() -> None:
    assert delegate.parse({"prompt": "p"}) == delegate.Delegation("p", False, "p", "", {}, False)
    assert delegate.parse({"brief": None, "input": "i"}).brief == "i"
    fenced = delegate.parse({"brief": {"n": 2**70}}).brief
    assert json.loads(fenced.removeprefix("```json\n").removesuffix("\n```")) == {"n": str(2**70)}
    assert delegate.parse({"brief": "b", "prompt": "p"}).spec == {"prompt": "p"}


def test_a_call_executed_again_has_the_same_child() -> None:
    ids = {delegate.child_run_id(run, call, step) for run in "ab" for call in "cd" for step in "ef"}
    assert len(ids) == 8
    assert delegate.child_run_id("a", "c", "e") in ids


@pytest.mark.parametrize(
    ("status", "more"),
    [("succeeded", {"output": {"text": "x"}}), ("canceled", {}), ("failed", {"error": {"code": "c", "message": "m"}})],
)
def test_what_the_parent_is_told(status: str, more: dict[str, Any]) -> None:
    error = b'{"code":"c","message":"m","detail":1}'
    told = delegate.answer(status, "r", "s", b'{"text":"x"}', error)
    assert told == {"status": status, "runId": "r", "sessionId": "s", **more}
    assert "sessionId" not in delegate.answer(status, "r", None, None, error)


STEPS = st.lists(st.sampled_from(STATUSES), max_size=6).map(
    lambda statuses: [{"id": f"s{n}", "label": f"S{n}", "status": s} for n, s in enumerate(statuses)]
)


@given(STEPS, st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_debts_are_what_is_open_and_ones_own(
    steps: list[dict[str, str]], typed: bool, returned: bool, mine: bool, live: bool
) -> None:
    plan = {"steps": steps, "ownerRunId": "me" if mine else "other"}
    debts = obligations.open_obligations(typed=typed, returned=returned, plan=plan, run_id="me", live_children=live)
    assert ({"kind": "typed-result"} in debts) == (typed and not returned)
    left = [s["label"] for s in steps if s["status"] in ("pending", "running")]
    owed = [d["steps"] for d in debts if d["kind"] == "plan"]
    assert owed == ([left] if left and mine and not live else [])
    for text in (obligations.reminder(debts), obligations.record(debts)):
        assert all(label in text for label in (owed[0] if owed else []))
        assert ("return_result" in text) == (typed and not returned)


@given(STEPS, st.booleans())
def test_nothing_runs_after_the_end(steps: list[dict[str, str]], succeeded: bool) -> None:
    after = obligations.settled_after({"steps": steps, "title": "T"}, succeeded, 7)
    assert after["title"] == "T"
    for before, now in zip(steps, after["steps"], strict=True):
        ended = "done" if succeeded else "failed"
        assert now == {**before, "status": ended if before["status"] == "running" else before["status"]}
    settled = bool(steps) and all(s["status"] in SETTLED for s in after["steps"])
    assert after.get("settledAt") == (7 if settled else None)


@given(STEPS, st.sets(st.integers(0, 5)), st.sets(st.integers(0, 5)), st.booleans())
def test_work_of_others_is_kept_apart(
    steps: list[dict[str, str]], done: set[int], live: set[int], succeeded: bool
) -> None:
    def keys(numbers: set[int]) -> frozenset[tuple[str, str]]:
        return frozenset((f"s{n}", f"S{n}") for n in numbers)

    work = StepRuns(done=keys(done), live=keys(live))
    resolved = plans.resolved({"steps": steps}, work, 7)
    for n, (before, now) in enumerate(zip(steps, resolved["steps"], strict=True)):
        settled = before["status"] in SETTLED
        expected = {"status": "done", "resolvedBy": "runtime"} if n in done and not settled else {}
        assert now == {**before, **expected}
    assert ("settledAt" in resolved) == (resolved["steps"] != steps and plans.settled(resolved))
    other = plans.resolved({"steps": [{**s, "label": "else"} for s in steps]}, work, 7)
    assert all("resolvedBy" not in step for step in other["steps"])
    after = obligations.settled_after(resolved, succeeded, 9, work.live)
    for n, step in enumerate(after["steps"]):
        assert step["status"] != "running" or n in live
