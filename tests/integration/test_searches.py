"""Callables in turns and by people: searches that are called, expanded, promoted, granted; tools that agents write."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec
import pytest
import pytest_asyncio

from libs.protocol.tools import CALLABLES
from libs.stack import Stack
from libs.stack.scripted import Calls
from tests.integration.conftest import ENVIRONMENT
from tests.protocol.test_tools import DOUBLE, DOUBLE_CID
from tests.support.hypermedia import FakeHypermediaServer
from tests.support.kit import Owner, World, until
from tests.support.searxng import FakeSearxng

pytestmark = pytest.mark.asyncio(loop_scope="module")

FOUND = {
    "id": {"uid": "z6MkSomebody", "path": ["tea"], "version": None, "blockRef": None, "blockRange": None},
    "title": "Tea",
    "type": "document",
    "parentNames": [],
}
VERBS = ["read", "write", "call", "delegate", "plan", "status"]


@dataclass
class Outside:
    """The system and what it searches."""

    stack: Stack
    hypermedia: FakeHypermediaServer
    searxng: FakeSearxng


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outside(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Outside]:
    hypermedia, searxng = FakeHypermediaServer(), FakeSearxng()
    await hypermedia.start()
    await searxng.start()
    env = {**ENVIRONMENT, "SEED_AGENTS_HM_SERVER_URL": hypermedia.url, "SEED_AGENTS_SEARXNG_URL": searxng.url + "/"}
    try:
        async with Stack(tmp_path_factory.mktemp("searches") / "data", 0, env=env) as stack:
            yield Outside(stack, hypermedia, searxng)
    finally:
        await hypermedia.stop()
        await searxng.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def there(outside: Outside) -> AsyncIterator[World]:
    outside.hypermedia.answers["Search"] = lambda _: {"entities": [FOUND], "searchQuery": ""}
    outside.hypermedia.asked.clear()
    outside.searxng.asked.clear()
    async with World(outside.stack.urls) as world:
        yield world


async def turn(owner: Owner, session: str, *replies: Any) -> list[dict[str, Any]]:
    """The payloads of the tool results of a turn in which the model says all this."""
    before = len(await owner.events(session))
    owner.provider.script.extend([*replies, "Done."])
    await owner.client.message(session, "go")
    return [e.event for e in (await owner.events(session))[before:] if e.event["type"] == "tool_result"]


def offered(owner: Owner, request: int = -1) -> list[str]:
    return [tool["function"]["name"] for tool in owner.provider.requests[request]["tools"]]


def call(tool: str, **given: Any) -> Calls:
    return Calls([("call", {"tool": tool, "input": given})])


def read(tool: str) -> Calls:
    return Calls([("read", {"address": f"~/tools/{tool}"})])


def write(name: str, content: str | None = None, **options: Any) -> Calls:
    more = {} if content is None else {"content": content}
    return Calls([("write", {"address": f"~/tools/{name}", "options": options, **more})])


async def invoke(owner: Owner, session: str, verb: str, **given: Any) -> Any:
    return await owner.client.call("InvokeSessionTool", sessionId=session, verb=verb, input=given)


async def test_the_health_route_says_that_the_web_can_be_searched(outside: Outside, there: World) -> None:
    async with aiohttp.ClientSession() as http, http.get(outside.stack.urls[0] + "/api/health") as answer:
        assert (await answer.json())["webTools"] == {"search": True, "readBrowser": False}


async def test_a_call_searches_and_is_offered_by_itself_from_then_on(outside: Outside, there: World) -> None:
    owner = await there.owner()
    session = await owner.session()
    [result] = await turn(owner, session, call("search", query="tea", pageSize=3))
    assert result["output"]["results"] == [
        {"title": "Tea", "url": "hm://z6MkSomebody/tea", "type": "document", "parentNames": []}
    ]
    ((key, asked),) = outside.hypermedia.asked
    assert (key, asked["query"], asked["pageSize"], asked["perspectiveAccountUid"]) == (
        "Search",
        "tea",
        "3",
        owner.client.account,
    )
    assert [name for name in offered(owner, 0) if name in CALLABLES] == []
    assert offered(owner, 1)[:2] == ["search", "read"]
    [promoted] = await turn(owner, session, Calls([("search", {"query": "more"})]))
    assert promoted["name"] == "search" and promoted["output"]["query"] == "more"
    [schema] = [t["function"] for t in owner.provider.requests[-1]["tools"] if t["function"]["name"] == "search"]
    assert schema["parameters"] == CALLABLES["search"].input
    other = await owner.session()
    await turn(owner, other)
    assert "search" not in offered(owner), "another session has not looked at it"


async def test_input_that_does_not_fit_gets_the_contract(outside: Outside, there: World) -> None:
    owner = await there.owner()
    session = await owner.session()
    [result] = await turn(owner, session, call("search", q="tea", pageSize=0))
    assert sorted(result["output"]["validationErrors"]) == [
        "$.pageSize: number below minimum 1",
        "$.q: property is not allowed",
        "$.query: required property is missing",
    ]
    assert result["output"]["contract"].startswith("# search\n\n> builtin tool")
    assert outside.hypermedia.asked == [] and "search" in offered(owner)


async def test_reading_a_contract_promotes_too_but_not_beyond_the_grant(outside: Outside, there: World) -> None:
    owner = await there.owner(tools=["search"])
    session = await owner.session()
    granted, refused = await turn(owner, session, read("search"), read("web_search"))
    listed = {t.name: t for t in (await owner.client.call("ListAgentTools", agentId=owner.agent)).tools}
    assert (granted["output"]["cid"], granted["output"]["kind"]) == (listed["search"].cid, "builtin")
    assert listed["search"].cid in granted["output"]["markdown"]
    assert refused["output"]["summary"] == "No tool named web_search." and refused["output"]["tools"] == ["search"]
    assert offered(owner)[0] == "search" and "web_search" not in offered(owner)
    [result] = await turn(owner, session, call("web_search", query="tea"))
    assert result["output"]["summary"] == "No callable tool named web_search. Here is what you can call."
    assert outside.searxng.asked == []


async def test_the_web_is_searched(outside: Outside, there: World) -> None:
    page = {"title": "Tea", "url": "https://example.org/tea", "content": "About tea", "engine": "one"}
    outside.searxng.bodies = [{"results": [page], "unresponsive_engines": []}]
    owner = await there.owner()
    session = await owner.session()
    answer = await invoke(owner, session, "call", tool=" web_search ", input={"query": "tea", "category": "news"})
    assert answer.output["results"] == [
        {"title": "Tea", "url": "https://example.org/tea", "snippet": "About tea", "engine": "one"}
    ]
    [asked] = outside.searxng.asked
    assert (asked["q"], asked["categories"]) == ("tea", "news")
    await turn(owner, session)
    assert "web_search" not in offered(owner), "what people look at is not the agent's doing"


async def test_a_backend_that_fails_is_told_and_the_turn_goes_on(outside: Outside, there: World) -> None:
    owner = await there.owner()
    session = await owner.session()
    del outside.hypermedia.answers["Search"]
    [result] = await turn(owner, session, call("search", query="tea"))
    assert result["error"] == "Search failed: HTTP 404" and "output" not in result
    assert (await owner.said(session))[-1] == ("assistant", "Done.")


async def test_the_model_is_told_which_tools_there_are(outside: Outside, there: World) -> None:
    owner = await there.owner()
    session = await owner.session()
    await turn(owner, session)
    prompt = owner.provider.requests[-1]["messages"][0]["content"]
    space = prompt[prompt.index("<space>") : prompt.index("</space>")]
    assert "- search: " in space and "- web_search: " in space


async def test_an_agent_writes_reads_and_deletes_a_tool(outside: Outside, there: World) -> None:
    owner = await there.owner(tools=[])
    session = await owner.session()
    document = {key: DOUBLE[key] for key in ("description", "input", "source", "runtime")}
    text = msgspec.json.encode(document).decode()
    made, seen, taken = await turn(
        owner, session, write("double", text), read("double"), write("search", tool=document)
    )
    assert made["output"].items() >= {"name": "double", "cid": DOUBLE_CID, "kind": "lambda"}.items()
    assert seen["output"]["cid"] == DOUBLE_CID and DOUBLE["source"] in seen["output"]["markdown"]
    assert taken["error"] == "Builtin tools cannot be edited"
    assert await authored(owner) == {"double": (DOUBLE_CID, True)}

    replaced, refused, unstorable = await turn(
        owner,
        session,
        write("double", tool={**document, "description": "Doubles it. Well."}),
        write("double", tool={**document, "input": {"$ref": "#"}}),
        write("double", tool={**document, "input": {"maximum": 2**70}}),
    )
    assert await authored(owner) == {"double": (replaced["output"]["cid"], True)} != {"double": (DOUBLE_CID, True)}
    assert refused["error"] == "Tool input schema is not supported: $: keyword $ref is not supported"
    assert unstorable["error"] == "write was given a value that cannot be stored: integer needs more than 64 bits"
    [deleted] = await turn(owner, session, write("double", delete=True))
    assert deleted["output"]["deleted"] is True and await authored(owner) == {}


async def authored(owner: Owner) -> dict[str, tuple[str, bool]]:
    listed = (await owner.client.call("ListAgentTools", agentId=owner.agent)).tools
    return {tool.name: (tool.cid, tool.granted) for tool in listed if tool.kind == "lambda"}


async def test_what_an_agent_writes_is_told_and_is_in_its_next_prompt(outside: Outside, there: World) -> None:
    owner = await there.owner()
    watch = there.watch(owner.client, f"account/{owner.client.account}")
    await watch.wait(lambda e: type(e).__name__ == "WsSubscribed", what="the subscription")
    session = await owner.session()
    document = {key: DOUBLE[key] for key in ("description", "input", "source", "runtime")}
    await turn(owner, session, write("double", tool=document))
    await until(lambda: "agent-tools-changed" in watch.hints(), what="the hint")

    async def told() -> bool:
        await turn(owner, session)
        return "- double: Doubles n. (authored)" in owner.provider.requests[-1]["messages"][0]["content"]

    await until(told, what="the tool in the prompt")
