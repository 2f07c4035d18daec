"""Claims that are fair by account, within limits, whoever claims at the same time; and why a run waits."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from libs.store import Database, Outbox, Row
from services.runs.domain.waiting import HOUR_MS, Facts, Limits, Reason, why
from services.runs.store.dispatch import ACCOUNTS
from services.runs.store.queue import Queue
from services.runs.store.tables import outbox as outbox_rows
from tests.runs.house import DONE, LEASE_MS, Clock, Store, new_id, working


def limited(store: Store, limits: Limits) -> Queue:
    """The store's queue with other limits."""
    outbox = Outbox(store.db, outbox_rows, lambda _s, _b: True)
    return Queue(store.db, outbox, lease_ms=LEASE_MS, now=store.clock, limits=limits)


async def fill(store: Store, account: str, count: int, *, queue: int = 0) -> None:
    """Queued runs of an account, each in a session of its own, a millisecond younger than what was there."""
    store.clock.ms += 1
    await store.write(
        "INSERT INTO runs (id, account, root_run_id, depth, kind, agent_id, session_id, origin, title, queue, status,"
        " max_failures, not_before, notify, created_at, updated_at, version)"
        " SELECT $1 || $4::bigint || '-' || n, $1, $1, 0, 'agent', 'a', $1 || $4::bigint || '-' || n, 'user', 't', $3,"
        " 'queued',"
        " 1, 0, '', $4, $4, 1 FROM generate_series(1, $2::int) n",
        account,
        count,
        queue,
        store.clock.ms,
    )
    store.clock.ms += 1


async def claimed(queue: Queue, slots: int) -> Counter[str]:
    return Counter(row["account"] for row in await queue.claim("w", slots))


async def test_a_first_run_is_next_behind_a_thousand_of_another_account(store: Store) -> None:
    await fill(store, "A", 1000)
    assert await claimed(store.queue, 8) == {"A": 8}
    await fill(store, "B", 1)
    assert await claimed(store.queue, 1) == {"B": 1}
    assert await claimed(store.queue, 1) == {"A": 1}


async def test_a_batch_is_spread_over_the_accounts_that_wait(store: Store) -> None:
    await fill(store, "A", 100)
    await fill(store, "B", 3)
    await fill(store, "C", 1)
    assert await claimed(store.queue, 6) in ({"A": 3, "B": 2, "C": 1}, {"A": 2, "B": 3, "C": 1})
    assert (await claimed(store.queue, 20)).total() == 20
    live = Counter(row["account"] for row in await store.all() if row["status"] == "running")
    assert live == {"A": 22, "B": 3, "C": 1}


async def test_live_runs_count_when_the_next_batch_is_shared_out(store: Store) -> None:
    await fill(store, "A", 50)
    assert await claimed(store.queue, 4) == {"A": 4}
    await fill(store, "B", 50)
    assert await claimed(store.queue, 5) in ({"B": 5}, {"A": 1, "B": 4})
    assert (await claimed(store.queue, 1)).total() == 1
    live = Counter(row["account"] for row in await store.all() if row["status"] == "running")
    assert live == {"A": 5, "B": 5}


async def test_interactive_goes_before_background_of_the_same_account(store: Store) -> None:
    await fill(store, "A", 2, queue=1)
    await fill(store, "B", 2, queue=1)
    await fill(store, "B", 1)
    await fill(store, "C", 1)
    first = [(row["account"], row["queue"]) for row in await store.queue.claim("w", 3)]
    assert sorted(first) == [("A", 1), ("B", 0), ("C", 0)]
    then = [(row["account"], row["queue"]) for row in await store.queue.claim("w", 3)]
    assert sorted(then) == [("A", 1), ("B", 1), ("B", 1)]


async def test_with_one_slot_accounts_take_turns(store: Store) -> None:
    await fill(store, "A", 20)
    await fill(store, "B", 3)
    served = ""
    for _ in range(8):
        [row] = await store.queue.claim("w", 1)
        served += row["account"]
        store.clock.ms += 1
        await store.queue.complete(row["id"], row["attempt"], DONE)
    assert served == "ABABABAA"


