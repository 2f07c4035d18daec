"""The queue against a real PostgreSQL: starting, claiming, fencing, leases, cancels, detaching."""

import asyncio

import msgspec
import pytest
from seed.events.v1 import events_pb2

from services.runs.domain.usage import usage_json
from services.runs.providers.contract import Usage
from services.runs.store.endings import Ending
from services.runs.store.rows import outcome_of, run_of
from tests.runs.house import AGENT, LEASE_MS, OWNER, Store, new_id, turn

DONE = Ending("succeeded", assistant_event_id="e1")


async def test_a_started_turn_is_a_queued_run_and_one_event(store: Store) -> None:
    start = turn("s1")
    row, new = await store.queue.start(start, "inbox.1")
    assert new
    run = run_of(row)
    assert (run.id, run.root_run_id, run.depth, run.kind, run.origin) == (
        start.run_id,
        start.run_id,
        0,
        "agent",
        "user",
    )
    assert (run.account, run.agent_id, run.session_id, run.title) == (OWNER, AGENT, "s1", "Say hello")
    assert (run.status, run.version, run.created_at, run.updated_at) == ("queued", 1, store.clock.ms, store.clock.ms)
    assert not run.HasField("started_at") and not run.HasField("finished_at")
    assert [subject for subject, _ in store.published] == [f"seed.v1.{OWNER}.{AGENT}.run_changed"]
    assert store.told() == [(run.id, "queued", 1)]


async def test_starting_again_changes_nothing_but_who_waits(store: Store) -> None:
    start = turn("s1")
    await store.queue.start(start, "inbox.1")
    again = await asyncio.gather(*(store.queue.start(start, "") for _ in range(5)))
    assert not any(new for _, new in again)
    assert {row["notify"] for row, _ in again} == {"inbox.1"}
    row, new = await store.queue.start(start, "inbox.2")
    assert (new, row["notify"], row["version"]) == (False, "inbox.2", 1)
    assert len(store.told()) == 1


async def test_starting_a_turn_that_has_ended_tells_how(store: Store) -> None:
    start = turn("s1")
    await store.queue.start(start, "")
    await store.trees.cancel_run(start.run_id)
    row, new = await store.queue.start(start, "")
    assert (new, row["status"]) == (False, "canceled")


@pytest.mark.parametrize(
    ("start", "queue", "most"),
    [
        (turn("s"), 0, 1),
        (turn("s", retry=True), 0, 1),
        (turn("s", behind=True), 1, 3),
        (turn("s", origin="trigger"), 1, 3),
    ],
    ids=["message", "retry", "behind another", "nobody waits"],
)
async def test_what_nobody_waits_for_is_background_and_may_fail_twice(
    store: Store, start: object, queue: int, most: int
) -> None:
    row, _ = await store.queue.start(start, "")  # pyright: ignore[reportArgumentType]
    assert (row["queue"], row["max_failures"]) == (queue, most)


async def test_interactive_runs_are_claimed_first_then_the_oldest(store: Store) -> None:
    background = [await store.started(behind=True) for _ in range(2)]
    interactive = [await store.started() for _ in range(2)]
    claimed = [row["id"] for _ in range(5) for row in await store.queue.claim("w", 1)]
    assert claimed == [*interactive, *background]


async def test_a_claim_starts_the_run_with_the_next_attempt_and_a_lease(store: Store) -> None:
    run_id = await store.started()
    store.clock.ms += 5
    [row] = await store.queue.claim("w", 10)
    assert (row["status"], row["attempt"], row["worker"], row["version"]) == ("running", 1, "w", 2)
    assert (row["started_at"], row["lease_until"]) == (store.clock.ms, store.clock.ms + LEASE_MS)
    assert store.told()[-1] == (run_id, "running", 2)


