"""Accepted signatures: recorded with the effect, at most one effect each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import Context
from typing import Any

import pytest
import sqlalchemy as sa

from libs import signatures
from libs.errors import Conflict, NotFound
from libs.store import AcceptedSignatures, Answers, Database, Outbox, accepted_signatures_table, sql
from libs.store.answers import ANSWER_BYTES
from tests.store.conftest import ADD, METADATA, OUTBOX, Postgres

SIGNATURES = accepted_signatures_table(METADATA)
COUNT = sql(sa.select(sa.func.count()).select_from(SIGNATURES))
REPEATED = "This signed request has already been accepted"


@pytest.fixture
async def signed(tables: Postgres) -> AsyncIterator[Database]:
    await tables.run(
        "create table if not exists accepted_signatures"
        " (signature_hash bytea primary key, account text not null, expires_at bigint not null,"
        " answer bytea)"
    )
    await tables.run("truncate accepted_signatures")
    database = Database(tables.url, size=4, wait_s=2.0, accepted=AcceptedSignatures(SIGNATURES))
    await database.open()
    yield database
    await database.close()


@pytest.fixture
def outbox(signed: Database) -> Outbox:
    return Outbox(signed, OUTBOX, lambda _subject, _body: True)


async def calling(work: Callable[[], Awaitable[Any]], sig: bytes = b"s" * 64, expires_at: int = 10) -> Any:
    """Run `work` as a servicer would for a call that carries a signature."""
    context = Context()
    context.run(signatures.bind, signatures.header(sig, expires_at), "account")
    return await asyncio.create_task(_awaited(work), context=context)


async def _awaited(work: Callable[[], Awaitable[Any]]) -> Any:
    return await work()


def adding(db: Database, item: str) -> Callable[[], Awaitable[None]]:
    async def work() -> None:
        async with db.transaction() as tx:
            await tx.execute(ADD, id=item, n=1)

    return work


def emitting(outbox: Outbox, item: str) -> Callable[[], Awaitable[None]]:
    async def work() -> None:
        async with outbox.transaction() as tx:
            await tx.execute(ADD, id=item, n=1)
            tx.emit("a", b"1")
            tx.emit("b", b"2")

    return work


async def items(postgres: Postgres) -> list[str]:
    return [row[0] for row in await postgres.run("select id from items order by id")]


@pytest.mark.parametrize("kind", ["plain", "emitting", "silent"])
async def test_one_signature_has_one_effect(signed: Database, outbox: Outbox, tables: Postgres, kind: str) -> None:
    async def silent() -> None:
        async with outbox.transaction() as tx:
            await tx.execute(ADD, id="silent", n=1)

    def work(item: str) -> Callable[[], Awaitable[None]]:
        return {"plain": adding(signed, item), "emitting": emitting(outbox, item), "silent": silent}[kind]

    await calling(work("first"))
    await tables.run("delete from items")
    with pytest.raises(Conflict, match=REPEATED):
        await calling(work("second"))
    assert await items(tables) == [] and await signed.fetchval(COUNT) == 1
    assert len(await tables.run("select 1 from outbox")) == (2 if kind == "emitting" else 0)
    await calling(work("other"), sig=b"o" * 64)
    assert len(await items(tables)) == 1


async def test_equal_calls_at_once(signed: Database, outbox: Outbox, tables: Postgres) -> None:
    calls = [calling(emitting(outbox, str(n))) for n in range(4)]
    ended = await asyncio.gather(*calls, return_exceptions=True)
    assert sorted(type(e).__name__ for e in ended) == ["Conflict"] * 3 + ["NoneType"]
    assert len(await items(tables)) == 1


async def test_later_transactions_of_a_call_belong_to_it(signed: Database, outbox: Outbox, tables: Postgres) -> None:
    async def work() -> None:
        await adding(signed, "1")()
        await emitting(outbox, "2")()

    await calling(work)
    assert await items(tables) == ["1", "2"] and await signed.fetchval(COUNT) == 1


async def test_what_is_rolled_back_takes_no_signature(signed: Database, outbox: Outbox, tables: Postgres) -> None:
    async def refused() -> None:
        async with outbox.transaction():
            raise NotFound("Session not found")

    async def taken_then_refused() -> None:
        await adding(signed, "taken")()

    await tables.run("insert into items values ('taken', 1)")
    with pytest.raises(NotFound):
        await calling(refused)
    with pytest.raises(Exception, match="duplicate key"):
        await calling(taken_then_refused)

    async def again() -> None:
        with pytest.raises(NotFound):
            await refused()
        await adding(signed, "again")()

    await calling(again)
    assert await signed.fetchval(COUNT) == 1


async def test_it_may_be_taken_before_the_world_outside_is_asked(signed: Database, tables: Postgres) -> None:
    asked: list[str] = []

    def work(item: str, fails: bool = False) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            async with signed.transaction() as tx:
                await signed.accept(tx)
                asked.append(item)
                await adding(signed, item)()
                if fails:
                    raise NotFound("the world")

        return run

    with pytest.raises(NotFound):
        await calling(work("failed", fails=True))
    await calling(work("again"))
    with pytest.raises(Conflict, match=REPEATED):
        await calling(work("repeated"))
    assert asked == ["failed", "again"] and await items(tables) == ["again", "failed"]
    assert await signed.fetchval(COUNT) == 1


async def test_calls_of_services_for_themselves_record_nothing(signed: Database, outbox: Outbox) -> None:
    await adding(signed, "1")()
    await emitting(outbox, "2")()
    assert await signed.fetchval(COUNT) == 0


async def test_what_has_expired_goes(signed: Database) -> None:
    for n, expires_at in enumerate((9, 10, 11)):
        await calling(adding(signed, str(n)), sig=bytes([n]) * 64, expires_at=expires_at)
    assert signed.accepted is not None
    await signed.accepted.purge(signed, 10)
    assert await signed.fetchval(COUNT) == 2


def test_a_header_that_is_none() -> None:
    with pytest.raises(ValueError):
        signatures.bind("zz.1.00", "account")
    with pytest.raises(ValueError):
        signatures.bind("00.1", "account")


async def keeping(answers: Answers, sig: bytes, answer: bytes, method: str = "Agents.Create") -> None:
    """Keep an answer as a server does for a call that acted."""

    async def work() -> None:
        call = signatures.current()
        assert call is not None
        answers.keep(call, method, answer)

    await calling(work, sig=sig)


async def found(answers: Answers, sig: bytes, method: str = "Agents.Create") -> bytes | None:
    async def work() -> bytes | None:
        call = signatures.current()
        assert call is not None
        return await answers.find(call, method)

    return await calling(work, sig=sig)


async def test_answers_of_signed_calls_are_found_by_their_envelope_alone(signed: Database, tables: Postgres) -> None:
    ours, others = Answers(signed), Answers(signed, besides=("Sessions.Message",))
    sigs = [bytes([n]) * 64 for n in range(3)]
    for n, sig in enumerate(sigs):
        await calling(adding(signed, str(n)), sig=sig)
        await keeping(ours, sig, b"answer %d" % n)
    assert await found(ours, sigs[1]) == b"answer 1" and await found(others, sigs[1]) is None
    running = asyncio.create_task(ours.run())
    try:
        async with asyncio.timeout(5):
            while await found(others, sigs[2]) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    finally:
        running.cancel()
    assert [await found(others, sig) for sig in sigs] == [b"answer 0", b"answer 1", b"answer 2"]
    assert await found(others, sigs[0], "Agents.Delete") is None and await found(others, b"x" * 64) is None
    stored = b"".join(row[0] for row in await tables.run("select answer from accepted_signatures"))
    assert b"answer" not in stored
    assert not others.wants("Sessions.Message") and others.wants("Sessions.Create")


async def test_answers_are_bounded(signed: Database, tables: Postgres) -> None:
    answers = Answers(signed)
    await calling(adding(signed, "1"))
    await keeping(answers, b"s" * 64, b"x" * (ANSWER_BYTES + 1))
    assert await found(answers, b"s" * 64) is None
    await keeping(answers, b"s" * 64, b"x" * ANSWER_BYTES)
    await answers.close()
    # A signature that no transaction recorded has no row to keep an answer in.
    await keeping(answers, b"t" * 64, b"lost")
    await answers.close()
    assert len(await found(answers, b"s" * 64) or b"") == ANSWER_BYTES and await found(answers, b"t" * 64) is None
    assert signed.accepted is not None
    await signed.accepted.purge(signed, 11)
    assert await found(answers, b"s" * 64) is None
