"""What is asked of search backends, and what is told of their answers (runtime.md, section 5, Callables)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from libs.protocol.text import WHITESPACE
from libs.protocol.tools import cut
from services.runs.domain.verbs import VerbError

QUERY_UNITS = 1024
TITLE_UNITS = 512
SNIPPET_UNITS = 1024
LANGUAGE_UNITS = 16
OTHER_ENGINES = "duckduckgo,bing,startpage,wikipedia"
"""Asked once more when the usual engines gave nothing and some of them did not answer."""

_SEARCH_TYPES = {"keyword": "0", "semantic": "1", "hybrid": "2"}


def query_of(given: Mapping[str, Any]) -> str:
    """What is looked for, cut to what backends take. Raises VerbError when there is nothing but space."""
    query = cut(given["query"].strip(WHITESPACE), QUERY_UNITS)
    if not query:
        raise VerbError("Search query is required")
    return query


def hypermedia_parameters(given: Mapping[str, Any], account: str) -> dict[str, str]:
    """Parameters of the HM server's `Search`, as `account` sees things. `given` fits the contract."""
    parameters = {
        "query": query_of(given),
        "includeBody": "true" if given.get("includeBody") else "false",
        "contextSize": str(int(given.get("contextSize", 48))),
        "perspectiveAccountUid": account,
        "searchType": _SEARCH_TYPES[given.get("searchType", "hybrid")],
        "pageSize": str(page_size(given)),
    }
    scope = given.get("accountUid", "").strip(WHITESPACE)
    return {**parameters, "accountUid": cut(scope, QUERY_UNITS)} if scope else parameters


def page_size(given: Mapping[str, Any]) -> int:
    """Most results of a search."""
    return int(min(given.get("pageSize", 20), 50))


def hypermedia_results(answer: Any, most: int) -> list[dict[str, Any]]:
    """The results in an answer of `Search`: those that have an address. Raises VerbError for another answer."""
    entities = answer.get("entities") if isinstance(answer, dict) else None
    if not isinstance(entities, list):
        raise VerbError("Search failed: the answer is invalid")
    results: list[dict[str, Any]] = []
    for entity in _maps(entities):
        url = address_of(entity.get("id"))
        if not url or len(results) == most:
            continue
        parents = entity.get("parentNames")
        result = {
            "title": _line(entity.get("title"), TITLE_UNITS) or url,
            "url": url,
            "type": _line(entity.get("type"), TITLE_UNITS),
            "parentNames": [_line(name, TITLE_UNITS) for name in parents or () if isinstance(name, str)]
            if isinstance(parents, list)
            else [],
        }
        time = _line(entity.get("versionTime"), TITLE_UNITS)
        results.append({**result, "versionTime": time} if time else result)
    return results


