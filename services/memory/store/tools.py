"""Tool documents: list, save, rename, delete; builtin ones follow what the server ships."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from libs.errors import SeedError
from libs.events import account_hint
from libs.store import Outbox, Sql, param, sql
from libs.store.database import Reader, Row, Tx
from services.memory.domain import tools as rules
from services.memory.domain.tools import BUILTIN, Document
from services.memory.store import spaces
from services.memory.store.params import AGENT, NOW
from services.memory.store.spaces import Space
from services.memory.store.tables import tool_documents

_t = tool_documents.c
_TEXT = sa.Text()
_NAME = param("name", _TEXT)
_BRIEF = (_t.name, _t.kind, _t.summary, _t.cid, _t.enabled, _t.created_at, _t.updated_at)
_COLUMNS = (*_BRIEF, _t.document)
_CONTENT = {
    "kind": param("kind", _TEXT),
    "summary": param("summary", sa.LargeBinary),
    "document": param("document", sa.LargeBinary),
    "cid": param("cid", _TEXT),
    # Later than before, also when the clock goes back.
    "updated_at": sa.func.greatest(NOW, _t.updated_at + 1),
}
_this = sa.and_(_t.agent_id == AGENT, _t.name == _NAME)

_list, _list_brief = (
    sql(sa.select(*columns).where(_t.agent_id == AGENT).order_by(_t.name)) for columns in (_COLUMNS, _BRIEF)
)
_get = sql(sa.select(*_COLUMNS).where(_this))
_kind = sql(sa.select(_t.kind).where(_this))
_bytes = sql(sa.select(sa.func.coalesce(sa.func.sum(sa.func.length(_t.document)), 0)).where(_t.agent_id == AGENT))
_new = insert(tool_documents).values(agent_id=AGENT, name=_NAME, created_at=NOW, **{**_CONTENT, "updated_at": NOW})
_add = sql(_new.returning(*_COLUMNS))
_replace = sql(
    sa.update(tool_documents)
    .where(_t.agent_id == AGENT, _t.name == param("previous", _TEXT))
    .values(name=_NAME, **_CONTENT)
    .returning(*_COLUMNS)
)
_delete = sql(sa.delete(tool_documents).where(_this))
# The name of a builtin is taken by nothing else.
_ship = sql(_new.on_conflict_do_update(index_elements=["agent_id", "name"], set_=_CONTENT, where=_t.kind == BUILTIN))


class ToolStore:
    """Tool documents of agents. `shipped` are the builtin ones; `now` gives Unix milliseconds."""

    def __init__(self, db: Reader, outbox: Outbox, shipped: Mapping[str, Document], now: Callable[[], int]) -> None:
        self._db, self._outbox, self._shipped, self._now = db, outbox, shipped, now

    async def list(self, owner: str, agent_id: str, *, brief: bool = False) -> list[Row]:
        """All documents of an agent by name; `brief` without `document`. Builtin ones are brought up to date first."""
        statement = _list_brief if brief else _list
        rows = await self._db.fetch(statement, agent_id=agent_id)
        if not self._stale(rows):
            return rows
        async with self._outbox.transaction() as tx:
            await spaces.hold(tx, Space(agent_id, owner))
            await self._refresh(tx, agent_id)
            return await tx.fetch(statement, agent_id=agent_id)

    async def get(self, owner: str, agent_id: str, name: str) -> Row | None:
        """One document of an agent."""
        if name in self._shipped:
            await self.list(owner, agent_id, brief=True)
        row = await self._db.fetchrow(_get, agent_id=agent_id, name=name)
        return None if row is None or (row["kind"] == BUILTIN and name not in self._shipped) else row

    async def save(
        self, owner: str, agent_id: str, name: str, previous_name: str | None, draft: Document | SeedError
    ) -> Row:
        """Store an authored tool under a name; the one of the previous name becomes it and keeps its age.

        Raises as `rules.check_save`, then the draft when it is a refusal, then as `rules.check_total`.
        """
        async with self._outbox.transaction() as tx:
            await spaces.hold(tx, Space(agent_id, owner))
            previous = None if previous_name is None else await _kind_of(tx, agent_id, previous_name)
            rules.check_save(name, previous_name, previous, await _kind_of(tx, agent_id, name))
            if isinstance(draft, SeedError):
                raise draft
            row = await self._store(tx, _add if previous_name is None else _replace, agent_id, draft, previous_name)
            rules.check_total(await tx.fetchval(_bytes, agent_id=agent_id))
            tx.emit(*account_hint(owner, "agent-tools-changed", agent_id=agent_id))
            return row

    async def delete(self, owner: str, agent_id: str, name: str) -> bool:
        """Delete an authored tool; whether there was one. Raises as `rules.check_delete`."""
        async with self._outbox.transaction() as tx:
            await spaces.hold(tx, Space(agent_id, owner))
            rules.check_delete(name, await _kind_of(tx, agent_id, name))
            deleted = bool(await tx.execute(_delete, agent_id=agent_id, name=name))
            if deleted:
                tx.emit(*account_hint(owner, "agent-tools-changed", agent_id=agent_id))
            return deleted

    def _stale(self, rows: list[Row]) -> bool:
        return {row["name"]: row["cid"] for row in rows if row["kind"] == BUILTIN} != {
            name: document.cid for name, document in self._shipped.items()
        }

    async def _refresh(self, tx: Tx, agent_id: str) -> None:
        stored = {row["name"]: row for row in await tx.fetch(_list_brief, agent_id=agent_id) if row["kind"] == BUILTIN}
        for name in stored.keys() - self._shipped.keys():
            await tx.execute(_delete, agent_id=agent_id, name=name)
        for name, document in self._shipped.items():
            if name not in stored or stored[name]["cid"] != document.cid:
                await tx.execute(_ship, **self._values(agent_id, document))

    async def _store(self, tx: Tx, statement: Sql, agent_id: str, document: Document, previous_name: str | None) -> Row:
        values = self._values(agent_id, document)
        row = await tx.fetchrow(statement, **values, **({} if previous_name is None else {"previous": previous_name}))
        assert row is not None, "the Space is locked"
        return row

    def _values(self, agent_id: str, document: Document) -> dict[str, object]:
        return {
            "agent_id": agent_id,
            "name": document.name,
            "kind": document.kind,
            "summary": document.summary.encode(),
            "document": document.body,
            "cid": document.cid,
            "now": self._now(),
        }


async def _kind_of(tx: Tx, agent_id: str, name: str) -> str | None:
    return await tx.fetchval(_kind, agent_id=agent_id, name=name)
