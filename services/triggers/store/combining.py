"""Combining two triggers, in one transaction (triggers.md, section 9)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from libs.errors import NotFound
from libs.protocol import json_bytes
from libs.store import Outbox, Row, sql
from services.triggers.domain.combine import check_combinable, check_current, combined
from services.triggers.domain.definition import ACTIVITY, NewId
from services.triggers.store.rows import NOW, binary, text
from services.triggers.store.tables import claims, triggers
from services.triggers.store.triggers import NOUN, hint, trigger_source

_t, _c = triggers.c, claims.c

# Locked in the order in which events lock them.
_both = sql(
    sa.select(*_t).where(_t.id.in_([text("first"), text("other")])).order_by(_t.created_at, _t.id).with_for_update()
)
_touched = {"updated_at": sa.func.greatest(_t.updated_at + 1, NOW)}
_survive = sql(
    sa.update(triggers)
    .where(_t.id == text("id"))
    .values(
        kind=text("kind"),
        source=binary("source"),
        prompt=binary("prompt"),
        continuation=binary("continuation"),
        last_error=None,
        **_touched,
    )
    .returning(*_t)
)
_merge = sql(
    sa.update(triggers)
    .where(_t.id == text("id"))
    .values(enabled=False, due_at=None, merged_into=text("survivor"), **_touched)
)
# What the other has handled the survivor does not do again.
_pass_on = sql(
    insert(claims)
    .from_select(
        ["trigger_id", "firing_key", "digest", "created_at"],
        sa.select(text("survivor"), _c.firing_key, _c.digest, _c.created_at).where(_c.trigger_id == text("id")),
    )
    .on_conflict_do_nothing()
)


@dataclass(frozen=True, slots=True)
class Combination:
    """Which trigger survives, which is merged into it, and their `updated_at` as the client has seen them."""

    first_id: str
    other_id: str
    first_updated_at: int
    other_updated_at: int
    use_other_action: bool


class CombineStore:
    """Combines triggers of one database. `now` gives Unix milliseconds."""

    def __init__(self, outbox: Outbox, new_id: NewId, *, now: Callable[[], int]) -> None:
        self._outbox, self._new_id, self._now = outbox, new_id, now

    async def combine(self, asked: Combination) -> Row:
        """Combine two triggers; returns the survivor, also when they were combined so before.

        Raises NotFound, Invalid, Conflict.
        """
        now = self._now()
        async with self._outbox.transaction() as tx:
            rows = {row["id"]: row for row in await tx.fetch(_both, first=asked.first_id, other=asked.other_id)}
            if not {asked.first_id, asked.other_id} <= rows.keys():
                raise NotFound(f"{NOUN} not found")
            first, other = rows[asked.first_id], rows[asked.other_id]
            if other["merged_into"] == first["id"] and first["merged_into"] is None:
                return first
            check_combinable(dict(first), dict(other))
            check_current((first["updated_at"], other["updated_at"]), (asked.first_updated_at, asked.other_updated_at))
            source = combined(trigger_source(first), trigger_source(other), self._new_id)
            action = other if asked.use_other_action else first
            row = await tx.fetchrow(
                _survive,
                id=first["id"],
                kind=ACTIVITY,
                source=json_bytes(source),
                prompt=action["prompt"],
                continuation=action["continuation"],
                now=now,
            )
            await tx.execute(_merge, id=other["id"], survivor=first["id"], now=now)
            await tx.execute(_pass_on, id=other["id"], survivor=first["id"])
            hint(tx, "trigger-updated", first["account"], first["agent_id"])
            if row is None:
                raise RuntimeError("a locked row is there")
            return row
