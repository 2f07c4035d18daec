"""What may be written into a trigger: every rule with its text, and what is stored."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from libs.errors import Conflict, Invalid
from services.triggers.domain.definition import Rules, check_writable, is_compound

LONG = "x" * 257
ACCOUNT = "z6MkAccount"
SOURCE = {"type": "run-completed"}


def rules(*, webhooks: bool = True) -> Rules:
    numbers = count(1)
    return Rules(lambda: f"id{next(numbers)}", webhooks=webhooks)


def trigger(**more: Any) -> dict[str, Any]:
    return {"name": "T", "source": SOURCE, "prompt": "Look.", **more}


def source(kind: str, **fields: Any) -> dict[str, Any]:
    return trigger(source={"type": kind, **fields})


def lists(kind: str, key: str, noun: str) -> list[tuple[dict[str, Any], str]]:
    prefix = "Trigger resource prefix"
    return [
        *((source(kind, **{key: value}), f"Trigger {noun}s must be an array") for value in (None, "x", 5, {})),
        (source(kind), f"Trigger {noun}s must be an array"),
        (source(kind, **{key: ["a"] * 33}), f"Too many trigger {noun}s"),
        (source(kind, **{key: []}), f"Trigger {noun} is required"),
        *((source(kind, **{key: [value]}), f"Trigger {noun} is required") for value in ("", " ", 5, None)),
        (source(kind, **{key: [LONG]}), f"Trigger {noun} is too large"),
        (source(kind, **{key: ["a"], "resourcePrefix": ""}), f"{prefix} is required"),
        (
            source(kind, **{key: ["a"], "resourcePrefix": "hm://a/" + "x" * 2048}),
            "Trigger resource prefix is too large",
        ),
        (
            source(kind, **{key: ["a"], "resourcePrefix": "hm://"}),
            "Trigger resource prefix must name an account or document",
        ),
    ]


def conditions(*entries: Any) -> dict[str, Any]:
    return source("activity", conditions=list(entries))


MENTION = {"type": "user-mention", "mentionedAccounts": [ACCOUNT]}
UNNAMED = "must name an account or document"

REFUSED: list[tuple[Any, str]] = [
    *((value, "Agent trigger is required") for value in (None, 5, "x", [])),
    *((trigger(name=value), "Trigger name is required") for value in (None, "", "  ", 5)),
    (trigger(name=LONG), "Trigger name is too large"),
    (trigger(name="a\0b"), "Trigger name contains an invalid character"),
    *((trigger(enabled=value), "Trigger enabled must be a boolean") for value in (None, 1, "true")),
    *((trigger(source=value), "Trigger source is required") for value in (None, 5, "x", [])),
    *((trigger(source={"type": kind}), "Trigger source type is unsupported") for kind in (None, "x", [], {}, 5)),
    (source("document-comment"), "Trigger document resource is required"),
    (source("document-comment", resource="hm://a/" + "x" * 2048), "Trigger document resource is too large"),
    *(
        (source("document-comment", resource=value), f"Trigger document resource {UNNAMED}")
        for value in ("hm://", "hm:///x", "hm://*", "hm://*/x", "ftp://a/b", "a", "https://site.example/x", "hm://?v=1")
    ),
    (source("document-comment", resource="hm://a", author=""), "Trigger author is required"),
    (source("document-comment", resource="hm://a", author=LONG), "Trigger author is too large"),
    *lists("user-mention", "mentionedAccounts", "mentioned account"),
    *lists("comment-reply", "repliedToAccounts", "replied-to account"),
    *lists("document-author-comment", "documentAuthors", "document author"),
    (source("site-update"), "Trigger resource prefix is required"),
    (source("site-update", resourcePrefix="*"), f"Trigger resource prefix {UNNAMED}"),
    (source("site-update", resourcePrefix="hm://a", eventTypes="x"), "Trigger event types must be an array"),
    (source("site-update", resourcePrefix="hm://a", eventTypes=["ref"] * 33), "Too many trigger event types"),
    (source("site-update", resourcePrefix="hm://a", eventTypes=[""]), "Trigger event type is required"),
    (source("site-update", resourcePrefix="hm://a", eventTypes=[LONG]), "Trigger event type is too large"),
    (source("site-update", resourcePrefix="hm://a", eventTypes=["party"]), "Trigger event type is unsupported"),
    (source("activity"), "Trigger conditions must be an array"),
    (conditions(), "Trigger condition is required"),
    (conditions(*[{"source": MENTION}] * 33), "Too many trigger conditions"),
    (conditions("x"), "Trigger condition is required"),
    (conditions({}), "Trigger condition source is required"),
    *(
        (conditions({"source": {"type": kind}}), "Trigger condition source type is unsupported")
        for kind in ("activity", "schedule", "webhook", "run-completed", "x", None, [])
    ),
    (conditions({"id": "", "source": MENTION}), "Trigger condition ID is required"),
    (conditions({"id": LONG, "source": MENTION}), "Trigger condition ID is too large"),
    (
        conditions({"id": "a", "source": MENTION}, {"id": "a", "source": MENTION}),
        "Trigger condition IDs must be unique",
    ),
    (conditions({"source": {"type": "user-mention"}}), "Trigger mentioned accounts must be an array"),
    *(
        (source("run-completed", status=value), "Trigger run status must be succeeded, failed, or canceled")
        for value in ("running", "", None, ["failed"])
    ),
    (source("run-completed", agentId=5), "Trigger agent ID is required"),
    (source("run-completed", agentId=LONG), "Trigger agent ID is too large"),
    (source("run-completed", titleMatch=""), "Trigger title match is required"),
    (source("run-completed", titleMatch=LONG), "Trigger title match is too large"),
    (source("schedule"), "Trigger schedule is required"),
    *((trigger(prompt=value), "Trigger prompt is required") for value in ("", "  ", [])),
    *((trigger(prompt=value), "Trigger prompt must be blocks") for value in (None, 5, {})),
    (trigger(prompt="x" * (64 * 1024 + 1)), "Trigger prompt is too large"),
    (trigger(prompt=[{"block": 1}]), "Trigger prompt blocks are invalid"),
    *((trigger(continuation=value), "Trigger continuation is required") for value in (None, 5, "wake")),
    *(
        (trigger(continuation={"kind": kind}), "Trigger continuation kind is unsupported")
        for kind in ("tool", None, [])
    ),
    (trigger(continuation={"kind": "wake"}), "Trigger signal is required"),
    (trigger(continuation={"kind": "wake", "signal": LONG}), "Trigger signal is too large"),
    (trigger(continuation={"kind": "wake", "signal": "s", "runId": ""}), "Trigger run ID is required"),
    (trigger(continuation={"kind": "wake", "signal": "s", "runId": LONG}), "Trigger run ID is too large"),
]


@pytest.mark.parametrize(("value", "text"), REFUSED, ids=range(len(REFUSED)))
def test_refused(value: Any, text: str) -> None:
    with pytest.raises(Invalid) as refused:
        rules().trigger(value)
    assert refused.value.message == text


def stored(kind: str, **fields: Any) -> dict[str, Any]:
    return rules().trigger(source(kind, **fields)).source


def test_defaults() -> None:
    made = rules().trigger(trigger(name="  T "))
    assert (made.name, made.enabled, made.kind, made.continuation) == ("T", True, "run-completed", None)
    assert made.prompt[0]["block"]["text"] == "Look."
    assert rules().trigger(trigger(enabled=False)).enabled is False


def test_the_older_form_of_a_mention_becomes_a_list() -> None:
    assert stored("user-mention", mentionedAccount=" a ") == {"type": "user-mention", "mentionedAccounts": ["a"]}
    both = stored("user-mention", mentionedAccount="a", mentionedAccounts=["b", "b", " c"])
    assert both == {"type": "user-mention", "mentionedAccounts": ["b", "c"]}


def test_a_resource_is_stored_as_given_and_a_site_canonical() -> None:
    given = "https://site.example/hm/z6Mk/a/:comments?v=1#x"
    assert stored("document-comment", resource=given, author="a")["resource"] == given
    assert stored("site-update", resourcePrefix=given) == {"type": "site-update", "resourcePrefix": "hm://z6Mk/a"}
    kept = stored("site-update", resourcePrefix="hm://z6Mk/a/", eventTypes=["comment", "change", "document-update"])
    assert kept == {
        "type": "site-update",
        "resourcePrefix": "hm://z6Mk/a",
        "eventTypes": ["comment", "change", "document-update"],
    }


def test_conditions_get_ids_that_stay() -> None:
    made = stored("activity", conditions=[{"source": MENTION}, {"id": "id1", "source": MENTION}, {"source": MENTION}])
    ids = [condition["id"] for condition in made["conditions"]]
    assert ids[1] == "id1" and len(set(ids)) == 3 and all(ids)
    assert stored("activity", conditions=made["conditions"]) == made


def test_continuations() -> None:
    wake = {"kind": "wake", "signal": " s ", "runId": "r", "payload": {"n": 2**60, "b": b"\1"}, "x": 1}
    made = rules().trigger(trigger(continuation=wake))
    assert made.continuation == {
        "kind": "wake",
        "signal": "s",
        "runId": "r",
        "payload": {"n": str(2**60), "b": {"0": 1}},
    }
    assert rules().trigger(trigger(continuation={"kind": "newThread", "x": 1})).continuation == {"kind": "newThread"}


def test_webhooks_can_be_turned_off() -> None:
    assert stored("webhook", x=1) == {"type": "webhook"}
    with pytest.raises(Invalid) as refused:
        rules(webhooks=False).trigger(source("webhook"))
    assert "turned off" in refused.value.message


@pytest.mark.parametrize(("value", "text"), [
    *((value, "Agent trigger patch is required") for value in (None, 5, [], "x")),
    *((value, "Agent trigger patch is empty") for value in ({}, {"id": "x"})),
    ({"name": None}, "Trigger name is required"),
    ({"enabled": None}, "Trigger enabled must be a boolean"),
    ({"source": None}, "Trigger source is required"),
    ({"continuation": None}, "Trigger continuation is required"),
])  # fmt: skip
def test_patches_refused(value: Any, text: str) -> None:
    with pytest.raises(Invalid) as refused:
        rules().patch(value)
    assert refused.value.message == text


def test_a_patch_has_only_what_it_replaces() -> None:
    assert rules().patch({"name": " N ", "x": 1}) == {"name": "N"}
    assert rules().patch({"source": {"type": "run-completed", "status": "failed"}, "enabled": False}) == {
        "source": {"type": "run-completed", "status": "failed"},
        "enabled": False,
    }


def test_who_may_write_when() -> None:
    check_writable(None, 7, None)
    check_writable(None, 7, 7)
    with pytest.raises(Conflict, match="changed elsewhere"):
        check_writable(None, 7, 6)
    with pytest.raises(Conflict, match="cannot be edited"):
        check_writable("other", 7, 7)


def test_compound_sources() -> None:
    assert is_compound({"type": "activity"}) and is_compound({"type": "comment-reply"})
    assert not is_compound(MENTION) and not is_compound({"type": []}) and not is_compound(None)
