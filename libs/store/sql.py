"""Statements: SQLAlchemy Core in, text and parameter order for asyncpg out."""

from __future__ import annotations

from typing import Any

from sqlalchemy.dialects.postgresql import asyncpg as _asyncpg
from sqlalchemy.sql.elements import ClauseElement

# paramstyle numeric_dollar: $1, $2, …, as asyncpg wants them.
_DIALECT = _asyncpg.dialect(paramstyle="numeric_dollar")


class Sql:
    """A compiled statement. `bind(**values)` gives the arguments in order; unnamed ones keep the literal's value."""

    __slots__ = ("_defaults", "_names", "text")

    def __init__(self, statement: ClauseElement) -> None:
        compiled = statement.compile(dialect=_DIALECT, compile_kwargs={"render_postcompile": True})
        self.text = str(compiled)
        self._names: tuple[str, ...] = tuple(compiled.positiontup or ())  # pyright: ignore[reportAttributeAccessIssue]
        self._defaults: dict[str, Any] = dict(compiled.params)

    def bind(self, values: dict[str, Any]) -> list[Any]:
        """Arguments in the order of the text. Raises KeyError for a value the statement does not name."""
        if not values.keys() <= self._defaults.keys():
            raise KeyError(f"statement takes no {sorted(values.keys() - self._defaults.keys())}: {self.text}")
        defaults = self._defaults
        return [values[n] if n in values else defaults[n] for n in self._names]


def sql(statement: Any) -> Sql:
    """Compile a Core statement once. Write parameters as `bindparam("name")`; lists as `= any(bindparam(…, type_=ARRAY(…)))`."""
    return Sql(statement)
