"""The inventory of the public surface: it is current, and the check knows what breaks a client."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
_SPEC = importlib.util.spec_from_file_location("protocol_surface", ROOT / "tools" / "protocol_surface.py")
assert _SPEC is not None and _SPEC.loader is not None
tool: Any = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(tool)

NOW: dict[str, Any] = tool.surface()
Change = Callable[[dict[str, Any]], Any]


def changed(change: Change) -> list[str]:
    new = deepcopy(NOW)
    change(new)
    return tool.refused(NOW, new, "")


def fields(surface: dict[str, Any], part: str, name: str) -> dict[str, Any]:
    return surface[part][name]["fields"]


TEXT = {"type": ["text"], "required": False}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda s: s["actions"].pop("GetRun"), "actions: GetRun is gone"),
        (lambda s: s["answers"].pop("GetRunResponse"), "answers: GetRunResponse is gone"),
        (lambda s: s["events"].pop("WsSubscribed"), "events: WsSubscribed is gone"),
        (lambda s: s["events"]["WsSubscribed"].update({"_": "hello"}), "its _ is another"),
        (lambda s: s["actions"]["GetRun"].update(answer="ListRunsResponse"), "its answer is another"),
        (lambda s: fields(s, "actions", "CreateSession").pop("title"), "CreateSession.title is gone"),
        (lambda s: fields(s, "types", "SessionInfo").pop("title"), "SessionInfo.title is gone"),
        (lambda s: fields(s, "actions", "CreateSession")["title"].update(type=["bytes"]), "has another type"),
        (lambda s: fields(s, "actions", "CreateSession")["title"].update(required=True), "title is required now"),
        (lambda s: fields(s, "actions", "GetRun").update(more=TEXT | {"required": True}), "more is new and required"),
        (lambda s: fields(s, "types", "SessionInfo")["id"].update(required=False), "SessionInfo.id may be absent now"),
        (lambda s: fields(s, "types", "SessionInfo")["status"]["type"].append('"odd"'), "status has another type"),
        (lambda s: fields(s, "answers", "ListRunsResponse")["runs"].update(type=[{"list": ["text"]}]), "another type"),
        (lambda s: fields(s, "types", "AgentDefinition")["model"].update(type=["any"]), "model has another type"),
        (lambda s: s.update(minClientProtocol=2), "clients below protocol 2 are refused"),
    ],
)
def test_what_breaks_a_client(change: Change, says: str) -> None:
    found = changed(change)
    assert says in found[0] and "needs a PROTOCOL_VERSION above 3" in found[-1], found


@pytest.mark.parametrize(
    "change",
    [
        lambda s: None,
        lambda s: s["actions"].update(New={"fields": {"a": TEXT | {"required": True}}, "answer": None}),
        lambda s: s["events"].update(WsNew={"_": "new", "fields": {}}),
        lambda s: fields(s, "actions", "GetRun").update(more=TEXT),
        lambda s: fields(s, "answers", "GetRunResponse").update(more=TEXT | {"required": True}),
        lambda s: fields(s, "types", "SessionInfo").update(more=TEXT),
        lambda s: fields(s, "types", "SessionInfo")["title"].update(required=True),
        lambda s: fields(s, "types", "SessionInfo")["status"]["type"].pop(),
        lambda s: fields(s, "actions", "CreateSession")["agentId"].update(required=False),
        lambda s: fields(s, "actions", "CreateSession")["title"]["type"].append("null"),
        lambda s: fields(s, "actions", "CreateSession")["title"].update(type=["any"]),
    ],
)
def test_what_is_compatible(change: Change) -> None:
    assert changed(change) == []


def test_a_new_version_needs_its_line() -> None:
    new = deepcopy(NOW)
    del new["actions"]["GetRun"]
    new["protocol"] = 4
    assert tool.refused(NOW, new, "- protocol 3: older\n")[-1] == "CHANGELOG.md has no line about protocol 4"
    assert tool.refused(NOW, new, "- protocol 3: older\n- Protocol 4: GetRun is gone\n") == []


def test_the_file_is_current_and_readable() -> None:
    committed = (ROOT / "proto" / "surface.json").read_text()
    assert json.loads(committed) == NOW and tool._text(NOW) == committed


def test_what_was_taken_in() -> None:
    assert len(NOW["actions"]) == len(tool.ACTIONS) and NOW["protocol"] == 3
    assert NOW["actions"]["MessageSession"]["mutating"] and not NOW["actions"]["GetSession"]["mutating"]
    assert (
        NOW["actions"]["UpdateAgent"]["answer"] == "GetAgentResponse" and NOW["actions"]["Subscribe"]["answer"] is None
    )
    assert fields(NOW, "types", "SessionInfo")["status"]["type"] == ['"error"', '"idle"', '"stopped"', '"streaming"']
    assert fields(NOW, "routes", "HealthJson")["status"] == {"type": ['"ok"'], "required": True}
