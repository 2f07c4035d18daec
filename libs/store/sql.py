"""Statements: SQLAlchemy Core in, text and parameter order for asyncpg out."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import asyncpg as _asyncpg
from sqlalchemy.sql import visitors
from sqlalchemy.sql.elements import BindParameter, ClauseElement

# paramstyle numeric_dollar: $1, $2, …, as asyncpg wants them.
_DIALECT = _asyncpg.dialect(paramstyle="numeric_dollar")


def param(name: str, kind: Any = sa.BigInteger) -> BindParameter[Any]:
    """A parameter of a statement, given by name when it runs; an integer unless `kind` says otherwise."""
    return sa.bindparam(name, type_=kind)


def relaxed(when: Any = None) -> Any:
    """A column for RETURNING that lets the transaction's commit return before it is on disk.

    Only for what is found out and done again after a crash of the database: its last moments (well under a second) may
    be lost. `when` restricts it to rows for which that holds.
    """
    off = sa.func.set_config(sa.literal_column("'synchronous_commit'"), sa.literal_column("'off'"), sa.true())
    return (off if when is None else sa.case((when, off))).label("relaxed")


class Sql:
    """A compiled statement. `bind(**values)` gives the arguments in order; unnamed ones keep the literal's value."""

    __slots__ = ("_defaults", "_given", "_names", "_required", "text")

    def __init__(self, statement: ClauseElement) -> None:
        # Values come with each call: the compiler must not ask for them now, bind() does. Statements may share parts.
        required = [e for e in visitors.iterate(statement) if isinstance(e, BindParameter) and e.required]
        for element in required:
            element.required = False
        try:
            compiled = statement.compile(dialect=_DIALECT, compile_kwargs={"render_postcompile": True})
        finally:
            for element in required:
                element.required = True
        self.text = str(compiled)
        self._names: tuple[str, ...] = tuple(compiled.positiontup or ())  # pyright: ignore[reportAttributeAccessIssue]
        self._defaults: dict[str, Any] = dict(compiled.params or {})
        self._required = frozenset(e.key for e in required)
        self._given = len(self._names) if self._required == set(self._names) == self._defaults.keys() else -1

    def bind(self, values: dict[str, Any]) -> list[Any]:
        """Arguments in the order of the text. Raises KeyError for a value that is missing or not named there."""
        if len(values) == self._given:  # the usual case: every value comes with the call
            try:
                return [values[n] for n in self._names]
            except KeyError:
                pass
        if not self._required <= values.keys() <= self._defaults.keys():
            wrong = sorted(self._required - values.keys()) + sorted(values.keys() - self._defaults.keys())
            raise KeyError(f"missing or unknown values {wrong}: {self.text}")
        defaults = self._defaults
        return [values[n] if n in values else defaults[n] for n in self._names]


def sql(statement: Any) -> Sql:
    """Compile a Core statement once.

    Write parameters as `param("name", …)`, lists as `column == sa.any_(param("names", ARRAY(…)))`.
    """
    return Sql(statement)
