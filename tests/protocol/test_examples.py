"""Unit: the recorded examples decode into their types and come out the same, valid against the schema."""

import json
from typing import Any

import msgspec
import pycddl
import pytest

from libs.protocol import ACTIONS, ANSWERS, MUTATING, RESPONSES, SOCKET_ONLY, read_ws_event, to_wire, ws_json
from libs.protocol.memory import ToolDocument
from libs.protocol.routes import HealthJson, VersionJson
from libs.protocol.signed import CapabilityBlob, SignedActionEnvelope
from libs.wire import encode
from tests.dagjson import VECTORS, load
from tests.protocol.test_schema import rule

NAMES = sorted(path.stem for path in (VECTORS / "examples").glob("*.json"))
OTHERS: dict[str, tuple[type, str]] = {
    "capability": (CapabilityBlob, "CapabilityBlob"),
    "tool-document": (ToolDocument, "ToolDocument"),
    "json-health": (HealthJson, "HealthJson"),
    "json-version": (VersionJson, "VersionJson"),
}


def kind_of(name: str, value: dict[str, Any]) -> tuple[type, str]:
    if name.startswith("action-"):
        return SignedActionEnvelope, "SignedActionEnvelope"
    if name.startswith("response-"):
        return RESPONSES[value["_"]], "AgentResponse"
    return OTHERS[name]


def test_there_is_an_example_for_every_message():
    assert {n.removeprefix("action-") for n in NAMES if n.startswith("action-")} == set(ACTIONS)
    assert {load(f"examples/{n}.json")["_"] for n in NAMES if n.startswith("response-")} == set(RESPONSES)


@pytest.mark.parametrize("name", [n for n in NAMES if not n.startswith("ws-")])
def test_cbor_example(name: str):
    value = load(f"examples/{name}.json")
    kind, rule_name = kind_of(name, value)
    typed = msgspec.convert(value, kind, builtin_types=(bytes,))
    assert to_wire(typed) == value
    rule(rule_name).validate_cbor(encode(to_wire(typed)))


@pytest.mark.parametrize("name", [n for n in NAMES if n.startswith("ws-")])
def test_websocket_example(name: str):
    value = load(f"examples/{name}.json")
    event = read_ws_event(json.dumps(value))
    assert event is not None
    frame = ws_json(event)
    assert json.loads(frame) == value
    rule("WsEvent").validate_cbor(encode(json.loads(frame)))


def test_unknown_event_is_none():
    for frame in ('{"_":"later"}', '{"_":"change","key":"planets/x","value":{}}', '{"_":"append","key":"account/x"}'):
        assert read_ws_event(frame) is None


@pytest.mark.parametrize("frame", ["", "[]", "{}", '{"_":5}', '{"_":"change","key":"agents/a"}'])
def test_broken_event_is_an_error(frame: str):
    with pytest.raises(msgspec.DecodeError):
        read_ws_event(frame)


def test_every_action_but_those_of_a_socket_has_an_answer():
    assert set(ANSWERS) == set(ACTIONS) - {"Subscribe", "Unsubscribe"}
    assert len(ACTIONS) == 69
    assert ANSWERS["UpdateAgent"].__name__ == "GetAgentResponse"
    assert ANSWERS["CombineAgentTriggers"].__name__ == "UpdateAgentTriggerResponse"
    assert set(ANSWERS.values()) | {RESPONSES["Error"]} == set(RESPONSES.values())


def test_mutating_actions():
    reading = set(ACTIONS) - MUTATING
    assert all(name.startswith(("List", "Get", "Read")) or name in SOCKET_ONLY for name in reading)
    assert {"MessageSession", "RegisterSigner", "SignalRun", "StopSession", "AppendFileUploadChunk"} <= MUTATING
    assert (len(reading), len(MUTATING)) == (22, 47)


def test_action_names_itself_and_leaves_absent_keys_out():
    action = ACTIONS["ListAgents"]()
    assert to_wire(action) == {"_": "ListAgents"}
    with pytest.raises(pycddl.ValidationError):
        rule("ListAgents").validate_cbor(encode(to_wire(action)))  # not signed yet: no ts
