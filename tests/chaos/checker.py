"""What must hold of a history, whatever was killed while it was made."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from tests.chaos.history import FINAL, TERMINAL, Event, History, Run, Seen, Session, Turn, tag_of


def violations(history: History) -> list[str]:
    """Everything that is wrong, one sentence each; empty when nothing is."""
    rules = (
        _messages,
        _logs,
        _turns,
        _tools,
        _shown,
        _delegations,
        _continuations,
        _runs,
        _statuses,
        _seen,
        _followed,
        _leftovers,
    )
    return [found for rule in rules for found in rule(history)]


def _messages(history: History) -> Iterator[str]:
    """An acknowledged message stands in the log once; no request acts twice; its answer is an answer to it."""
    sessions = {session.id: session for session in history.sessions}
    sent = {one.tag for one in history.sent}
    parked = {turn.parent for session in history.sessions for turn in session.turns if turn.call}
    for one in history.sent:
        session = sessions.get(one.session)
        if session is None:
            yield f"{one.tag}: its session {one.session} is gone"
            continue
        stored = [event for event in session.events if _user_tag(event) == one.tag]
        if len(stored) > 1:
            yield f"{one.tag}: stands {len(stored)} times in the log"
        if one.outcome in ("ok", "failed"):
            if not stored:
                yield f"{one.tag}: acknowledged ({one.outcome}), but not in the log"
            elif one.outcome == "ok" and one.answer:
                yield from _answer(one.tag, one.answer, stored[0], session)
            elif one.outcome == "ok":
                yield from _no_answer(one.tag, stored[0], session, parked)
        else:
            yield f"{one.tag}: was not acknowledged: {one.outcome}"
    for session in history.sessions:
        for event in session.events:
            tag = _user_tag(event)
            if tag.startswith("m-") and tag not in sent:
                yield f"{tag}: in the log of {session.id}, but nobody sent it"


def _user_tag(event: Event) -> str:
    said = event.type == "message" and event.payload.get("role") == "user" and event.payload.get("actor") != "system"
    return tag_of(event.payload["content"]) if said else ""


def _answer(tag: str, answer: str, message: Event, session: Session) -> Iterator[str]:
    event = next((event for event in session.events if event.id == answer), None)
    if event is None:
        yield f"{tag}: was answered with event {answer}, which is not in the log"
    elif not event.text:
        yield f"{tag}: was answered with event {answer}, which is no assistant message"
    elif event.run not in {turn.run for turn in session.turns if message.id in turn.messages}:
        yield f"{tag}: was answered with event {answer}, which answers something else"


def _no_answer(tag: str, message: Event, session: Session, parked: set[str]) -> Iterator[str]:
    """Acknowledged without an event: only for a turn that stood behind another, parked, or was stopped unbegun."""
    turns = [turn for turn in session.turns if message.id in turn.messages]
    # After a failure the message may have been sent again while another turn was live.
    if len(turns) > 1 or any(
        t.behind or t.continued or t.run in parked or (t.status, t.answer) == ("canceled", "") for t in turns
    ):
        return
    yield f"{tag}: was acknowledged without an answer, though its turn was waited for"


def _logs(history: History) -> Iterator[str]:
    """`seq` counts from 1 without a gap; ids are unique."""
    ids = Counter(event.id for session in history.sessions for event in session.events)
    for event, times in ids.items():
        if times > 1:
            yield f"event {event} stands {times} times in the logs"
    for session in history.sessions:
        seqs = [event.seq for event in session.events]
        if seqs != list(range(1, len(seqs) + 1)):
            yield f"session {session.id}: seq is not gapless: {seqs}"
        if session.last_seq != len(seqs):
            yield f"session {session.id}: last seq is {session.last_seq}, but there are {len(seqs)} events"


def _turns(history: History) -> Iterator[str]:
    """Each message has one turn that answers it (after failed ones), each turn exactly one ending in the log."""
    finals = Counter(event.text for s in history.sessions for event in s.events if FINAL.match(event.text))
    for text, times in finals.items():
        if times > 1:
            yield f"the model's {text!r} stands {times} times in the logs"
    for session in history.sessions:
        by_message: dict[str, list[Turn]] = defaultdict(list)
        for turn in sorted(session.turns, key=lambda turn: turn.number):
            for message in turn.messages:
                by_message[message].append(turn)
        for event in session.events:
            if _user_tag(event):
                yield from _one_answer(_user_tag(event), by_message.get(event.id, []))
        for turn in session.turns:
            yield from _one_ending(turn, [event for event in session.events if event.run == turn.run])
        known = {turn.run for turn in session.turns}
        for event in session.events:
            if event.run and event.run not in known:
                yield f"session {session.id}: seq {event.seq} was written by run {event.run}, which has no turn here"


def _one_answer(tag: str, turns: list[Turn]) -> Iterator[str]:
    if not turns:
        yield f"{tag}: has no turn"
    if sum(not turn.retry for turn in turns) > 1:
        yield f"{tag}: has several first turns"
    for turn in turns[:-1]:
        if turn.status != "failed":
            yield f"{tag}: was answered again after turn {turn.number} had {turn.status}"


def _one_ending(turn: Turn, events: list[Event]) -> Iterator[str]:
    name = f"turn {turn.run}"
    finals = [event for event in events if FINAL.match(event.text)]
    errors = [event for event in events if event.type == "error"]
    if len(finals) > 1:
        yield f"{name}: has {len(finals)} final answers"
    match turn.status:
        case "succeeded" if turn.continued:
            if finals or errors:
                yield f"{name}: ended with a successor and with more"
        case "succeeded":
            if not finals:
                yield f"{name}: succeeded without an answer"
            elif turn.answer != finals[-1].id:
                yield f"{name}: its outcome names event {turn.answer}, its answer is {finals[-1].id}"
            if errors:
                yield f"{name}: succeeded with an error event"
        case "failed":
            if len(errors) != 1:
                yield f"{name}: failed with {len(errors)} error events"
            if finals:
                yield f"{name}: failed with an answer"
        case "canceled":
            if errors:
                yield f"{name}: canceled with an error event"
    if turn.answer and turn.answer not in {event.id for event in events if event.text}:
        yield f"{name}: its outcome names event {turn.answer}, which is none of its messages"


def _tools(history: History) -> Iterator[str]:
    """No call and no result twice; a result comes after its call; what a turn ended well with has all its results."""
    everywhere = Counter(
        event.payload["id"] for s in history.sessions for event in s.events if event.type == "tool_call"
    )
    for call, times in everywhere.items():
        if times > 1:
            yield f"call {call} stands {times} times in the logs"
    for session in history.sessions:
        status = {turn.run: turn.status for turn in session.turns}
        calls = {event.payload["id"]: event for event in session.events if event.type == "tool_call"}
        results: dict[str, list[Event]] = defaultdict(list)
        for event in session.events:
            if event.type == "tool_result":
                results[event.payload["toolCallId"]].append(event)
        for call, found in results.items():
            if len(found) > 1:
                yield f"call {call} has {len(found)} results"
            if call not in calls:
                yield f"call {call} has a result, but nobody made it"
            elif found[0].seq < calls[call].seq:
                yield f"call {call} has its result before it"
        for call, event in calls.items():
            if call not in results and status.get(event.run) == "succeeded":
                yield f"call {call} has no result, though its turn succeeded"


def _shown(history: History) -> Iterator[str]:
    """The model is shown one result of a call, and the log holds the same: so nothing past it ran twice."""
    stored = {
        event.payload["toolCallId"]: event.payload
        for session in history.sessions
        for event in session.events
        if event.type == "tool_result"
    }
    for shown in history.shown:
        if len(shown.texts) > 1:
            yield f"call {shown.call} was shown with {len(shown.texts)} different results: {shown.texts}"
        if shown.tool == "plan":
            continue
        payload = stored.get(shown.call)
        if payload is None:
            yield f"call {shown.call} was shown with a result that is not in the log"
        elif not _same(shown.texts[-1], payload):
            yield f"call {shown.call} was shown with {shown.texts[-1]!r}, the log holds {payload}"


def _same(text: str, payload: dict[str, object]) -> bool:
    if "error" in payload:
        return text == payload["error"]
    try:
        return json.loads(text) == payload.get("output")
    except ValueError:
        return False


def _delegations(history: History) -> Iterator[str]:
    """A delegated call has one child at most and is answered with what became of it; a child is started once."""
    children: dict[tuple[str, str], list[Turn]] = defaultdict(list)
    tags: Counter[str] = Counter()
    for session in history.sessions:
        for turn in session.turns:
            if turn.call:
                children[turn.parent, turn.call].append(turn)
        tags.update(tag for event in session.events if (tag := _user_tag(event)).startswith("c-"))
    for tag, times in tags.items():
        if times > 1:
            yield f"{tag}: {times} children were started with it"
    called: set[tuple[str, str]] = set()
    for session in history.sessions:
        status = {turn.run: turn.status for turn in session.turns}
        results = {e.payload["toolCallId"]: e.payload for e in session.events if e.type == "tool_result"}
        for event in session.events:
            if event.type != "tool_call" or event.payload["name"] != "delegate":
                continue
            call = event.payload["id"]
            called.add((event.run, call))
            found = children.get((event.run, call), [])
            if len(found) > 1:
                yield f"call {call} has {len(found)} children"
            yield from _delegated(call, status.get(event.run, ""), found, results.get(call))
    for (_, call), found in children.items():
        if (found[0].parent, call) not in called:
            yield f"child {found[0].run} belongs to call {call}, which is in no log"


def _delegated(call: str, parent: str, found: list[Turn], result: dict[str, object] | None) -> Iterator[str]:
    output = result.get("output") if result else None
    told = output if isinstance(output, dict) else {}
    if not found:
        if told.get("runId"):
            yield f"call {call} is answered by run {told['runId']}, which is none of its children"
    elif result is None:
        if parent == "succeeded":
            yield f"call {call} has a child and no answer"
    elif "error" in result and parent in ("canceled", "failed"):
        # Its turn ended before the child: a later turn found a call that nobody waits for, and says so.
        return
    elif told.get("runId") != found[0].run:
        yield f"call {call} is not answered by its child {found[0].run}: {result}"
    elif told.get("status") != found[0].status:
        yield f"call {call} is answered with {told.get('status')}, its child {found[0].status}"


def _continuations(history: History) -> Iterator[str]:
    """A turn that let a successor answer has exactly that one, with its message; no other session says it goes on."""
    sessions = {session.id: session for session in history.sessions}
    successors = Counter(turn.continued for session in history.sessions for turn in session.turns if turn.continued)
    for session in history.sessions:
        if session.before and successors[session.id] != 1:
            yield f"session {session.id} goes on from {session.before}, which {successors[session.id]} turns say"
        for turn in session.turns:
            after = sessions.get(turn.continued)
            if not turn.continued:
                continue
            if after is None or after.before != session.id:
                yield f"turn {turn.run}: its successor {turn.continued} is not there"
                continue
            asked = after.events[1].payload.get("meta", {}).get("continuedFrom", {}) if len(after.events) > 1 else {}
            if asked.get("eventId") not in turn.messages:
                yield f"turn {turn.run}: its successor {after.id} answers something else"
            results = [e.payload.get("output") for e in session.events if e.run == turn.run and e.type == "tool_result"]
            if not any(isinstance(out, dict) and out.get("successorSessionId") == after.id for out in results):
                yield f"turn {turn.run}: no call of it has the successor {after.id} as its result"


def _runs(history: History) -> Iterator[str]:
    """Every turn has its run, with the same ending; all runs are over, or wait for one that is not."""
    runs = {run.id: run for run in history.runs}
    turns = {turn.run: turn for session in history.sessions for turn in session.turns}
    for turn in turns.values():
        run = runs.get(turn.run)
        if run is None:
            yield f"turn {turn.run} has no run"
        elif run.status in TERMINAL and turn.state == "done" and run.status != turn.status:
            yield f"run {run.id} is {run.status}, its turn {turn.status}"
    for run in runs.values():
        if run.id not in turns:
            yield f"run {run.id} has no turn"
        if run.status not in TERMINAL and not _waits(run, runs.values()):
            yield f"run {run.id} is stuck: {run.status}"


def _waits(run: Run, runs: Iterable[Run]) -> bool:
    return run.status == "waiting" and any(r.parent == run.id and r.status not in TERMINAL for r in runs)


def _statuses(history: History) -> Iterator[str]:
    """A session streams while a turn of it is live, else it tells how the last one ended."""
    for session in history.sessions:
        if any(turn.state == "live" for turn in session.turns):
            wanted = {"streaming"}
        else:
            ended = [turn for turn in session.turns if turn.state == "done"]
            last = max((turn.finished_at for turn in ended), default=0)
            # Two that ended in one millisecond: either may have been the last.
            wanted = {"error" if t.status == "failed" else "idle" for t in ended if t.finished_at == last} or {"idle"}
        if session.status not in wanted:
            yield f"session {session.id} is {session.status}, not {' or '.join(sorted(wanted))}"


def _seen(history: History) -> Iterator[str]:
    """Every subscriber got every event once, in order, and the newest state."""
    sessions = {session.id: session for session in history.sessions}
    for seen in history.seen:
        session = sessions.get(seen.session)
        if session is None:
            yield f"{seen.name}: listened to {seen.session}, which is gone"
            continue
        yield from _one_listener(seen, session)


def _one_listener(seen: Seen, session: Session) -> Iterator[str]:
    got = [seq for seq, _ in seen.events]
    wanted = list(range(seen.after + 1, session.last_seq + 1))
    name = f"{seen.name} of {session.id}"
    if got != wanted:
        doubled = sorted(seq for seq, times in Counter(got).items() if times > 1)
        missing = sorted(set(wanted) - set(got))
        order = "" if got == sorted(got) else ", not in order"
        yield f"{name}: missing {missing}, doubled {doubled}, beyond {sorted(set(got) - set(wanted))}{order}"
    ids = {event.seq: event.id for event in session.events}
    for seq, event in seen.events:
        if ids.get(seq, event) != event:
            yield f"{name}: seq {seq} came as {event}, the log holds {ids[seq]}"
    if seen.status != session.status:
        yield f"{name}: heard last that it is {seen.status or 'nothing'}, it is {session.status}"


def _followed(history: History) -> Iterator[str]:
    """Older states of a run never follow newer ones, and the last that is heard is the last there is."""
    runs = {run.id: run.status for run in history.runs}
    for feed in history.followed:
        last: dict[str, tuple[str, int]] = {}
        for run, status, at in feed.states:
            before, then = last.get(run, ("", 0))
            if at < then:
                yield f"{feed.name}: {run} went back from {before} to {status}"
            if before in TERMINAL and status != before:
                yield f"{feed.name}: {run} was {before}, then {status}"
            last[run] = (status, at)
        if not last:
            yield f"{feed.name}: heard nothing"
        for run, (status, _) in last.items():
            if runs.get(run) != status:
                yield f"{feed.name}: heard last that {run} is {status}, it is {runs.get(run)}"


def _leftovers(history: History) -> Iterator[str]:
    """Nothing is under way any more."""
    for session in history.sessions:
        for turn in session.turns:
            if turn.state != "done":
                yield f"turn {turn.run} is left {turn.state}"
    for service, rows in history.outbox.items():
        if rows:
            yield f"the outbox of {service} holds {rows} messages"
    for fault, times in Counter(history.faults).items():
        yield f"{times} times logged as a fault: {fault}"