async def test_a_session_has_one_live_turn_and_keeps_the_order_of_its_turns(store: Store) -> None:
    first, second, third = [await store.started("s1", behind=n > 0) for n in range(3)]
    assert [row["id"] for row in await store.queue.claim("w", 10)] == [first]
    assert await store.queue.claim("w", 10) == []
    assert await store.queue.complete(first, 1, DONE)
    assert [row["id"] for row in await store.queue.claim("w", 10)] == [second]
    # A turn that is to be tried again later still goes before those that came after it.
    assert await store.queue.give_back(second, 1, not_before=store.clock.ms + 1_000, failures=1)
    assert await store.queue.claim("w", 10) == []
    assert await store.queue.next_due() == store.clock.ms + 1_000
    store.clock.ms += 1_000
    assert [row["id"] for row in await store.queue.claim("w", 10)] == [second]
    assert await store.queue.complete(second, 2, DONE)
    assert [row["id"] for row in await store.queue.claim("w", 10)] == [third]


async def test_concurrent_workers_claim_each_run_once_and_one_a_session(store: Store) -> None:
    sessions = [new_id() for _ in range(6)]
    for session in sessions:
        for n in range(3):
            await store.started(session, behind=n > 0)
    seen: list[str] = []

    async def work(name: str) -> None:
        while len(seen) < 18:
            rows = await store.queue.claim(name, 2)
            assert len({row["session_id"] for row in rows}) == len(rows)
            seen.extend(row["id"] for row in rows)
            for row in rows:
                assert await store.queue.complete(row["id"], row["attempt"], DONE)

    async with asyncio.timeout(20):
        await asyncio.gather(*(work(f"w{n}") for n in range(5)))
    assert len(seen) == len(set(seen)) == 18


async def test_an_older_attempt_changes_nothing(store: Store) -> None:
    run_id = await store.started()
    await store.queue.claim("w1", 1)
    store.clock.ms += LEASE_MS + 1
    assert await store.queue.expire() == 1
    [row] = await store.queue.claim("w2", 1)
    assert row["attempt"] == 2
    before = dict(await store.row(run_id))
    assert await store.queue.complete(run_id, 1, DONE) is None
    assert await store.queue.give_back(run_id, 1, not_before=0, failures=1) is None
    await store.queue.store_usage(run_id, 1, b"{}")
    await store.queue.store_plan(run_id, 1, {"steps": []})
    assert await store.queue.renew("w1", [run_id]) == {}
    assert dict(await store.row(run_id)) == before


async def test_what_has_ended_stays_ended(store: Store) -> None:
    run_id = await store.started()
    await store.queue.claim("w", 1)
    error = msgspec.json.encode({"code": "provider-error", "message": "boom"})
    row = await store.queue.complete(run_id, 1, Ending("failed", error=error, error_status=502))
    assert row is not None
    outcome = outcome_of(row)
    assert (outcome.status, outcome.error_message, outcome.error_status) == ("failed", "boom", 502)
    assert await store.queue.complete(run_id, 1, DONE) is None
    assert await store.queue.give_back(run_id, 1, not_before=0, failures=0) is None
    assert not (await store.trees.cancel_run(run_id)).any
    assert await store.status(run_id) == "failed"


async def test_a_renewed_lease_holds_and_an_expired_one_queues_again(store: Store) -> None:
    kept, left = await store.started(), await store.started()
    await store.queue.claim("w", 2)
    store.clock.ms += LEASE_MS
    assert await store.queue.expire() == 0
    assert await store.queue.renew("w", [kept]) == {kept: (1, False)}
    store.clock.ms += 1
    assert await store.queue.expire() == 1
    assert (await store.status(kept), await store.status(left)) == ("running", "queued")
    assert await store.queue.renew("w", [kept, left]) == {kept: (1, False)}
    assert store.told()[-1] == (left, "queued", 3)


async def test_renewing_does_not_wait_in_a_circle_with_a_cancel(store: Store) -> None:
    ids = [await store.started(agent_id="a2") for _ in range(12)]
    await store.queue.claim("w", 12)
    for _ in range(6):
        # Renewing in any order against a transaction that locks the same rows in its own.
        await asyncio.gather(
            *(store.queue.renew("w", ids[n:] + ids[:n]) for n in range(0, 12, 3)),
            *(store.trees.cancel_run(run_id) for run_id in reversed(ids)),
            store.queue.expire(),
        )
    assert {cancel for _, cancel in (await store.queue.renew("w", ids)).values()} == {True}
    assert (await store.trees.detach("agent_id", "a2")).any


