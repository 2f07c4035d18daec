"""Deleting sessions and agents, and what is still to be told to runs about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, insert

from libs.errors import NotFound
from libs.store import Database, Outbox, Sql, Tx, param, sql
from services.sessions.domain.turns import PARKED
from services.sessions.store import blobs, changes, uploads
from services.sessions.store.continuations import unlink
from services.sessions.store.rows import NO_CHILDREN, NOW, SESSION, number, session_of, text, touched
from services.sessions.store.tables import (
    agent_members,
    agents,
    attachments,
    continuations,
    deletions,
    session_events,
    session_turns,
    sessions,
    user_actions,
)

SESSION_KIND, AGENT_KIND = "session", "agent"

_s, _a, _m, _t, _d, _c = sessions.c, agents.c, agent_members.c, session_turns.c, deletions.c, continuations.c
_IDS = param("ids", ARRAY(sa.Text))

_child = sessions.alias("child")
_parent = sessions.alias("parent")


def _with_relatives(own: sa.ColumnElement[bool], *columns: sa.ColumnElement[Any]) -> Sql:
    """Sessions of which `own` holds (it speaks of the alias `parent`), with all that link to them, locked.

    They are locked in the order of their ids, so that two deletions never wait for each other.
    """
    related = sa.union(
        sa.select(_parent.c.id).where(own),
        sa.select(_parent.c.parent_session_id).where(own),
        sa.select(_child.c.id).join(_parent, _child.c.parent_session_id == _parent.c.id).where(own),
        sa.select(_c.successor_id).join(_parent, _c.predecessor_id == _parent.c.id).where(own),
        sa.select(_c.predecessor_id).join(_parent, _c.successor_id == _parent.c.id).where(own),
    )
    return sql(sa.select(_s.id, *columns).where(_s.id.in_(related)).order_by(_s.id).with_for_update(of=sessions))


_family = _with_relatives(_parent.c.id == text("id"), _s.parent_session_id)
_agent_family = _with_relatives(_parent.c.agent_id == text("id"), _s.agent_id)
_orphans = sql(
    sa.update(sessions)
    .where(_s.parent_session_id == sa.any_(_IDS), _s.id != sa.all_(_IDS))
    .values(parent_session_id=None, **touched(sessions))
    .returning(*SESSION)
)
_parents = sql(sa.update(sessions).where(_s.id == sa.any_(_IDS)).values(**touched(sessions)).returning(*SESSION))
_gone_turns = sql(
    sa.update(session_turns)
    .where(_t.session_id == sa.any_(_IDS), _t.state.in_(["live", PARKED]))
    .values(
        state="gone", gone=text("noun"), canceled=True, title="", event_ids=sa.cast([], ARRAY(sa.Text)),
        finished_at=NOW, next_start_at=NOW,
    )
)  # fmt: skip
_done_turns = sql(sa.delete(session_turns).where(_t.session_id == sa.any_(_IDS), _t.state == "done"))
_events = sql(sa.delete(session_events).where(session_events.c.session_id == sa.any_(_IDS)))
_user_actions = sql(sa.delete(user_actions).where(user_actions.c.session_id == sa.any_(_IDS)))
# Sessions that go on from each other share objects. Two deletions that end such a sharing wait for each other here.
_same_blob = attachments.alias("same_blob")
_hold_attachments = sql(
    sa.select(attachments.c.id)
    .where(attachments.c.blob.in_(sa.select(_same_blob.c.blob).where(_same_blob.c.session_id == sa.any_(_IDS))))
    .order_by(attachments.c.session_id, attachments.c.id)
    .with_for_update()
)
_still_owned = sql(sa.select(attachments.c.blob).where(attachments.c.blob == sa.any_(param("blobs", ARRAY(sa.Text)))))
_attachments = sql(
    sa.delete(attachments).where(attachments.c.session_id == sa.any_(_IDS)).returning(attachments.c.blob)
)
_sessions = sql(sa.delete(sessions).where(_s.id == sa.any_(_IDS)).returning(*_s, NO_CHILDREN))
_hold_agent = sql(sa.select(_a.id).where(_a.id == text("id")).with_for_update())
_members = sql(sa.delete(agent_members).where(_m.agent_id == text("id")).returning(_m.account, _m.status))
_agent = sql(sa.delete(agents).where(_a.id == text("id")).returning(_a.owner))
_saga = sql(
    insert(deletions).values(
        id=text("id"), kind=text("kind"), owner=text("owner"), created_at=NOW, next_at=number("next_at")
    )
)
_finished = sql(sa.delete(deletions).where(_d.id == text("id")))


@dataclass(frozen=True, slots=True)
class Deletion:
    """Something that is gone here; runs is still to be told. `kind` is session or agent."""

    id: str
    kind: str
    owner: str


class DeletionStore:
    """Deletes in one transaction. `now` gives Unix milliseconds, `sweep_ms` is how long the caller has for the rest."""

    def __init__(self, db: Database, outbox: Outbox, *, now: Callable[[], int], sweep_ms: int) -> None:
        self._db, self._outbox, self._now, self._sweep_ms = db, outbox, now, sweep_ms

    async def session(self, session_id: str) -> Deletion:
        """Delete a session with its log; its children become top level. Raises NotFound."""
        async with self._outbox.transaction() as tx:
            family = {row["id"]: row["parent_session_id"] for row in await tx.fetch(_family, id=session_id)}
            if session_id not in family:
                raise NotFound("Session not found")
            parent = family[session_id]
            (deleted,) = await self._sessions(tx, [session_id], "Session")
            if parent in family:
                # Its number of children has changed.
                for row in await tx.fetch(_parents, ids=[parent], now=self._now()):
                    changes.session(tx, session_of(row))
            changes.session_hint(tx, "session-deleted", session_of(deleted))
            return await self._begin(tx, Deletion(session_id, SESSION_KIND, deleted["owner"]))

    async def agent(self, agent_id: str) -> Deletion:
        """Delete an agent with all it owns. Raises NotFound."""
        async with self._outbox.transaction() as tx:
            if await tx.fetchrow(_hold_agent, id=agent_id) is None:
                raise NotFound("Agent not found")
            family = await tx.fetch(_agent_family, id=agent_id)
            own = [row["id"] for row in family if row["agent_id"] == agent_id]
            deleted = await self._sessions(tx, own, "Agent")
            parents = {row["parent_session_id"] for row in deleted} - {None, *own}
            if parents:
                for row in await tx.fetch(_parents, ids=sorted(parents), now=self._now()):
                    changes.session(tx, session_of(row))
            members = await tx.fetch(_members, id=agent_id)
            owner = await tx.fetchval(_agent, id=agent_id)
            # The memberships are gone, so each account that heard of the agent is told by itself.
            joined = [row["account"] for row in members if row["status"] == "accepted"]
            for account in (owner, *joined):
                changes.private_hint(tx, "agent-deleted", owner, agent_id, account)
            return await self._begin(tx, Deletion(agent_id, AGENT_KIND, owner))

    async def finished(self, deletion: Deletion) -> None:
        """Runs has been told."""
        await self._db.execute(_finished, id=deletion.id)

    async def _sessions(self, tx: Tx, ids: Sequence[str], noun: str) -> list[dict[str, Any]]:
        now = self._now()
        for row in await tx.fetch(_orphans, ids=list(ids), now=now):
            changes.session(tx, session_of(row))
        await tx.execute(_events, ids=list(ids))
        await tx.execute(_user_actions, ids=list(ids))
        await uploads.discard_of(tx, ids)
        await self._release(tx, ids)
        await unlink(tx, ids, now)
        deleted = await tx.fetch(_sessions, ids=list(ids))
        # After the sessions: their locks are ours, so no turn begins or ends meanwhile.
        await tx.execute(_gone_turns, ids=list(ids), noun=noun, now=now)
        await tx.execute(_done_turns, ids=list(ids))
        return [dict(row) for row in deleted]

    async def _release(self, tx: Tx, ids: Sequence[str]) -> None:
        await tx.fetch(_hold_attachments, ids=list(ids))
        released = {row["blob"] for row in await tx.fetch(_attachments, ids=list(ids))}
        if released:
            released -= {row["blob"] for row in await tx.fetch(_still_owned, blobs=sorted(released))}
            await blobs.release(tx, sorted(released))

    async def _begin(self, tx: Tx, deletion: Deletion) -> Deletion:
        now = self._now()
        await tx.execute(
            _saga, id=deletion.id, kind=deletion.kind, owner=deletion.owner, now=now, next_at=now + self._sweep_ms
        )
        return deletion
