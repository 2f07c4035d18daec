"""Unit and property: what a continue_session call may say, and what a successor is told."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.protocol import schema_subset
from services.runs.domain import continuation
from services.runs.domain.continuation import handoff, parse
from services.runs.domain.transcript import LogEvent
from services.runs.domain.verbs import VerbError

ASKED: dict[str, Any] = {
    "reason": "topic_change",
    "title": " The offsite ",
    "description": "Where and when.",
    "handoff": {"purpose": "A survey", "currentRequest": "Plan the offsite"},
}


def asked(**more: Any) -> dict[str, Any]:
    return {**ASKED, **more}


def told(**more: Any) -> dict[str, Any]:
    return asked(handoff={**ASKED["handoff"], **more})


def source(**fields: Any) -> dict[str, Any]:
    return asked(sources=[{"relevance": "why", **fields}])


def test_what_is_taken():
    wanted = parse(told(decisions=["Lisbon", " "], cautions="Not in August"))
    assert (wanted.reason, wanted.title, wanted.plan) == ("topic_change", "The offsite", "carry")
    assert wanted.sections == [
        ("Purpose", "A survey"),
        ("What is wanted now", "Plan the offsite"),
        ("Decided", "- Lisbon"),
        ("Beware", "- Not in August"),
    ]
    [file] = parse(source(kind="memory", path="plan.md")).sources
    assert file.where == "~/memory/plan.md"
    [one] = parse(source(kind="session_event", seq=3)).sources
    assert (one.session_id, one.first, one.last) == ("", 3, 3)


@pytest.mark.parametrize(
    "wrong",
    [
        asked(reason="boredom"),
        asked(title=" "),
        asked(title="x" * 257),
        asked(description=None),
        asked(handoff="go"),
        asked(handoff={"purpose": "A"}),
        asked(transfer={"plan": "burn"}),
        asked(transfer="carry"),
        asked(sources="all"),
        asked(sources=[{"kind": "memory", "path": "a", "relevance": "r"}] * 51),
        told(decisions=[1]),
        told(decisions=["x" * 40_000]),
        source(kind="dream"),
        source(kind="resource"),
        source(kind="session_event", seq=0),
        source(kind="session_event", seq=True),
        source(kind="session_event", seq=2**60),
        source(kind="session_events", fromSeq=4, toSeq=3),
        source(kind="session_events", fromSeq=4),
        source(kind="resource", url="hm://a", relevance=""),
    ],
)
def test_what_is_refused(wrong: dict[str, Any]):
    with pytest.raises(VerbError, match="continue_session"):
        parse(wrong)


def test_the_contract_accepts_what_the_rules_accept():
    assert schema_subset.refusals(continuation.CONTINUE.input_schema) == []
    for value in (ASKED, told(decisions=["a"]), source(kind="session_events", fromSeq=1, toSeq=2)):
        assert schema_subset.errors(value, continuation.CONTINUE.input_schema) == []


def log(*texts: str) -> list[LogEvent]:
    roles = ("user", "assistant")
    return [
        LogEvent(f"e{n}", {"type": "message", "role": roles[n % 2], "content": text}) for n, text in enumerate(texts)
    ]


def test_the_successor_is_told_the_handoff_the_sources_and_what_was_said_last():
    wanted = parse(
        {
            **told(openQuestions=["Which month?"]),
            "sources": [
                {"kind": "resource", "url": "hm://z/offsite", "relevance": "the page"},
                {"kind": "session_events", "fromSeq": 1, "toSeq": 1, "relevance": "the first ask"},
                {"kind": "session_event", "sessionId": "other", "seq": 9, "relevance": "an old one"},
            ],
        }
    )
    text = handoff(
        wanted, "s1", "Survey", log("first </session_continuation>", "sure", "more", "yes", "offsite"), ["e4"]
    )
    assert text.startswith("<session_continuation>\n") and text.endswith("\n</session_continuation>")
    assert text.count("</session_continuation>") == 1
    assert '{"sessionId":"s1","title":"Survey","reason":"topic_change"}' in text
    assert "## Open questions\n- Which month?" in text
    assert (
        "- hm://z/offsite: the page\n- thread:s1, events 1: the first ask\n- thread:other, events 9: an old one" in text
    )
    assert "## Passages you named\n[1] user: first \\u003c/session_continuation>" in text
    assert (
        text.split("before that message\n")[1].split("\n</")[0]
        == "[2] assistant: sure\n[3] user: more\n[4] assistant: yes"
    )


texts = st.text(st.characters(codec="utf-8"), max_size=400)


@given(st.lists(texts, max_size=30), st.integers(1, 40), st.integers(0, 2**50), st.integers(0, 29))
def test_what_is_told_stays_within_bounds(said: list[str], first: int, more: int, own: int):
    wanted = parse(source(kind="session_events", fromSeq=first, toSeq=first + more))
    text = handoff(wanted, "s1", "", log(*said), [f"e{own}"])
    assert len(text.encode()) < continuation.PASSAGES_BYTES * 6 + 4_096
    assert json.loads(text.splitlines()[1])["sessionId"] == "s1"
    assert text.count("</session_continuation>") == 1


def test_long_logs_are_cut_from_the_far_end():
    said = [f"{n} " + "x" * 5_000 for n in range(30)]
    text = handoff(parse(ASKED), "s1", "", log(*said), ["e29"])
    assert "[29] user: 28 xxx" in text and "[22] assistant: 21" in text and "[21]" not in text
    cited = parse(source(kind="session_events", fromSeq=1, toSeq=30))
    text = handoff(cited, "s1", "", log(*said), ["e29"])
    assert "[1] user: 0 xxx" in text and "the rest is in that session" in text and "[30]" not in text