async def test_limits_of_an_account(store: Store) -> None:
    queue = limited(store, Limits(running=5, background=2))
    await fill(store, "A", 10, queue=1)
    await fill(store, "B", 10)
    assert await claimed(queue, 50) == {"A": 2, "B": 5}
    await fill(store, "A", 10)
    assert await claimed(queue, 50) == {"A": 3}
    assert await claimed(queue, 50) == {}
    [done] = [r for r in await store.all() if r["account"] == "A" and r["status"] == "running" and r["queue"] == 0][:1]
    await queue.complete(done["id"], done["attempt"], DONE)
    [next_one] = await queue.claim("w", 50)
    assert (next_one["account"], next_one["queue"]) == ("A", 0)


async def test_an_end_tells_whether_the_account_has_more_to_do(store: Store) -> None:
    queue = limited(store, Limits(running=1))
    await fill(store, "B", 1)
    await fill(store, "A", 2)
    ends: list[tuple[str, bool]] = []
    for _ in range(2):
        for row in await queue.claim("w", 9):
            ended = await queue.complete(row["id"], row["attempt"], DONE)
            assert ended is not None
            ends.append((row["account"], ended["account_waits"]))
    assert sorted(ends) == [("A", False), ("A", True), ("B", False)]


async def test_runs_beyond_those_of_an_hour_wait_but_none_that_has_begun(store: Store) -> None:
    queue = limited(store, Limits(hourly=2))
    begun = await store.started(owner="A")
    await fill(store, "A", 3)
    began_at = store.clock.ms
    assert await claimed(queue, 10) == {"A": 2}
    assert await claimed(queue, 10) == {}
    # What has begun goes on, whatever the hour holds.
    assert await queue.give_back(begun, 1, not_before=0, failures=0)
    assert [row["id"] for row in await queue.claim("w", 10)] == [begun]
    await working(store)
    waiting = [row["id"] for row in await store.all() if row["status"] == "queued"]
    reasons = await queue.dispatch.reasons(waiting)
    assert set(reasons.values()) == {Reason("hourly-limit", until=began_at + HOUR_MS)} and len(reasons) == 2
    store.clock.ms = began_at + HOUR_MS - 1
    assert await claimed(queue, 10) == {}
    store.clock.ms += 1
    assert await claimed(queue, 10) == {"A": 2}


async def test_claims_at_the_same_time_do_not_exceed_a_limit(store: Store) -> None:
    queue = limited(store, Limits(running=5, background=2, hourly=7))
    for round_ in range(4):
        await store.clear()
        await fill(store, "A", 40)
        await fill(store, "A-", 40, queue=1)
        await fill(store, "B", 3)
        await asyncio.gather(*(queue.claim(f"w{n}", 1 + n % 4) for n in range(10)))
        live = Counter(row["account"] for row in await store.all() if row["status"] == "running")
        assert live == {"A": 5, "A-": 2, "B": 3}, round_


async def test_a_claim_counts_what_one_before_it_has_not_committed_yet(store: Store) -> None:
    queue = limited(store, Limits(running=3))
    await fill(store, "A", 10)
    async with store.db.connection() as connection:
        waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        async with connection.transaction():
            await connection.execute("SELECT FROM claim_runs('w1', 2, $1, $1, 200, 3, 16, 0)", store.clock.ms)
            second = asyncio.create_task(queue.claim("w2", 2))
            for _ in range(1000):
                if await connection.fetchval(waits) or second.done():
                    break
                await asyncio.sleep(0.01)
            assert not second.done()
        assert len(await second) == 1
    assert sum(row["status"] == "running" for row in await store.all()) == 3


async def test_a_claim_is_on_disk_when_its_work_may_begin(store: Store) -> None:
    await fill(store, "A", 12)
    safe = 0
    async with store.db.connection() as connection:
        for _ in range(12):
            assert len(await store.queue.claim("w", 1)) == 1
            # The server itself writes now and then, too.
            safe += await connection.fetchval("SELECT pg_current_wal_flush_lsn() >= pg_current_wal_insert_lsn()")
    assert safe >= 10


