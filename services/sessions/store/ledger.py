"""A turn and its session under one lock, and writing both: the only way a run changes the log."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import sqlalchemy as sa
from seed.sessions.v1 import types_pb2 as pb
from sqlalchemy.dialects.postgresql import ARRAY, insert

from libs.errors import NotFound
from libs.store import Draft, Emitter, Outbox, Reader, Single, Tx, param, sql
from services.sessions.domain.turns import is_assistant_message
from services.sessions.store import changes
from services.sessions.store.log import NEW_STEPS
from services.sessions.store.rows import EVENT, SESSION, Row, event_of, number, session_of, text
from services.sessions.store.tables import session_events, session_turns, sessions

_s, _t, _e = sessions.c, session_turns.c, session_events.c
_RUN = text("run_id")

TURN = tuple(column.label(f"turn_{column.name}") for column in session_turns.c)
TURN_NAMES = tuple(column.name for column in session_turns.c)

# The session is locked before the turn, as everywhere: its row orders the log.
_lock = sql(
    sa.select(*SESSION, *TURN)
    .select_from(sessions.join(session_turns, _t.session_id == _s.id))
    .where(_t.run_id == _RUN)
    .with_for_update(key_share=True, of=[sessions, session_turns])
)
_peek = sql(
    sa.select(*SESSION, *TURN)
    .select_from(sessions.join(session_turns, _t.session_id == _s.id))
    .where(_t.run_id == _RUN)
)
_turn = sql(sa.select(*_t).where(_t.run_id == _RUN))
_stored = sql(sa.select(*EVENT, _e.step).where(_e.run_id == _RUN, _e.step == sa.any_(param("steps", ARRAY(sa.Text)))))

# What was seen of the two rows without a lock, as a condition: locked now, they are still what they were.
_SEEN = {
    "last_seq": _s.last_seq,
    "live_turns": _s.live_turns,
    "status": _s.status,
    "version": _s.version,
    "turn_state": _t.state,
    "turn_attempt": _t.attempt,
    "turn_canceled": _t.canceled,
    "turn_assistant_event_id": _t.assistant_event_id,
}
_unchanged = (
    sa.select(_s.id)
    .select_from(sessions.join(session_turns, _t.session_id == _s.id))
    .where(
        _t.run_id == _RUN,
        *(column.is_not_distinct_from(param(f"seen_{name}", column.type)) for name, column in _SEEN.items()),
    )
    .with_for_update(key_share=True, of=[sessions, session_turns])
    .cte("unchanged")
)
_IF_UNCHANGED = sa.exists(sa.select(_unchanged.c.id))


def _writing(when: sa.ColumnElement[bool] | None) -> tuple[sa.CTE, sa.CTE, sa.CTE]:
    """Session, turn and new events in one statement; all of it only `when` that holds."""
    conditions = [] if when is None else [when]
    session = (
        sa.update(sessions)
        .where(_s.id == text("session_id"), *conditions)
        .values(
            last_seq=number("last_seq"),
            live_turns=param("live_turns", sa.Integer),
            status=text("status"),
            updated_at=number("updated_at"),
            version=number("version"),
        )
        .cte("session")
    )
    turn = (
        sa.update(session_turns)
        .where(_t.run_id == _RUN, *conditions)
        .values(
            state=text("state"),
            attempt=number("attempt"),
            canceled=param("canceled", sa.Boolean),
            status=text("turn_status"),
            assistant_event_id=text("assistant_event_id"),
            error_message=text("error_message"),
            error_status=param("error_status", sa.Integer),
            finished_at=number("finished_at"),
            next_start_at=number("next_start_at"),
        )
        .cte("turn")
    )
    new = insert(session_events).from_select(
        ["session_id", "seq", "id", "payload", "run_id", "step", "created_at"],
        sa.select(
            text("session_id"), number("seq_before") + NEW_STEPS.c.n, NEW_STEPS.c.id, NEW_STEPS.c.payload, _RUN,
            NEW_STEPS.c.step, number("now"),
        )
        .select_from(NEW_STEPS)
        .where(*conditions),
    )  # fmt: skip
    # In a transaction of its own a step that is stored already undoes the statement; in an open one it is reported.
    new = new if when is not None else new.on_conflict_do_nothing()
    return session, turn, new.returning(_e.seq).cte("events")


def _count(session: sa.CTE, turn: sa.CTE, new: sa.CTE) -> sa.Select[Any]:
    return sa.select(sa.func.count()).select_from(new).add_cte(session).add_cte(turn)


_write = sql(_count(*_writing(None)))


def at_once(outbox: Outbox) -> Single:
    """The statement of `write_at_once`: what `write` does, messages included, if nothing has changed meanwhile."""
    session, turn, new = _writing(_IF_UNCHANGED)
    held = sa.select(_IF_UNCHANGED.label("held")).add_cte(session).add_cte(turn).add_cte(new)
    return outbox.single(held, _IF_UNCHANGED)


class StepStored(Exception):
    """A step that was thought to be new is stored already: roll back and look first."""


@dataclass(frozen=True, slots=True)
class Step:
    """An event to append: JSON of its payload, and the step of the run that it is."""

    step: str
    payload: bytes


def step(name: str, payload: bytes) -> Step:
    """A step as a run names it. Names hold ids that a model made up, and PostgreSQL text cannot hold NUL."""
    return Step(name.replace("\0", "\ufffd"), payload)


@dataclass(slots=True)
class Locked:
    """A turn with its session, both locked. `session` and `turn` are the rows as they are; write through `write`."""

    session: Row
    turn: dict[str, Any]
    stored: dict[str, pb.SessionEvent] = field(default_factory=dict)


async def lock(tx: Tx, run_id: str, steps: Sequence[Step] = (), *, look: bool = False) -> Locked:
    """Lock a turn and its session; with `look`, also find those of `steps` that are stored already.

    Raises NotFound with the noun of what was deleted.
    """
    row = await tx.fetchrow(_lock, run_id=run_id)
    if row is None:
        turn = await tx.fetchrow(_turn, run_id=run_id)
        raise NotFound(f"{turn['gone'] if turn is not None and turn['gone'] else 'Session'} not found")
    locked = Locked(row, {name: row[f"turn_{name}"] for name in TURN_NAMES})
    if look and steps:
        known = await tx.fetch(_stored, run_id=run_id, steps=[step.step for step in steps])
        locked.stored = {event["step"]: event_of(event) for event in known}
    return locked


async def peek(db: Reader, run_id: str) -> Locked | None:
    """A turn and its session as they are now, without a lock; for `write_at_once`."""
    row = await db.fetchrow(_peek, run_id=run_id)
    return None if row is None else Locked(row, {name: row[f"turn_{name}"] for name in TURN_NAMES})


@dataclass(frozen=True, slots=True)
class Writing:
    """What is to be written: the statement's values, how many events are new, and the event of every step."""

    values: dict[str, Any]
    fresh: int
    events: list[pb.SessionEvent]


