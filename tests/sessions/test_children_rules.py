"""Steps that children resolve, and calls that stand open."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from services.sessions.domain import children, turns

STATUSES = ("pending", "running", "done", "failed", "skipped")
PLANS = st.lists(st.sampled_from(STATUSES), max_size=5).map(
    lambda statuses: {
        "steps": [{"id": f"s{n}", "label": f"S{n}", "status": status} for n, status in enumerate(statuses)],
        "ownerRunId": "r",
    }
)


@given(PLANS, st.integers(0, 5))
def test_one_open_step_is_done_by_the_runtime(plan: dict[str, Any], at: int) -> None:
    before = json.loads(json.dumps(plan))
    after = children.resolved(plan, f"s{at}", 7)
    assert plan == before
    open_step = at < len(plan["steps"]) and plan["steps"][at]["status"] in ("pending", "running")
    if not open_step:
        assert after is None
        return
    assert after is not None and after["ownerRunId"] == "r"
    for n, (old, new) in enumerate(zip(plan["steps"], after["steps"], strict=True)):
        assert new == (old if n != at else {**old, "status": "done", "resolvedBy": "runtime"})
    settled = all(step["status"] in ("done", "failed", "skipped") for step in after["steps"])
    assert after.get("settledAt") == (7 if settled else None)
    assert children.resolved(after, f"s{at}", 9) is None


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans())))
def test_calls_are_open_until_their_result_even_when_ids_come_again(moves: list[tuple[str, bool]]) -> None:
    payloads: list[bytes] = []
    expected: dict[str, str] = {}
    for call, is_result in moves:
        if is_result:
            payloads.append(json.dumps({"type": "tool_result", "toolCallId": call, "name": "n"}).encode())
            expected.pop(call, None)
        else:
            payloads.append(json.dumps({"type": "tool_call", "id": call, "name": "n", "input": {}}).encode())
            expected[call] = "n"
    assert turns.open_calls(payloads) == expected
    assert {step for step, _ in turns.repairs(payloads, {"a"})} == {
        f"repair:{call}" for call in expected if call != "a"
    }
