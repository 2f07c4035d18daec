"""Trees of delegated work over the public edge."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from libs.protocol.actions import CancelRun, DeleteSession, StopSession
from libs.protocol.runs import RunInfo
from libs.protocol.ws import WsRunChange
from libs.stack.scripted import Calls, Fail, Say
from tests.support.cast import Tree, delegate, said_by_users
from tests.support.kit import World, refused, until

OUTPUT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def held() -> Say:
    return Say(("half", " whole"), gate=asyncio.Event())


def let_go(say: Say) -> None:
    assert say.gate is not None
    say.gate.set()


def plan(*steps: tuple[str, str, str]) -> tuple[str, dict[str, Any]]:
    return ("plan", {"steps": [{"id": i, "label": label, "status": status} for i, label, status in steps]})


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


async def test_steps_are_resolved_by_children_and_settled_at_the_end(world: World) -> None:
    tree = await Tree.of(
        world,
        {"go": [Calls([plan(("a", "Look", "running"), ("b", "Tell", "pending"))]), Calls([delegate("look")]),
                Calls([plan(("a", "Look", "done"), ("b", "Tell", "done"))]), "All told."],
         "look": "Seen.", "next": "Hello."},
    )  # fmt: skip
    await tree.say()
    await tree.reached("succeeded")
    [parent, child] = await tree.ended()
    assert (child.plan_step_id, child.step_label) == ("a", "Look")
    shown = said_by_users(tree.cast.asked["go"][2])[-1]
    assert "a · Look · done" in shown and "b · Tell · pending" in shown
    session = (await tree.owner.client.session(tree.session)).session
    assert msgspec.to_builtins(session.plan) == {
        "steps": [{"id": "a", "label": "Look", "status": "done", "resolvedBy": "runtime"},
                  {"id": "b", "label": "Tell", "status": "done"}],
        "ownerRunId": parent.id, "settledAt": session.plan.settled_at,  # pyright: ignore[reportAttributeAccessIssue]
    }  # fmt: skip
    assert parent.plan == session.plan
    assert parent.unmet_obligations == UNSET
    # A settled plan is history for the next turn.
    await tree.owner.client.message(tree.session, "next")
    assert not any("plan_state" in said for said in said_by_users(tree.cast.asked["go"][-1]))
    assert (await tree.owner.client.session(tree.session)).session.plan == UNSET


async def test_a_failed_child_leaves_its_step(world: World) -> None:
    tree = await Tree.of(
        world,
        {"go": [Calls([plan(("a", "Look", "running"))]), Calls([delegate("one"), delegate("two")]),
                Calls([plan(("a", "Look", "failed"))]), "Not seen."],
         "one": "Seen.", "two": Fail(400, "blind")},
    )  # fmt: skip
    await tree.say()
    await tree.reached("succeeded")
    await tree.ended()
    assert "a · Look · running" in said_by_users(tree.cast.asked["go"][2])[-1]


async def test_an_unfinished_plan_is_reminded_three_times_and_then_recorded(world: World) -> None:
    tree = await Tree.of(
        world, {"go": [Calls([plan(("a", "Look", "done"), ("b", "Tell", "pending"), ("c", "Go", "running"))]), "Done."]}
    )
    await tree.say()
    run = await tree.reached("succeeded")
    assert msgspec.to_builtins(run.unmet_obligations) == [{"kind": "plan", "steps": ["Tell", "Go"]}]
    actors = [p.get("actor", p.get("role")) for p in await tree.payloads()]
    assert actors == ["user", *["assistant", "system"] * 4]
    assert len(tree.cast.asked["go"]) == 5
    session = (await tree.owner.client.session(tree.session)).session
    statuses = [s.status for s in session.plan.steps]  # pyright: ignore[reportAttributeAccessIssue]
    assert statuses == ["done", "pending", "done"]


async def test_running_steps_fail_with_their_run(world: World) -> None:
    tree = await Tree.of(world, {"go": [Calls([plan(("a", "Look", "running"))]), Fail(400, "no")]})
    with pytest.raises(Exception, match="502"):
        await tree.say()
    session = (await tree.owner.client.session(tree.session)).session
    assert session.plan.steps[0].status == "failed" and session.plan.settled_at  # pyright: ignore[reportAttributeAccessIssue]


async def test_a_parked_session_converses(world: World) -> None:
    child = held()
    tree = await Tree.of(
        world, {"go": [Calls([delegate("slow")], before="Asking."), "Yes, still.", "Slow is done."], "slow": child}
    )
    await tree.say()
    await tree.reached("waiting")
    answer = await tree.owner.client.message(tree.session, "are you there?")
    assert (await tree.owner.said(tree.session))[-1] == ("assistant", "Yes, still.")
    assert answer.assistant_event_id
    pending = tree.cast.asked["go"][1]["messages"]
    [shown] = [m for m in pending if m["role"] == "tool"]
    assert msgspec.json.decode(shown["content"])["status"] == "running"
    assert await tree.owner.status(tree.session) == "idle"
    let_go(child)
    await tree.ended()
    log = await tree.payloads()
    assert [(p["type"], p.get("content")) for p in log[-3:]] == [
        ("message", "Yes, still."), ("tool_result", None), ("message", "Slow is done."),
    ]  # fmt: skip
    assert "<background_work_update>" in said_by_users(tree.cast.asked["go"][2])[-1]
    [shown] = [m for m in tree.cast.asked["go"][2]["messages"] if m["role"] == "tool"]
    assert msgspec.json.decode(shown["content"])["status"] == "succeeded"


@pytest.mark.parametrize("by", ["session", "run"])
async def test_the_whole_tree_is_stopped_while_the_parent_waits(world: World, by: str) -> None:
    child = held()
    tree = await Tree.of(
        world,
        {"go": [Calls([delegate("middle")]), "Next."], "middle": [Calls([delegate("leaf")]), "never"], "leaf": child},
    )
    await tree.say()
    leaf = await tree.reached("running", "leaf")
    watch = world.watch(tree.owner.client, f"sessions/{leaf.session_id}")
    await watch.streamed("half")
    root = await tree.run()
    if by == "session":
        assert (await tree.owner.client.call(StopSession(session_id=tree.session))).stopped
    else:
        assert (await tree.owner.client.call(CancelRun(run_id=root.id))).canceled
    runs = await tree.ended()
    assert [r.status for r in runs] == ["canceled"] * 3
    for run in runs:
        await until(lambda run=run: _idle(tree, str(run.session_id)), what="an idle session")
    assert await tree.owner.said(str(leaf.session_id)) == [("user", "leaf"), ("assistant", "half")]
    # The call will not be answered any more, and the next turn knows.
    await tree.owner.client.message(tree.session, "and now?")
    [result] = await tree.results()
    assert "error" in result
    assert (await tree.owner.said(tree.session))[-1] == ("assistant", "Next.")
    root = (await tree.runs())[0]
    assert root.usage.children.runs == 2  # pyright: ignore[reportAttributeAccessIssue]


async def _idle(tree: Tree, session: str) -> bool:
    return await tree.owner.status(session) == "idle"


@pytest.mark.parametrize("waits", [False, True])
async def test_one_child_is_canceled_and_the_parent_goes_on(world: World, waits: bool) -> None:
    """While it streams, and while it waits for a child of its own."""
    leaf = held()
    middle = [Calls([delegate("leaf")]), "never"] if waits else leaf
    tree = await Tree.of(
        world, {"go": [Calls([delegate("middle"), delegate("other")]), "Fine."], "middle": middle, "leaf": leaf,
                "other": "ok"},
    )  # fmt: skip
    await tree.say()
    running = await tree.reached("running", "leaf" if waits else "middle")
    watch = world.watch(tree.owner.client, f"sessions/{running.session_id}")
    await watch.streamed("half")
    child = await tree.child("middle")
    assert child is not None
    assert (await tree.owner.client.call(CancelRun(run_id=child.id))).canceled
    await tree.reached("succeeded")
    await tree.ended()
    answers = {a["runId"]: a for a in await tree.answers()}
    assert answers[child.id] == {"status": "canceled", "runId": child.id, "sessionId": child.session_id}
    assert sorted(a["status"] for a in answers.values()) == ["canceled", "succeeded"]
    assert (await tree.owner.said(tree.session))[-1] == ("assistant", "Fine.")
    root = await tree.run()
    # The model has seen 5 + 5 tokens a reply; one that was stopped in its middle has told none.
    usage = root.usage.children  # pyright: ignore[reportAttributeAccessIssue]
    assert (usage.runs, usage.total) == ((3, 20) if waits else (2, 10))


async def test_the_session_of_a_child_is_deleted_in_mid_tree(world: World) -> None:
    tree = await Tree.of(
        world,
        {"go": [Calls([delegate("middle")]), "Gone."], "middle": [Calls([delegate("leaf")]), "never"], "leaf": held()},
    )
    await tree.say()
    leaf = await tree.reached("running", "leaf")
    middle = await tree.reached("waiting", "middle")
    await tree.owner.client.call(DeleteSession(session_id=str(middle.session_id)))
    await tree.reached("succeeded")
    runs = await tree.ended()
    assert [r.status for r in runs] == ["succeeded", "canceled", "canceled"]
    assert await tree.answers() == [{"status": "canceled", "runId": middle.id}]
    left = await tree.owner.client.session(str(leaf.session_id))
    assert left.session.parent_session_id == UNSET
    await until(lambda: _idle(tree, str(leaf.session_id)), what="an idle session")
    with refused(404, "Session not found"):
        await tree.owner.client.session(str(middle.session_id))


async def test_the_session_of_the_parent_is_deleted_in_mid_tree(world: World) -> None:
    tree = await Tree.of(
        world,
        {"go": [Calls([delegate("middle")]), "never"], "middle": [Calls([delegate("leaf")]), "never"], "leaf": held()},
    )
    await tree.say()
    leaf = await tree.reached("running", "leaf")
    middle = await tree.child("middle")
    assert middle is not None
    await tree.owner.client.call(DeleteSession(session_id=tree.session))
    for run in (middle, leaf):
        await until(lambda run=run: _idle(tree, str(run.session_id)), what="an idle session")
    runs = (await tree.owner.client.call("ListRuns", agentId=tree.owner.agent)).runs
    await until(lambda: _all_canceled(tree), what="the end of all runs")
    assert len(runs) == 3
    # Both are conversations like any other now.
    tree.cast.parts["middle"].clear()
    tree.cast.parts["middle"].append("Alone.")
    await tree.owner.client.message(str(middle.session_id), "you?")
    assert (await tree.owner.said(str(middle.session_id)))[-1] == ("assistant", "Alone.")


async def _all_canceled(tree: Tree) -> bool:
    runs = (await tree.owner.client.call("ListRuns", agentId=tree.owner.agent)).runs
    return all(r.status == "canceled" for r in runs)


async def test_a_subscription_to_the_root_sees_the_whole_tree(world: World) -> None:
    one, two = held(), held()
    tree = await Tree.of(
        world,
        {"go": [Calls([delegate("one")]), "Done."], "one": [Calls([delegate("two")]), one], "two": two},
    )
    await tree.say()
    await tree.reached("running", "two")
    root = await tree.run()
    watch = world.watch(world.at(tree.owner.client, 1), f"runs/{root.id}")

    def newest(events: list[Any]) -> dict[str, str]:
        return {e.value.title: e.value.status for e in events if isinstance(e, WsRunChange)}

    await until(lambda: len(newest(watch.events)) == 3, what="the snapshot")
    snapshot = [e.value for e in watch.events if isinstance(e, WsRunChange)][:3]
    assert [(r.title, r.status) for r in snapshot] == [("go", "waiting"), ("one", "waiting"), ("two", "running")]
    let_go(two)
    await until(lambda: newest(watch.events).get("one") == "running", what="the child again")
    let_go(one)
    await until(lambda: newest(watch.events) == dict.fromkeys(("go", "one", "two"), "succeeded"), what="the end")
    listed = await tree.ended()
    assert [r.title for r in listed] == ["go", "one", "two"]
    for run in listed:
        seen = [e.value.updated_at for e in watch.events if isinstance(e, WsRunChange) and e.value.id == run.id]
        assert seen == sorted(seen)


async def test_a_retried_child_delivers_to_nobody(world: World) -> None:
    """Its later runs are under the same contract; the parent was answered long ago."""
    tree = await Tree.of(
        world,
        {"go": [Calls([delegate("count", output=OUTPUT)]), "Failed."],
         "count": [Fail(400, "no"), Calls([("return_result", {"n": 1})])]},
    )  # fmt: skip
    await tree.say()
    await tree.reached("succeeded")
    [_, child] = await tree.ended()
    before = await tree.payloads()
    await tree.owner.client.call("RetrySession", sessionId=child.session_id)
    log = await tree.payloads(str(child.session_id))
    assert [p["type"] for p in log] == ["message", "error", "tool_call", "tool_result", "message"]
    assert (log[-1]["actor"], log[-1]["role"]) == ("system", "user")
    assert await tree.payloads() == before
    [again] = await tree.owner.runs(str(child.session_id))
    assert (again.status, again.depth, again.parent_run_id) == ("succeeded", 0, UNSET)


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
