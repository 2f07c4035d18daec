"""The life of runs as a state machine: whatever is called in whatever order, on the real store."""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from seed.runs.v1 import runs_pb2

from libs.store import Database, Row
from services.runs.store.endings import Ending
from services.runs.store.rows import run_of
from services.runs.store.tables import TERMINAL
from tests.runs.house import LEASE_MS, Clock, Store, turn

LEGAL = {
    "queued": {"running", "canceled"},
    "running": {"queued", "succeeded", "failed", "canceled"},
    "succeeded": set(),
    "failed": set(),
    "canceled": set(),
}
SESSIONS = st.sampled_from(["s1", "s2", "s3"])
WORKERS = st.sampled_from(["w1", "w2"])
# Claims of the present and of the past, and of a run that was never claimed.
LAG = st.integers(0, 2)


class RunLife(RuleBasedStateMachine):
    """Runs of a few sessions, two workers, and processes whose clocks differ a little."""

    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.db = Database(self.url, size=2)
        self.store = Store(self.db, Clock())
        self.claimed: dict[str, Row] = {}
        self.seen: dict[str, runs_pb2.Run] = {}
        self.detached: set[str] = set()
        self.canceled: set[str] = set()
        self.wait(self.db.open())
        self.wait(self.store.clear())

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        self.wait(self.db.close())
        self.loop.close()

    def row(self, run_id: str) -> Any:
        return self.wait(self.store.row(run_id))

    def rows(self) -> dict[str, Row]:
        return {row["id"]: row for row in self.wait(self.store.all())}

    def pick(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.seen)))

    @rule(session=SESSIONS, behind=st.booleans())
    def start(self, session: str, behind: bool) -> None:
        row, new = self.wait(self.store.queue.start(turn(session, behind=behind), "inbox"))
        assert new and row["status"] == "queued"
        self.seen[row["id"]] = run_of(row)

    @precondition(lambda self: self.seen)
    @rule(data=st.data())
    def start_again(self, data: st.DataObject) -> None:
        run_id = self.pick(data)
        row, new = self.wait(self.store.queue.start(turn("s1", run_id=run_id), ""))
        assert not new and row["notify"] == "inbox"
        assert (row["status"], row["version"]) == (self.seen[run_id].status, self.seen[run_id].version)

    @rule(worker=WORKERS, slots=st.integers(1, 3))
    def claim(self, worker: str, slots: int) -> None:
        before = self.rows()
        rows = self.wait(self.store.queue.claim(worker, slots))
        assert len(rows) <= slots
        for row in rows:
            self.claimed[row["id"]] = row
            old = before[row["id"]]
            assert (old["status"], old["attempt"] + 1) == ("queued", row["attempt"])
            assert old["not_before"] <= self.store.clock.ms and row["worker"] == worker

    @rule(worker=WORKERS)
    def renew(self, worker: str) -> None:
        kept = self.wait(self.store.queue.renew(worker, sorted(self.seen)))
        for run_id, (attempt, cancel) in kept.items():
            row = self.row(run_id)
            assert (row["status"], row["attempt"], row["worker"]) == ("running", attempt, worker)
            assert cancel == (run_id in self.canceled)

    @rule(ms=st.one_of(st.integers(-500, 500), st.just(LEASE_MS + 1)))
    def pass_time(self, ms: int) -> None:
        self.store.clock.ms += ms

    @rule()
    def expire(self) -> None:
        due = [r for r in self.rows().values() if r["status"] == "running" and r["lease_until"] < self.store.clock.ms]
        assert self.wait(self.store.queue.expire()) == len(due)

    @precondition(lambda self: self.seen)
    @rule(data=st.data(), lag=LAG, status=st.sampled_from(TERMINAL), alone=st.booleans())
    def complete(self, data: st.DataObject, lag: int, status: str, alone: bool) -> None:
        run_id = self.pick(data)
        before = self.row(run_id)
        # What was claimed may be out of date, or another attempt's.
        seen = None if alone else self.claimed.get(run_id)
        done = self.wait(self.store.queue.complete(run_id, before["attempt"] - lag, Ending(status), seen=seen))
        if lag == 0 and before["status"] == "running":
            assert done is not None and done["status"] == status
        else:
            assert done is None and self.row(run_id) == before

    @precondition(lambda self: self.seen)
    @rule(data=st.data(), lag=LAG, delay=st.sampled_from([0, 100, 2 * LEASE_MS]))
    def give_back(self, data: st.DataObject, lag: int, delay: int) -> None:
        run_id = self.pick(data)
        before = self.row(run_id)
        due = self.store.clock.ms + delay
        back = self.wait(self.store.queue.give_back(run_id, before["attempt"] - lag, not_before=due, failures=1))
        if lag == 0 and before["status"] == "running":
            assert back is not None and (back["status"], back["not_before"]) == ("queued", due)
        else:
            assert back is None and self.row(run_id) == before

    @precondition(lambda self: self.seen)
    @rule(data=st.data(), lag=LAG)
    def note_usage_and_plan(self, data: st.DataObject, lag: int) -> None:
        run_id = self.pick(data)
        attempt = self.row(run_id)["attempt"] - lag
        self.wait(self.store.queue.store_usage(run_id, attempt, b"{}"))
        self.wait(self.store.queue.store_plan(run_id, attempt, {"steps": []}))

    @precondition(lambda self: self.seen)
    @rule(data=st.data())
    def cancel_run(self, data: st.DataObject) -> None:
        run_id = self.pick(data)
        live = self.row(run_id)["status"] not in TERMINAL
        done = self.wait(self.store.trees.cancel_run(run_id))
        assert done.any == live
        self.canceled |= {run_id} if live else set()

    @rule(session=SESSIONS)
    def cancel_session(self, session: str) -> None:
        done = self.wait(self.store.trees.cancel_session(session))
        self.canceled |= {row["id"] for row in (*done.ended, *done.asked)}

    @rule(session=SESSIONS)
    def detach_session(self, session: str) -> None:
        done = self.wait(self.store.trees.detach("session_id", session))
        assert not done.asked
        self.canceled |= {row["id"] for row in done.ended}
        self.detached |= {run_id for run_id, run in self.seen.items() if run.session_id == session}

    @invariant()
    def only_legal_changes_each_told_in_order(self) -> None:
        rows = self.rows()
        for run_id, row in rows.items():
            old, new = self.seen[run_id], run_of(row)
            if run_id in self.detached:
                for name in ("session_id", "plan", "unmet_obligations"):
                    old.ClearField(name)
                old.title = "Deleted"
            if new != old:
                assert old.status == new.status or new.status in LEGAL[old.status]
                assert old.status not in TERMINAL
                assert new.version > old.version
                assert new.updated_at >= old.updated_at
            if run_id in self.canceled and new.status == "canceled":
                assert row["cancel_requested"]
            started = new.started_at if new.HasField("started_at") else new.created_at
            finished = new.finished_at if new.HasField("finished_at") else started
            assert new.created_at <= started <= finished <= new.updated_at
            assert new.HasField("finished_at") == (new.status in TERMINAL)
            assert (row["lease_until"] is not None) == (new.status == "running")
            self.seen[run_id] = new
        live = Counter(row["session_id"] for row in rows.values() if row["status"] == "running")
        assert not live or max(live.values()) == 1

        told: dict[str, list[int]] = {}
        latest: dict[str, str] = {}
        for run_id, status, version in self.store.told():
            told.setdefault(run_id, []).append(version)
            latest[run_id] = status
        for run_id, run in self.seen.items():
            assert told[run_id] == sorted(set(told[run_id]))
            assert latest[run_id] == run.status


def test_no_order_of_calls_breaks_a_run(stores: dict[str, str]) -> None:
    class Life(RunLife):
        url = stores["database"]

    run_state_machine_as_test(
        Life,
        settings=settings(
            max_examples=40,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        ),
    )
