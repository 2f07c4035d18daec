"""Events of the activity feed against the triggers of an account (triggers.md, section 4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from libs import telemetry
from libs.protocol.triggers import AgentTriggerSource
from libs.store import Database, Row, param, sql
from services.triggers.domain.activity.keys import firing_key
from services.triggers.domain.activity.match import Match, match
from services.triggers.domain.activity.shapes import Activity, bounded
from services.triggers.domain.activity.summary import summary_of
from services.triggers.domain.activity.watermark import Keyed
from services.triggers.domain.definition import ACTIVITY, ACTIVITY_SOURCES
from services.triggers.domain.firing import Activation
from services.triggers.store.feeds import FeedStore, Lease
from services.triggers.store.firings import FiringStore
from services.triggers.store.rows import NOW, text
from services.triggers.store.tables import triggers

log = telemetry.get_logger("triggers")

_t = triggers.c

# Locked in the order in which combining two locks them.
_evaluated = sql(
    sa.select(*_t)
    .where(
        _t.account == text("account"),
        _t.enabled,
        _t.kind == sa.any_(sa.literal(sorted(ACTIVITY_SOURCES), ARRAY(sa.Text))),
    )
    .order_by(_t.created_at, _t.id)
    .with_for_update()
)
_checked = sql(sa.update(triggers).where(_t.id == sa.any_(param("ids", ARRAY(sa.Text)))).values(last_checked_at=NOW))


class ActivityStore:
    """What events do to the triggers of one database. `now` gives Unix milliseconds."""

    def __init__(self, db: Database, feeds: FeedStore, firings: FiringStore, *, now: Callable[[], int]) -> None:
        self._db, self._feeds, self._firings, self._now = db, feeds, firings, now

    async def handle(self, lease: Lease, event: Keyed) -> list[Row]:
        """Evaluate the account's enabled activity triggers, oldest first, and have the event behind us.

        Firings and watermark are one transaction. Returns the new firings, still to be carried out. Raises LeaseLost.
        """
        now = self._now()
        found: list[Row] = []
        async with self._db.transaction() as tx:
            await self._feeds.hold(tx, lease)
            rows = await tx.fetch(_evaluated, account=lease.account)
            for row in rows:
                matched = _match(row, event.activity)
                if matched is None:
                    continue
                firing = await self._firings.record(tx, row, _activation(row, event, matched), now)
                if firing is not None:
                    found.append(firing)
            if rows:
                await tx.execute(_checked, ids=[row["id"] for row in rows], now=now)
            await self._feeds.remember(tx, lease, [event.key])
        return found


def _match(row: Row, activity: Activity) -> Match | None:
    try:
        source: AgentTriggerSource = msgspec.json.decode(row["source"], type=AgentTriggerSource)
    except msgspec.ValidationError:
        # One trigger that cannot be read must not hold up all others of the account.
        log.error("trigger source not understood", trigger=row["id"])
        return None
    return match(source, activity)


def _activation(row: Row, event: Keyed, matched: Match) -> Activation:
    conditions: list[dict[str, Any]] = [msgspec.to_builtins(condition) for condition in matched.conditions]
    return Activation(
        key=firing_key(event.activity) or event.key,
        event=bounded(event.activity.event),
        summary=summary_of(event.activity),
        activity_key=event.key,
        matched=conditions if row["kind"] == ACTIVITY else None,
    )