async def test_a_run_that_something_else_locks_is_passed_over(store: Store) -> None:
    first, second = [await store.started(owner="A") for _ in range(2)]
    async with store.db.connection() as other, other.transaction():
        await other.execute("SELECT 1 FROM runs WHERE id = $1 FOR UPDATE", first)
        assert [row["id"] for row in await store.queue.claim("w", 1)] == [second]
    assert [row["id"] for row in await store.queue.claim("w", 1)] == [first]


async def test_parked_runs_and_those_whose_time_has_not_come_are_left(store: Store) -> None:
    later, parked, due = [await store.started(owner="A") for _ in range(3)]
    await store.write("UPDATE runs SET not_before = $2 WHERE id = $1", later, store.clock.ms + 5)
    await store.write("UPDATE runs SET status = 'waiting' WHERE id = $1", parked)
    assert [row["id"] for row in await store.queue.claim("w", 9)] == [due]
    store.clock.ms += 5
    assert [row["id"] for row in await store.queue.claim("w", 9)] == [later]


async def test_more_accounts_than_a_claim_looks_at_all_get_their_turn(store: Store) -> None:
    accounts = 2 * ACCOUNTS + 50
    await store.write(
        "INSERT INTO runs (id, account, root_run_id, depth, kind, agent_id, session_id, origin, title, queue, status,"
        " max_failures, not_before, notify, created_at, updated_at, version)"
        " SELECT 'r' || n, 'z' || lpad(n::text, 5, '0'), 'r', 0, 'agent', 'a', 's' || n, 'user', 't', 0, 'queued',"
        # Those of the first accounts are not due for long.
        " 1, CASE WHEN n <= $2 THEN 9e15::bigint ELSE 0 END, '', 1, 1, 1 FROM generate_series(1, $1::int) n",
        accounts,
        ACCOUNTS,
    )
    seen: Counter[str] = Counter()
    for _ in range(12):
        seen += await claimed(store.queue, 64)
    assert seen.total() == len(seen) == accounts - ACCOUNTS


async def test_a_claim_reads_few_of_thousands_of_runs(store: Store) -> None:
    await fill(store, "parked", 2000)
    await store.write("UPDATE runs SET status = 'waiting'")
    for account in ("A", "B", "C"):
        await fill(store, account, 1000)
    # What is left in the index of the runs' earlier statuses would be read once.
    await store.write("VACUUM runs")
    async with store.db.connection() as connection, connection.transaction():
        before = await connection.fetchrow(READ)
        await connection.execute("SELECT FROM claim_runs('w', 4, $1, $1, 200, 64, 16, 0)", store.clock.ms)
        after = await connection.fetchrow(READ)
    assert after["scanned"] == before["scanned"]
    assert 4 <= after["fetched"] - before["fetched"] < 100


READ = "SELECT seq_scan AS scanned, idx_tup_fetch AS fetched FROM pg_stat_xact_user_tables WHERE relname = 'runs'"


def test_the_first_thing_that_has_to_change_is_the_reason() -> None:
    limits = Limits(running=2, background=1)
    calm: dict[str, Any] = {
        "background": True,
        "begun": False,
        "not_before": 5,
        "ahead": "r0",
        "live": 2,
        "live_background": 1,
        "hourly_until": 9,
        "workers": 0,
    }
    steps: list[tuple[dict[str, Any], Reason]] = [
        ({}, Reason("no-worker")),
        ({"workers": 1}, Reason("backoff", until=5)),
        ({"not_before": 4}, Reason("session-busy", behind="r0")),
        ({"ahead": ""}, Reason("hourly-limit", until=9)),
        ({"begun": True}, Reason("background-limit")),
        ({"background": False}, Reason("account-limit")),
        ({"live": 1}, Reason("queued")),
    ]
    for change, reason in steps:
        calm |= change
        assert why(Facts(**calm), limits, 4) == reason


