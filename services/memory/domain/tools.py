"""Rules of tool documents (actions.md, Tool rules; runtime.md, section 5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from libs.errors import Conflict, Invalid, NotFound, SeedError, TooLarge
from libs.protocol import limits, schema_subset, tools
from libs.protocol.text import WHITESPACE, byte_length, required_text

BUILTIN, LAMBDA, MCP = "builtin", "lambda", "mcp"

_TOLD_CHARS = 1024
"""What is said of a schema that breaks many rules."""


@dataclass(frozen=True, slots=True)
class Document:
    """A document as it is stored: `cid` is of `body`, its canonical DAG-CBOR."""

    name: str
    kind: str
    summary: str
    cid: str
    body: bytes


def builtins(contracts: Iterable[tools.Contract]) -> dict[str, Document]:
    """The documents of callables, by name."""
    return {contract.name: _document(tools.builtin_document(contract)) for contract in contracts}


def tool_name(value: Any, label: str = "Tool name") -> str:
    """The name of a tool as it is asked for. Raises Invalid `<label> …`."""
    return required_text(value, label)


def authored(name: str, tool: Mapping[str, Any]) -> Document:
    """The document of the tool that an author sends under a name. Raises Invalid with the first rule that it breaks."""
    if not limits.AUTHORED_TOOL_NAME.fullmatch(name):
        raise Invalid("Tool name must be lowercase [a-z0-9_-], start with a letter, 2-64 chars")
    if name in tools.RESERVED_NAMES:
        raise Invalid(f'"{name}" is a builtin tool or verb and cannot be replaced')
    description = _text(tool, "description").strip(WHITESPACE)
    if not description:
        raise Invalid("Tool document requires a description")
    if byte_length(description) > limits.TOOL_DESCRIPTION_BYTES:
        raise Invalid("Tool description is too large")
    source = _text(tool, "source")
    if not source.strip(WHITESPACE):
        raise Invalid("Lambda tool document requires source code")
    if byte_length(source) > limits.TOOL_SOURCE_BYTES:
        raise Invalid("Lambda source is too large")
    summary = tools.cut(_text(tool, "summary").strip(WHITESPACE), limits.TOOL_SUMMARY_CHARS)
    document = {
        "name": name,
        "kind": LAMBDA,
        "summary": summary or tools.summary_of(description),
        "description": description,
        "input": {"type": "object"} if tool.get("input") is None else _schema("input", tool["input"]),
        "source": source,
        "runtime": "python" if tool.get("runtime") == "python" else "typescript",
    }
    if "output" in tool:
        document["output"] = _schema("output", tool["output"])
    return _document(document)


def check_save(name: str, previous_name: str | None, previous: str | None, target: str | None) -> None:
    """Let pass an authored tool that may be saved: new, in place of one of the same name, or under another.

    `previous` and `target` are the kinds of the documents of these names, None without one. Raises NotFound, Invalid,
    Conflict.
    """
    if previous_name is not None:
        if previous_name in tools.CALLABLES or previous == BUILTIN:
            raise Invalid("Builtin tools cannot be edited")
        if previous is None:
            raise NotFound(f'Tool "{previous_name}" not found')
        if previous == MCP:
            raise Invalid(f'"{previous_name}" is a tool of an MCP server and cannot be edited')
    # That a name is a builtin's is said by the rules of names, whether or not the agent's row has been made.
    if name != previous_name and target is not None and target != BUILTIN:
        raise Conflict(f'A tool named "{name}" already exists')


def check_total(size: int) -> None:
    """Let pass a sum of all documents of an agent, in bytes, with which they can be listed. Raises TooLarge."""
    if size > limits.TOOL_DOCUMENTS_BYTES:
        raise TooLarge("The tools of this agent are too large")


def check_delete(name: str, kind: str | None) -> None:
    """Let pass the deletion of an authored tool, or of none. Raises Invalid."""
    if name in tools.CALLABLES or kind == BUILTIN:
        raise Invalid(f'"{name}" is a builtin tool; disable it via the agent\'s tool grants instead')
    if kind == MCP:
        raise Invalid(f'"{name}" is a tool of an MCP server and goes with it')


def draft(name: str, tool: Mapping[str, Any]) -> Document | SeedError:
    """The document, or why there is none: names come first in the order of refusals, and are known to the store."""
    try:
        return authored(name, tool)
    except SeedError as e:
        return e


def _text(tool: Mapping[str, Any], key: str) -> str:
    value = tool.get(key)
    return value if isinstance(value, str) else ""


def _schema(label: str, schema: Any) -> Any:
    faults = schema_subset.refusals(schema)
    if faults:
        told = "; ".join(faults)
        if len(told) > _TOLD_CHARS:
            told = told[: _TOLD_CHARS - 1] + "…"
        raise Invalid(f"Tool {label} schema is not supported: {told}")
    return schema


def _document(document: Mapping[str, Any]) -> Document:
    cid, body = tools.document_bytes(document)
    return Document(document["name"], document["kind"], document["summary"], cid, body)
