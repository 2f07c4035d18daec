"""Addresses, what comes with them, and what a definition grants."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.runs.domain import addresses, grants, triggers
from services.runs.domain.addresses import Form
from services.runs.domain.transcript import LogEvent
from services.runs.domain.verbs import VerbError
from services.runs.verbs.build import READABLE, WRITABLE

FORMS = [one.form for one in READABLE]
MEMORY = Form("~/memory", "~/memory/…", written="~/memory/<path>", options=("delete", "fromUrl"))
TRIGGERS = Form("~/triggers", "~/triggers/…", written="~/triggers/<name>", options=("delete",), rehearsed=True)
THREAD = Form("thread:", "thread:")


@pytest.mark.parametrize(
    ("address", "rest"),
    [("~/memory", ""), ("~/memory/", ""), ("~/memory/a/b", "a/b"), ("~/memory//a", "/a"), ("~/memoryx", None)],
)  # fmt: skip
def test_a_room_and_what_is_in_it(address: str, rest: str | None) -> None:
    assert MEMORY.rest(address) == rest


def test_a_scheme_and_what_is_behind_it() -> None:
    assert [THREAD.rest(a) for a in ("thread:", "thread: x ", "threads:", "Thread:x")] == ["", "x", None, None]


@given(st.text())
def test_an_address_is_of_one_form_at_most(address: str) -> None:
    found = [form for form in FORMS if form.rest(address) is not None]
    assert len(found) <= 1
    for form in found:
        assert address.startswith(form.prefix)


@given(st.sampled_from(FORMS), st.text())
def test_what_is_behind_a_form_is_found(form: Form, rest: str) -> None:
    inside = f"{form.prefix}/{rest}" if form.prefix.startswith("~/") else form.prefix + rest
    found = form.rest(inside)
    assert found is not None and (found == rest or found == rest.strip() or found in rest)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(["address", "content", "options", "dryRun", "format"]) | st.text(), anything))
def test_whatever_a_model_sends_is_understood_or_refused(arguments: dict[str, Any]) -> None:
    reading = addresses.reading(arguments)
    assert reading.format in ("markdown", "json") and hasattr(reading.options, "get")
    try:
        address = addresses.address_of("write", arguments)
        written = addresses.writing(arguments)
        for form in (MEMORY, TRIGGERS):
            addresses.check_writing(form, written)
    except VerbError as e:
        assert str(e)
        return
    assert address.strip() and isinstance(written.dry_run, bool)
    assert set(written.options) <= {"delete"} and not written.dry_run


@given(st.dictionaries(st.sampled_from(["delete", "fromUrl", "x", "title", "dryRun"]), st.none(), min_size=1))
def test_no_option_is_dropped_silently(options: dict[str, Any]) -> None:
    given_ = addresses.Writing(None, options, dry_run=False)
    unknown = set(options) - {"delete", "fromUrl"}
    if not unknown:
        addresses.check_writing(MEMORY, given_)
        return
    with pytest.raises(VerbError) as caught:
        addresses.check_writing(MEMORY, given_)
    text = str(caught.value)
    assert all(f'"{name}"' in text for name in unknown) and "Supported options: delete, fromUrl." in text
    assert text.startswith("write ~/memory/<path> does not understand option")
    assert ("stands beside address" in text) == ("dryRun" in unknown)


@pytest.mark.parametrize("name", ["delete", "replaceSource"])
@pytest.mark.parametrize("value", ["true", 1, None, []])
def test_flags_are_true_or_false(name: str, value: Any) -> None:
    with pytest.raises(VerbError, match=rf"options\.{name} must be a boolean"):
        addresses.flag({name: value}, name)
    assert addresses.flag({}, name) is False and addresses.flag({name: True}, name) is True


def test_text_options() -> None:
    assert addresses.text_option({"a": " x "}, "a") == "x" and addresses.text_option({"a": None}, "a") == ""
    with pytest.raises(VerbError, match=r"options\.a must be text"):
        addresses.text_option({"a": 1}, "a")


def test_a_rehearsal_where_there_is_one() -> None:
    rehearsal = addresses.Writing("{}", {}, dry_run=True)
    addresses.check_writing(TRIGGERS, rehearsal)
    with pytest.raises(VerbError, match="cannot be rehearsed"):
        addresses.check_writing(MEMORY, rehearsal)


def test_every_form_that_is_written_says_how() -> None:
    assert all(one.form.written and one.form.options for one in WRITABLE)


@pytest.mark.parametrize(
    ("tools", "asked", "publishes"),
    [
        (None, None, True), ([], None, False), (["publish"], None, True), (["ipfs_write"], None, True),
        (None, ["search"], False), (None, ["publish"], True), (["search"], ["publish"], False),
    ],
)  # fmt: skip
def test_publishing_is_granted_and_narrowed(tools: Any, asked: Any, publishes: bool) -> None:
    assert grants.publishes(tools, asked) is publishes


def test_callables_are_granted_and_narrowed() -> None:
    everything = grants.callables(None)
    assert grants.callables(["search", "nothing"]) == {"search"} & everything
    assert grants.callables(None, ["search"]) == {"search"} & everything
    assert grants.callables(["web_search"], ["search"]) == frozenset()


def test_what_the_agent_has_looked_at_is_promoted() -> None:
    def event(name: str, given: Any, **more: Any) -> LogEvent:
        return LogEvent("e", {"type": "tool_call", "name": name, "input": given, **more})

    log = [
        event("read", {"address": " ~/tools/web_search/ "}),
        event("call", {"tool": "execute"}),
        event("call", {"tool": " search "}, actor="user"),
        event("write", {"address": "~/tools/search"}),
        event("read", {"address": 5}),
        event("call", "text"),
    ]
    assert grants.promoted(log, {"search", "web_search"}) == ["web_search"]
    assert grants.promoted([*log, event("call", {"tool": "search"})], {"search", "web_search"}) == [
        "web_search",
        "search",
    ]
    assert grants.promoted(log, set()) == []


HOURLY = {"type": "schedule", "schedule": {"kind": "interval", "every": 1, "unit": "hours"}}
OFTEN = {"type": "schedule", "schedule": {"kind": "interval", "every": 4, "unit": "minutes"}}
COMMENT = {"type": "document-comment", "resource": "hm://z/doc"}


def test_consent_to_another_kind_of_source() -> None:
    triggers.check_consent({"source": COMMENT}, COMMENT, {})
    triggers.check_consent({"source": COMMENT}, None, {})
    triggers.check_consent({"source": HOURLY}, COMMENT, {"replaceSource": True})
    with pytest.raises(VerbError, match="replaceSource: true"):
        triggers.check_consent({"source": HOURLY}, COMMENT, {"frequentSchedule": True})


def test_consent_to_a_frequent_schedule() -> None:
    triggers.check_consent({"source": {**OFTEN, "schedule": {**OFTEN["schedule"], "every": 5}}}, None, {})
    triggers.check_consent({"source": OFTEN}, HOURLY, {"frequentSchedule": True})
    with pytest.raises(VerbError, match="frequentSchedule: true"):
        triggers.check_consent({"source": OFTEN}, HOURLY, {})


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (OFTEN, "every 4 minutes"),
        ({"type": "schedule", "schedule": {"kind": "weekly", "daysOfWeek": [0, 6, 9], "timeOfDay": "07:30",
          "timezone": "Europe/Rome"}}, "Sun, Sat at 07:30 (Europe/Rome)"),
        ({"type": "schedule", "schedule": {"kind": "once", "runAt": 5}}, "once, at 5"),
        (COMMENT, "a comment on hm://z/doc"),
        ({**COMMENT, "author": "a"}, "a comment by a on hm://z/doc"),
        ({"type": "user-mention", "mentionedAccounts": ["a", "b"], "resourcePrefix": "hm://z"},
         "a mention of a or b below hm://z"),
        ({"type": "comment-reply", "repliedToAccounts": ["a"]}, "a reply to a comment of a"),
        ({"type": "document-author-comment", "documentAuthors": ["a"]}, "a comment on a document of a"),
        ({"type": "site-update", "resourcePrefix": "hm://z"}, "a change below hm://z"),
        ({"type": "site-update", "resourcePrefix": "hm://z", "eventTypes": ["comment"]}, "comment below hm://z"),
        ({"type": "activity", "conditions": [{"source": COMMENT}, {"source": {"type": "webhook"}}]},
         "a comment on hm://z/doc; or a call from outside"),
        ({"type": "run-completed"}, "a run ends"),
        ({"type": "run-completed", "status": "failed", "titleMatch": "x", "agentId": "g"},
         'a run titled "x" of agent g fails'),
        ({"type": "later"}, "later"),
    ],
)  # fmt: skip
def test_when_a_trigger_fires_in_one_line(source: Any, line: str) -> None:
    assert triggers.when(source) == line
