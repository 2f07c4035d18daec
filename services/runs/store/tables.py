"""Tables of the `runs` schema. Times are Unix milliseconds, documents JSON bytes."""

from __future__ import annotations

import sqlalchemy as sa

from libs.store import accepted_signatures_table, outbox_table
from libs.store.audit import audit_table

metadata = sa.MetaData()

LIVE = ("queued", "claimed", "running", "waiting")
"""Statuses a run can leave."""
TERMINAL = ("succeeded", "failed", "canceled")
"""Statuses a run never leaves."""


def _id(name: str, *, key: bool = False, null: bool = False) -> sa.Column[str]:
    # Ids are compared and ordered by bytes, whatever the database's locale.
    return sa.Column(name, sa.Text(collation="C"), primary_key=key, nullable=null)


runs = sa.Table(
    "runs",
    metadata,
    _id("id", key=True),
    _id("account"),
    _id("root_run_id"),
    _id("parent_run_id", null=True),
    sa.Column("parent_tool_call_id", sa.Text, nullable=True),
    _id("continued_from_run_id", null=True),
    sa.Column("depth", sa.Integer, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    _id("agent_id", null=True),
    _id("session_id", null=True),
    sa.Column("origin", sa.Text, nullable=False),
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("step_label", sa.Text, nullable=True),
    sa.Column("plan_step_id", sa.Text, nullable=True),
    sa.Column("source_text", sa.Text, nullable=True),
    # 0 = interactive, 1 = background: claims go in this order.
    sa.Column("queue", sa.SmallInteger, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("wait", sa.LargeBinary, nullable=True),
    sa.Column("plan", sa.LargeBinary, nullable=True),
    sa.Column("error", sa.LargeBinary, nullable=True),
    sa.Column("unmet_obligations", sa.LargeBinary, nullable=True),
    # What the run gives to who delegated it: JSON.
    sa.Column("output", sa.LargeBinary, nullable=True),
    # Tool calls that a waiting run waits for.
    sa.Column("wait_calls", sa.ARRAY(sa.Text), nullable=False, server_default="{}"),
    # Whether the session of a terminal run's parent knows: the call has its result, the plan step its mark.
    sa.Column("answered", sa.Boolean, nullable=False, server_default=sa.false()),
    # Usage of terminal children, their own children included: JSON with a count of runs.
    sa.Column("children_usage", sa.LargeBinary, nullable=True),
    sa.Column("usage", sa.LargeBinary, nullable=True),
    # How often a lease of the run ran out since it last got on.
    sa.Column("expiries", sa.Integer, nullable=False, server_default="0"),
    # Most ms from creation to a claim; null without a limit.
    sa.Column("budget_ms", sa.BigInteger, nullable=True),
    # The fencing token: one more with every claim.
    sa.Column("attempt", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("failures", sa.Integer, nullable=False, server_default="0"),
    sa.Column("max_failures", sa.Integer, nullable=False),
    sa.Column("not_before", sa.BigInteger, nullable=False),
    sa.Column("lease_until", sa.BigInteger, nullable=True),
    sa.Column("worker", sa.Text, nullable=True),
    # Queued behind an earlier run of its session: no claim looks at it until that run is out of the way.
    sa.Column("behind", sa.Boolean, nullable=False, server_default=sa.false()),
    # A run may stand behind this one: whatever takes this one out of the way lets the next of the session be looked at.
    sa.Column("followed", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("cancel_requested", sa.Boolean, nullable=False, server_default=sa.false()),
    # NATS subject of a caller that waits for the outcome.
    sa.Column("notify", sa.Text, nullable=False),
    sa.Column("assistant_event_id", sa.Text, nullable=False, server_default=""),
    sa.Column("error_status", sa.Integer, nullable=False, server_default="0"),
    sa.Column("gone", sa.Text, nullable=False, server_default=""),
    # Session that answers in the place of the run's, when its turn continued it.
    sa.Column("continued_to", sa.Text, nullable=False, server_default=""),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("started_at", sa.BigInteger, nullable=True),
    sa.Column("finished_at", sa.BigInteger, nullable=True),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
)

# One live agent run a session, whatever the number of workers.
sa.Index(
    "runs_one_live_turn",
    runs.c.session_id,
    unique=True,
    postgresql_where=sa.and_(runs.c.kind == "agent", runs.c.status.in_(("claimed", "running"))),
)
# What is queued, executed or parked, by account: claims, leases, depths. A renewed lease touches no index.
sa.Index(
    "runs_open",
    runs.c.status,
    runs.c.account,
    runs.c.behind,
    runs.c.queue,
    runs.c.created_at,
    runs.c.id,
    postgresql_where=runs.c.status.in_(LIVE),
)
sa.Index(
    "runs_queued_by_session",
    runs.c.session_id,
    runs.c.created_at,
    runs.c.id,
    postgresql_where=runs.c.status == "queued",
)
sa.Index("runs_started", runs.c.account, runs.c.started_at, postgresql_where=runs.c.started_at.is_not(None))
# For listings alone. Not by the plain column: a claim planned on a small table would read all an account has ever run.
LISTED_ACCOUNT = runs.c.account + sa.literal_column("''")
sa.Index("runs_by_account", LISTED_ACCOUNT, runs.c.created_at, runs.c.id)
sa.Index("runs_by_time", runs.c.created_at, runs.c.id)
sa.Index(
    "runs_without_success",
    runs.c.status,
    runs.c.created_at,
    runs.c.id,
    postgresql_where=runs.c.status.in_(("failed", "canceled")),
)
sa.Index("runs_by_session", runs.c.session_id, runs.c.created_at)
sa.Index("runs_by_agent", runs.c.agent_id, runs.c.created_at)
sa.Index("runs_by_root", runs.c.root_run_id, runs.c.created_at)
# What its parent's session learns of when a run has ended: an answer to a call, or that a plan step is done.
TELLS_PARENT = sa.or_(runs.c.parent_tool_call_id.is_not(None), runs.c.plan_step_id.is_not(None))
sa.Index(
    "runs_unanswered",
    runs.c.finished_at,
    postgresql_where=sa.and_(TELLS_PARENT, ~runs.c.answered, runs.c.finished_at.is_not(None)),
)
sa.Index("runs_by_parent", runs.c.parent_run_id, postgresql_where=runs.c.parent_run_id.is_not(None))

workers = sa.Table(
    "workers",
    metadata,
    _id("id", key=True),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("started_at", sa.BigInteger, nullable=False),
    sa.Column("seen_at", sa.BigInteger, nullable=False),
    sa.Column("slots", sa.Integer, nullable=False),
    sa.Column("held", sa.Integer, nullable=False),
    # It claims no more; what it holds it finishes.
    sa.Column("draining", sa.Boolean, nullable=False),
)

# One row: the account after which the next claim begins to look, when there are more than one claim looks at.
dispatch_ring = sa.Table("dispatch_ring", metadata, sa.Column("after", sa.Text(collation="C"), nullable=False))

outbox = outbox_table(metadata)

accepted_signatures = accepted_signatures_table(metadata)

# What operators did to runs and workers.
audit = audit_table(metadata)

# Runs that have ended and that triggers has not dealt with. A database trigger on `runs` writes the rows.
ended_runs = sa.Table(
    "ended_runs",
    metadata,
    # The transaction that ended it: what is older than all running ones is complete, so reading by it misses none.
    sa.Column("xid", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("n", sa.BigInteger, sa.Identity(), primary_key=True),
    _id("run_id"),
)

signal_deliveries = sa.Table(
    "signal_deliveries",
    metadata,
    # What a repeated delivery is known by.
    _id("id", key=True),
    # Run that was woken; null when none was.
    _id("run_id", null=True),
    sa.Column("created_at", sa.BigInteger, nullable=False),
)
sa.Index("signal_deliveries_by_time", signal_deliveries.c.created_at)
