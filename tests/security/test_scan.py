"""The scan of the whole run sees what it is for, and leaves conversations where they belong."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncpg
import pytest
import redis

from libs.client import Key, Signer
from libs.stack.keys import Keys
from libs.stack.prepare import ensure_roles
from libs.stack.stores import Stores
from tests.security.collected import SECRET_TOKEN, Collected, secret
from tests.security.scan import Scan

MESSAGE = "what a person wrote to an agent"


@pytest.fixture
def scan() -> Scan:
    collected = Collected()
    collected.action({"_": "SetSecret", "name": "k", "value": b"a value of this test"})
    collected.action({"_": "MessageSession", "content": [{"type": "text", "text": MESSAGE}]})
    return Scan(collected)


@pytest.mark.parametrize(
    "data",
    [
        b"..a value of this test..",
        b"a value of this test".hex().encode(),
        base64.b64encode(b"xx" + b"a value of this test" + b"y"),
        secret("any"),
        base64.urlsafe_b64encode(b"z" + secret("any") + b"z"),
    ],
)
def test_a_secret_is_found_in_every_form(scan: Scan, data: bytes) -> None:
    scan.search("s", "log", b"before " + data + b" after", conversation=True)
    [found] = scan.found
    assert found.endswith("in log of s") and SECRET_TOKEN not in found and "value of this test" not in found
    assert scan.summary().endswith("1 FOUND")


def test_texts_are_found_where_conversations_are_not_kept(scan: Scan) -> None:
    data = f'{{"a": "{MESSAGE}"}}'.encode()
    scan.search("s", "table x", data, conversation=True)
    assert not scan.found
    scan.search("s", "log edge.log", data)
    assert scan.found == {"a message in log edge.log of s"}


def test_what_is_short_or_plain_is_no_marker() -> None:
    collected = Collected()
    for text in ("hi", "hello", "x" * 4000, 7, None):
        collected.action({"_": "MessageSession", "content": [{"text": text}]})
    collected.action({"_": "MessageSession", "content": "none"})
    collected.action({"_": ["SetSecret"], "value": b"a value of this test"})
    assert [len(markers) for markers in collected.take()] == [1, 0]


def test_clients_of_the_tests_are_listened_to() -> None:
    collected = Collected()
    end = collected.listen()
    try:
        Signer(Key.generate()).sign({"_": "SetSecret", "name": "k", "value": b"handed over here"}, b"\xed\x01" * 17)
    finally:
        end()
    assert {m.name for m in collected.take()[0]} == {"a secret of the tests", "an account's seed", "a stored secret"}


@pytest.fixture
def watched(scan: Scan) -> Iterator[None]:
    end = scan.watch()
    yield
    end()


@pytest.fixture
def stores(watched: None, tmp_path: Path) -> Callable[[], Stores]:
    def make() -> Stores:
        folder = tmp_path / "data"
        folder.mkdir(mode=0o755)
        os.chmod(tmp_path, 0o755)
        return Stores(folder, Keys(folder), folder, nats_url="nats://unused")

    return make


def test_stores_are_searched_when_they_stop(scan: Scan, stores: Callable[[], Stores]) -> None:
    made = stores()
    made.start()
    try:
        asyncio.run(_fill(made.database_url))
        valkey = redis.Redis.from_url(made.redis_url)
        valkey.set("k", b"in flight: a value of this test")
        valkey.close()
        (made.postgres or pytest.fail("no database")).command.log.with_name("edge.log").write_text(MESSAGE)
    finally:
        made.stop()
    places = {line.partition(" of ")[0] for line in scan.found}
    assert {"a message in log edge.log", "a stored secret in valkey"} <= places
    assert "a message in table runs.odd.said" in places and "a stored secret in table sessions.odd.data" in places
    assert not any("sessions.session_events.payload" in place for place in places)
    assert scan.systems == 1


async def _fill(url: str) -> None:
    await ensure_roles(url, {}, [])
    connection = await asyncpg.connect(url)
    await connection.execute("create schema sessions; create schema runs")
    await connection.execute("create table sessions.session_events (payload bytea)")
    await connection.execute("insert into sessions.session_events values ($1::bytea)", MESSAGE.encode())
    await connection.execute("create table runs.odd (said text)")
    await connection.execute("insert into runs.odd values ($1)", MESSAGE)
    await connection.execute("create table sessions.odd (data bytea)")
    await connection.execute("insert into sessions.odd values ($1)", b"a value of this test")
    await connection.close()
