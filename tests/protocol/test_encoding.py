"""Unit: JSON that any client reads, DAG-CBOR that any client accepts."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libs.protocol import Error, encode_response, json_bytes, json_safe, to_wire, ws_json
from libs.protocol.agents import AgentDefinition, AgentInfo
from libs.protocol.responses import InvokeSessionToolResponse
from libs.protocol.runs import RunErrorInfo, RunInfo
from libs.protocol.ws import (
    SessionPatch,
    WsAgentChange,
    WsRunChange,
    WsSessionAppend,
    WsSessionEvent,
    WsSessionPartial,
)
from libs.wire import MAX_SAFE_INTEGER, Link, cid_bytes, decode

LINK = Link(cid_bytes(0x71, b""))

JSON_FORMS: list[tuple[Any, Any]] = [
    (MAX_SAFE_INTEGER, MAX_SAFE_INTEGER),
    (MAX_SAFE_INTEGER + 1, "9007199254740992"),
    (-MAX_SAFE_INTEGER - 1, "-9007199254740992"),
    (2**64 - 1, "18446744073709551615"),
    (1e21, 1e21),
    (2.0, 2),
    (-0.0, 0),
    (0.5, 0.5),
    (float("nan"), None),
    (float("-inf"), None),
    (True, True),
    (b"\x01\xff", {"0": 1, "1": 255}),
    (b"", {}),
    ("a\ud800b", "a\ufffdb"),
    ({"k\udfff": (1, [2**60])}, {"k\ufffd": [1, [str(2**60)]]}),
    (LINK, {"/": str(LINK)}),
    (Error(message="x"), {"_": "Error", "message": "x"}),
]


@pytest.mark.parametrize(("value", "form"), JSON_FORMS, ids=repr)
def test_json_safe(value: Any, form: Any):
    got = json_safe(value)
    assert got == form
    assert type(got) is type(form)
    assert json.loads(json_bytes([value])) == [form]


def test_large_bytes_do_not_explode():
    assert set(json_safe(bytes(1 << 16))) == {str(i) for i in range(1 << 16)}
    assert json_safe(bytes((1 << 16) + 1)).keys() == {"/"}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**64), 2**64) | st.floats() | st.text() | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=100, deadline=None)
@given(json_values)
def test_json_safe_is_json_and_stable(value: Any):
    safe = json_safe(value)
    text = json_bytes(value)
    assert json.loads(text) == safe
    assert json_safe(safe) == safe


def agent(metadata: dict[str, Any]) -> AgentInfo:
    definition = AgentDefinition(name="n", system_prompt=[], model_provider="p", model="m", metadata=metadata)
    return AgentInfo(
        id="a", account="z", definition=definition, state_dir="a", status="idle", created_at=1, updated_at=1
    )


def test_open_values_in_frames_are_made_safe():
    frame = json.loads(ws_json(WsAgentChange(key="agents/a", value=agent({"big": 2**60, "bytes": b"\x01", "l": LINK}))))
    assert frame["value"]["definition"]["metadata"] == {"big": str(2**60), "bytes": {"0": 1}, "l": {"/": str(LINK)}}

    error = RunErrorInfo(code="c", message="m", detail={"n": 2**63})
    run = RunInfo(
        id="r", account="z", root_run_id="r", depth=0, kind="agent", origin="user", title="t", status="failed",
        error=error, created_at=1, updated_at=1,
    )  # fmt: skip
    assert json.loads(ws_json(WsRunChange(key="runs/r", value=run)))["value"]["error"]["detail"] == {"n": str(2**63)}


def test_stored_payload_is_spliced_in_as_it_is():
    payload = b'{"type":"message", "n":1.50}'
    event = WsSessionEvent(id="e", session_id="s", seq=1, event=msgspec.Raw(payload), created_at=2)
    frame = ws_json(WsSessionAppend(key="sessions/s", event=event))
    assert payload in frame
    assert json.loads(frame)["event"]["event"] == {"type": "message", "n": 1.5}


def test_lone_surrogate_in_a_frame():
    event = WsSessionPartial(key="sessions/s", partial_id="p", patch=SessionPatch(text_delta="a\ud83d"))
    assert json.loads(ws_json(event))["patch"] == {"textDelta": "a\ufffd"}


def test_response_keeps_bytes_and_links():
    output = {"bytes": b"\x00", "link": LINK, "n": 1.0, "nested": [{"link": LINK}]}
    response = InvokeSessionToolResponse(session_id="s", result_event_id="e", output=output)
    assert to_wire(response)["output"] == output
    assert decode(encode_response(response)) == {
        "_": "InvokeSessionToolResponse",
        "sessionId": "s",
        "resultEventId": "e",
        "output": output,
    }
