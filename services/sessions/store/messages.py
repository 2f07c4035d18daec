"""Opening turns: a message, a retry, and the repeat of either."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg
import sqlalchemy as sa
from seed.sessions.v1 import types_pb2 as pb
from sqlalchemy.dialects.postgresql import ARRAY, insert

from libs.errors import Conflict, Invalid, NotFound
from libs.store import Database, Draft, Emitter, Outbox, Single, Tx, param, sql
from services.sessions.domain.turns import FAILED
from services.sessions.domain.user_actions import ACTION_RUNNING
from services.sessions.store import changes
from services.sessions.store.log import NEW_EVENTS
from services.sessions.store.rows import NOW, SESSION, Row, number, outcome_of, session_of, start_of, text
from services.sessions.store.tables import attachments, idempotency, session_events, session_turns, sessions

ACTION = "MessageSession"

_s, _t, _i = sessions.c, session_turns.c, idempotency.c
_ID = text("session_id")

# Only a session that begins to stream changes what readers see of it.
_idle = _s.live_turns == sa.literal_column("0")
_KEPT = ("last_seq", "turns", "live_turns", "status", "version", "updated_at")
_unchanged = (
    sa.select(_s.id)
    .where(_s.id == _ID, *(_s[name] == param(f"seen_{name}", _s[name].type) for name in _KEPT))
    .with_for_update(key_share=True, of=sessions)
    .cte("unchanged")
)


@dataclass(frozen=True, slots=True)
class _Opening:
    """The parts of opening a turn. The session's row comes first: what depends on it is exact whoever else writes."""

    opened: sa.CTE
    turn: sa.CTE
    taken: sa.CTE
    events: sa.CTE


def _opening(*, alone: bool) -> _Opening:
    """With `alone`, the statement is a transaction: it does nothing if the session is not what was seen."""
    opened = (
        sa.update(sessions)
        .where(_s.id == _ID, _s.user_actions == sa.literal_column("0"))
        .values(
            last_seq=_s.last_seq + number("count"),
            turns=_s.turns + 1,
            live_turns=_s.live_turns + 1,
            status="streaming",
            updated_at=sa.case((_idle, sa.func.greatest(_s.updated_at, NOW)), else_=_s.updated_at),
            version=sa.case((_idle, _s.version + 1), else_=_s.version),
        )
    )
    if alone:
        opened = opened.where(sa.exists(sa.select(_unchanged.c.id)))
    opened = opened.returning(*SESSION).cte("opened")
    o = opened.c
    turn = (
        insert(session_turns)
        .from_select(
            [
                "run_id", "session_id", "agent_id", "owner", "number", "queued_behind", "retry", "title", "event_ids",
                "created_at", "next_start_at",
            ],
            sa.select(
                text("run_id"), o.id, o.agent_id, o.owner, o.turns, o.live_turns > sa.literal_column("1"),
                param("retry", sa.Boolean), text("title"), param("own_event_ids", ARRAY(sa.Text)), NOW,
                number("start_at"),
            ),
            include_defaults=False,
        )
        .cte("turn")
    )  # fmt: skip
    taken = insert(idempotency).from_select(
        ["account", "action", "client_id", "request_hash", "created_id", "created_at"],
        sa.select(
            text("account"), sa.literal_column(f"'{ACTION}'"), text("client_id"),
            param("request_hash", sa.LargeBinary), text("run_id"), NOW,
        ).select_from(opened),
    )  # fmt: skip
    # In an open transaction a client id that is known is reported; alone it undoes the statement.
    taken = (taken if alone else taken.on_conflict_do_nothing()).returning(_i.client_id).cte("taken")
    events = (
        insert(session_events)
        .from_select(
            ["session_id", "seq", "id", "payload", "created_at"],
            sa.select(
                o.id, o.last_seq - number("count") + NEW_EVENTS.c.n, NEW_EVENTS.c.id, NEW_EVENTS.c.payload, NOW
            ).select_from(opened.join(NEW_EVENTS, sa.true())),
        )
        .cte("events")
    )
    return _Opening(opened, turn, taken, events)


_way = _opening(alone=False)
_is_first = sa.exists(sa.select(_way.taken.c.client_id)).label("is_first")
_send = sql(sa.select(*_way.opened.c, _is_first).add_cte(_way.events).add_cte(_way.turn))
_open = sql(sa.select(*_way.opened.c).add_cte(_way.turn))


def _at_once(outbox: Outbox) -> Single:
    way = _opening(alone=True)
    held = sa.exists(sa.select(way.opened.c.id))
    whole = sa.select(held.label("held")).add_cte(way.events).add_cte(way.turn).add_cte(way.taken)
    return outbox.single(whole, held)


