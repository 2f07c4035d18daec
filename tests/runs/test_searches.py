"""The callables `search` and `web_search`: what is asked of their backends, and what is told of any answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.hypermedia.server import READING, HypermediaServer
from libs.protocol.callables import SEARCH, WEB_SEARCH
from libs.protocol.schema_subset import errors
from services.runs.domain import searches
from services.runs.domain.verbs import VerbError
from services.runs.verbs.contract import Actor
from services.runs.verbs.searching import Search, WebSearch
from tests.support.hypermedia import FakeHypermediaServer
from tests.support.searxng import FakeSearxng

ACTOR = Actor(owner="z6MkOwner", agent_id="agent", session_id="session", definition={})
UID = "z6MkSomebody"
KEYS = ["id", "uid", "path", "title", "type", "parentNames", "versionTime", "url", "content", "engine", "version"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["https://a.example", UID]),
    lambda v: st.lists(v, max_size=3) | st.dictionaries(st.sampled_from(KEYS), v, max_size=5),
    max_leaves=12,
)


def entity(title: str, path: list[str] | None = None, **more: Any) -> dict[str, Any]:
    hm_id = {"id": "x", "uid": UID, "path": path, "version": None, "blockRef": None, "blockRange": None}
    return {"id": {**hm_id, **more.pop("id", {})}, "title": title, "type": "document", "parentNames": [], **more}


@pytest.mark.parametrize(
    ("hm_id", "address"),
    [
        ({"uid": UID, "path": None}, f"hm://{UID}"),
        ({"uid": UID, "path": ["a", "", "b"]}, f"hm://{UID}/a/b"),
        ({"uid": UID, "path": ["a"], "version": "bafy", "latest": True}, f"hm://{UID}/a?v=bafy&l"),
        ({"uid": UID, "version": "bafy", "latest": None}, f"hm://{UID}?v=bafy"),
        ({"uid": UID, "latest": True}, f"hm://{UID}"),
        ({"uid": UID, "blockRef": "b1", "blockRange": {"expanded": True}}, f"hm://{UID}#b1+"),
        ({"uid": UID, "blockRef": "b1", "blockRange": {"start": 2, "end": 5}}, f"hm://{UID}#b1[2:5]"),
        ({"uid": UID, "blockRef": "b1", "blockRange": None}, f"hm://{UID}#b1"),
        ({"uid": "", "path": ["a"]}, ""),
        ({"path": ["a"]}, ""),
        ("hm://x", ""),
        (None, ""),
    ],
)
def test_addresses_of_results(hm_id: Any, address: str) -> None:
    assert searches.address_of(hm_id) == address


def test_what_is_asked_of_the_hm_server() -> None:
    usual = {
        "query": "tea",
        "includeBody": "false",
        "contextSize": "48",
        "perspectiveAccountUid": "me",
        "searchType": "2",
        "pageSize": "20",
    }
    assert searches.hypermedia_parameters({"query": " tea "}, "me") == usual
    chosen = {"query": "tea", "accountUid": f" {UID} ", "includeBody": True, "contextSize": 0, "searchType": "keyword"}
    assert searches.hypermedia_parameters({**chosen, "pageSize": 10**9}, "me") == {
        **usual,
        "accountUid": UID,
        "includeBody": "true",
        "contextSize": "0",
        "searchType": "0",
        "pageSize": "50",
    }
    assert len(searches.query_of({"query": "a" * 5000})) == 1024
    with pytest.raises(VerbError, match="Search query is required"):
        searches.query_of({"query": " \n"})


def test_what_is_asked_of_searxng() -> None:
    usual = {"q": "tea", "format": "json", "categories": "general", "safesearch": "1", "language": "en"}
    assert searches.web_parameters({"query": "tea"}) == usual
    chosen = {"query": "tea", "category": "news", "timeRange": "week", "language": "de" + "x" * 20}
    assert searches.web_parameters(chosen, engines="bing") == {
        **usual,
        "categories": "news",
        "time_range": "week",
        "language": "de" + "x" * 14,
        "engines": "bing",
    }


@given(JSON, st.integers(1, 5))
def test_whatever_an_hm_server_answers_the_contract_is_kept(answer: Any, most: int) -> None:
    wrapped = {"entities": answer if isinstance(answer, list) else [answer]}
    results = searches.hypermedia_results(wrapped, most)
    output = searches.hypermedia_answer({"query": "q", "pageSize": most}, results)
    assert errors(output, SEARCH.output or {}) == [] and len(output["results"]) <= most
    if not isinstance(answer, dict) or not isinstance(answer.get("entities"), list):
        with pytest.raises(VerbError, match="Search failed: the answer is invalid"):
            searches.hypermedia_results(answer, most)


@given(JSON, JSON)
def test_whatever_searxng_answers_the_contract_is_kept(found: Any, silent: Any) -> None:
    answer = {"results": found if isinstance(found, list) else [found], "unresponsive_engines": silent}
    output = searches.web_answer({"query": "q", "count": 2}, *searches.web_results(answer))
    assert errors(output, WEB_SEARCH.output or {}) == []
    assert all(result["url"].startswith("http") for result in output["results"]) and len(output["results"]) <= 2


def test_titles_do_not_break_their_links() -> None:
    results = searches.hypermedia_results({"entities": [entity("a [b]\n(c)", ["d (e)"], versionTime="2026")]}, 5)
    told = searches.hypermedia_answer({"query": "q"}, results)
    assert f"1. [a \\[b\\] (c)](<hm://{UID}/d (e)>)" in told["markdown"].splitlines()
    assert told["results"][0]["versionTime"] == "2026" and "   - Changed: 2026" in told["markdown"]


@pytest.fixture
async def hypermedia() -> AsyncIterator[FakeHypermediaServer]:
    fake = FakeHypermediaServer()
    await fake.start()
    yield fake
    await fake.stop()


async def test_a_search_asks_as_the_owner_and_tells_what_was_found(hypermedia: FakeHypermediaServer) -> None:
    found = [entity("Tea", ["tea"], parentNames=["Drinks", 5]), entity(""), {"title": "nowhere"}]
    hypermedia.answers["Search"] = lambda parameters: {"entities": found, "searchQuery": parameters["query"]}
    server = HypermediaServer(hypermedia.url, READING)
    try:
        output = (await Search(server)(ACTOR, {"query": "tea", "includeBody": True})).value
        ((key, asked),) = hypermedia.asked
        assert (key, asked["perspectiveAccountUid"], asked["query"]) == ("Search", ACTOR.owner, "tea")
        assert output["summary"] == '2 results for "tea".'
        assert output["results"] == [
            {"title": "Tea", "url": f"hm://{UID}/tea", "type": "document", "parentNames": ["Drinks"]},
            {"title": f"hm://{UID}", "url": f"hm://{UID}", "type": "document", "parentNames": []},
        ]
        assert "   - In: Drinks" in output["markdown"]
        found.clear()
        assert (await Search(server)(ACTOR, {"query": "tea"})).value["summary"] == 'No results for "tea".'
        hypermedia.answer(500, b"broken")
        with pytest.raises(VerbError, match=r"^Search failed: HTTP 500$"):
            await Search(server)(ACTOR, {"query": "tea"})
        hypermedia.answer(200, b"[1]")
        with pytest.raises(VerbError, match=r"^Search failed: the answer is invalid$"):
            await Search(server)(ACTOR, {"query": "tea"})
    finally:
        await server.close()


async def test_a_search_without_its_server(unused_tcp_port: int) -> None:
    server = HypermediaServer(f"http://127.0.0.1:{unused_tcp_port}", READING)
    with pytest.raises(VerbError, match=r"^Search failed: could not connect$"):
        await Search(server)(ACTOR, {"query": "tea"})
    await server.close()


@pytest.fixture
async def searxng() -> AsyncIterator[FakeSearxng]:
    fake = FakeSearxng()
    await fake.start()
    yield fake
    await fake.stop()


@pytest.fixture
async def search(searxng: FakeSearxng) -> AsyncIterator[WebSearch]:
    made = WebSearch(searxng.url)
    yield made
    await made.close()


def page(n: int) -> dict[str, str]:
    return {"title": f"Page {n}", "url": f"https://example.org/{n}", "content": f"About\n {n}", "engine": "one"}


async def test_a_web_search_tells_what_was_found(searxng: FakeSearxng, search: WebSearch) -> None:
    searxng.bodies = [{"results": [page(1), {"url": "javascript:x"}, page(2), page(3)], "unresponsive_engines": []}]
    output = (await search(ACTOR, {"query": "tea", "count": 2})).value
    assert output["summary"] == '2 results for "tea".' and output["partial"] is False
    assert output["results"][0] == {
        "title": "Page 1",
        "url": "https://example.org/1",
        "snippet": "About 1",
        "engine": "one",
    }
    assert "1. [Page 1](https://example.org/1) (one)" in output["markdown"].splitlines()
    assert [asked.get("engines") for asked in searxng.asked] == [None]


async def test_other_engines_are_asked_once_when_the_usual_are_silent(searxng: FakeSearxng, search: WebSearch) -> None:
    silent = {"results": [], "unresponsive_engines": [["one", "timeout"], "odd"]}
    searxng.bodies = [silent, {"results": [page(1)], "unresponsive_engines": [["two", "denied"]]}]
    output = (await search(ACTOR, {"query": "tea"})).value
    assert output["partial"] is True and len(output["results"]) == 1 and "two did not" in output["markdown"]
    assert [asked.get("engines") for asked in searxng.asked] == [None, searches.OTHER_ENGINES]
    searxng.bodies, searxng.asked = [silent], []
    output = (await search(ACTOR, {"query": "tea"})).value
    assert output["results"] == [] and output["partial"] is True and len(searxng.asked) == 2


async def test_nothing_found_is_an_answer(searxng: FakeSearxng, search: WebSearch) -> None:
    searxng.bodies = [{"results": []}]
    output = (await search(ACTOR, {"query": "tea"})).value
    assert output["summary"] == 'No results for "tea".' and len(searxng.asked) == 1


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [(503, {}, "HTTP 503"), (200, {"results": None}, "the answer is invalid"), (200, [], "the answer is invalid")],
)
async def test_a_backend_that_fails(searxng: FakeSearxng, search: WebSearch, status: int, body: Any, text: str) -> None:
    searxng.status, searxng.bodies = status, [body]
    with pytest.raises(VerbError, match=f"^web_search failed: {text}$"):
        await search(ACTOR, {"query": "tea"})


async def test_a_web_search_without_a_backend() -> None:
    search = WebSearch("")
    with pytest.raises(VerbError, match=r"^web_search is not configured "):
        await search(ACTOR, {"query": "tea"})
    await search.close()