async def test_canceling_ends_what_waits_and_asks_what_runs(store: Store) -> None:
    root = await store.started()
    await store.queue.claim("w", 1)
    queued, waiting, done = [await store.child(root) for _ in range(3)]
    below = await store.child(waiting)
    other = await store.started()
    await store.write("UPDATE runs SET status = 'waiting' WHERE id = $1", waiting)
    await store.write("UPDATE runs SET status = 'succeeded' WHERE id = $1", done)
    result = await store.trees.cancel_run(root)
    assert {row["id"] for row in result.ended} == {queued, waiting, below}
    assert [row["id"] for row in result.asked] == [root]
    assert [await store.status(run) for run in (root, queued, waiting, below, done, other)] == [
        "running", "canceled", "canceled", "canceled", "succeeded", "queued",
    ]  # fmt: skip
    assert await store.queue.renew("w", [root]) == {root: (1, True)}
    assert await store.queue.complete(root, 1, Ending("canceled"))
    assert not (await store.trees.cancel_run(root)).any


async def test_a_cancel_asked_for_outlives_the_worker(store: Store) -> None:
    run_id = await store.started()
    await store.queue.claim("w1", 1)
    await store.trees.cancel_run(run_id)
    store.clock.ms += LEASE_MS + 1
    await store.queue.expire()
    [row] = await store.queue.claim("w2", 1)
    assert (row["attempt"], row["cancel_requested"]) == (2, True)


async def test_stopping_a_session_cancels_all_its_turns_and_their_trees(store: Store) -> None:
    live = await store.started("s1")
    await store.queue.claim("w", 1)
    behind, child = await store.started("s1", behind=True), await store.child(live)
    other = await store.started("s2")
    result = await store.trees.cancel_session("s1")
    assert {row["id"] for row in result.ended} == {behind, child}
    assert [row["id"] for row in result.asked] == [live]
    assert await store.status(other) == "queued"
    assert not (await store.trees.cancel_session("s3")).any


@pytest.mark.parametrize(("subject", "gone"), [("session_id", "Session"), ("agent_id", "Agent")])
async def test_detaching_ends_at_once_and_forgets(store: Store, subject: str, gone: str) -> None:
    held = await store.started("s1")
    await store.queue.claim("w", 1)
    behind = await store.started("s1", behind=True)
    past = await store.started("s1", behind=True)
    await store.write("UPDATE runs SET status = 'succeeded' WHERE id = $1", past)
    other = await store.started("s2", agent_id="a2")
    result = await store.trees.detach(subject, {"session_id": "s1", "agent_id": AGENT}[subject])
    assert {row["id"] for row in result.ended} == {held, behind}
    assert {outcome_of(row).gone for row in result.ended} == {gone}
    # Told while it was still known whose they were.
    told = [events_pb2.Event.FromString(body) for _, body in store.published[-2:]]
    assert [(event.agent_id, event.run_changed.run.status) for event in told] == [(AGENT, "canceled")] * 2
    for run_id in (held, behind, past):
        row = await store.row(run_id)
        assert (row["session_id"], row["agent_id"]) == (None, AGENT if subject == "session_id" else None)
    assert await store.queue.complete(held, 1, DONE) is None
    assert (await store.row(other))["session_id"] == "s2"
    assert not (await store.trees.detach(subject, "s1")).any


async def test_usage_and_plan_stay_with_the_run(store: Store) -> None:
    run_id = await store.started("s1")
    await store.queue.claim("w", 1)
    await store.queue.store_usage(run_id, 1, b'{"total":7}')
    await store.queue.store_plan(run_id, 1, {"steps": []})
    # An ending that has seen no reply keeps the usage of the attempts before it.
    row = await store.queue.complete(run_id, 1, Ending("canceled"))
    assert row is not None
    run = run_of(row)
    assert (run.usage, run.plan, run.version) == (b'{"total":7}', b'{"steps":[]}', 5)