async def test_why_a_run_waits(store: Store) -> None:
    queue = limited(store, Limits(running=2, background=1))
    running = await store.started("s1", owner="A")
    behind = await store.started("s1", owner="A", behind=True)
    third = await store.started("s1", owner="A", behind=True)
    assert await queue.dispatch.explain(running) == (Reason("no-worker"), 0)
    workers = await working(store)
    assert await queue.dispatch.explain(running) == (Reason("queued"), 1)
    assert await queue.dispatch.explain(third) == (Reason("session-busy", behind=behind), 0)
    await queue.claim("w", 1)
    assert await queue.dispatch.explain(running) == (None, 0)
    assert await queue.dispatch.explain(behind) == (Reason("session-busy", behind=running), 0)

    busy = await store.started(owner="A", behind=True)
    await queue.claim("w", 1)
    assert await store.status(busy) == "running"
    other = await store.started(owner="A")
    assert await queue.dispatch.explain(other) == (Reason("account-limit"), 0)
    await queue.complete(running, 1, DONE)
    assert await queue.dispatch.explain(behind) == (Reason("background-limit"), 0)
    assert await queue.dispatch.explain(other) == (Reason("queued"), 1)
    first = await store.started(owner="B")
    assert await queue.dispatch.explain(first) == (Reason("queued"), 1)
    assert await queue.dispatch.explain(other) == (Reason("queued"), 2)
    await store.write("UPDATE runs SET not_before = $2 WHERE id = $1", first, store.clock.ms + 50)
    assert await queue.dispatch.explain(first) == (Reason("backoff", until=store.clock.ms + 50), 0)
    assert await queue.dispatch.explain(new_id()) == (None, 0)

    async with store.db.transaction() as tx:
        await workers.drain(tx, "w", draining=True)
    assert await queue.dispatch.explain(other) == (Reason("no-worker"), 0)
    async with store.db.transaction() as tx:
        await workers.drain(tx, "w", draining=False)
    store.clock.ms += LEASE_MS
    assert (await queue.dispatch.reasons([other, first, busy])) == {
        other: Reason("no-worker"),
        first: Reason("no-worker"),
    }


def expected(rows: Sequence[Row], now: int, limits: Limits, slots: int) -> list[str]:
    """The rules once more, in the order in which one would tell them."""
    live = [row for row in rows if row["status"] == "running"]
    queued = sorted((row for row in rows if row["status"] == "queued"), key=lambda r: (r["created_at"], r["id"]))
    held = Counter(row["account"] for row in live)
    background = Counter(row["account"] for row in live if row["queue"])
    served: Counter[str] = Counter()
    hour: Counter[str] = Counter()
    for row in rows:
        if row["started_at"] is not None:
            served[row["account"]] = max(served[row["account"]], row["started_at"])
            hour[row["account"]] += row["started_at"] > now - HOUR_MS
    busy = {row["session_id"] for row in live}
    due: dict[str, list[Row]] = {}
    for row in queued:
        if row["session_id"] not in busy:
            busy.add(row["session_id"])
            if row["not_before"] <= now:
                due.setdefault(row["account"], []).append(row)
    lists = {account: sorted(runs, key=lambda r: r["queue"]) for account, runs in due.items()}

    def next_of(account: str) -> Row | None:
        if held[account] >= limits.running:
            return None
        for row in lists[account]:
            if row["queue"] and background[account] >= limits.background:
                continue
            if row["started_at"] is None and limits.hourly and hour[account] >= limits.hourly:
                continue
            return row
        return None

    picked: list[str] = []
    while len(picked) < slots:
        heads = {account: row for account in lists if (row := next_of(account)) is not None}
        if not heads:
            break
        row = min(heads.values(), key=lambda r: (held[r["account"]], served[r["account"]], r["created_at"], r["id"]))
        picked.append(row["id"])
        lists[row["account"]].remove(row)
        held[row["account"]] += 1
        background[row["account"]] += row["queue"]
        hour[row["account"]] += row["started_at"] is None
    return picked


LIMITS = Limits(running=3, background=2, hourly=6)
SESSIONS = st.sampled_from([f"{account}-{n}" for account in "ABC" for n in range(4)])


