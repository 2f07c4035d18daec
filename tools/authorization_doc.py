"""Writes docs/authorization.md from the table the authorization test runs: `python tools/authorization_doc.py`.

`--check` only compares.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from tests.authorization.table import AREAS, NEEDS, REFUSALS, UNAUTHORIZED, WHO, Answer, Rule, Who, Whose, expected

PAGE = Path(__file__).resolve().parents[1] / "docs" / "authorization.md"

_HEAD = """# Who may do what

Made by `make authorization-doc` from `tests/authorization/table.py`; `tests/authorization/test_matrix.py` sends every
cell of it to a running system. An answer is an HTTP status, over the WebSocket that of the `error` event's message.

A request is refused in this order: 401 when the envelope or its signer is not good, 404 when who signs may not see what
the id names (it looks missing, whether it exists or not), 403 when they see it and may not do this, then 400 for
whatever else is wrong with it. A right that is taken away is gone with the next request; live subscriptions that
depended on it end.
"""


def page() -> str:
    """The text of docs/authorization.md."""
    parts = [
        _HEAD,
        "## Who",
        _list((f"**{who}**: {text}" for who, text in WHO.items())),
        "## Levels",
        _list(
            f"**{need}**: {text}{f'. Others who may read get {REFUSALS[need]}' if need in REFUSALS else ''}"
            for need, text in NEEDS.items()
        ),
        f"The {Who.FORMER} gets `{UNAUTHORIZED}`, whatever it asks for, unless it acts for itself.",
    ]
    for area, rules in AREAS.items():
        parts += [f"## {area}", _table(rules)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _list(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _table(rules: Iterable[Rule]) -> str:
    heads = ["action", "needs", *Who, "another's id", "deleted id"]
    lines = [_row(heads), "|" + "---|" * len(heads)]
    for rule in rules:
        own = [str(expected(rule, who, Whose.OWN).status) for who in Who]
        others = [_others(rule, whose) for whose in (Whose.FOREIGN, Whose.DELETED)]
        lines.append(_row([f"`{rule.action}`{f' {rule.variant}' if rule.variant else ''}", rule.need, *own, *others]))
    return "\n".join(lines)


def _others(rule: Rule, whose: Whose) -> str:
    """What everybody gets whose signature counts."""
    if whose not in rule.whose:
        return "–"
    answers: set[Answer] = {expected(rule, who, whose) for who in Who if who is not Who.FORMER}
    (answer,) = answers
    return str(answer)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> int:
    """Write the page, or with `--check` say whether it is current (exit code 1: it is not)."""
    text = page()
    if "--check" in sys.argv[1:]:
        if PAGE.exists() and PAGE.read_text("utf-8") == text:
            return 0
        print("docs/authorization.md is not current: run `make authorization-doc`", file=sys.stderr)
        return 1
    PAGE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
