"""Trees of delegated work over the public edge: plans, parked sessions, stops, deletions, subscriptions."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from libs.protocol.actions import CancelRun, DeleteSession, StopSession
from libs.protocol.ws import WsRunChange
from libs.stack.scripted import Calls, Fail
from tests.support.cast import OUTPUT, Tree, delegate, held, let_go, plan, said_by_users
from tests.support.kit import World, refused, until


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


async def _step(tree: Tree) -> tuple[str, str | None]:
    plan = (await tree.owner.client.session(tree.session)).session.plan
    assert not isinstance(plan, type(UNSET))
    mark = plan.steps[0].resolved_by
    return plan.steps[0].status, None if mark is UNSET else str(mark)


async def test_detached_work_resolves_its_step_when_all_of_it_has_succeeded(world: World) -> None:
    one, two = held(), held()
    tree = await Tree.of(
        world,
        {"go": [Calls([plan(("a", "Look", "running"))]),
                Calls([delegate("one", wait=False), delegate("two", wait=False)]), "On it."],
         "one": one, "two": two},
    )  # fmt: skip
    await tree.owner.client.message(tree.session, "go")
    # Nobody reminds of a step that others work on, and the end of the turn leaves it to them.
    assert len(tree.cast.asked["go"]) == 3 and await _step(tree) == ("running", None)
    let_go(one)
    await tree.reached("succeeded", "one")
    assert await _step(tree) == ("running", None)
    let_go(two)

    async def resolved() -> bool:
        return await _step(tree) == ("done", "runtime")

    await until(resolved, what="the step")
    session = (await tree.owner.client.session(tree.session)).session
    assert session.plan.settled_at  # pyright: ignore[reportAttributeAccessIssue]
    assert [p["type"] for p in await tree.payloads()].count("tool_result") == 2


async def test_detached_work_that_fails_resolves_nothing(world: World) -> None:
    tree = await Tree.of(
        world,
        {"go": [Calls([plan(("a", "Look", "running"))]), Calls([delegate("one", wait=False)]), "On it."],
         "one": Fail(400, "no")},
    )  # fmt: skip
    await tree.say()
    await tree.reached("failed", "one")
    await tree.reached("succeeded")
    assert (await _step(tree))[1] is None


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
