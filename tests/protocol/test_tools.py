"""Tool documents: identifiers, summaries, grants, contracts as markdown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from libs import wire
from libs.protocol import schema_subset, to_wire, tools
from libs.protocol.memory import ToolDocument
from tests.protocol.test_schema_subset import OBJECTS

DOUBLE = json.loads((Path(__file__).parents[1] / "vectors/examples/tool-document.json").read_text())
DOUBLE_CID = "bafyreigur7tvj4htdw6rf25vtnhcg72jrjrxvtedtwupbnbbho5ry7bczu"
CONTRACT = tools.Contract("seek", "Seeks. Carefully.", {"type": "object"}, {"type": "array"})
SERVED = ("search", "execute")


def test_the_vector_has_its_identifier() -> None:
    assert tools.document_bytes(DOUBLE)[0] == DOUBLE_CID


@given(OBJECTS, st.text(), st.text())
def test_an_identifier_is_of_the_value_and_of_all_of_it(schema: dict[str, Any], one: str, other: str) -> None:
    document = {**DOUBLE, "input": schema, "description": one}
    try:
        cid, body = tools.document_bytes(document)
    except wire.EncodeError:
        reject()
    again = dict(reversed(list(wire.decode(body).items())))
    assert tools.document_bytes(again) == (cid, body)
    assert (tools.document_bytes({**document, "description": other})[0] == cid) == (one == other)


def test_a_builtin_is_bound_to_its_name_and_keeps_its_first_sentence() -> None:
    document = tools.builtin_document(CONTRACT)
    assert document == {
        "name": "seek",
        "kind": "builtin",
        "summary": "Seeks.",
        "description": "Seeks. Carefully.",
        "input": {"type": "object"},
        "output": {"type": "array"},
        "binding": "seek",
    }
    assert "output" not in tools.builtin_document(tools.Contract("a", "B.", {}))


@pytest.mark.parametrize("contract", tools.CALLABLES.values(), ids=lambda c: c.name)
def test_what_is_shipped_is_of_the_subset(contract: tools.Contract) -> None:
    assert contract.name in tools.CALLABLE_NAMES
    assert schema_subset.refusals(contract.input) == []
    assert contract.output is None or schema_subset.refusals(contract.output) == []
    assert tools.CALLABLES[contract.name] is contract


@pytest.mark.parametrize(
    ("description", "summary"),
    [
        ("One. Two.", "One."),
        ("One.\nTwo.", "One."),
        ("One.\N{NO-BREAK SPACE}Two.", "One."),
        ("Version 1.2 of it", "Version 1.2 of it"),
        ("a" * 140, "a" * 140),
        ("a" * 141, "a" * 137 + "…"),
        ("\N{GRINNING FACE}" * 70, "\N{GRINNING FACE}" * 70),
        ("\N{GRINNING FACE}" * 71, "\N{GRINNING FACE}" * 68 + "…"),
    ],
)
def test_a_summary_is_the_first_sentence(description: str, summary: str) -> None:
    assert tools.summary_of(description) == summary


@given(st.text())
def test_a_summary_is_a_beginning_and_short(description: str) -> None:
    summary = tools.summary_of(description)
    assert len(summary.encode("utf-16-le")) <= 2 * 140
    assert description.startswith(summary) or (summary[-1] == "…" and description.startswith(summary[:-1]))


@pytest.mark.parametrize(
    ("listed", "granted"),
    [
        (None, {"search", "execute"}),
        ([], set()),
        (["search", "publish", "nothing"], {"search"}),
        (["execute_code"], {"execute"}),
        ([" search "], {"search"}),
        (["navigate"], set()),
    ],
)
def test_a_definition_grants_what_it_lists_of_what_is_served(listed: list[str] | None, granted: set[str]) -> None:
    assert tools.granted_callables(listed, SERVED) == granted


def test_the_contract_of_an_authored_tool() -> None:
    told = tools.contract_markdown(DOUBLE, DOUBLE_CID)
    head, schema = told.split("```json\n")
    assert head == f"# double\n\n> lambda tool · version {DOUBLE_CID} · typescript\n\nDoubles n.\n\n## Input schema\n\n"
    schema, tail = schema.split("\n```", 1)
    assert json.loads(schema) == DOUBLE["input"] and schema.count("\n") > 2
    assert tail == "\n\n## Source\n\n```typescript\nexport default (i) => ({n: i.n * 2})\n```\n"


def test_the_contract_of_a_callable_and_of_a_verb() -> None:
    told = tools.contract_markdown(tools.builtin_document(CONTRACT), "bafy")
    assert told.startswith("# seek\n\n> builtin tool · version bafy\n\nSeeks. Carefully.\n\n## Input schema\n")
    assert "## Output schema\n" in told and "## Source" not in told
    verb = {"name": "read", "kind": "verb", "description": "Reads.", "input": {}}
    assert tools.contract_markdown(verb) == "# read\n\n> verb\n\nReads.\n\n## Input schema\n\n```json\n{}\n```\n"


@given(st.lists(st.sampled_from(["`", "a", "\n", "```", "````"])).map("".join))
def test_no_source_ends_its_own_fence(source: str) -> None:
    told = tools.contract_markdown({**DOUBLE, "source": source})
    body = told.split("## Source\n\n", 1)[1]
    fence = body.split("typescript", 1)[0]
    lines = body.splitlines()
    assert [n for n, line in enumerate(lines) if line.startswith(fence)] == [0, len(lines) - 1]


def test_documents_are_of_the_schema() -> None:
    for document in (DOUBLE, tools.builtin_document(CONTRACT)):
        assert to_wire(msgspec.convert(document, ToolDocument)) == document