async def test_a_plan_is_only_given_to_a_run_of_the_session_that_has_none(store: Store) -> None:
    mine, other = await store.started("s1"), await store.started("s2")
    await store.queue.ensure_plan("s1", mine, {"steps": [], "settledAt": 1})
    await store.queue.ensure_plan("s1", mine, {"steps": [], "settledAt": 2})
    await store.queue.ensure_plan("s1", other, {"steps": [], "settledAt": 3})
    assert (await store.row(mine))["plan"] == b'{"steps":[],"settledAt":1}'
    assert (await store.row(other))["plan"] is None


async def test_listings(store: Store) -> None:
    first, second = await store.started("s1"), await store.started("s1", behind=True)
    child = await store.child(first)
    elsewhere = await store.started("s2", agent_id="a2")

    async def ids(kind: str, value: str, status: str | None = None, limit: int = 50) -> list[str]:
        return [row["id"] for row in await getattr(store.trees, f"by_{kind}")(value, status, limit)]

    assert await ids("root", first) == [first, child]
    assert await ids("session", "s1") == [second, first]
    assert await ids("agent", AGENT) == [child, second, first]
    assert await ids("agent", "a2") == [elsewhere]
    assert await ids("session", "s1", limit=1) == [second]
    await store.trees.cancel_run(second)
    # The status is chosen before the page is cut.
    assert await ids("session", "s1", "queued", 1) == [first]
    assert await ids("session", "s1", "no such status") == []
    assert run_of(await store.row(first)).child_run_count == 1


async def test_an_end_in_one_statement_tells_what_the_row_says(store: Store) -> None:
    run_id = await store.started()
    [seen] = await store.queue.claim("w", 1)
    store.clock.ms += 5
    store.published.clear()
    ending = Ending("succeeded", assistant_event_id="e1", usage=b'{"input":1}')
    row = await store.queue.complete(run_id, 1, ending, seen=seen)
    assert row is not None and row["account_waits"] is False
    [(_, body)] = store.published
    assert events_pb2.Event.FromString(body).run_changed.run == run_of(await store.row(run_id))
    assert await store.queue.complete(run_id, 1, DONE, seen=seen) is None and len(store.published) == 1


async def test_an_end_in_one_statement_sees_what_has_happened_since(store: Store) -> None:
    """The run was changed, somebody stands behind it, or the claim is another's."""
    changed, followed, lost = [await store.started(session) for session in ("s1", "s2", "s3")]
    seen = {row["id"]: row for row in await store.queue.claim("w", 3)}
    await store.queue.store_usage(changed, 1, b'{"input":7}')
    behind = await store.started("s2", behind=True)
    await store.write("UPDATE runs SET attempt = 2 WHERE id = $1", lost)
    store.published.clear()
    row = await store.queue.complete(changed, 1, Ending("failed"), seen=seen[changed])
    assert row is not None and row["usage"] == b'{"input":7}'
    assert await store.queue.complete(followed, 1, DONE, seen=seen[followed])
    assert await store.queue.complete(lost, 1, DONE, seen=seen[lost]) is None
    assert [row["id"] for row in await store.queue.claim("w", 3)] == [behind]
    assert [(run, status) for run, status, _ in store.told()][:2] == [(changed, "failed"), (followed, "succeeded")]


async def test_children_of_one_parent_add_up_and_go_further_when_it_has_ended(store: Store) -> None:
    root = await store.started()
    parent = await store.child(root)
    children = [await store.child(parent) for _ in range(3)]
    rows = {row["id"]: row for row in await store.queue.claim("w", 5)}
    ending = Ending("succeeded", usage=usage_json(Usage(input=1, output=2)))
    for child in children[:2]:
        assert await store.queue.complete(child, rows[child]["attempt"], ending, parent)
    total = msgspec.json.decode((await store.row(parent))["children_usage"])
    assert (total["input"], total["output"], total["runs"]) == (2, 4, 2)
    assert (await store.row(root))["children_usage"] is None
    assert await store.queue.complete(parent, 1, ending, root)
    assert await store.queue.complete(children[2], 1, ending, parent)
    total = msgspec.json.decode((await store.row(root))["children_usage"])
    assert (total["input"], total["total"]) == (4, 12), "the parent has told of itself already"
