"""Combining activity sources, and the trigger that new agents begin with (triggers.md, sections 8 and 9)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.errors import Conflict, Invalid
from libs.protocol import limits
from services.triggers.domain.combine import check_combinable, check_current, combined
from services.triggers.domain.default import default_trigger
from services.triggers.domain.definition import Rules


def mention(*accounts: str) -> dict[str, Any]:
    return {"type": "user-mention", "mentionedAccounts": list(accounts)}


def compound(**conditions: dict[str, Any]) -> dict[str, Any]:
    return {"type": "activity", "conditions": [{"id": id_, "source": source} for id_, source in conditions.items()]}


def joined(first: dict[str, Any], other: dict[str, Any]) -> list[tuple[str, Any]]:
    numbers = itertools.count(1)
    made = combined(first, other, lambda: f"new{next(numbers)}")
    assert made["type"] == "activity"
    return [(condition["id"], condition["source"]) for condition in made["conditions"]]


def test_single_sources_become_conditions() -> None:
    assert joined(mention("a"), mention("b")) == [("new1", mention("a")), ("new2", mention("b"))]


def test_equal_sources_are_kept_once_whatever_their_order() -> None:
    assert joined(compound(x=mention("a", "b")), mention("b", "a")) == [("x", mention("a", "b"))]


def test_an_id_that_is_taken_is_replaced() -> None:
    first, other = compound(x=mention("a"), y=mention("b")), compound(x=mention("c"), new1=mention("d"), z=mention("a"))
    assert joined(first, other) == [
        ("x", mention("a")),
        ("y", mention("b")),
        ("new1", mention("c")),
        ("new2", mention("d")),
    ]


def test_too_many_conditions_are_refused() -> None:
    many = compound(**{f"c{n}": mention(f"a{n}") for n in range(limits.ACTIVITY_CONDITIONS)})
    assert len(joined(many, mention("a0"))) == limits.ACTIVITY_CONDITIONS
    with pytest.raises(Invalid, match="Too many trigger conditions"):
        joined(many, mention("one more"))


@given(st.lists(st.integers(0, 20), max_size=16, unique=True), st.lists(st.integers(0, 20), max_size=16, unique=True))
def test_the_union_has_every_source_once_under_an_id_of_its_own(one: list[int], other: list[int]) -> None:
    made = joined(*(compound(**{f"c{i}": mention(f"a{n}") for i, n in enumerate(each)}) for each in (one, other)))
    assert {source["mentionedAccounts"][0] for _, source in made} == {f"a{n}" for n in {*one, *other}}
    assert len({id_ for id_, _ in made}) == len(made) == len({*one, *other})


def row(**more: Any) -> dict[str, Any]:
    return {"id": "t1", "agent_id": "a", "kind": "user-mention", "merged_into": None, **more}


def test_what_can_be_combined() -> None:
    check_combinable(row(), row(id="t2", kind="activity"))
    for other in (row(), row(id="t2", agent_id="b"), row(id="t2", kind="webhook"), row(id="t2", kind="schedule")):
        with pytest.raises(Invalid, match="Only activity"):
            check_combinable(row(), other)
    for first, other in ((row(merged_into="t3"), row(id="t2")), (row(), row(id="t2", merged_into="t3"))):
        with pytest.raises(Conflict, match="cannot be edited"):
            check_combinable(first, other)
    check_current((1, 2), (1, 2))
    with pytest.raises(Conflict, match="changed elsewhere"):
        check_current((1, 2), (1, 3))


@given(st.text(min_size=1).filter(str.strip), st.sampled_from(["z6Mk1", "z6Mk2"]))
def test_a_default_trigger_passes_the_rules_whatever_the_agent_is_called(name: str, account: str) -> None:
    agent_name = name.replace("\0", "").encode("utf-8", "replace")[: limits.LABEL_BYTES].decode("utf-8", "ignore")
    made = Rules(lambda: "block", webhooks=True).trigger(default_trigger(agent_name, account))
    assert made.enabled and made.continuation is None
    assert made.name.startswith("Mentions, replies, and comments for") and len(made.name.encode()) <= limits.LABEL_BYTES
    assert [condition["id"] for condition in made.source["conditions"]] == ["mention", "reply", "document-comment"]