def hypermedia_answer(given: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The output of `search`."""
    query, kind, body = query_of(given), given.get("searchType", "hybrid"), bool(given.get("includeBody"))
    how = f"search type {kind}, {'with' if body else 'without'} the text of documents"
    lines = [f"{_found(results, query)} ({how})."]
    for number, result in enumerate(results, 1):
        lines += ["", f"{number}. {_link(result)}", f"   - Type: {result['type'] or 'unknown'}"]
        lines += [f"   - In: {' / '.join(result['parentNames'])}"] if result["parentNames"] else []
        lines += [f"   - Changed: {result['versionTime']}"] if "versionTime" in result else []
    return {
        "summary": f"{_found(results, query)}.",
        "markdown": "\n".join(lines),
        "query": query,
        "searchType": kind,
        "includeBody": body,
        "results": list(results),
    }


def address_of(hm_id: Any) -> str:
    """The hm:// address of a taken apart id of the HM server; empty for what is none."""
    if not isinstance(hm_id, dict) or not isinstance(hm_id.get("uid"), str) or not hm_id["uid"]:
        return ""
    path = hm_id.get("path")
    segments = [part for part in path if isinstance(part, str) and part] if isinstance(path, list) else []
    address = "/".join([f"hm://{hm_id['uid']}", *segments])
    version, block = hm_id.get("version"), hm_id.get("blockRef")
    if isinstance(version, str) and version:
        address += f"?v={version}" + ("&l" if hm_id.get("latest") is True else "")
    if isinstance(block, str) and block:
        address += f"#{block}{_range(hm_id.get('blockRange'))}"
    return address


def web_parameters(given: Mapping[str, Any], *, engines: str = "") -> dict[str, str]:
    """Parameters of a SearXNG search. `given` fits the contract."""
    parameters = {
        "q": query_of(given),
        "format": "json",
        "categories": given.get("category", "general"),
        "safesearch": "1",
        "language": cut(given.get("language", "").strip(WHITESPACE), LANGUAGE_UNITS) or "en",
    }
    if "timeRange" in given:
        parameters["time_range"] = given["timeRange"]
    return {**parameters, "engines": engines} if engines else parameters


def web_results(answer: Any) -> tuple[list[dict[str, str]], list[str]]:
    """The results in SearXNG's answer, and the engines that did not answer it. Raises VerbError for another answer."""
    found = answer.get("results") if isinstance(answer, dict) else None
    if not isinstance(found, list):
        raise VerbError("web_search failed: the answer is invalid")
    results: list[dict[str, str]] = []
    for one in _maps(found):
        url = _line(one.get("url"), 2048)
        if url.startswith(("http://", "https://")):
            results.append(
                {
                    "title": _line(one.get("title"), TITLE_UNITS) or url,
                    "url": url,
                    "snippet": _line(one.get("content"), SNIPPET_UNITS),
                    "engine": _line(one.get("engine"), TITLE_UNITS),
                }
            )
    silent = answer.get("unresponsive_engines")
    pairs = [pair for pair in silent if isinstance(pair, list) and pair] if isinstance(silent, list) else []
    return results, [_line(pair[0], TITLE_UNITS) for pair in pairs if isinstance(pair[0], str)]


def web_answer(given: Mapping[str, Any], results: Sequence[dict[str, str]], silent: Sequence[str]) -> dict[str, Any]:
    """The output of `web_search`; `silent` are engines that did not answer."""
    query = query_of(given)
    shown = results[: int(min(given.get("count", 10), 25))]
    lines = [f"{_found(shown, query)}."]
    lines += [f"Not every search engine has answered: {', '.join(silent)} did not."] if silent else []
    for number, result in enumerate(shown, 1):
        lines += ["", f"{number}. {_link(result)}" + (f" ({result['engine']})" if result["engine"] else "")]
        lines += [f"   {result['snippet']}"] if result["snippet"] else []
    return {
        "summary": f"{_found(shown, query)}.",
        "query": query,
        "results": list(shown),
        "partial": bool(silent),
        "markdown": "\n".join(lines),
    }


def _found(results: Sequence[Any], query: str) -> str:
    count = "No results" if not results else "1 result" if len(results) == 1 else f"{len(results)} results"
    return f'{count} for "{query}"'


def _link(result: Mapping[str, Any]) -> str:
    title = "".join(f"\\{c}" if c in "\\[]" else c for c in result["title"])
    return f"[{title}](<{result['url']}>)" if any(c in result["url"] for c in " ()") else f"[{title}]({result['url']})"


def _line(value: Any, units: int) -> str:
    return cut(" ".join(value.split()), units) if isinstance(value, str) else ""


def _maps(values: Iterable[Any]) -> Iterable[dict[str, Any]]:
    return (value for value in values if isinstance(value, dict))


def _range(block_range: Any) -> str:
    if not isinstance(block_range, dict):
        return ""
    if block_range.get("expanded"):
        return "+"
    start, end = block_range.get("start"), block_range.get("end")
    return f"[{start}:{end}]" if isinstance(start, int) and isinstance(end, int) else ""
