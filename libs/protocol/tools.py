"""Tools as documents: the contracts this server ships, the names they take, and what an agent is granted.

What a callable looks like to models and clients is said here once: the runs service executes what `CALLABLES` names,
the memory service stores a document of each (runtime.md, section 5).
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from libs.wire import cid_dag_cbor, encode

from .base import OpenMap
from .callables import CALLABLES, Contract
from .encoding import json_bytes
from .limits import TOOL_SUMMARY_CHARS
from .text import WHITESPACE

VERB_NAMES: Final = frozenset(
    ("read", "write", "call", "delegate", "plan", "status", "return_result", "continue_session")
)
CALLABLE_NAMES: Final = frozenset(("search", "web_search", "execute", "navigate", "query", "attributes"))
"""Names that the protocol gives to callables, whether this server has them or not."""
RESERVED_NAMES: Final = VERB_NAMES | CALLABLE_NAMES
"""What an authored tool cannot be called."""

_OLD_NAMES: Final = {"execute_code": "execute"}
_FENCE: Final = re.compile("`{3,}")
_SENTENCE_END: Final = re.compile(rf"\.[{WHITESPACE}]")


def callable_name(name: str) -> str:
    """A name as the table has it: trimmed, older names replaced."""
    name = name.strip(WHITESPACE)
    return _OLD_NAMES.get(name, name)


def granted_callables(tools: Sequence[str] | None, served: Collection[str] = tuple(CALLABLES)) -> frozenset[str]:
    """Names of the callables that an agent may use: of those `served`, all or what `definition.tools` lists."""
    if tools is None:
        return frozenset(served)
    return frozenset(served) & {callable_name(tool) for tool in tools}


def summary_of(description: str) -> str:
    """The first sentence, at most 140 characters: of a longer one 137 and `…`."""
    end = _SENTENCE_END.search(description)
    sentence = description if end is None else description[: end.start() + 1]
    if len(_units(sentence)) <= 2 * TOOL_SUMMARY_CHARS:
        return sentence
    return cut(sentence, TOOL_SUMMARY_CHARS - 3) + "…"


def cut(text: str, units: int) -> str:
    """At most so many UTF-16 units of a text, no character cut in two."""
    return _units(text)[: 2 * units].decode("utf-16-le", "ignore")


def builtin_document(contract: Contract) -> OpenMap:
    """The document of a callable (ToolDocument of the schema)."""
    document: OpenMap = {
        "name": contract.name,
        "kind": "builtin",
        "summary": summary_of(contract.description),
        "description": contract.description,
        "input": contract.input,
    }
    if contract.output is not None:
        document["output"] = contract.output
    return {**document, "binding": contract.name}


def document_bytes(document: Mapping[str, Any]) -> tuple[str, bytes]:
    """CID and canonical DAG-CBOR of a document. Raises `libs.wire.EncodeError`."""
    body = encode(dict(document))
    return cid_dag_cbor(body), body


def contract_markdown(document: Mapping[str, Any], cid: str = "") -> str:
    """A tool's contract as models read it: title, kind and version, description, schemas, source.

    `document` is a ToolDocument, or one of kind `verb`, which has neither CID nor summary.
    """
    kind, runtime = document["kind"], document.get("runtime", "")
    facts = ["verb" if kind == "verb" else f"{kind} tool"]
    facts += [f"version {cid}"] if cid else []
    facts += [runtime] if runtime else []
    parts = [f"# {document['name']}", "> " + " · ".join(facts), document["description"]]
    for key, heading in (("input", "## Input schema"), ("output", "## Output schema")):
        if key in document:
            schema = msgspec.json.format(json_bytes(document[key]), indent=2).decode()
            parts.append(f"{heading}\n\n{_fenced(schema, 'json')}")
    if "source" in document:
        parts.append(f"## Source\n\n{_fenced(document['source'], runtime)}")
    return "\n\n".join(parts) + "\n"


def _fenced(text: str, language: str) -> str:
    fence = "`" * max((len(run) + 1 for run in _FENCE.findall(text)), default=3)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _units(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass")
