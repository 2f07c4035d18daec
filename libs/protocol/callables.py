"""The callables of this server: what models and clients are told of them (runtime.md, section 5)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from .base import OpenMap


@dataclass(frozen=True, slots=True)
class Contract:
    """What a callable does, takes and gives: the schemas are of the subset."""

    name: str
    description: str
    input: OpenMap
    output: OpenMap | None = None


_TEXT: Final = {"type": "string"}
_FLAG: Final = {"type": "boolean"}


def _text(description: str, **more: Any) -> OpenMap:
    return {"type": "string", **more, "description": description}


def _whole(description: str, **bounds: int) -> OpenMap:
    return {"type": "integer", **bounds, "description": description}


SEARCH: Final = Contract(
    "search",
    "Find hypermedia documents, contacts and comments by their titles or text. Every result has an hm:// address that "
    "`read` takes.",
    {
        "type": "object",
        "properties": {
            "query": _text("Words to look for.", minLength=1),
            "accountUid": _text("Look only into what this account has published."),
            "includeBody": {
                "type": "boolean",
                "description": "Whether the text of documents and comments counts, not only titles; not by default.",
            },
            "contextSize": _whole("How much text around a match is considered.", minimum=0, maximum=512),
            "searchType": _text(
                "By words, by meaning, or by both, which is usual.", enum=["keyword", "semantic", "hybrid"]
            ),
            "pageSize": _whole("Most results; 20 unless it is given, never over 50.", minimum=1),
        },
        "required": ["query"],
        "additionalProperties": False,
    },
    {
        "type": "object",
        "properties": {
            "summary": _TEXT,
            "markdown": _TEXT,
            "query": _TEXT,
            "searchType": _TEXT,
            "includeBody": _FLAG,
            "results": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "title": _TEXT,
                        "url": _TEXT,
                        "type": _TEXT,
                        "parentNames": {"type": "array", "items": _TEXT},
                        "versionTime": _TEXT,
                    },
                    "required": ["title", "url", "type", "parentNames"],
                },
            },
        },
        "required": ["summary", "markdown", "query", "searchType", "includeBody", "results"],
    },
)
WEB_SEARCH: Final = Contract(
    "web_search",
    "Search the public web. Results have a title, an address and a snippet. For what has just happened, ask for news "
    "or give a time range.",
    {
        "type": "object",
        "properties": {
            "query": _text("Words to look for.", minLength=1),
            "count": _whole("Most results; 10 unless it is given, never over 25.", minimum=1),
            "category": _text("What kind of pages; general unless it is given.", enum=["general", "news"]),
            "timeRange": _text("How old a result may be.", enum=["day", "week", "month", "year"]),
            "language": _text("Code of the language to search in, such as `de`; `en` unless it is given."),
        },
        "required": ["query"],
        "additionalProperties": False,
    },
    {
        "type": "object",
        "properties": {
            "summary": _TEXT,
            "query": _TEXT,
            "results": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"title": _TEXT, "url": _TEXT, "snippet": _TEXT, "engine": _TEXT},
                    "required": ["title", "url", "snippet", "engine"],
                },
            },
            "partial": {"type": "boolean", "description": "Whether some search engines did not answer."},
            "markdown": _TEXT,
        },
        "required": ["summary", "query", "results", "partial", "markdown"],
    },
)

CALLABLES: Final[Mapping[str, Contract]] = {contract.name: contract for contract in (SEARCH, WEB_SEARCH)}
"""By name. The runs service has an executor for each."""
