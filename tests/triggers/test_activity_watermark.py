"""Keys, times and summaries of events, and how far a feed was handled (triggers.md, sections 4 and 8)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from services.triggers.domain.activity.keys import event_key, firing_key
from services.triggers.domain.activity.shapes import Activity
from services.triggers.domain.activity.summary import summary_of
from services.triggers.domain.activity.times import event_time
from services.triggers.domain.activity.watermark import capacity_of, first_poll, keyed, later_poll
from tests.triggers.events import citation, comment, raw_blob, raw_mention


@pytest.mark.parametrize(
    ("event", "key"),
    [
        ({"feedEventId": "blob-x", "type": "comment", "id": "y"}, "blob-x"),
        ({"type": "comment", "id": "y"}, "comment-y"),
        (raw_blob("c1"), "blob-c1"),
        (raw_blob("c1", form="snake"), "blob-c1"),
        ({"newBlob": {"cid": "undefined", "blobId": "7"}}, "blob-id-7"),
        ({"newBlob": {"blobId": 7}}, "blob-id-7"),
        ({"newBlob": {"cid": "undefined"}}, None),
        (raw_mention("c1"), "mention-c1--hm://bob"),
        (raw_mention("c1", mention_type="Link", form="case"), "mention-c1-Link-hm://bob"),
        ({"newMention": {"sourceBlob": {"cid": "c1"}}}, None),
        ({"type": "comment"}, None),
        ([], None),
        (None, None),
    ],
)
def test_keys_of_events(event: Any, key: str | None) -> None:
    assert event_key(Activity(event)) == key


CIDS = st.text("abcdefghijklmnopqrstuvwxyz234567", min_size=8, max_size=59).map("bafy".__add__)


@given(CIDS, st.text(max_size=20), st.sampled_from(["", "Embed", "Link"]), st.sampled_from(["camel", "snake", "case"]))
def test_a_comment_and_its_citations_are_one_activity(cid: str, path: str, mention_type: str, form: str) -> None:
    expected = f"blob-{cid}"
    events = [
        comment(cid),
        citation(cid, target=("bob", path)),
        raw_blob(cid, form=form),
        raw_mention(cid, target=f"hm://bob/{path}", mention_type=mention_type, form=form),
    ]
    assert [firing_key(Activity(event)) for event in events] == [expected] * 4


@given(CIDS, CIDS)
def test_different_comments_are_different_activities(one: str, other: str) -> None:
    assert (firing_key(Activity(comment(one))) == firing_key(Activity(citation(other)))) is (one == other)


def test_endless_keys_stay_apart_and_short() -> None:
    keys = {event_key(Activity({"feedEventId": "x" * 5000 + tail})) for tail in "ab"}
    assert len(keys) == 2
    assert all(key is not None and len(key) <= 512 for key in keys)


@pytest.mark.parametrize(
    ("event", "at"),
    [
        ({"eventAtMs": 5, "time": 9}, 5),
        ({"time": "2023-11-14T22:13:20Z"}, 1_700_000_000_000),
        ({"time": "2023-11-14T22:13:20.123456789Z"}, 1_700_000_000_123),
        ({"time": {"seconds": "2", "nanos": 500_000_000}}, 2500),
        ({"eventTime": {"seconds": 2}, "observeTime": {"seconds": 3}}, 3000),
        ({"eventTime": {"seconds": 2}}, 2000),
        ({"event_time": "1970-01-01T00:00:01Z", "observe_time": "nonsense"}, 1000),
        ({"eventAtMs": True}, None),
        ({"eventAtMs": float("inf")}, None),
        ({"time": "0001-01-01T00:00:00+14:00"}, None),
        ({}, None),
    ],
)
def test_when_an_event_happened(event: Any, at: int | None) -> None:
    assert event_time(Activity(event)) == at


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (raw_blob(), "Comment on hm://site/docs/spec"),
        ({"newBlob": {"blobType": "Ref"}}, "Ref"),
        (raw_mention(), "Mention of hm://bob from hm://site/docs/spec"),
        ({"newMention": {"target": "hm://bob"}}, "Mention of hm://bob"),
        (comment(), "comment on Notes"),
        ({"type": "contact"}, "contact"),
        ({"type": "comment", "target": {"metadata": {"name": "two\nlines\x00"}}}, "comment on two lines\ufffd"),
        ({}, "Seed activity"),
    ],
)
def test_summaries(event: Any, line: str) -> None:
    assert summary_of(Activity(event)) == line


def test_summaries_end() -> None:
    assert len(summary_of(Activity({"type": "x" * 5000}))) == 500


def feed(*names: int, at: dict[int, int] | None = None) -> list[Activity]:
    return [Activity({"feedEventId": f"e{name}", "eventAtMs": (at or {}).get(name, name)}) for name in names]


def test_a_first_poll_processes_only_what_came_after_the_first_trigger() -> None:
    plan = first_poll(keyed(feed(5, 4, 3, 2, 1)), 4)
    assert [each.key for each in plan.due] == ["e4", "e5"]
    assert plan.baseline == ("e3", "e2", "e1")


def test_events_of_no_time_are_old_at_a_first_poll() -> None:
    for events, since in (([Activity({"feedEventId": "e1"})], 0), (feed(1), None)):
        plan = first_poll(keyed(events), since)
        assert (plan.baseline, plan.due) == (("e1",), ())


def test_later_polls_ignore_when_an_event_was_made() -> None:
    plan = later_poll(keyed(feed(9, 1)))
    assert [each.key for each in plan.due] == ["e1", "e9"]


def test_events_without_a_key_and_repeated_ones_are_skipped() -> None:
    assert [each.key for each in keyed([*feed(2, 1, 2), Activity({}), Activity(None)])] == ["e2", "e1"]


class Crashing(RuleBasedStateMachine):
    """A feed that grows, and a monitor that may die before any of its steps.

    Nothing is lost, nothing fires twice, the order is the feed's, and a death repeats at most one event.
    """

    PAGE_SIZE, MAX_PAGES, SINCE = 2, 4, 50

    def __init__(self) -> None:
        super().__init__()
        self.feed: list[int] = []
        self.at: dict[int, int] = {}
        # What is stored.
        self.begun = False
        self.seen: tuple[str, ...] = ()
        self.claims: set[str] = set()
        # What happened.
        self.done: set[str] = set()
        self.owed: set[str] = set()
        self.fired: list[str] = []
        self.looked_at: list[str] = []
        self.deaths = 0

    @initialize(times=st.lists(st.sampled_from([0, 100]), max_size=8))
    def the_feed_is_older_than_the_first_trigger(self, times: list[int]) -> None:
        for at in times:
            self.an_event_arrives(at)

    @precondition(lambda self: self.waiting() < self.PAGE_SIZE * self.MAX_PAGES)
    @rule(at=st.sampled_from([0, 100]))
    def an_event_arrives(self, at: int) -> None:
        # A first poll knows no end but what it can fetch.
        if not self.begun and len(self.feed) == self.PAGE_SIZE * self.MAX_PAGES:
            return
        self.feed.insert(0, len(self.feed) + 1)
        self.at[self.feed[0]] = at
        if self.begun or at >= self.SINCE:
            self.owed.add(f"e{self.feed[0]}")

    @rule(steps=st.integers(0, 6))
    def a_poll_dies(self, steps: int) -> None:
        self.deaths += 1
        self.poll(steps)

    @rule()
    def a_poll_ends(self) -> None:
        self.poll(1000)
        assert self.waiting() == 0
        assert set(self.fired) == self.owed

    @invariant()
    def what_fires_is_owed_once_and_in_order(self) -> None:
        names = [int(key[1:]) for key in self.fired]
        assert set(self.fired) <= self.owed and names == sorted(set(names))

    @invariant()
    def a_death_repeats_at_most_one_event(self) -> None:
        assert len(self.looked_at) - len(set(self.looked_at)) <= self.deaths

    def waiting(self) -> int:
        return sum(f"e{name}" not in self.done for name in self.feed)

    def poll(self, steps: int) -> None:
        left = iter(range(steps))
        unseen = [each for each in keyed(feed(*self.fetched(), at=self.at)) if each.key not in self.seen]
        if self.begun:
            plan = later_poll(unseen)
        else:
            plan = first_poll(unseen, self.SINCE)
            if next(left, None) is None:
                return
            for key in reversed(plan.baseline):
                self.remember(key)
        for each in plan.due:
            if next(left, None) is None:
                return
            self.looked_at.append(each.key)
            if each.key not in self.claims:
                self.claims.add(each.key)
                self.fired.append(each.key)
            if next(left, None) is None:
                return
            self.remember(each.key)
        if next(left, None) is not None:
            self.begun = True

    def remember(self, key: str) -> None:
        self.done.add(key)
        capacity = capacity_of(self.PAGE_SIZE, self.MAX_PAGES)
        self.seen = (key, *(each for each in self.seen if each != key))[:capacity]

    def fetched(self) -> list[int]:
        found: list[int] = []
        for page in range(self.MAX_PAGES):
            events = self.feed[page * self.PAGE_SIZE : (page + 1) * self.PAGE_SIZE]
            found += events
            if self.begun and any(f"e{name}" in self.seen for name in events):
                break
        return found


TestCrashing = Crashing.TestCase
TestCrashing.settings = settings(max_examples=100, stateful_step_count=25)
