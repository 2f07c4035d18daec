"""Columns that are read together, and what their rows become on the wire inside."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from seed.sessions.v1 import types_pb2 as pb

from libs.store import param
from services.sessions.domain.fields import Fields
from services.sessions.store.tables import agents, session_events, sessions

Row = Fields


def text(name: str) -> sa.BindParameter[Any]:
    """A text parameter."""
    return param(name, sa.Text)


def number(name: str) -> sa.BindParameter[Any]:
    """An integer parameter; times are Unix milliseconds."""
    return param(name, sa.BigInteger)


NOW = number("now")


def touched(table: sa.Table) -> dict[str, Any]:
    """Every change of a row: updated_at never decreases, version grows by one."""
    return {"updated_at": sa.func.greatest(table.c.updated_at, NOW), "version": table.c.version + 1}


_children = sessions.alias("children")
CHILD_COUNT = (
    sa.select(sa.func.count())
    .select_from(_children)
    .where(_children.c.parent_session_id == sessions.c.id)
    .correlate(sessions)
    .scalar_subquery()
    .label("child_session_count")
)
NO_CHILDREN = sa.literal_column("0").label("child_session_count")
SESSION = (*sessions.c, CHILD_COUNT)
EVENT = (
    session_events.c.session_id,
    session_events.c.seq,
    session_events.c.id,
    session_events.c.payload,
    session_events.c.created_at,
)
AGENT = tuple(agents.c)

_SESSION_OPTIONAL = (
    "title",
    "description",
    "parent_session_id",
    "run_id",
    "plan",
    "model_override",
    "started_by_trigger",
    "continued_from",
    "continued_to",
)


def session_of(row: Row, **changes: Any) -> pb.Session:
    """The message of a session row; `changes` replace columns of it."""
    get = {**row, **changes}.__getitem__ if changes else row.__getitem__
    session = pb.Session(
        id=get("id"),
        account=get("owner"),
        agent_id=get("agent_id"),
        status=get("status"),
        created_at=get("created_at"),
        updated_at=get("updated_at"),
        child_session_count=get("child_session_count"),
        version=get("version"),
    )
    for name in _SESSION_OPTIONAL:
        value = get(name)
        if value is not None:
            setattr(session, name, value)
    return session


def agent_of(row: Row, role: str = "") -> pb.Agent:
    """The message of an agent row, seen with a role (none in events)."""
    return pb.Agent(
        id=row["id"],
        account=row["owner"],
        definition=row["definition"],
        status=row["status"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        public_read=row["public_read"],
        public_chat=row["public_chat"],
        access_role=role,
        version=row["version"],
    )


def event_of(row: Row) -> pb.SessionEvent:
    """The message of an event row."""
    return pb.SessionEvent(
        id=row["id"],
        session_id=row["session_id"],
        seq=row["seq"],
        payload=row["payload"],
        created_at=row["created_at"],
    )


def start_of(turn: Row) -> pb.TurnStart:
    """What runs needs to start the turn of a row."""
    return pb.TurnStart(
        run_id=turn["run_id"],
        session_id=turn["session_id"],
        agent_id=turn["agent_id"],
        owner=turn["owner"],
        title=turn["title"],
        queued_behind=turn["queued_behind"],
        retry=turn["retry"],
        event_ids=turn["event_ids"],
        origin=turn["origin"],
        parent_run_id=turn["parent_run_id"],
        parent_tool_call_id=turn["parent_tool_call_id"],
        root_run_id=turn["root_run_id"],
        depth=turn["depth"],
        spec=turn["spec"] or b"",
        plan_step_id=turn["plan_step_id"],
        step_label=turn["step_label"],
    )


def outcome_of(turn: Row) -> pb.TurnOutcome:
    """How the turn of a row ended."""
    return pb.TurnOutcome(
        run_id=turn["run_id"],
        status=turn["status"],
        assistant_event_id=turn["assistant_event_id"],
        error_message=turn["error_message"],
        error_status=turn["error_status"],
        gone=turn["gone"],
        continued_to_session_id=turn["continued_to"] or "",
    )
