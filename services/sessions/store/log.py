"""Writing and reading the log of a session."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import sqlalchemy as sa
from seed.sessions.v1 import types_pb2 as pb
from sqlalchemy.dialects.postgresql import ARRAY

from libs.store import Reader, param, sql
from services.sessions.store.rows import EVENT, event_of, number, text
from services.sessions.store.tables import session_events

_e = session_events.c

NEW_EVENTS = (
    sa.func.unnest(param("event_ids", ARRAY(sa.Text)), param("payloads", ARRAY(sa.LargeBinary)))
    .table_valued("id", "payload", with_ordinality="n", name="new_events")
    .render_derived()
)
"""The events to append, numbered from 1: parameters `event_ids` and `payloads`."""

NEW_STEPS = (
    sa.func.unnest(
        param("event_ids", ARRAY(sa.Text)), param("payloads", ARRAY(sa.LargeBinary)), param("steps", ARRAY(sa.Text))
    )
    .table_valued("id", "payload", "step", with_ordinality="n", name="new_steps")
    .render_derived()
)
"""The same with the step of the run each of them is: parameter `steps`."""

_read = sql(sa.select(*EVENT).where(_e.session_id == text("session_id"), _e.seq > number("after")).order_by(_e.seq))


def new_events(session_id: str, first_seq: int, payloads: Sequence[bytes], now: int) -> list[pb.SessionEvent]:
    """Events with fresh ids, numbered from `first_seq`."""
    return [
        pb.SessionEvent(id=str(uuid.uuid4()), session_id=session_id, seq=first_seq + i, payload=payload, created_at=now)
        for i, payload in enumerate(payloads)
    ]


async def read_events(db: Reader, session_id: str, after: int = 0) -> list[pb.SessionEvent]:
    """The log in seq order, from `after` on."""
    return [event_of(row) for row in await db.fetch(_read, session_id=session_id, after=after)]
