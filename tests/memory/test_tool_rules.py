"""Rules of authored tools: names, texts, schemas, what replaces what."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs import wire
from libs.errors import Conflict, Invalid, NotFound, SeedError, TooLarge
from libs.protocol import tools
from services.memory.domain import tools as rules
from tests.protocol.test_tools import DOUBLE, DOUBLE_CID

FIELDS = {key: DOUBLE[key] for key in ("description", "input", "source", "runtime")}
KIB = 1024


def document(name: str = "double", **change: Any) -> dict[str, Any]:
    return wire.decode(rules.authored(name, {**FIELDS, **change}).body)


def refusal(name: str = "double", **change: Any) -> str:
    with pytest.raises(Invalid) as e:
        rules.authored(name, {**FIELDS, **change})
    return e.value.message


def test_the_vector_is_what_its_author_gets() -> None:
    made = rules.authored("double", FIELDS)
    assert (made.cid, made.kind, made.summary) == (DOUBLE_CID, "lambda", "Doubles n.")
    assert wire.decode(made.body) == DOUBLE


@given(st.from_regex(r"[a-z][a-z0-9_-]{1,63}", fullmatch=True))
def test_names_of_the_pattern_are_taken_unless_they_are_the_servers(name: str) -> None:
    if name in tools.RESERVED_NAMES:
        assert refusal(name) == f'"{name}" is a builtin tool or verb and cannot be replaced'
    else:
        assert document(name)["name"] == name


@given(st.text(max_size=70) | st.from_regex(r"[a-z0-9_-]{1,70}", fullmatch=True))
def test_other_names_are_refused(name: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_-]{1,63}", name, re.ASCII):
        assert refusal(name) == "Tool name must be lowercase [a-z0-9_-], start with a letter, 2-64 chars"


@pytest.mark.parametrize("name", sorted(tools.RESERVED_NAMES))
def test_what_the_protocol_names_is_not_to_be_had(name: str) -> None:
    assert refusal(name) == f'"{name}" is a builtin tool or verb and cannot be replaced'


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"description": " \n"}, "Tool document requires a description"),
        ({"description": None}, "Tool document requires a description"),
        ({"description": ["text"]}, "Tool document requires a description"),
        ({"description": "ä" * 8 * KIB + "x"}, "Tool description is too large"),
        ({"source": "\t"}, "Lambda tool document requires source code"),
        ({"source": b"bytes"}, "Lambda tool document requires source code"),
        ({"source": "x" * (256 * KIB + 1)}, "Lambda source is too large"),
        ({"input": {"oneOf": []}}, "Tool input schema is not supported: $: keyword oneOf is not supported"),
        ({"input": {"type": "array"}}, "Tool input schema is not supported: $: the root must be an object"),
        ({"input": []}, "Tool input schema is not supported: $: a schema must be an object"),
        ({"input": False}, "Tool input schema is not supported: $: a schema must be an object"),
        (
            {"input": {"properties": {"a": {"type": "text", "format": "date"}}}},
            "Tool input schema is not supported: $.a: keyword format is not supported; $.a: unknown type text",
        ),
        ({"output": {"$ref": "#"}}, "Tool output schema is not supported: $: keyword $ref is not supported"),
        ({"output": None}, "Tool output schema is not supported: $: a schema must be an object"),
    ],
)
def test_each_rule_says_what_is_wrong(change: dict[str, Any], text: str) -> None:
    assert refusal(**change) == text


def test_rules_are_told_in_order() -> None:
    wrong: dict[str, Any] = {"description": "", "source": "", "input": {"a": 1}, "output": {"b": 1}}
    told = [refusal("Bad", **wrong)]
    for key in ("description", "source", "input", "output"):
        told.append(refusal(**wrong))
        wrong[key] = FIELDS.get(key, {"type": "object"})
    assert [t.split(" ")[1] for t in told] == ["name", "document", "tool", "input", "output"]
    assert document(**wrong)["output"] == {"type": "object"}


def test_what_is_said_of_a_schema_has_an_end() -> None:
    told = refusal(input={f"key{n}": 1 for n in range(5000)})
    assert len(told) < 1100 and told.endswith("…")


def test_limits_are_reached_but_not_passed() -> None:
    made = document(description="ä" * 8 * KIB, source="x" * 256 * KIB, summary="s" * 200)
    assert (len(made["description"]), len(made["source"]), made["summary"]) == (8 * KIB, 256 * KIB, "s" * 140)


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({"runtime": "python"}, {"runtime": "python"}),
        ({"runtime": "ruby"}, {"runtime": "typescript"}),
        ({"runtime": None}, {"runtime": "typescript"}),
        ({"input": None}, {"input": {"type": "object"}}),
        ({"summary": "  Twice.  "}, {"summary": "Twice."}),
        ({"summary": " "}, {"summary": "Doubles n."}),
        ({"summary": 5}, {"summary": "Doubles n."}),
        ({"description": "\ufeff Doubles. Well. "}, {"description": "Doubles. Well.", "summary": "Doubles."}),
        ({"output": {}}, {"output": {}}),
        ({"source": " a\0b "}, {"source": " a\0b "}),
    ],
)
def test_what_is_kept(change: dict[str, Any], kept: dict[str, Any]) -> None:
    assert document(**change) == {**DOUBLE, **kept}


def test_unknown_keys_are_dropped() -> None:
    assert document(kind="builtin", binding="search", server="s", extra=1) == DOUBLE


@pytest.mark.parametrize(
    ("name", "previous_name", "previous", "target", "error"),
    [
        ("one", None, None, None, None),
        ("one", None, None, "lambda", Conflict('A tool named "one" already exists')),
        ("one", None, None, "mcp", Conflict('A tool named "one" already exists')),
        ("one", None, None, "builtin", None),
        ("one", "one", "lambda", "lambda", None),
        ("two", "one", "lambda", None, None),
        ("two", "one", "lambda", "lambda", Conflict('A tool named "two" already exists')),
        ("two", "one", None, None, NotFound('Tool "one" not found')),
        ("two", "one", None, "lambda", NotFound('Tool "one" not found')),
        ("two", "one", "builtin", None, Invalid("Builtin tools cannot be edited")),
        ("one", "one", "mcp", "mcp", Invalid('"one" is a tool of an MCP server and cannot be edited')),
    ],
)
def test_what_may_take_whose_place(
    name: str, previous_name: str | None, previous: str | None, target: str | None, error: SeedError | None
) -> None:
    if error is None:
        rules.check_save(name, previous_name, previous, target)
        return
    with pytest.raises(type(error)) as e:
        rules.check_save(name, previous_name, previous, target)
    assert e.value.message == error.message


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("builtin", '"one" is a builtin tool; disable it via the agent\'s tool grants instead'),
        ("mcp", '"one" is a tool of an MCP server and goes with it'),
    ],
)
def test_only_authored_tools_are_deleted(kind: str, text: str) -> None:
    rules.check_delete("one", "lambda")
    rules.check_delete("one", None)
    with pytest.raises(Invalid) as e:
        rules.check_delete("one", kind)
    assert e.value.message == text


def test_all_documents_together_can_be_listed() -> None:
    rules.check_total(32 << 20)
    with pytest.raises(TooLarge):
        rules.check_total((32 << 20) + 1)


@pytest.mark.parametrize("name", tools.CALLABLES)
def test_callables_are_known_before_their_rows_are(name: str) -> None:
    with pytest.raises(Invalid, match="Builtin tools cannot be edited"):
        rules.check_save("mine", name, None, None)
    with pytest.raises(Invalid, match="disable it via the agent's tool grants"):
        rules.check_delete(name, None)


def test_a_draft_keeps_its_refusal() -> None:
    assert isinstance(rules.draft("Bad", FIELDS), Invalid)
    assert rules.draft("double", FIELDS) == rules.authored("double", FIELDS)
    assert rules.builtins([]) == {}
