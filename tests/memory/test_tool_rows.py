"""Rows of tool documents: builtin ones follow what is shipped, and nothing is written for who is gone."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence

import pytest

from libs.errors import NotFound, TooLarge
from libs.events import account_hint
from libs.protocol import limits
from libs.protocol.tools import Contract
from libs.store import Database, Outbox, Row
from services.memory.domain import tools as rules
from services.memory.store.drops import DropStore
from services.memory.store.spaces import Space
from services.memory.store.tables import outbox
from services.memory.store.tools import ToolStore
from tests.memory.test_tool_rules import FIELDS

SEEK = Contract("seek", "Seeks. Well.", {"type": "object"})
COUNT = Contract("count", "Counts.", {"type": "object"})
OWNER = "owner"


class House:
    """The rows, with a clock of its own and what was emitted."""

    def __init__(self, db: Database) -> None:
        self._db, self.now, self.agent = db, 1000, str(uuid.uuid4())
        self.emitted: list[str] = []
        self._outbox = Outbox(db, outbox, self._publish)
        self.drops = DropStore(db, now=lambda: self.now)

    def _publish(self, subject: str, body: bytes) -> bool:
        self.emitted.append(subject)
        return True

    def store(self, *shipped: Contract) -> ToolStore:
        return ToolStore(self._db, self._outbox, rules.builtins(shipped), lambda: self.now)

    async def save(self, name: str, previous: str | None = None, **change: str) -> Row:
        draft = rules.authored(name, {**FIELDS, **change})
        return await self.store().save(OWNER, self.agent, name, previous, draft)


@pytest.fixture
async def house(database_url: str) -> AsyncIterator[House]:
    db = Database(database_url, size=4)
    await db.open()
    yield House(db)
    await db.close()


def told(rows: Sequence[Row]) -> list[tuple[str, str, int, int]]:
    return [(row["name"], row["kind"], row["created_at"], row["updated_at"]) for row in rows]


async def test_builtin_rows_are_made_changed_and_dropped_with_what_is_shipped(house: House) -> None:
    first = await house.store(SEEK, COUNT).list(OWNER, house.agent)
    assert told(first) == [("count", "builtin", 1000, 1000), ("seek", "builtin", 1000, 1000)]
    house.now = 2000
    assert await house.store(SEEK, COUNT).list(OWNER, house.agent) == first
    changed = Contract("seek", "Seeks. Better.", SEEK.input)
    second = await house.store(changed, COUNT).list(OWNER, house.agent)
    assert told(second) == [("count", "builtin", 1000, 1000), ("seek", "builtin", 1000, 2000)]
    assert second[1]["cid"] != first[1]["cid"] and second[0] == first[0]
    assert told(await house.store(COUNT).list(OWNER, house.agent)) == [("count", "builtin", 1000, 1000)]
    assert await house.store().list(OWNER, house.agent) == []
    assert house.emitted == [], "what the server ships is no change of the agent's"


async def test_a_clock_that_goes_back_makes_no_change_look_older(house: House) -> None:
    made = await house.save("double")
    house.now = 10
    later = await house.save("double", "double", description="Again.")
    assert (later["created_at"], later["updated_at"]) == (made["created_at"], made["updated_at"] + 1)
    renamed = await house.save("twice", "double")
    assert (renamed["created_at"], renamed["updated_at"]) == (made["created_at"], made["updated_at"] + 2)


async def test_a_builtin_leaves_an_authored_tool_of_its_name_alone(house: House) -> None:
    await house.save("seek")
    rows = await house.store(SEEK).list(OWNER, house.agent)
    assert told(rows) == [("seek", "lambda", 1000, 1000)]
    row = await house.store(SEEK).get(OWNER, house.agent, "seek")
    assert row is not None and row["kind"] == "lambda"


async def test_one_is_read_without_having_been_listed(house: House) -> None:
    row = await house.store(SEEK).get(OWNER, house.agent, "seek")
    assert row is not None and (row["kind"], row["summary"]) == ("builtin", b"Seeks.")
    assert await house.store().get(OWNER, house.agent, "seek") is None, "not shipped any more"
    assert await house.store(SEEK).get(OWNER, house.agent, "nothing") is None


async def test_brief_rows_have_no_document(house: House) -> None:
    await house.save("double")
    [brief] = await house.store().list(OWNER, house.agent, brief=True)
    [whole] = await house.store().list(OWNER, house.agent)
    assert "document" not in brief.keys() and set(brief.items()) == set(whole.items()) - {  # noqa: SIM118
        ("document", whole["document"])
    }


async def test_listings_at_once_make_each_row_once(house: House) -> None:
    stores = [house.store(SEEK, COUNT) for _ in range(6)]
    listed = await asyncio.gather(*(store.list(OWNER, house.agent) for store in stores))
    assert all(rows == listed[0] for rows in listed) and len(listed[0]) == 2


async def test_a_deleted_agent_has_nothing_and_gets_nothing(house: House) -> None:
    await house.save("double")
    assert house.emitted == [account_hint(OWNER, "agent-tools-changed", agent_id=house.agent)[0]]
    await house.drops.drop(Space(house.agent, OWNER))
    for call in (house.save("double"), house.store(SEEK).list(OWNER, house.agent)):
        with pytest.raises(NotFound, match="Agent not found"):
            await call
    with pytest.raises(NotFound, match="Agent not found"):
        await house.store().delete(OWNER, house.agent, "double")
    assert await house.store().list(OWNER, house.agent) == []


async def test_all_documents_together_stay_below_their_limit(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len((await house.save("one"))["document"])
    monkeypatch.setattr(limits, "TOOL_DOCUMENTS_BYTES", 2 * size)
    await house.save("two")
    with pytest.raises(TooLarge, match="The tools of this agent are too large"):
        await house.save("three")
    with pytest.raises(TooLarge):
        await house.save("two", "two", description="Doubles n, and then some.")
    await house.save("six", "two")
    assert [row["name"] for row in await house.store().list(OWNER, house.agent)] == ["one", "six"]