_lock = sql(sa.select(*SESSION).where(_s.id == _ID).with_for_update(key_share=True, of=sessions))
_known = sql(
    sa.select(_i.request_hash, *_t)
    .select_from(idempotency.outerjoin(session_turns, _t.run_id == _i.created_id))
    .where(_i.account == text("account"), _i.action == ACTION, _i.client_id == text("client_id"))
)
_repoint = sql(
    sa.update(idempotency)
    .where(_i.account == text("account"), _i.action == ACTION, _i.client_id == text("client_id"))
    .values(created_id=text("run_id"))
)
_latest = sql(sa.select(*_t).where(_t.session_id == _ID).order_by(_t.number.desc()).limit(1))
_attachments = sql(
    sa.select(*attachments.c).where(
        attachments.c.session_id == _ID, attachments.c.id == sa.any_(param("ids", ARRAY(sa.Text)))
    )
)


class _Repeated(Exception):
    """The client id has been used: the transaction is rolled back and the first request looked at."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message that passed its rules: `key` and `request_hash` make it idempotent, `payloads` are its events."""

    account: str
    key: str
    request_hash: bytes
    title: str
    payloads: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Answer:
    """Either the turn to start, or the outcome of one that has ended."""

    start: pb.TurnStart | None = None
    outcome: pb.TurnOutcome | None = None


