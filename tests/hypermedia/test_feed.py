"""The activity feed of an HM server, against a fake one over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from libs.hypermedia.feed import ActivityFeed
from libs.hypermedia.server import AskFailed
from tests.support.hypermedia import FakeHypermediaServer


@pytest.fixture
async def server() -> AsyncIterator[FakeHypermediaServer]:
    running = FakeHypermediaServer()
    await running.start()
    yield running
    await running.stop()


@pytest.fixture
async def feed(server: FakeHypermediaServer) -> AsyncIterator[ActivityFeed]:
    reading = ActivityFeed(server.url + "/")
    yield reading
    await reading.close()


async def test_pages_follow_each_other(server: FakeHypermediaServer, feed: ActivityFeed) -> None:
    server.happens(*({"id": n} for n in range(5)))
    first = await feed.page("alice", 2)
    server.happens({"id": 5})
    second = await feed.page("alice", 2, first.next_token)
    last = await feed.page("alice", 2, second.next_token)
    assert [event["id"] for page in (first, second, last) for event in page.events] == [4, 3, 2, 1, 0]
    assert last.next_token == ""
    assert server.polls("alice")[0] == {"pageSize": "2", "currentAccount": "alice", "order": "observed"}
    assert server.polls("alice")[1]["pageToken"] == first.next_token


@pytest.mark.parametrize(
    "body",
    [b"[]", b"{}", b'{"json": {}}', b'{"json": {"events": {}}}', b"nonsense", b"[" * 100_000],
)
async def test_answers_that_are_no_page(server: FakeHypermediaServer, feed: ActivityFeed, body: bytes) -> None:
    server.answer(200, body)
    with pytest.raises(AskFailed, match="the answer is invalid"):
        await feed.page("alice", 2)


async def test_a_server_that_fails_or_is_away(server: FakeHypermediaServer, feed: ActivityFeed) -> None:
    server.answer(503, b"{}")
    with pytest.raises(AskFailed, match="HTTP 503"):
        await feed.page("alice", 2)
    await server.stop()
    with pytest.raises(AskFailed, match="could not connect"):
        await feed.page("alice", 2)


async def test_odd_texts_and_numbers_cost_only_themselves(server: FakeHypermediaServer, feed: ActivityFeed) -> None:
    events = json.dumps([{"id": "\ud800half"}, {"id": "fine"}])[:-1]
    server.answer(200, f'{{"json": {{"events": {events}, 1e999, NaN, 7]}}}}'.encode())
    assert (await feed.page("alice", 9)).events == [{"id": "?half"}, {"id": "fine"}, None, None, 7]
