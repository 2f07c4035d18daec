"""From the log of a session to what a provider gets (runtime.md, section 4)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.runs.domain.transcript import (
    RESULT_BYTES,
    LogEvent,
    assemble,
    bounded,
    concurrent_messages,
    plan_state,
    replay,
    result_text,
)
from services.runs.providers.contract import (
    AssistantMessage,
    Message,
    TextPart,
    ToolCallPart,
    ToolResultMessage,
    UserMessage,
)

USER = {"type": "message", "role": "user", "content": "hi"}
SAYS = {"type": "message", "role": "assistant", "content": "Hello."}
CALL = {"type": "tool_call", "id": "c1", "name": "status", "input": {"title": "T"}}
RESULT = {"type": "tool_result", "toolCallId": "c1", "name": "status", "output": {"ok": True}}


def log(*payloads: dict[str, Any]) -> list[LogEvent]:
    return [LogEvent(f"e{n}", payload) for n, payload in enumerate(payloads, 1)]


def told(*payloads: dict[str, Any]) -> list[Message]:
    return replay(log(*payloads))


def text(message: Message) -> str:
    assert isinstance(message, UserMessage)
    [part] = message.parts
    assert isinstance(part, TextPart)
    return part.text


def user(content: str) -> UserMessage:
    return UserMessage([TextPart(content)])


def assistant(*parts: str | ToolCallPart) -> AssistantMessage:
    return AssistantMessage([TextPart(p) if isinstance(p, str) else p for p in parts])


def call(call_id: str, name: str = "status", **arguments: Any) -> ToolCallPart:
    return ToolCallPart(call_id, name, arguments)


def test_a_user_message_is_its_content() -> None:
    assert told(USER) == [user("hi")]


def test_what_surrounds_a_user_message_is_framed_in_order() -> None:
    message = {
        **USER,
        "meta": {"accountId": "zAlice"},
        "contextLines": ["one", "two"],
        "attachments": [{"id": "a" * 64, "name": "x.png", "mimeType": "image/png", "size": 7}, {"id": "b" * 64}],
    }
    first, *rest = text(told(message)[0]).split("\n\n")
    assert first == '<message_sender>{"accountId":"zAlice"}</message_sender>'
    assert rest[:2] == ["hi", "<window_context>\none\ntwo\n</window_context>"]
    opening, one, two, closing = rest[2].splitlines()
    assert (opening, closing) == ("<attachments>", "</attachments>")
    assert all(piece in one for piece in ("x.png", "image/png", "7 bytes", "a" * 64, f"read attachment:{'a' * 64}"))
    assert f"read attachment:{'b' * 64}" in two


def test_a_message_of_the_system_is_told_as_a_users() -> None:
    assert told({**USER, "actor": "system"}) == [user("hi")]


def test_texts_and_calls_in_a_row_are_one_message_with_the_results_behind_it() -> None:
    other = {**CALL, "id": "c2", "name": "read", "input": "not an object"}
    late = {"type": "tool_result", "toolCallId": "c2", "name": "read", "error": "no such page"}
    assert told(USER, SAYS, CALL, other, late, RESULT) == [
        user("hi"),
        assistant("Hello.", call("c1", title="T"), call("c2", "read")),
        ToolResultMessage("c1", "status", '{"ok":true}'),
        ToolResultMessage("c2", "read", "no such page", is_error=True),
    ]


def test_what_the_assistant_says_after_a_result_is_a_message_of_its_own() -> None:
    assert told(USER, CALL, RESULT, SAYS) == [
        user("hi"),
        assistant(call("c1", title="T")),
        ToolResultMessage("c1", "status", '{"ok":true}'),
        assistant("Hello."),
    ]


def test_a_result_goes_behind_its_call_wherever_it_landed() -> None:
    assert told(CALL, SAYS, USER, SAYS, RESULT) == [
        assistant(call("c1", title="T"), "Hello."),
        ToolResultMessage("c1", "status", '{"ok":true}'),
        user("hi"),
        assistant("Hello."),
    ]


def test_a_call_id_used_again_keeps_its_own_result() -> None:
    again, other = {**CALL, "name": "plan"}, {**RESULT, "output": 2}
    assert told(CALL, RESULT, USER, again, other) == [
        assistant(call("c1", title="T")),
        ToolResultMessage("c1", "status", '{"ok":true}'),
        user("hi"),
        assistant(call("c1", "plan", title="T")),
        ToolResultMessage("c1", "plan", "2"),
    ]


def test_a_call_without_result_is_said_to_be_running() -> None:
    [_, result, _] = told(CALL, USER)
    assert isinstance(result, ToolResultMessage)
    assert (result.tool_call_id, result.is_error) == ("c1", False)
    assert json.loads(result.text)["status"] == "running"


def test_a_result_of_an_unknown_call_is_told_where_it_stands() -> None:
    assert text(told(SAYS, RESULT)[1]) == '<tool_result name="status">\n{"ok":true}\n</tool_result>'


def test_what_the_user_did_is_told_with_every_opening_bracket_escaped() -> None:
    did = {**CALL, "actor": "user", "id": "user-1", "input": {"title": "</user_action><b>"}}
    got = {**RESULT, "actor": "user", "toolCallId": "user-1", "error": "</user_action_result> no"}
    first, second = told(did, got)
    assert text(first) == ('<user_action verb="status">\n{"title":"\\u003c/user_action>\\u003cb>"}\n</user_action>')
    assert text(second) == (
        '<user_action_result verb="status">\n"\\u003c/user_action_result> no"\n</user_action_result>'
    )


def test_a_result_of_the_agents_side_for_a_users_call_is_dropped() -> None:
    assert len(told({**CALL, "actor": "user"}, RESULT)) == 1


@pytest.mark.parametrize("payload", [{"type": "error", "message": "boom"}, {"type": "later"}, {}])
def test_errors_and_unknown_events_are_not_told(payload: dict[str, Any]) -> None:
    assert told(USER, payload) == [user("hi")]


def test_a_large_result_is_cut_with_a_notice() -> None:
    shown = result_text({"output": "ä" * RESULT_BYTES})
    body, _, notice = shown.partition("\n[")
    assert len(body.encode()) <= RESULT_BYTES and set(body) == {'"', "ä"}
    assert str(RESULT_BYTES) in notice and str(2 * RESULT_BYTES + 2) in notice


@given(st.text(), st.integers(0, 40))
def test_cut_text_is_a_beginning_within_the_limit(whole: str, limit: int) -> None:
    cut = bounded(whole, limit)
    size = len(whole.encode())
    if size <= limit:
        assert cut == whole
    else:
        shown = cut.rpartition("\n[cut: ")[0]
        assert whole.startswith(shown) and limit - 3 <= len(shown.encode()) <= limit


def test_a_turn_behind_another_is_told_which_messages_are_its_own() -> None:
    mine = {**USER, "content": "</concurrent_user_messages>", "meta": {"accountId": "zAlice"}}
    events = log(USER, mine, SAYS)
    messages = assemble(events, own=["e2"], queued_behind=True, plan=None)
    assert messages[:-1] == replay(events)
    note = text(messages[-1])
    assert note.count("<") == 2
    rows = json.loads(note.splitlines()[-2])
    assert rows == [{"eventId": "e2", "accountId": "zAlice", "content": "</concurrent_user_messages>"}]
    assert concurrent_messages(events, ["gone"]) is None


def test_a_turn_that_nobody_asked_for_is_told_to_act() -> None:
    messages = assemble(log(USER, SAYS), own=[], queued_behind=False, plan=None)
    assert text(messages[-1]).startswith("<background_work_update>")


@pytest.mark.parametrize("payloads", [(SAYS, USER), (USER, CALL, RESULT)], ids=["message", "result"])
def test_a_turn_with_something_to_answer_is_told_nothing_more(payloads: tuple[dict[str, Any], ...]) -> None:
    events = log(*payloads)
    assert assemble(events, own=[], queued_behind=False, plan=None) == replay(events)


def test_the_live_plan_comes_last() -> None:
    plan = {"steps": [{"id": "a", "label": "<b>", "status": "running"}, {"id": "c", "label": "d", "status": "pending"}]}
    messages = assemble(log(USER), own=[], queued_behind=False, plan=plan)
    lines = text(messages[-1]).splitlines()
    assert lines[:3] == ["<plan_state>", "a · \\u003cb> · running", "c · d · pending"]
    assert lines[-1] == "</plan_state>"
    assert plan_state({"steps": []}) is None


ROLES = st.sampled_from(["user", "assistant", "tool"])
IDS = st.sampled_from(["c1", "c2", "c3", "user-1"])
ACTORS = st.sampled_from([{}, {}, {"actor": "user"}, {"actor": "agent"}, {"actor": "system"}])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
PAYLOADS = st.one_of(
    st.fixed_dictionaries(
        {
            "type": st.just("message"),
            "role": st.sampled_from(["user", "assistant", "tool"]),
            "content": st.text(max_size=5),
        },
        optional={
            "meta": st.fixed_dictionaries({}, optional={"accountId": st.just("zAlice")}),
            "contextLines": st.lists(st.text(max_size=5), max_size=2),
            "attachments": st.lists(
                st.fixed_dictionaries({"id": st.just("a" * 64)}, optional={"size": st.integers(1)})
            ),
        },
    ),
    st.builds(lambda i, v, a: {**CALL, "id": i, "input": v, **a}, IDS, JSON, ACTORS),
    st.builds(lambda i, v, a: {**RESULT, "toolCallId": i, "output": v, **a}, IDS, JSON, ACTORS),
    st.builds(lambda i, a: {"type": "tool_result", "toolCallId": i, "name": "x", "error": "no", **a}, IDS, ACTORS),
    st.just({"type": "error", "message": "boom"}),
    st.dictionaries(st.text(max_size=5), JSON, max_size=3),
)


@given(st.lists(PAYLOADS, max_size=14), st.booleans())
def test_any_log_gives_what_every_provider_accepts(payloads: list[Any], behind: bool) -> None:
    events = log(*payloads)
    own = [e.id for e in events if e.payload.get("type") == "message"]
    messages = assemble(events, own=own, queued_behind=behind, plan=None)
    waited: list[str] = []
    for message in messages:
        if isinstance(message, ToolResultMessage):
            # Results answer the calls of the message right before them, in order, each once.
            assert message.tool_call_id == waited.pop(0)
        else:
            assert not waited
            assert message.parts
            if isinstance(message, AssistantMessage):
                waited = [p.id for p in message.parts if isinstance(p, ToolCallPart)]
    assert not waited
    agents = [p for p in payloads if p.get("type") == "tool_call" and p.get("actor") != "user"]
    assert sum(isinstance(m, ToolResultMessage) for m in messages) == len(agents)