class MessageStore:
    """Opens turns. `now` gives Unix milliseconds, `sweep_ms` is how long the caller has to start a turn's run."""

    def __init__(self, db: Database, outbox: Outbox, *, now: Callable[[], int], sweep_ms: int) -> None:
        self._db, self._outbox, self._now, self._sweep_ms = db, outbox, now, sweep_ms
        self._single = _at_once(outbox)

    async def attachments(self, session_id: str, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The public SessionAttachmentInfo of those of `ids` that the session has."""
        if not ids:
            return {}
        rows = await self._db.fetch(_attachments, session_id=session_id, ids=list(ids))
        return {row["id"]: _attachment_info(row) for row in rows}

    async def send(self, session_id: str, message: Message, seen: Row | None = None) -> Answer:
        """Append a message and open its turn; a repeat is answered as the first was.

        `seen` is the session as the caller has read it: unless it changes meanwhile, all is one statement.

        Raises NotFound when the session has been deleted, Conflict for a client id used for something else and while
        somebody's own use of a verb is executed.
        """
        try:
            start = await self._send_at_once(seen, message) if seen is not None else None
            return Answer(start=start or await self._send(session_id, message))
        except _Repeated:
            return await self._repeat(session_id, message)

    async def retry(self, session_id: str) -> pb.TurnStart:
        """Open a new turn on the same transcript.

        Raises Conflict while a turn is live or somebody's own use of a verb is executed, Invalid unless the latest turn
        failed, NotFound for a deleted session.
        """
        async with self._outbox.transaction() as tx:
            session = await self._locked(tx, session_id)
            if session["live_turns"]:
                raise Conflict("Session is already streaming")
            latest = await tx.fetchrow(_latest, session_id=session_id)
            if latest is None or latest["status"] != FAILED:
                raise Invalid("Nothing to retry: the latest run did not fail")
            return await self._again(tx, latest)

    async def _send_at_once(self, seen: Row, message: Message) -> pb.TurnStart | None:
        """The turn of a message, or None when something stands in the way: the way with locks finds out what."""
        if seen["user_actions"]:
            return None
        now, run_id = self._now(), str(uuid.uuid4())
        ids = [str(uuid.uuid4()) for _ in message.payloads]
        after = {
            **seen,
            "last_seq": seen["last_seq"] + len(ids),
            "turns": seen["turns"] + 1,
            "live_turns": seen["live_turns"] + 1,
            "status": "streaming",
        }
        if not seen["live_turns"]:
            after |= {"updated_at": max(seen["updated_at"], now), "version": seen["version"] + 1}
        draft = Draft()
        self._told(draft, after, message, ids, now)
        was = {f"seen_{name}": seen[name] for name in _KEPT}
        try:
            row = await self._outbox.send(
                self._single, draft, **self._values(seen["id"], message, run_id, ids, now), **was
            )
        except asyncpg.UniqueViolationError:
            return None
        if row is None or not row["held"]:
            return None
        return _start(after, run_id, message.title, ids, retry=False)

    async def _send(self, session_id: str, message: Message) -> pb.TurnStart:
        now, run_id = self._now(), str(uuid.uuid4())
        ids = [str(uuid.uuid4()) for _ in message.payloads]
        async with self._outbox.transaction() as tx:
            row = await tx.fetchrow(_send, **self._values(session_id, message, run_id, ids, now))
            if row is None:
                await self._held(tx, session_id, message)
                raise _Repeated
            if not row["is_first"]:
                raise _Repeated
            self._told(tx, row, message, ids, now)
            return _start(row, run_id, message.title, ids, retry=False)

    def _values(self, session_id: str, message: Message, run_id: str, ids: Sequence[str], now: int) -> dict[str, Any]:
        return {
            "session_id": session_id,
            "account": message.account,
            "client_id": message.key,
            "request_hash": message.request_hash,
            "run_id": run_id,
            "retry": False,
            "title": message.title,
            "own_event_ids": ids,
            "event_ids": ids,
            "payloads": list(message.payloads),
            "count": len(ids),
            "now": now,
            "start_at": now + self._sweep_ms,
        }

    def _told(self, told: Emitter, row: Row, message: Message, ids: Sequence[str], now: int) -> None:
        session = session_of(row)
        first = row["last_seq"] - len(ids) + 1
        stored = [
            pb.SessionEvent(id=i, session_id=session.id, seq=first + n, payload=payload, created_at=now)
            for n, (i, payload) in enumerate(zip(ids, message.payloads, strict=True))
        ]
        changes.appended(told, session.account, session.agent_id, stored)
        self._begins(told, row, session)
        changes.session_hint(told, "session-event", session)

    async def _repeat(self, session_id: str, message: Message) -> Answer:
        turn = await self._first(self._db, message)
        if _has_answer(turn):
            return _settled(turn)
        # Only successes are stored (envelope.md, section 7): a failed turn is run again, on the message that stands.
        async with self._outbox.transaction() as tx:
            await self._locked(tx, session_id)
            turn = await self._first(tx, message)
            if _has_answer(turn):
                return _settled(turn)
            # Behind another turn if one is live: what is acknowledged gets its turn.
            start = await self._again(tx, turn)
            await tx.execute(_repoint, account=message.account, client_id=message.key, run_id=start.run_id)
            return Answer(start=start)

    async def _first(self, db: Database | Tx, message: Message) -> Row:
        row = await db.fetchrow(_known, account=message.account, client_id=message.key)
        if row is None or row["request_hash"] != message.request_hash:
            raise Conflict("Client message ID payload mismatch")
        if row["run_id"] is None or row["state"] == "gone":
            raise NotFound("Session not found")
        return row

    async def _again(self, tx: Tx, failed: Row) -> pb.TurnStart:
        now, run_id = self._now(), str(uuid.uuid4())
        row = await tx.fetchrow(
            _open,
            session_id=failed["session_id"],
            run_id=run_id,
            retry=True,
            title=failed["title"],
            own_event_ids=failed["event_ids"],
            count=0,
            now=now,
            start_at=now + self._sweep_ms,
        )
        if row is None:
            await self._locked(tx, failed["session_id"])
            raise Conflict(ACTION_RUNNING)
        self._begins(tx, row, session_of(row))
        return _start(row, run_id, failed["title"], failed["event_ids"], retry=True)

    async def _held(self, tx: Tx, session_id: str, message: Message) -> None:
        """Why no turn opens. Returns for a message that has opened one before; raises NotFound, Conflict."""
        await self._locked(tx, session_id)
        if await tx.fetchrow(_known, account=message.account, client_id=message.key) is None:
            raise Conflict(ACTION_RUNNING)

    async def _locked(self, tx: Tx, session_id: str) -> Row:
        row = await tx.fetchrow(_lock, session_id=session_id)
        if row is None:
            raise NotFound("Session not found")
        return row

    def _begins(self, told: Emitter, row: Row, session: pb.Session) -> None:
        if row["live_turns"] == 1:
            changes.session(told, session)


def _has_answer(turn: Row) -> bool:
    """Whether a repeat gets what the first request got or still waits for: all but the failure of a turn."""
    return turn["state"] == "live" or turn["status"] != FAILED or turn["queued_behind"]


def _settled(turn: Row) -> Answer:
    if turn["state"] == "live":
        return Answer(start=start_of(turn))
    outcome = outcome_of(turn)
    if turn["queued_behind"]:
        # Its first answer did not wait for the turn: it named no event and told no failure. A repeat says the same.
        status = "waiting" if outcome.status == FAILED else outcome.status
        outcome = pb.TurnOutcome(run_id=outcome.run_id, status=status)
    return Answer(outcome=outcome)


def _start(row: Row, run_id: str, title: str, event_ids: Sequence[str], *, retry: bool) -> pb.TurnStart:
    return pb.TurnStart(
        run_id=run_id,
        session_id=row["id"],
        agent_id=row["agent_id"],
        owner=row["owner"],
        title=title,
        queued_behind=row["live_turns"] > 1,
        retry=retry,
        event_ids=event_ids,
        origin="user",
    )


def _attachment_info(row: Row) -> dict[str, Any]:
    info: dict[str, Any] = {"id": row["id"], "sessionId": row["session_id"], "name": row["name"]}
    if row["mime_type"] is not None:
        info["mimeType"] = row["mime_type"]
    return {**info, "size": row["size"], "createdAt": row["created_at"]}
