"""How far the activity feed of an account has been handled, and which monitor reads it (triggers.md, section 4)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, insert

from libs.store import Database, Tx, param, sql
from services.triggers.domain.activity.watermark import capacity_of
from services.triggers.domain.definition import ACTIVITY_SOURCES, SCHEDULE
from services.triggers.store.rows import NOW, text
from services.triggers.store.tables import seen_events, triggers, watermarks

_t, _w, _s = triggers.c, watermarks.c, seen_events.c
_KEYS = param("keys", ARRAY(sa.Text))

_polled = sa.and_(_t.enabled, _t.kind != SCHEDULE)
_enroll = sql(
    insert(watermarks)
    .from_select(
        ["account", "begun", "next_at"],
        sa.select(_t.account, sa.false(), NOW).distinct().where(_polled, ~sa.exists().where(_w.account == _t.account)),
    )
    .on_conflict_do_nothing()
)
_NEVER = 2**62
_KEPT_MS = 30 * 86_400_000
_needed = sa.exists().where(_t.account == _w.account, _polled)
_free = sa.or_(_w.leased_until.is_(None), _w.leased_until < NOW)
_rest = sql(
    sa.update(watermarks)
    .where(_w.next_at < _NEVER, _free, ~_needed)
    .values(begun=False, next_at=_NEVER, lease=None, leased_until=None, last_error=None)
)
_resume = sql(sa.update(watermarks).where(_w.next_at == _NEVER, _needed).values(next_at=NOW))
_dismiss = sql(
    sa.delete(watermarks).where(
        _w.next_at == _NEVER, ~_needed, sa.func.coalesce(_w.checked_at, 0) < param("checked_before")
    )
)
_due = (
    sa.select(_w.account)
    .where(_w.next_at <= NOW, _free)
    .order_by(_w.next_at, _w.account)
    .limit(param("limit", sa.Integer))
    .with_for_update(skip_locked=True)
)
_lease = sql(
    sa.update(watermarks)
    .where(_w.account.in_(_due))
    .values(lease=text("lease"), leased_until=param("leased_until"))
    .returning(_w.account, _w.begun)
)
_held = sa.and_(_w.account == text("account"), _w.lease == text("holder"))
_hold = sql(sa.select(_w.account).where(_held).with_for_update())
_renew = sql(sa.update(watermarks).where(_held).values(leased_until=param("leased_until")))
_begin = sql(sa.update(watermarks).where(_held).values(begun=True))
_release = sql(
    sa.update(watermarks)
    .where(_held)
    .values(
        lease=None,
        leased_until=None,
        next_at=param("next_at"),
        last_error=text("error"),
        checked_at=sa.case((text("error").is_(None), NOW), else_=_w.checked_at),
    )
)
_seen = sql(sa.select(_s.event_key).where(_s.account == text("account"), _s.event_key == sa.any_(_KEYS)))
_wanted = sa.func.unnest(_KEYS).table_valued("event_key", with_ordinality="n").render_derived(name="wanted")
_remember = sql(
    insert(seen_events)
    # The last of the keys is the oldest.
    .from_select(["account", "event_key"], sa.select(text("account"), _wanted.c.event_key).order_by(_wanted.c.n.desc()))
    .on_conflict_do_nothing()
)
_oldest_kept = (
    sa.select(_s.position)
    .where(_s.account == text("account"))
    .order_by(_s.position.desc())
    .offset(param("capacity", sa.Integer))
    .limit(1)
    .scalar_subquery()
)
_forget = sql(sa.delete(seen_events).where(_s.account == text("account"), _s.position <= _oldest_kept))
_since = sql(
    sa.select(sa.func.min(_t.created_at)).where(
        _t.account == text("account"),
        _t.enabled,
        _t.kind == sa.any_(sa.literal(sorted(ACTIVITY_SOURCES), ARRAY(sa.Text))),
    )
)
_troubled = sql(sa.select(sa.func.count(), sa.func.count(_w.last_error)).where(_w.next_at < _NEVER))


class LeaseLost(Exception):
    """Another monitor has the feed now, or nobody needs it any more."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to read an account's feed. `begun` says whether its first poll has ended."""

    account: str
    token: str
    begun: bool