def prepare(
    told: Emitter, locked: Locked, steps: Sequence[Step], now: int, *, session: dict[str, Any], turn: dict[str, Any]
) -> Writing:
    """Append the steps that are not stored yet and change columns of the session and of the turn.

    `told` gets the appended events; `locked` becomes what the rows will be.
    """
    before = locked.session
    fresh = list({step.step: step for step in reversed(steps) if step.step not in locked.stored}.values())[::-1]
    by_step = {
        step.step: pb.SessionEvent(
            id=str(uuid.uuid4()),
            session_id=before["id"],
            seq=before["last_seq"] + n,
            payload=step.payload,
            created_at=now,
        )
        for n, step in enumerate(fresh, 1)
    }
    after = {**before, "last_seq": before["last_seq"] + len(fresh), **session}
    ended = {**locked.turn, **turn}
    for step in steps:
        if is_assistant_message(step.payload):
            ended["assistant_event_id"] = (by_step.get(step.step) or locked.stored[step.step]).id
    values = {
        "session_id": before["id"],
        "run_id": locked.turn["run_id"],
        "event_ids": [by_step[step.step].id for step in fresh],
        "payloads": [step.payload for step in fresh],
        "steps": [step.step for step in fresh],
        "seq_before": before["last_seq"],
        "now": now,
        "last_seq": after["last_seq"],
        "live_turns": after["live_turns"],
        "status": after["status"],
        "updated_at": after["updated_at"],
        "version": after["version"],
        "state": ended["state"],
        "attempt": ended["attempt"],
        "canceled": ended["canceled"],
        "turn_status": ended["status"],
        "assistant_event_id": ended["assistant_event_id"],
        "error_message": ended["error_message"],
        "error_status": ended["error_status"],
        "finished_at": ended["finished_at"],
        "next_start_at": ended["next_start_at"],
    }
    locked.turn = ended
    locked.session = after
    changes.appended(told, before["owner"], before["agent_id"], [by_step[step.step] for step in fresh])
    events = [by_step.get(step.step) or locked.stored[step.step] for step in steps]
    return Writing(values, len(fresh), events)


async def write(
    tx: Tx, locked: Locked, steps: Sequence[Step], now: int, *, session: dict[str, Any], turn: dict[str, Any]
) -> list[pb.SessionEvent]:
    """Write what `prepare` says, in an open transaction that has locked the rows.

    Returns the event of every step, in order. Raises StepStored when a step was stored that the lock did not look for.
    """
    writing = prepare(tx, locked, steps, now, session=session, turn=turn)
    await carry_out(tx, writing)
    return writing.events


async def carry_out(tx: Tx, writing: Writing) -> None:
    """Write in an open transaction. Raises StepStored as `write`."""
    if await tx.fetchval(_write, **writing.values) != writing.fresh:
        raise StepStored


async def write_at_once(outbox: Outbox, statement: Single, seen: Locked, draft: Draft, writing: Writing) -> bool:
    """Write in one statement, commit and tell `draft`; False when something has changed since `seen` was read.

    Nothing is written then, nor when a step turns out to be stored already: the way with locks finds out why.
    """
    was = {f"seen_{name}": seen.session[name] for name in _SEEN}
    try:
        row = await outbox.send(statement, draft, **writing.values, **was)
    except asyncpg.UniqueViolationError:
        return False
    return row is not None and row["held"]


def touched(session: Row, now: int) -> dict[str, int]:
    """Columns of a session that something readers see has changed in."""
    return {"updated_at": max(session["updated_at"], now), "version": session["version"] + 1}


def session_message(locked: Locked) -> pb.Session:
    """The session as it was last written."""
    return session_of(locked.session)
