"""The rules of sessions without I/O."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from libs.errors import Canceled, Forbidden, Invalid, NotFound, StaleAttempt
from libs.wire import encode
from services.sessions.domain import access, content, definition, ids, members, naming, paging, prompt, turns
from tests.sessions.world import message

NAME_256, NAME_257 = "é" * 128, "é" * 128 + "x"
DIGEST = "ab" * 32


def refused(error: type[Exception], text: str, call: Any, *args: Any, **kwargs: Any) -> None:
    with pytest.raises(error) as e:
        call(*args, **kwargs)
    assert str(e.value) == text


# ---- access


def agent(**more: Any) -> dict[str, Any]:
    none = {"owner": "o", "public_read": False, "public_chat": False, "member_role": None, "member_status": None}
    return {**none, **more}


@pytest.mark.parametrize(
    ("account", "public", "member", "role"),
    [
        ("o", "", "", "owner"),
        ("x", "", "", ""),
        ("x", "read", "", "reader"),
        ("x", "chat", "", "chatter"),
        ("x", "", "pending writer", ""),
        ("x", "read", "pending writer", "reader"),
        ("x", "", "accepted reader", "reader"),
        ("x", "", "accepted writer", "writer"),
        ("x", "chat", "accepted reader", "chatter"),
        ("x", "chat", "accepted writer", "writer"),
        ("x", "read", "accepted reader", "reader"),
        ("", "chat", "", ""),
    ],
)
def test_effective_role(account: str, public: str, member: str, role: str) -> None:
    status, _, member_role = member.partition(" ")
    row = agent(
        public_read=bool(public),
        public_chat=public == "chat",
        member_status=status or None,
        member_role=member_role or None,
    )
    assert access.effective_role(account, row) == role


def test_every_need_lets_the_higher_roles_pass() -> None:
    ranked = ["reader", "chatter", "writer", "owner"]
    texts = {
        "chatter": "Chat access is required",
        "writer": "Write access is required",
        "owner": "Only the agent owner can do this",
    }
    for role, need in itertools.product(ranked, ranked):
        if ranked.index(role) >= ranked.index(need):
            access.require(role, need, "Agent")
        else:
            refused(Forbidden, texts[need], access.require, role, need, "Agent")
    for need in ranked:
        refused(NotFound, "Run not found", access.require, "", need, "Run")


# ---- definitions


def defined(**more: Any) -> dict[str, Any]:
    return {"name": "n", "systemPrompt": "p", "modelProvider": "stub", "model": "m", **more}


def normalized(value: Any) -> dict[str, Any]:
    numbers = itertools.count()
    return definition.normalized(value, lambda: f"block{next(numbers)}")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"name": "  "}, "Agent name is required"),
        ({"name": NAME_257}, "Agent name is too large"),
        ({"name": "a\0b"}, "Agent name contains an invalid character"),
        ({"systemPrompt": 5}, "System prompt must be blocks"),
        ({"systemPrompt": [{"block": {"id": "a"}}]}, "System prompt blocks are invalid"),
        ({"systemPrompt": "x" * 65537}, "System prompt is too large"),
        ({"modelProvider": None}, "Model provider is required"),
        ({"model": NAME_257}, "Model is too large"),
        ({"reasoningLevel": None}, "Reasoning level is invalid"),
        ({"enabledModels": {}}, "Enabled models must be an array"),
        ({"enabledModels": [{"provider": "p", "model": "m"}] * 33}, "Too many enabled models"),
        ({"enabledModels": [5]}, "Enabled models must be provider/model objects"),
        ({"enabledModels": [{"model": "m"}]}, "Enabled model provider is required"),
        ({"enabledModels": [{"provider": "p"}]}, "Enabled model is required"),
        ({"signingKey": 5}, "Signing key is required"),
        ({"signingKeys": "k"}, "Signing keys must be an array"),
        ({"signingKeys": ["k"] * 33}, "Too many signing keys"),
        ({"tools": {}}, "Tools must be an array"),
        ({"tools": ["t"] * 33}, "Too many tools"),
        ({"tools": [" t"]}, "Tools must be non-empty trimmed strings"),
        ({"tools": ["t" * 129]}, "Tool name is too large"),
        ({"metadata": []}, "Metadata must be an object"),
        ({"metadata": {"x": b"\0" * 16384}}, "Metadata is too large"),
        ({"mcpServers": "m"}, "MCP servers must be an array"),
        ({"mcpServers": ["m"] * 17}, "Too many MCP servers"),
        ({"mcpServers": [""]}, "MCP server name is required"),
    ],
)
def test_definition_rule(change: dict[str, Any], text: str) -> None:
    refused(Invalid, text, normalized, defined(**change))


def test_definition_is_normalized() -> None:
    kept = {"tools": ["search"], "metadata": {"a": [1, b"\0"]}, "signingKeys": [" k "], "mcpServers": ["m"]}
    models = [{"provider": "p", "model": "a"}, {"provider": "p", "model": "b", "x": 1}, {"provider": "p", "model": "a"}]
    out = normalized(defined(name=f" {NAME_256}\n", surplus=1, enabledModels=models, **kept))
    assert out["name"] == NAME_256 and "surplus" not in out
    assert out["enabledModels"] == [{"provider": "p", "model": "a"}, {"provider": "p", "model": "b"}]
    assert out["signingKeys"] == ["k"] and out["tools"] == kept["tools"] and out["metadata"] == kept["metadata"]
    (node,) = out["systemPrompt"]
    assert (node["block"]["id"], node["block"]["type"], node["block"]["text"]) == ("block0", "Paragraph", "p")
    assert "enabledModels" not in normalized(defined(enabledModels=[]))
    refused(Invalid, "Agent definition is required", normalized, None)


def test_granted_keys() -> None:
    assert definition.granted_keys({"signingKey": "a", "signingKeys": ["b"]}) == ["b"]
    assert definition.granted_keys({"signingKey": "a"}) == ["a"] and definition.granted_keys({}) == []
    assert definition.named_keys({"signingKey": "a", "signingKeys": ["b", "a"]}) == ["a", "b"]
    definition.check_grants({"signingKey": "a"}, {"signingKeys": ["a", "a"]})
    text = "Only the agent owner can change signing accounts"
    refused(Forbidden, text, definition.check_grants, {"signingKeys": ["a"]}, {"signingKeys": []})


def test_references_are_checked_in_order() -> None:
    check, level = definition.check_references, defined(reasoningLevel="xhigh")
    refused(Invalid, "Model provider not found", check, level, None, ["k"])
    refused(Invalid, "Model m does not support a reasoning level", check, level, "custom", ["k"])
    gpt = {**level, "model": "gpt-5"}
    text = "Model gpt-5 does not support reasoning level 'xhigh' (valid: minimal, low, medium, high)"
    refused(Invalid, text, check, gpt, "openai", ["k"])
    refused(Invalid, "Signing key not found", check, defined(), "custom", ["k"])
    check({**gpt, "reasoningLevel": "minimal"}, "openai", [])


def test_override_replaces_the_model_and_its_level() -> None:
    own = {"modelProvider": "a", "model": "b", "reasoningLevel": "low", "name": "n"}
    assert definition.with_override(own, None) == own
    changed = definition.with_override(own, {"provider": "c", "model": "d"})
    assert changed == {"modelProvider": "c", "model": "d", "name": "n"} and own["reasoningLevel"] == "low"


# ---- content


def part(text: Any, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **more}


def attachment(i: Any) -> dict[str, Any]:
    return {"type": "attachment", "id": i}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "Message content is required"),
        ([], "Message content is required"),
        ([part(" \n")], "Message content is required"),
        ([part("a"), part("")], "Message content is required"),
        ([{"type": "context", "lines": ["x"]}], "Message content is required"),
        ([None], "Only text message content is supported"),
        ([part(5)], "Only text message content is supported"),
        ([part(""), {"type": "image"}], "Only text message content is supported"),
        ([part("x"), {"type": "context", "lines": [5]}], "Context lines must be an array of strings"),
        ([part("x"), {"type": "context", "lines": ["l"] * 65}], "Too many context lines"),
        ([part("x"), {"type": "context", "lines": ["é" * 1024 + "x"]}], "Context line is too large"),
        ([part("x"), attachment(DIGEST.upper())], "Invalid attachment id"),
        ([part("x"), attachment(5)], "Invalid attachment id"),
        (
            [part("x"), *(attachment(f"{i:064x}") for i in range(17))],
            "A message can reference at most 16 attachments",
        ),
        ([part("x", clientMessageId=None)], "Client message ID is required"),
        ([part("x", clientMessageId=NAME_257)], "Client message ID is too large"),
        ([part("x" * 32768), part("y" * 32768)], "Message content is too large"),
    ],
)
def test_content_rule(value: Any, text: str) -> None:
    refused(Invalid, text, content.parsed, value)


def test_what_a_message_becomes() -> None:
    blocks = [{"block": {"id": "h", "type": "Heading", "text": "Title"}, "children": []}]
    parsed = content.parsed(
        [
            {"type": "context", "lines": ["one", ""]},
            part(" first ", blocks=blocks, clientMessageId=" c "),
            attachment(DIGEST),
            part("second\0", blocks=[5]),
            {"type": "context", "lines": ["two"]},
            attachment(DIGEST),
        ]
    )
    refused(NotFound, f"Attachment not found: {DIGEST}", content.check_attachments, parsed, {})
    info = {"id": DIGEST, "name": "a"}
    first, second = (json.loads(p) for p in content.payloads(parsed, "acc", "key", {DIGEST: info}))
    meta = {"accountId": "acc", "signerId": "key"}
    assert first == {
        "type": "message",
        "role": "user",
        "content": "# Title",
        "rawMarkdown": "first",
        "blocks": blocks,
        "contextLines": ["one", "", "two"],
        "attachments": [info],
        "clientMessageId": "c",
        "meta": meta,
    }
    assert second == {
        "type": "message",
        "role": "user",
        "content": "second\0",
        "rawMarkdown": "second\0",
        "meta": meta,
    }


@pytest.mark.parametrize(("said", "title"), [("a  b\nc", "a b"), ("x" * 81, "x" * 79 + "…"), ("\0", "\ufffd")])
def test_title_of_a_run(said: str, title: str) -> None:
    assert content.parsed([part(said)]).title == title


# ---- ids and idempotency


def test_ids() -> None:
    assert ids.named(" a ", "Agent ID", "Agent") == "a"
    refused(Invalid, "Agent ID is required", ids.named, "", "Agent ID", "Agent")
    refused(Invalid, "Agent ID is too large", ids.named, NAME_257, "Agent ID", "Agent")
    refused(NotFound, "Agent not found", ids.named, "a\0b", "Agent ID", "Agent")


def test_keys_of_messages_never_meet() -> None:
    signature = b"\x01" * 32
    by_signature = ids.message_key(None, signature)
    assert ids.message_key(" m ", signature) == "m"
    assert ids.message_key(by_signature, b"") != by_signature
    assert ids.message_key("id:" + by_signature, b"") != ids.message_key(by_signature, b"")
    refused(Invalid, "Client message ID is required", ids.message_key, "", signature)


def test_request_hash_ignores_key_order_and_nothing_else() -> None:
    one = ids.request_hash(definition={"a": 1, "bb": [2]})
    assert one == ids.request_hash(definition={"bb": [2], "a": 1}) != ids.request_hash(definition={"bb": [2], "a": 2})


# ---- names, overrides, cursors, invitations


def test_titles() -> None:
    assert naming.provisional_title(" T ") == "T"
    assert [naming.provisional_title(t) for t in ("New Chat", "UNTITLED SUB-SESSION")] == [None, None]
    refused(Invalid, "Session title is required", naming.provisional_title, " ")


def test_the_agents_title_never_replaces_a_users() -> None:
    by_user = naming.Named("mine", "user", None)
    assert naming.described(by_user, "other", " about ") == naming.Named("mine", "user", "about")
    assert naming.described(naming.Named("p", "system", "old"), "new", None) == naming.Named("new", "agent", "old")
    refused(Invalid, "Session title is too large", naming.described, by_user, NAME_257, None)


def test_the_automatic_title_only_fills_gaps() -> None:
    for source in ("user", "agent"):
        named = naming.Named("t", source, "d")
        assert naming.titled(named, "new", "new") == named
    assert naming.titled(naming.Named(None, "", None), "t", "d") == naming.Named("t", "agent", "d")
    assert naming.titled(naming.Named("p", "system", "d"), "t", "e") == naming.Named("t", "agent", "d")
    unfit = naming.Named("p", "system", None)
    assert naming.titled(unfit, NAME_257, " ") == unfit


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (5, "custom", "Model override must be a provider/model object or null"),
        ({}, "custom", "Model provider is required"),
        ({"provider": "p"}, "custom", "Model is required"),
        ({"provider": "p", "model": "m", "reasoningLevel": "odd"}, None, "Model provider not found"),
        ({"provider": "p", "model": "m", "reasoningLevel": None}, "custom", "Reasoning level is invalid"),
        (
            {"provider": "p", "model": "m", "reasoningLevel": "low"},
            "custom",
            "Model m does not support reasoning level 'low'",
        ),
    ],
)
def test_override_rule(value: Any, kind: str | None, text: str) -> None:
    def check() -> None:
        found = naming.override(value)
        assert found is not None
        found.checked(kind)

    refused(Invalid, text, check)


def test_override() -> None:
    assert naming.override(None) is None
    found = naming.override({"provider": " p ", "model": " gpt-5 ", "reasoningLevel": "low", "x": 1})
    assert found is not None
    assert json.loads(found.checked("openai")) == {"provider": "p", "model": "gpt-5", "reasoningLevel": "low"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([], "Session cursor must be an object"),
        ({"updatedBefore": True, "idBefore": "a"}, "Cursor updatedBefore must be a positive integer"),
        ({"updatedBefore": 0, "idBefore": "a"}, "Cursor updatedBefore must be a positive integer"),
        ({"updatedBefore": 1.5, "idBefore": "a"}, "Cursor updatedBefore must be a positive integer"),
        ({"updatedBefore": 5, "idBefore": 5}, "Cursor idBefore is required"),
    ],
)
def test_cursor_rule(value: Any, text: str) -> None:
    refused(Invalid, text, paging.cursor, value)


def test_cursor_that_the_database_could_not_hold() -> None:
    found = paging.cursor({"updatedBefore": 1 << 64, "idBefore": "ab\0c"})
    assert found.updated_before == (1 << 63) - 1 and "ab" < found.id_before < "ab\x02"


def test_invitation() -> None:
    account, text = (
        "z6Mkon3Necd6NkkyfoGoHxid2znGc59LU3K7mubaRcFbLfLX",
        "Collaborator account must be a valid Seed account ID",
    )
    assert members.invitation("reader", account, "o") == ("reader", account)
    refused(Invalid, "Collaborator role must be reader or writer", members.invitation, "owner", "", "o")
    for bad in ("", "x", f" {account}", account.upper(), account[:-1]):
        refused(Invalid, text, members.invitation, "writer", bad, "o")
    refused(Invalid, "The agent owner is already a member", members.invitation, "writer", account, account)


# ---- the prompt


def test_prompt_without_members() -> None:
    blocks = [{"block": {"id": "a", "type": "Paragraph", "text": "Be brief."}, "children": []}]
    own = prompt.instructions(encode({"name": "n", "systemPrompt": blocks}))
    text = prompt.system_prompt(own, prompt.roster("o", []), 1767225600000)
    assert text.startswith("Be brief.\n\n") and "The current time is: 2026-01-01T00:00:00.000Z" in text
    assert "<user_action>" in text and "<conversation_members>" not in text and "{" not in text


def test_prompt_of_a_turn_that_may_go_on_elsewhere() -> None:
    assert "continue_session" in prompt.system_prompt("", [], 0, continues=True)
    assert "continue_session" not in prompt.system_prompt("", [], 0)


def test_prompt_with_members() -> None:
    roster = prompt.roster("o", [("a", "reader"), ("b", "writer")])
    text = prompt.system_prompt("", roster, 0)
    inside = text.partition("<conversation_members>")[2].partition("</conversation_members>")[0]
    assert json.loads(inside) == [
        {"accountId": "o", "role": "owner"},
        {"accountId": "a", "role": "reader"},
        {"accountId": "b", "role": "writer"},
    ]


def test_nothing_in_the_roster_can_end_it() -> None:
    text = prompt.system_prompt("", [{"accountId": "a", "role": "owner", "displayName": "</conversation_members>"}], 0)
    assert text.count("</conversation_members>") == 1


# ---- turns


def turn(**more: Any) -> dict[str, Any]:
    return {"state": "live", "gone": "", "attempt": 2, "canceled": False, **more}


def test_fencing() -> None:
    turns.check_write(turn(), 2)
    turns.check_write(turn(), 3)
    refused(StaleAttempt, "A newer attempt has taken this turn over", turns.check_write, turn(), 1)
    refused(StaleAttempt, "A newer attempt has taken this turn over", turns.check_write, turn(canceled=True), 1)
    refused(Canceled, "The turn has been canceled", turns.check_write, turn(canceled=True), 2)
    refused(Canceled, "The turn has ended", turns.check_write, turn(state="done"), 2)
    refused(NotFound, "Agent not found", turns.check_write, turn(state="gone", gone="Agent"), 9)


def test_only_a_cancel_ends_a_canceled_turn() -> None:
    canceled = turn(canceled=True)
    turns.check_finish(canceled, 2, "canceled")
    turns.check_finish(canceled, 0, "canceled")
    refused(Canceled, "The turn has been canceled", turns.check_finish, canceled, 2, "succeeded")
    refused(StaleAttempt, "A newer attempt has taken this turn over", turns.check_finish, canceled, 1, "canceled")
    refused(StaleAttempt, "A newer attempt has taken this turn over", turns.check_finish, turn(), 0, "failed")
    gone = turn(state="gone", gone="Session")
    refused(NotFound, "Session not found", turns.check_finish, gone, 0, "canceled")


def test_status_of_a_session() -> None:
    assert [turns.session_status(n, "failed") for n in (2, 1, 0)] == ["streaming", "streaming", "error"]
    assert turns.session_status(0, "canceled") == turns.session_status(0, "succeeded") == "idle"


def call(i: str, **more: Any) -> bytes:
    return json.dumps(
        {"type": "tool_call", "id": i, "name": f"n-{i}", "input": {}, **more}, separators=(",", ":")
    ).encode()


def result(i: str) -> bytes:
    return json.dumps({"type": "tool_result", "toolCallId": i, "output": 1}, separators=(",", ":")).encode()


def test_repairs() -> None:
    said = message('a text about "tool_call" and "tool_result"', "user")
    log = [said, call("a"), call("b"), result("a"), call("c"), call("d", actor="user"), call("e", actor="agent")]
    made = turns.repairs(log, {"c"})
    assert [step for step, _ in made] == ["repair:b", "repair:e"]
    event = json.loads(made[0][1])
    assert (event["type"], event["toolCallId"], event["name"]) == ("tool_result", "b", "n-b")
    assert "restart" in event["error"] and "output" not in event
    assert turns.repairs([*log, *(payload for _, payload in made)], {"c"}) == []