class FeedStore:
    """Feeds of one database. `now` gives Unix milliseconds; `page_size` × `max_pages` is what a poll may fetch."""

    def __init__(self, db: Database, *, now: Callable[[], int], page_size: int, max_pages: int) -> None:
        self._db, self._now = db, now
        self._capacity = capacity_of(page_size, max_pages)

    async def enroll(self) -> None:
        """Have a feed for every account with an enabled trigger that is not of the clock; those of others rest.

        One that is needed again later has a first poll again: a new trigger is not for what happened before it, and
        one that was off is not for what it has seen. After 30 days what was seen is forgotten.
        """
        now = self._now()
        await self._db.execute(_enroll, now=now)
        await self._db.execute(_resume, now=now)
        await self._db.execute(_rest, now=now)
        await self._db.execute(_dismiss, checked_before=now - _KEPT_MS)

    async def lease(self, limit: int, for_ms: int) -> list[Lease]:
        """Up to `limit` feeds that are due, those that have waited longest, for nobody else until `for_ms` from now."""
        now, token = self._now(), str(uuid.uuid4())
        rows = await self._db.fetch(_lease, now=now, limit=limit, lease=token, leased_until=now + for_ms)
        return [Lease(row["account"], token, row["begun"]) for row in rows]

    async def renew(self, lease: Lease, for_ms: int) -> None:
        """Keep the feed until `for_ms` from now. Raises LeaseLost."""
        renewed = await self._db.execute(
            _renew, account=lease.account, holder=lease.token, leased_until=self._now() + for_ms
        )
        if not renewed:
            raise LeaseLost(lease.account)

    async def release(self, lease: Lease, next_at: int, error: str | None) -> None:
        """The poll is over; the next one is at `next_at`. An error leaves what was handled as it is."""
        await self._db.execute(
            _release, account=lease.account, holder=lease.token, next_at=next_at, error=error, now=self._now()
        )

    async def since(self, account: str) -> int | None:
        """When the account's earliest enabled activity trigger was made; None when it has none."""
        return await self._db.fetchval(_since, account=account)

    async def seen(self, account: str, keys: Sequence[str]) -> frozenset[str]:
        """Those of the keys that were handled."""
        rows = await self._db.fetch(_seen, account=account, keys=list(keys))
        return frozenset(row["event_key"] for row in rows)

    async def baseline(self, lease: Lease, keys: Sequence[str]) -> None:
        """The first poll has found these events (newest first) to be old. Raises LeaseLost."""
        async with self._db.transaction() as tx:
            await self.hold(tx, lease)
            await self.remember(tx, lease, keys)

    async def begun(self, lease: Lease) -> None:
        """The first poll has handled all that it found."""
        await self._db.execute(_begin, account=lease.account, holder=lease.token)

    async def hold(self, tx: Tx, lease: Lease) -> None:
        """Keep other monitors from the feed until the end of the transaction. Raises LeaseLost."""
        if await tx.fetchrow(_hold, account=lease.account, holder=lease.token) is None:
            raise LeaseLost(lease.account)

    async def remember(self, tx: Tx, lease: Lease, keys: Iterable[str]) -> None:
        """These events (newest first) are handled."""
        await tx.execute(_remember, account=lease.account, keys=list(keys))

    async def forget(self, lease: Lease) -> None:
        """Drop the oldest keys beyond what is remembered."""
        await self._db.execute(_forget, account=lease.account, capacity=self._capacity)

    async def troubled(self) -> tuple[int, int]:
        """How many feeds there are, and how many of them could not be read the last time."""
        row = await self._db.fetchrow(_troubled)
        return (0, 0) if row is None else (row[0], row[1])
