"""Plans, verbs, titles and selectors (runtime.md, sections 5 and 8; actions.md, Runs)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.errors import Invalid
from services.runs.domain import plan as plans
from services.runs.domain import selectors, titles, verbs
from services.runs.domain.transcript import LogEvent
from services.runs.domain.usage import usage_json, usage_of
from services.runs.providers.contract import Usage


def planned(*steps: Any, previous: Any = None, run: str = "r1", now: int = 5, **more: Any) -> dict[str, Any]:
    return plans.normalize({"steps": list(steps), **more}, previous, run_id=run, now=now)


def step(n: int, status: str = "done", **more: Any) -> dict[str, Any]:
    return {"id": f"s{n}", "label": f"Step {n}", "status": status, **more}


def test_a_plan_as_asked_for() -> None:
    assert planned(step(1), step(2, "running"), title=" Trip ") == {
        "title": "Trip",
        "steps": [step(1), step(2, "running")],
        "ownerRunId": "r1",
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("Book", {"id": "step-1", "label": "Book", "status": "pending"}),
        ({"label": "Book"}, {"id": "step-1", "label": "Book", "status": "pending"}),
        ({"id": "a", "label": "b", "status": "paused"}, {"id": "a", "label": "b", "status": "pending"}),
        ({"id": "a", "label": " ", "status": ["done"]}, {"id": "a", "label": "a", "status": "pending"}),
        ({"id": 7, "label": "x" * 300, "status": "done"}, {"id": "step-1", "label": "x" * 200, "status": "done"}),
        (step(1, resolvedBy="runtime", settledAt=1), step(1)),
        (None, {"id": "step-1", "label": "step-1", "status": "pending"}),
    ],
)
def test_steps_are_taken_as_they_come(given: Any, expected: dict[str, Any]) -> None:
    assert planned(given)["steps"] == [expected]


def test_only_a_hundred_steps() -> None:
    assert len(planned(*map(str, range(150)))["steps"]) == plans.STEPS == 100
    assert planned(title="x" * 300, previous=None)["title"] == "x" * 200
    assert plans.normalize({"steps": "abc"}, None, run_id="r", now=1)["steps"] == []


def test_the_time_of_settling_is_kept_until_a_step_is_reopened() -> None:
    settled = planned(step(1), step(2, "skipped"), now=5)
    assert settled["settledAt"] == 5
    assert planned(step(1), step(2, "failed"), previous=settled, now=9)["settledAt"] == 5
    reopened = planned(step(1), step(2, "running"), previous=settled, now=9)
    assert "settledAt" not in reopened
    assert planned(step(1), step(2), previous=reopened, now=11)["settledAt"] == 11
    assert "settledAt" not in planned()


def test_saying_a_settled_plan_again_does_not_change_its_owner() -> None:
    settled = planned(step(1), run="r1")
    assert planned(step(1, "running"), previous=settled, run="r2")["ownerRunId"] == "r1"
    assert planned(step(2), previous=settled, run="r2")["ownerRunId"] == "r2"
    assert planned(step(1), previous=planned(step(1, "running"), run="r1"), run="r2")["ownerRunId"] == "r2"


def test_what_the_runtime_resolved_stays_marked_while_it_is_done() -> None:
    before = {"steps": [step(1, resolvedBy="runtime")]}
    assert planned(step(1), previous=before)["steps"] == [step(1, resolvedBy="runtime")]
    assert planned(step(1, "running"), previous=before)["steps"] == [step(1, "running")]


def test_a_plan_settled_by_another_run_is_history() -> None:
    settled = planned(step(1), run="r1")
    assert plans.is_history(settled, "r2") and not plans.is_history(settled, "r1")
    assert not plans.is_history(planned(step(1, "pending"), run="r1"), "r2")


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=300),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["id", "label", "status"]), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["title", "steps", "settledAt"]), ANY), st.booleans())
def test_whatever_the_model_sends_makes_a_plan(arguments: dict[str, Any], again: bool) -> None:
    plan = plans.normalize(arguments, None, run_id="r1", now=3)
    plan = plans.normalize(arguments, plan, run_id="r2", now=4) if again else plan
    for made in plan["steps"]:
        assert made["id"] and made["label"] and made["status"] in plans.STATUSES
        assert len(made["id"]) <= 200 and len(made["label"]) <= 200
    assert ("settledAt" in plan) == plans.settled(plan)
    assert plan["ownerRunId"] in ("r1", "r2")


def test_a_status_call_sets_what_it_names() -> None:
    assert verbs.status_change({"title": " T "}) == verbs.StatusChange("T", None)
    assert verbs.status_change({"description": "D", "title": None}) == verbs.StatusChange(None, "D")


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"title": 7},
        {"title": "  "},
        {"description": []},
        {"title": "ä" * 129},
        {"description": "x" * 1025},
        {"title": "a\0b"},
    ],
    ids=["nothing", "number", "blank", "list", "long title", "long description", "NUL"],
)
def test_a_wrong_status_call_is_told_why(arguments: dict[str, Any]) -> None:
    with pytest.raises(verbs.VerbError, match="status"):
        verbs.status_change(arguments)


def test_the_schemas_of_the_verbs_name_their_arguments() -> None:
    assert [spec.name for spec in verbs.VERBS] == ["plan", "status"]
    for spec in verbs.VERBS:
        assert spec.input_schema["type"] == "object" and spec.input_schema["additionalProperties"] is False
        assert set(spec.input_schema.get("required", ())) <= set(spec.input_schema["properties"])


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({"query": " a \n b ", "title": "t"}, "a b"),
        ({"title": "t", "id": ""}, "t"),
        ({"name": "x" * 90}, "x" * 80),
        ({"title": 7}, ""),
        ("not an object", ""),
    ],
)
def test_the_detail_of_a_running_tool(arguments: Any, shown: str) -> None:
    assert verbs.detail(arguments) == shown


@pytest.mark.parametrize(
    ("answer", "title", "description"),
    [
        ("A trip\nThey plan a trip.", "A trip", "They plan a trip."),
        ('Title: "A trip."\nDescription: They plan.', "A trip", "They plan."),
        ('"Title: A trip"', "A trip", None),
        ("**Title:** A trip\n\n**Description:** They plan.", "A trip", "They plan."),
        ("# A trip.\n- They plan.", "A trip", "They plan."),
        ("“A trip”.\n", "A trip", None),
        ("Title-case in C#\nx", "Title-case in C#", "x"),
        ("Line 1: A trip\nLine 2: They plan.", "A trip", "They plan."),
        ("x" * 257 + "\n" + "y" * 1025, None, None),
        ("", None, None),
        ('"."\n', None, None),
    ],
)
def test_what_is_taken_from_the_answer_with_a_title(answer: str, title: str | None, description: str | None) -> None:
    assert titles.parse(answer) == (title, description)


@given(st.text(alphabet=st.sampled_from("ab :.-*#\"'\n\0Title")))
def test_a_title_is_fit_to_be_stored(answer: str) -> None:
    for made in titles.parse(answer):
        assert made is None or (made and made == made.strip() and "\0" not in made and "\n" not in made)


def test_the_digest_is_the_beginning_of_what_was_said() -> None:
    def says(role: str, content: str, kind: str = "message") -> LogEvent:
        return LogEvent("e", {"type": kind, "role": role, "content": content})

    events = [says("user", "a " * 2_000), says("assistant", "b" * 900), says("user", "x", "error"), says("tool", "x")]
    lines = titles.digest(events).splitlines()
    assert [len(line) for line in lines] == [len("user: ") + 1_200, len("assistant: ") + 600]
    assert titles.digest([says("user", " ")]) == ""
    assert titles.digest([says("tool", "x")] * 12 + [says("user", "late")]) == ""
    assert len(titles.digest([says("user", "a" * 5_000)] * 12)) == titles.ALL_CHARS


def test_exactly_one_selector() -> None:
    assert selectors.choose(root_run_id=None, session_id="", agent_id=None) == selectors.Selector("session_id", "")
    with pytest.raises(Invalid, match=r"^ListRuns requires rootRunId, sessionId, or agentId$"):
        selectors.choose(root_run_id=None, session_id=None, agent_id=None)
    with pytest.raises(Invalid, match=r"^ListRuns takes exactly one of rootRunId, sessionId, agentId$"):
        selectors.choose(root_run_id="", session_id=None, agent_id="a")


def test_usage_is_read_as_it_was_written() -> None:
    usage = Usage(1, 2, 3, 4)
    assert usage_json(usage) == b'{"input":1,"output":2,"cacheRead":3,"cacheWrite":4,"total":10}'
    assert usage_of(usage_json(usage)) == usage
    assert usage_of(None) == Usage()