class Dispatching(RuleBasedStateMachine):
    """Accounts with a few sessions each: every claim takes what the rules say, in whatever state."""

    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.db = Database(self.url, size=2)
        self.store = Store(self.db, Clock())
        self.queue = limited(self.store, LIMITS)
        self.wait(self.db.open())
        self.wait(self.store.clear())

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        self.wait(self.db.close())
        self.loop.close()

    def rows(self) -> list[Row]:
        return self.wait(self.store.all())

    def running(self) -> list[Row]:
        return [row for row in self.rows() if row["status"] == "running"]

    @rule(session=SESSIONS, behind=st.booleans(), count=st.integers(1, 3))
    def start(self, session: str, behind: bool, count: int) -> None:
        for _ in range(count):
            self.wait(self.store.started(session, owner=session[0], behind=behind))

    @rule(slots=st.integers(1, 9))
    def claim(self, slots: int) -> None:
        self.store.clock.ms += 1
        self.wait(working(self.store))
        before = self.rows()
        now = self.store.clock.ms
        wanted = expected(before, now, LIMITS, slots)
        reasons = self.wait(self.queue.dispatch.reasons([row["id"] for row in before]))
        got = [row["id"] for row in self.wait(self.queue.claim("w", slots))]
        assert sorted(got) == sorted(wanted)
        assert {reasons[run_id].name for run_id in got} <= {"queued"}
        live = self.running()
        accounts = Counter(row["account"] for row in live)
        assert max(accounts.values(), default=0) <= LIMITS.running
        assert max(Counter(row["account"] for row in live if row["queue"]).values(), default=0) <= LIMITS.background
        begun = Counter(r["account"] for r in self.rows() if r["started_at"] and r["started_at"] > now - HOUR_MS)
        assert max(begun.values(), default=0) <= LIMITS.hourly

    @precondition(lambda self: self.running())
    @rule(data=st.data(), delay=st.sampled_from([0, 0, 500]), again=st.booleans())
    def end(self, data: st.DataObject, delay: int, again: bool) -> None:
        row = data.draw(st.sampled_from(sorted(self.running(), key=lambda r: r["id"])))
        due = self.store.clock.ms + delay
        if again:
            assert self.wait(self.queue.give_back(row["id"], row["attempt"], not_before=due, failures=1))
        else:
            assert self.wait(self.queue.complete(row["id"], row["attempt"], DONE))

    @rule(ms=st.sampled_from([100, 600, HOUR_MS // 2]))
    def pass_time(self, ms: int) -> None:
        self.store.clock.ms += ms
        self.wait(self.queue.expire())


def test_every_claim_follows_the_rules(stores: dict[str, str]) -> None:
    class Case(Dispatching):
        url = stores["database"]

    run_state_machine_as_test(
        Case,
        settings=settings(
            max_examples=25,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        ),
    )


@pytest.mark.parametrize("slots", [1, 3])
def test_no_account_starves(stores: dict[str, str], slots: int) -> None:
    """However long the others' queues are: within a round of claims every account that waits is served."""

    @settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(depths=st.lists(st.integers(1, 40), min_size=2, max_size=5), background=st.booleans())
    def check(depths: list[int], background: bool) -> None:
        asyncio.run(serve(depths, background))

    async def serve(depths: list[int], background: bool) -> None:
        db = Database(stores["database"], size=2)
        await db.open()
        store = Store(db, Clock())
        await store.clear()
        left = {f"account-{n}": depth for n, depth in enumerate(depths)}
        for n, (account, depth) in enumerate(left.items()):
            await fill(store, account, depth, queue=int(background and n == 0))
        unserved: Counter[str] = Counter()
        for _ in range(30):
            store.clock.ms += 1
            rows = await store.queue.claim("w", slots)
            for row in rows:
                left[row["account"]] -= 1
                await store.queue.complete(row["id"], row["attempt"], DONE)
            served = {row["account"] for row in rows}
            for account, runs in left.items():
                unserved[account] = 0 if account in served or not runs else unserved[account] + 1
                assert unserved[account] * slots <= len(left)
        await db.close()

    check()
