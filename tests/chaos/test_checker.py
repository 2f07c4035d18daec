"""The checker is fed histories that are wrong in one way each, and must name it; and one that holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.chaos.checker import violations
from tests.chaos.history import Event, Followed, History, Run, Seen, Sent, Session, Shown, Turn


def said(role: str, content: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content}


def called(call: str, name: str) -> dict[str, Any]:
    return {"type": "tool_call", "id": call, "name": name, "input": {}}


def result(call: str, output: Any) -> dict[str, Any]:
    return {"type": "tool_result", "toolCallId": call, "name": "x", "output": output}


CHILD = {"status": "succeeded", "runId": "R4", "sessionId": "S2", "output": {"text": "final 4 to c-1."}}


def good() -> History:
    """A message answered by way of a tool, one that failed and was tried again, one with a child, one stopped."""
    main = Session(
        id="S1",
        status="idle",
        last_seq=15,
        events=[
            Event("e1", 1, said("user", "[m-1 tools] please")),
            Event("e2", 2, said("assistant", "Looking into m-1."), "R1"),
            Event("e3", 3, called("k1", "status"), "R1"),
            Event("e4", 4, result("k1", {"ok": True}), "R1"),
            Event("e5", 5, said("assistant", "final 1 to m-1."), "R1"),
            Event("e6", 6, said("user", "[m-2 broken] please")),
            Event("e7", 7, {"type": "error", "message": "scripted failure of m-2"}, "R2"),
            Event("e8", 8, said("assistant", "final 2 to m-2."), "R2b"),
            Event("e9", 9, said("user", "[m-3 delegate] please")),
            Event("e10", 10, called("k2", "delegate"), "R3"),
            Event("e11", 11, result("k2", CHILD), "R3"),
            Event("e12", 12, said("assistant", "final 3 to m-3."), "R3"),
            Event("e13", 13, said("user", "[m-4 slow] please")),
            Event("e14", 14, said("assistant", "final 5"), "R5"),
            Event("e15", 15, said("assistant", "Stopped."), "R5"),
        ],
        turns=[
            Turn("R1", 1, ["e1"], answer="e5", finished_at=10),
            Turn("R2", 2, ["e6"], status="failed", finished_at=20),
            Turn("R2b", 3, ["e6"], answer="e8", retry=True, finished_at=30),
            Turn("R3", 4, ["e9"], answer="e12", finished_at=40),
            Turn("R5", 5, ["e13"], status="canceled", answer="e15", finished_at=50),
        ],
    )
    child = Session(
        id="S2",
        status="idle",
        last_seq=2,
        events=[
            Event("f1", 1, said("user", "[c-1 instant] for m-3 of its parent")),
            Event("f2", 2, said("assistant", "final 4 to c-1."), "R4"),
        ],
        turns=[Turn("R4", 1, ["f1"], answer="f2", parent="R3", call="k2", finished_at=35)],
    )
    states = [("R3", "running", 1), ("R4", "running", 2), ("R4", "succeeded", 3), ("R3", "succeeded", 4)]
    everything = [(event.seq, event.id) for event in main.events]
    return History(
        sent=[
            Sent("m-1", "S1", "ok", "e5"),
            Sent("m-2", "S1", "failed"),
            Sent("m-3", "S1", "ok", ""),
            Sent("m-4", "S1", "ok", "e15"),
        ],
        sessions=[main, child],
        runs=[
            Run("R1", "succeeded"),
            Run("R2", "failed"),
            Run("R2b", "succeeded"),
            Run("R3", "succeeded"),
            Run("R4", "succeeded", parent="R3"),
            Run("R5", "canceled"),
        ],
        seen=[Seen("one", "S1", everything, status="idle"), Seen("late", "S1", everything[6:], 6, "idle")],
        followed=[Followed("tree", states)],
        shown=[Shown("k1", "status", ['{"ok": true}']), Shown("p1", "plan", ['{"ok":true,"steps":1}'])],
        outbox={"sessions": 0, "runs": 0, "secrets": 0},
    )


def test_a_good_history_holds() -> None:
    assert violations(good()) == []


@pytest.mark.parametrize("change", [{"behind": True}, {"status": "canceled", "answer": ""}])
def test_who_need_not_be_given_an_answer(change: dict[str, Any]) -> None:
    history = good()
    history.sent[0].answer = ""
    for name, value in change.items():
        setattr(turn(history, "R1"), name, value)
    assert not [found for found in violations(history) if found.startswith("m-1: was acknowledged")]


def moved() -> History:
    """A message that was answered in a successor."""
    history = good()
    output = {"continuationId": "C", "successorSessionId": "S3", "title": "t"}
    before = Session(
        "S0", "idle", 3,
        [Event("g1", 1, said("user", "[m-5 switch] please")), Event("g2", 2, called("k5", "continue_session"), "R6"),
         Event("g3", 3, result("k5", output), "R6")],
        [Turn("R6", 1, ["g1"], finished_at=5, continued="S3")],
    )  # fmt: skip
    copy = {**said("user", "[m-5 switch] please"), "meta": {"continuedFrom": {"eventId": "g1"}}}
    after = Session(
        "S3", "idle", 3,
        [Event("h1", 1, {**said("user", "handoff [m-4 slow]"), "actor": "system"}), Event("h2", 2, copy),
         Event("h3", 3, said("assistant", "final 9 to m-5."), "R7")],
        [Turn("R7", 1, ["h2"], answer="h3", finished_at=6)], before="S0",
    )  # fmt: skip
    history.sessions += [before, after]
    history.sent.append(Sent("m-5", "S0", "ok", ""))
    history.runs += [Run("R6", "succeeded"), Run("R7", "succeeded")]
    return history


def test_a_history_with_a_successor_holds() -> None:
    assert violations(moved()) == []


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (lambda h: setattr(h.sessions[3], "before", ""), "its successor S3 is not there"),
        (lambda h: h.sessions[3].turns.append(Turn("R8", 2, [], continued="S3")), "which 2 turns say"),
        (lambda h: in_place(h, "h2", meta={"continuedFrom": {"eventId": "g9"}}), "answers something else"),
        (lambda h: in_place(h, "g3", output={}), "as its result"),
        (lambda h: append(h, said("assistant", "final 8 to m-5."), "R6", 2), "with a successor and with more"),
    ],
)
def test_what_may_be_wrong_with_a_successor(spoil: Callable[[History], object], found: str) -> None:
    history = moved()
    spoil(history)
    assert any(found in violation for violation in violations(history)), violations(history)


def event(history: History, name: str) -> Event:
    return next(e for session in history.sessions for e in session.events if e.id == name)


def turn(history: History, run: str) -> Turn:
    return next(t for session in history.sessions for t in session.turns if t.run == run)


def run(history: History, name: str) -> Run:
    return next(r for r in history.runs if r.id == name)


def append(history: History, payload: dict[str, Any], by: str = "", session: int = 0) -> None:
    """One more event, which all listeners hear as well."""
    where = history.sessions[session]
    where.last_seq += 1
    new = Event(f"new{where.last_seq}", where.last_seq, payload, by)
    where.events.append(new)
    for seen in history.seen:
        if seen.session == where.id:
            seen.events.append((new.seq, new.id))


def drop(history: History, name: str) -> None:
    """Take an event out of the log as if it had never been there."""
    for session in history.sessions:
        session.events = [e for e in session.events if e.id != name]
        for seq, left in enumerate(session.events, 1):
            left.seq = seq
        session.last_seq = len(session.events)
        for seen in history.seen:
            if seen.session == session.id:
                seen.events = [(e.seq, e.id) for e in session.events if e.seq > seen.after]


def swap(history: History, one: str, other: str) -> None:
    first, second = event(history, one), event(history, other)
    first.payload, second.payload = second.payload, first.payload


def in_place(history: History, name: str, **fields: Any) -> None:
    event(history, name).payload.update(fields)


Breaking = Callable[[History], object]
WRONG: dict[str, tuple[Breaking, str]] = {
    "acknowledged without an answer": (lambda h: setattr(h.sent[0], "answer", ""), "m-1: was acknowledged without an"),
    "acknowledged, not stored": (lambda h: h.sent.append(Sent("m-9", "S1", "ok")), "m-9: acknowledged (ok), but not"),
    "failed, not stored": (lambda h: h.sent.append(Sent("m-9", "S1", "failed")), "m-9: acknowledged (failed), but not"),
    "never acknowledged": (lambda h: setattr(h.sent[0], "outcome", "500 oops"), "m-1: was not acknowledged: 500 oops"),
    "stored twice": (lambda h: append(h, said("user", "[m-1 tools] please")), "m-1: stands 2 times"),
    "nobody's message": (lambda h: append(h, said("user", "[m-77 slow] x")), "m-77: in the log of S1, but nobody"),
    "session gone": (lambda h: setattr(h.sent[0], "session", "S9"), "m-1: its session S9 is gone"),
    "answer unknown": (lambda h: setattr(h.sent[0], "answer", "e99"), "event e99, which is not in the log"),
    "answer no answer": (lambda h: setattr(h.sent[0], "answer", "e4"), "event e4, which is no assistant message"),
    "answer of another": (lambda h: setattr(h.sent[0], "answer", "e8"), "event e8, which answers something else"),
    "gap in seq": (lambda h: setattr(event(h, "e15"), "seq", 16), "S1: seq is not gapless"),
    "seq doubled": (lambda h: setattr(event(h, "e15"), "seq", 14), "S1: seq is not gapless"),
    "seq from 0": (lambda h: [setattr(e, "seq", e.seq - 1) for e in h.sessions[1].events], "S2: seq is not gapless"),
    "events lost at the end": (lambda h: h.sessions[0].events.pop(), "last seq is 15, but there are 14"),
    "id doubled": (lambda h: setattr(event(h, "e15"), "id", "e14"), "event e14 stands 2 times"),
    "final text doubled": (lambda h: append(h, said("assistant", "final 1 to m-1."), "R2b"), "stands 2 times in"),
    "message without turn": (lambda h: turn(h, "R1").messages.clear(), "m-1: has no turn"),
    "two first turns": (lambda h: setattr(turn(h, "R2b"), "retry", False), "m-2: has several first turns"),
    "answered again": (lambda h: setattr(turn(h, "R2"), "status", "succeeded"), "m-2: was answered again after turn 2"),
    "succeeded silently": (lambda h: drop(h, "e8"), "turn R2b: succeeded without an answer"),
    "two answers": (lambda h: append(h, said("assistant", "final 9 to m-1."), "R1"), "turn R1: has 2 final answers"),
    "outcome elsewhere": (lambda h: setattr(turn(h, "R1"), "answer", "e2"), "turn R1: its outcome names event e2"),
    "outcome nowhere": (lambda h: setattr(turn(h, "R5"), "answer", "e99"), "event e99, which is none of its"),
    "succeeded with error": (lambda h: append(h, {"type": "error", "message": "x"}, "R1"), "succeeded with an error"),
    "failed silently": (lambda h: drop(h, "e7"), "turn R2: failed with 0 error events"),
    "failed twice": (lambda h: append(h, {"type": "error", "message": "x"}, "R2"), "turn R2: failed with 2 error"),
    "failed and answered": (lambda h: append(h, said("assistant", "final 9 to m-2."), "R2"), "failed with an answer"),
    "canceled with error": (lambda h: append(h, {"type": "error", "message": "x"}, "R5"), "canceled with an error"),
    "written by nobody": (lambda h: append(h, said("assistant", "hm"), "R9"), "written by run R9, which has no turn"),
    "call doubled": (lambda h: append(h, called("k1", "status"), "R1"), "call k1 stands 2 times"),
    "result doubled": (lambda h: append(h, result("k1", {"ok": True}), "R1"), "call k1 has 2 results"),
    "result of nothing": (lambda h: append(h, result("k9", {}), "R1"), "call k9 has a result, but nobody made it"),
    "result before call": (lambda h: swap(h, "e3", "e4"), "call k1 has its result before it"),
    "no result": (lambda h: drop(h, "e4"), "call k1 has no result, though its turn succeeded"),
    "shown differently": (lambda h: h.shown[0].texts.append("other"), "was shown with 2 different results"),
    "shown, not stored": (lambda h: h.shown.append(Shown("k9", "status", ["x"])), "k9 was shown with a result that is"),
    "shown, stored otherwise": (lambda h: in_place(h, "e4", output={"ok": False}), "k1 was shown with '{"),
    "plan shown differently": (lambda h: h.shown[1].texts.append("other"), "p1 was shown with 2 different results"),
    "two children": (lambda h: h.sessions[0].turns.append(Turn("R6", 6, [], parent="R3", call="k2")), "has 2 children"),
    "brief twice": (lambda h: append(h, said("user", "[c-1 instant] again")), "c-1: 2 children were started"),
    "child of no call": (lambda h: setattr(turn(h, "R4"), "call", "k9"), "child R4 belongs to call k9"),
    "child unanswered": (lambda h: drop(h, "e11"), "call k2 has a child and no answer"),
    "answer of no child": (lambda h: setattr(turn(h, "R4"), "parent", "R1"), "run R4, which is none of its children"),
    "another's answer": (lambda h: in_place(h, "e11", output={**CHILD, "runId": "R1"}), "not answered by its child R4"),
    "repaired, though awaited": (lambda h: in_place(h, "e11", error="interrupted", output=None), "not answered by its"),
    "wrong answer": (lambda h: in_place(h, "e11", output={**CHILD, "status": "failed"}), "answered with failed, its"),
    "turn without run": (lambda h: h.runs.pop(), "turn R5 has no run"),
    "run without turn": (lambda h: h.runs.append(Run("R9", "succeeded")), "run R9 has no turn"),
    "run ends otherwise": (lambda h: setattr(run(h, "R1"), "status", "failed"), "run R1 is failed, its turn succeeded"),
    "run queued for ever": (lambda h: setattr(run(h, "R1"), "status", "queued"), "run R1 is stuck: queued"),
    "run running for ever": (lambda h: setattr(run(h, "R1"), "status", "running"), "run R1 is stuck: running"),
    "waits for nobody": (lambda h: setattr(run(h, "R3"), "status", "waiting"), "run R3 is stuck: waiting"),
    "streams for ever": (lambda h: setattr(h.sessions[0], "status", "streaming"), "S1 is streaming, not idle"),
    "error, though it ended well": (lambda h: setattr(h.sessions[1], "status", "error"), "S2 is error, not idle"),
    "live, though idle": (lambda h: setattr(turn(h, "R5"), "state", "live"), "S1 is idle, not streaming"),
    "listener missed": (lambda h: h.seen[0].events.pop(3), "one of S1: missing [4]"),
    "listener missed the end": (lambda h: h.seen[1].events.pop(), "late of S1: missing [15]"),
    "listener got one twice": (lambda h: h.seen[0].events.insert(4, (4, "e4")), "one of S1: missing [], doubled [4]"),
    "listener out of order": (lambda h: h.seen[0].events.reverse(), "not in order"),
    "listener too early": (lambda h: h.seen[1].events.insert(0, (6, "e6")), "beyond [6]"),
    "listener heard another": (lambda h: h.seen[0].events.__setitem__(0, (1, "e0")), "seq 1 came as e0, the log"),
    "listener heard old news": (lambda h: setattr(h.seen[0], "status", "streaming"), "heard last that it is streaming"),
    "listener of nothing": (lambda h: setattr(h.seen[0], "session", "S9"), "one: listened to S9, which is gone"),
    "run went back": (lambda h: h.followed[0].states.append(("R4", "succeeded", 2)), "R4 went back"),
    "run rose again": (lambda h: h.followed[0].states.append(("R4", "running", 9)), "R4 was succeeded, then running"),
    "end of a run unheard": (lambda h: h.followed[0].states.pop(), "heard last that R3 is running"),
    "follower of nothing": (lambda h: h.followed[0].states.clear(), "tree: heard nothing"),
    "turn left": (lambda h: setattr(turn(h, "R4"), "state", "parked"), "turn R4 is left parked"),
    "fault logged": (lambda h: h.faults.append("edge: action failed"), "1 times logged as a fault: edge: action"),
    "outbox left": (lambda h: h.outbox.update(runs=2), "the outbox of runs holds 2 messages"),
}  # fmt: skip


@pytest.mark.parametrize(("breaking", "wanted"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_history_is_caught(breaking: Breaking, wanted: str) -> None:
    history = good()
    breaking(history)
    found = violations(history)
    assert any(wanted in text for text in found), found


def test_waiting_for_a_live_child_is_legitimate() -> None:
    history = good()
    run(history, "R3").status, run(history, "R4").status = "waiting", "running"
    assert not [text for text in violations(history) if "stuck" in text and "R3" in text]


def test_the_call_of_a_canceled_turn_may_be_closed_without_its_child() -> None:
    history = good()
    event(history, "e11").payload = {"type": "tool_result", "toolCallId": "k2", "name": "delegate", "error": "no"}
    assert any("not answered by its child" in text for text in violations(history))
    turn(history, "R3").status = "canceled"
    assert not any("k2" in text for text in violations(history))
