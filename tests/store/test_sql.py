"""Statements and their values."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from libs.store import sql
from tests.store.conftest import ADD, ALL, ITEMS


def test_values_come_in_the_order_of_the_text() -> None:
    assert ADD.text == "INSERT INTO items (id, n) VALUES ($1::VARCHAR, $2::BIGINT)"
    assert ADD.bind({"n": 2, "id": "a"}) == ["a", 2]
    assert ALL.bind({}) == []


def test_literals_keep_their_values_and_may_be_replaced() -> None:
    column = sa.bindparam("least", value=7, type_=sa.BigInteger)
    statement = sql(sa.select(ITEMS.c.id).where(ITEMS.c.n > column, ITEMS.c.id != "x").limit(5))
    assert sorted(map(str, statement.bind({}))) == ["5", "7", "x"]
    assert sorted(map(str, statement.bind({"least": 9}))) == ["5", "9", "x"]


@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        ({"id": "a"}, "['n']"),
        ({}, "['id', 'n']"),
        ({"id": "a", "n": 1, "m": 2}, "['m']"),
        ({"id": "a", "m": 2}, "['n', 'm']"),
    ],
)
def test_missing_and_unknown_values_are_named(values: dict[str, object], wrong: str) -> None:
    with pytest.raises(KeyError) as e:
        ADD.bind(values)
    assert f"missing or unknown values {wrong}" in str(e.value)
    assert "INSERT INTO items" in str(e.value)


def test_a_parameter_that_two_statements_share_stays_required_in_both() -> None:
    shared = sa.bindparam("id", type_=sa.Text)
    first, second = (sql(sa.select(ITEMS.c.n).where(ITEMS.c.id == shared)) for _ in range(2))
    for statement in (first, second):
        assert statement.bind({"id": "a"}) == ["a"]
        with pytest.raises(KeyError):
            statement.bind({})


def test_lists_are_one_value() -> None:
    statement = sql(sa.select(ITEMS).where(ITEMS.c.id == sa.any_(sa.bindparam("ids", type_=ARRAY(sa.Text)))))
    assert statement.bind({"ids": ["a", "b"]}) == [["a", "b"]]
