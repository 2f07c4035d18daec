"""Trees of delegated work over the public edge."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from libs.protocol.runs import RunInfo
from libs.protocol.ws import WsRunChange
from libs.stack.scripted import Calls, Fail
from tests.support.cast import OUTPUT, Tree, delegate, held, let_go, said_by_users
from tests.support.kit import World, until


async def test_a_child_answers_the_call_that_asked_for_it(world: World) -> None:
    child = held()
    tree = await Tree.of(
        world,
        {"go": [Calls([delegate("count the sheep\nall of them")], before="Asking."), "There are 3."],
         "count the sheep\nall of them": child},
    )  # fmt: skip
    answer = await tree.owner.client.message(tree.session, "go")
    assert answer.assistant_event_id in ("", (await tree.owner.events(tree.session))[1].id)

    parent = await tree.reached("waiting")
    wait = parent.wait
    assert not isinstance(wait, type(UNSET)) and (wait.reason, wait.pending_children) == ("children", 1)
    assert await tree.owner.status(tree.session) == "idle"
    info = (await tree.owner.client.session(tree.session)).session
    assert info.child_session_count == 1

    running = await tree.reached("running", "count the sheep")
    [_, call] = [p for p in await tree.payloads() if p["type"] in ("message", "tool_call")][1:]
    assert (running.parent_run_id, running.root_run_id, running.depth) == (parent.id, parent.id, 1)
    assert (running.parent_tool_call_id, running.origin) == (call["id"], "agent")
    assert isinstance(running.session_id, str)
    of_child = await tree.owner.client.session(running.session_id)
    assert (of_child.session.parent_session_id, of_child.session.run_id) == (tree.session, running.id)
    assert (of_child.session.title, of_child.session.status) == ("count the sheep", "streaming")
    assert [e.event for e in of_child.events] == [
        {"type": "message", "role": "user", "content": "count the sheep\nall of them",
         "rawMarkdown": "count the sheep\nall of them"}
    ]  # fmt: skip

    let_go(child)
    parent, done = await tree.ended()
    assert (parent.status, done.status, done.child_run_count, parent.child_run_count) == (
        "succeeded", "succeeded", UNSET, 1,
    )  # fmt: skip
    log = await tree.payloads()
    assert [(p["type"], p.get("content")) for p in log] == [
        ("message", "go"),
        ("message", "Asking."),
        ("tool_call", None),
        ("tool_result", None),
        ("message", "There are 3."),
    ]
    assert (log[3]["toolCallId"], log[3]["name"]) == (call["id"], "delegate")
    told = {"status": "succeeded", "runId": done.id, "sessionId": done.session_id, "output": {"text": "half whole"}}
    assert log[3]["output"] == told
    shown = tree.cast.asked["go"][1]["messages"][-1]
    assert (shown["role"], msgspec.json.decode(shown["content"])) == ("tool", told)
    assert await tree.owner.status(done.session_id) == "idle"  # pyright: ignore[reportArgumentType]
    assert [r.id for r in await tree.owner.runs(tree.session)] == [parent.id]
    assert isinstance(parent.usage, msgspec.Struct) and isinstance(parent.usage.children, msgspec.Struct)
    assert (parent.usage.total, parent.usage.children.total, parent.usage.children.runs) == (20, 10, 1)


async def test_children_work_side_by_side_beside_other_tools(world: World) -> None:
    one, two = held(), held()
    tree = await Tree.of(
        world,
        {"go": [Calls([delegate("one", title="First"), ("status", {"title": "Named"}), delegate("two"), ("nope", {})]),
                "Both."],
         "one": one, "two": two},
    )  # fmt: skip
    await tree.say()
    await tree.reached("running", "First")
    await tree.reached("running", "two")
    assert {r["name"] for r in await tree.results()} == {"status", "nope"}
    let_go(two)
    await until(lambda: _pending(tree, 1), what="one left")
    let_go(one)
    runs = await tree.ended()
    assert [r.status for r in runs] == ["succeeded"] * 3
    calls = [p for p in await tree.payloads() if p["type"] == "tool_call"]
    results = await tree.results()
    assert sorted(r["toolCallId"] for r in results) == sorted(c["id"] for c in calls)
    by_call = {r["toolCallId"]: r for r in results}
    assert [by_call[c["id"]].get("output", {}).get("runId") for c in calls if c["name"] == "delegate"] == [
        run.id for title in ("First", "two") for run in runs if run.title == title
    ]
    assert len(tree.cast.asked["go"]) == 2
    info = (await tree.owner.client.session(tree.session)).session
    assert (info.title, info.child_session_count) == ("Named", 2)
    assert {r.title for r in runs[1:]} == {"First", "two"}


async def _pending(tree: Tree, count: int) -> bool:
    wait = (await tree.run()).wait
    return not isinstance(wait, type(UNSET)) and wait.pending_children == count


async def test_grandchildren_and_how_deep_it_goes(world: World) -> None:
    """Runs at depth 3 are not offered `delegate`; usage comes up from all of them."""
    tree = await Tree.of(
        world,
        {"go": [Calls([delegate("d1")]), "r0"], "d1": [Calls([delegate("d2")]), "r1"],
         "d2": [Calls([delegate("d3")]), "r2"], "d3": [Calls([delegate("d4")]), "r3"]},
    )  # fmt: skip
    watch = world.watch(tree.owner.client, f"account/{tree.owner.client.account}")
    await tree.say()
    await tree.reached("succeeded")
    runs = await tree.ended()
    assert [(r.depth, r.title, r.status) for r in runs] == [
        (0, "go", "succeeded"), (1, "d1", "succeeded"), (2, "d2", "succeeded"), (3, "d3", "succeeded"),
    ]  # fmt: skip
    assert [r.parent_run_id for r in runs[1:]] == [r.id for r in runs[:-1]]
    assert {r.root_run_id for r in runs} == {runs[0].id}
    offered = [{t["function"]["name"] for t in tree.cast.asked[d][0]["tools"]} for d in ("go", "d1", "d2", "d3")]
    assert ["delegate" in names for names in offered] == [True, True, True, False]
    [refusal] = await tree.results(str(runs[3].session_id))
    assert "depth limit reached (3)" in refusal["error"]
    counts = [(u.children.runs, u.children.total) for u in (r.usage for r in runs[:3])]  # pyright: ignore[reportAttributeAccessIssue]
    assert counts == [(3, 60), (2, 40), (1, 20)]
    assert "session-created" in watch.hints()


async def test_ten_children_are_the_most(world: World) -> None:
    calls = [delegate(f"part {n}", wait=n != 0) for n in range(12)]
    tree = await Tree.of(world, {"go": [Calls(calls), "Done."], **{f"part {n}": "ok" for n in range(12)}})
    await tree.say()
    await tree.reached("succeeded")
    runs = await tree.ended()
    errors = [r["error"] for r in await tree.results() if "error" in r]
    assert len(errors) == 1 and "10" in errors[0]
    assert len([a for a in await tree.answers() if a["status"] == "succeeded"]) == 10
    assert len(runs) == 12


async def test_a_typed_child_returns_what_was_declared(world: World) -> None:
    tree = await Tree.of(
        world,
        {"go": [Calls([delegate("count", output=OUTPUT)]), "3"],
         "count": [Calls([("return_result", {"n": "three"})]), Calls([("return_result", {"n": 3})], before="Got it."),
                   "never asked"]},
    )  # fmt: skip
    await tree.say()
    await tree.reached("succeeded")
    [_, child] = await tree.ended()
    [answer] = await tree.answers()
    assert (answer["status"], answer["output"]) == ("succeeded", {"n": 3})
    offered = tree.cast.asked["count"][0]["tools"][-1]["function"]
    assert (offered["name"], offered["parameters"]) == ("return_result", OUTPUT)
    assert len(tree.cast.asked["count"]) == 2
    first, second = await tree.results(str(child.session_id))
    assert "$.n: expected integer, got string" in first["error"] and second["output"] == {"ok": True}


async def test_the_third_invalid_result_ends_a_typed_child(world: World) -> None:
    tree = await Tree.of(
        world,
        {"go": [Calls([delegate("count", output=OUTPUT)]), "No luck."], "count": Calls([("return_result", {})])},
    )
    await tree.say()
    await tree.reached("succeeded")
    [_, child] = await tree.ended()
    [answer] = await tree.answers()
    assert isinstance(child.error, msgspec.Struct)
    assert answer == {
        "status": "failed", "runId": child.id, "sessionId": child.session_id,
        "error": {"code": "output-schema", "message": child.error.message},
    }  # fmt: skip
    assert len(tree.cast.asked["count"]) == 3
    assert await tree.owner.status(str(child.session_id)) == "error"


async def test_a_typed_child_that_never_returns_is_reminded_three_times(world: World) -> None:
    tree = await Tree.of(world, {"go": [Calls([delegate("count", output=OUTPUT)]), "No."], "count": "It is three."})
    await tree.say()
    await tree.reached("succeeded")
    [_, child] = await tree.ended()
    assert child.status == "failed" and child.error.code == "output-schema"  # pyright: ignore[reportAttributeAccessIssue]
    assert msgspec.to_builtins(child.unmet_obligations) == [{"kind": "typed-result"}]
    assert (await tree.answers())[0]["error"]["code"] == "output-schema"
    log = await tree.payloads(str(child.session_id))
    actors = [(p["type"], p.get("actor", p.get("role"))) for p in log]
    reminded = [("message", "assistant"), ("message", "system")]
    assert actors == [("message", "user"), *reminded * 4, ("error", None)]
    assert said_by_users(tree.cast.asked["count"][3])[-1] == log[-4]["content"]


async def test_detached_work_comes_back_to_nobody(world: World) -> None:
    child = held()
    tree = await Tree.of(world, {"go": [Calls([delegate("alone", wait=False)]), "Started."], "alone": child})
    await tree.say()
    await tree.reached("succeeded")
    [output] = await tree.answers()
    running = await tree.reached("running", "alone")
    assert (output["status"], output["sessionId"], output["title"]) == ("detached", running.session_id, "alone")
    assert (running.parent_tool_call_id, running.depth) == (UNSET, 1)
    before = await tree.payloads()
    let_go(child)
    await tree.ended()
    assert await tree.payloads() == before
    assert await tree.owner.said(str(running.session_id)) == [("user", "alone"), ("assistant", "half whole")]


async def test_detached_work_has_limits(world: World) -> None:
    """Ten sessions a session, chains of three sessions, and nothing that awaited work alone has."""
    many = [delegate(f"part {n}", wait=False) for n in range(11)]
    wrong = [delegate("x", wait=False, agentId="a"), delegate("x", wait=False, tools=[])]
    tree = await Tree.of(world, {"go": [Calls(wrong), Calls(many), "Done."], **{f"part {n}": "ok" for n in range(11)}})
    await tree.say()
    await tree.reached("succeeded")
    results = await tree.results()
    assert ["error" in r for r in results].count(True) == 3
    assert "10 sessions" in next(r["error"] for r in results[2:] if "error" in r)
    assert len(await tree.ended()) == 11


async def test_chains_of_detached_work_end_somewhere(world: World) -> None:
    links = {f"c{n}": [Calls([delegate(f"c{n + 1}", wait=False)]), "on"] for n in range(3)}
    tree = await Tree.of(world, {**links, "c3": ["end", Calls([delegate("c4", wait=False)]), "no"]})
    await tree.say("c0")
    await until(lambda: tree.child("c3"), what="the end of the chain")
    runs = await tree.ended()
    assert [(r.title, r.depth, r.status) for r in runs] == [(f"c{n}", n, "succeeded") for n in range(4)]
    # A message to the last session is a run of depth 0, in a chain that is long enough.
    last = str(runs[3].session_id)
    await tree.owner.client.message(last, "one more?")
    [refusal] = await tree.results(last)
    assert "depth limit reached (3)" in refusal["error"]


async def test_another_agent_of_the_account_and_nobody_elses(world: World) -> None:
    tree = await Tree.of(world, {"go": "x", "who are you": "The other."})
    stranger = await world.owner()
    other = await tree.owner.client.create_agent(tree.owner.definition(name="Other", system_prompt="You are Bob."))
    tree.cast.parts["go"].extendleft(
        [Calls([delegate("who are you", agentId=other), delegate("hi", agentId=stranger.agent),
                delegate("hi", agentId="none"), delegate("hi", agentId=other, prompt="both")])]
    )  # fmt: skip
    root = f"runs/{(await _started(tree)).id}"
    watch = world.watch(tree.owner.client, root)
    await tree.reached("succeeded")
    [_, child] = await tree.ended()
    assert child.agent_id == other
    errors = {r["toolCallId"]: r["error"] for r in await tree.results() if "error" in r}
    foreign, unknown, both = (errors[call] for call in sorted(errors))
    assert foreign == unknown and "no such agent" in foreign and "either a prompt or an agentId" in both
    [system] = [m["content"] for m in tree.cast.asked["who are you"][0]["messages"] if m["role"] == "system"]
    assert system.startswith("You are Bob.")
    await watch.wait(lambda e: isinstance(e, WsRunChange) and e.value.id == child.id and e.value.status == "succeeded")


async def _started(tree: Tree) -> RunInfo:
    tree.say()
    return await tree.run()


async def test_a_persona_takes_the_place_of_the_prompt(world: World) -> None:
    tree = await Tree.of(
        world, {"go": [Calls([delegate("rhyme", prompt="You are a poet.")]), "Nice."], "rhyme": "A rose."}
    )
    await tree.say()
    await tree.reached("succeeded")
    system = {name: asked[0]["messages"][0]["content"] for name, asked in tree.cast.asked.items()}
    assert system["go"].startswith("Be brief.") and "poet" not in system["go"]
    assert system["rhyme"].startswith("You are a poet.") and "Be brief." not in system["rhyme"]
    assert system["rhyme"].partition("\n")[2][:200] == system["go"].partition("\n")[2][:200]


async def test_a_failing_child_is_told_and_the_parent_goes_on(world: World) -> None:
    tree = await Tree.of(
        world, {"go": [Calls([delegate("break")]), "Pity."], "break": Fail(400, "that is not how it works")}
    )
    await tree.say()
    await tree.reached("succeeded")
    [parent, child] = await tree.ended()
    [answer] = await tree.answers()
    assert (answer["status"], answer["error"]["code"]) == ("failed", "provider-error")
    assert "that is not how it works" in answer["error"]["message"]
    assert (parent.status, child.status) == ("succeeded", "failed")
    assert (await tree.owner.said(tree.session))[-1] == ("assistant", "Pity.")


async def test_briefs_of_other_kinds(world: World) -> None:
    fenced = '```json\n{\n  "list": [\n    1,\n    2\n  ]\n}\n```'
    tree = await Tree.of(
        world,
        {"go": [Calls([("delegate", {"input": {"list": [1, 2]}}), ("delegate", {"prompt": "just this"}),
                       ("delegate", {}), ("delegate", "[]")]), "Done."],
         fenced: "ok", "just this": "ok"},
    )  # fmt: skip
    await tree.say()
    await tree.reached("succeeded")
    runs = await tree.ended()
    assert sorted(r.title for r in runs) == ["```json", "go", "just this"]
    assert len([r for r in await tree.results() if "error" in r]) == 2
