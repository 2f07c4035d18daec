"""What a firing says, the guard against loops, webhooks' secrets and rates."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.errors import Invalid, TooMany
from libs.protocol.text import byte_length
from services.triggers.domain import completed, firing
from services.triggers.domain.completed import Chain, EndedRun
from services.triggers.domain.firing import Activation, Fired
from services.triggers.domain.rate import Rate
from services.triggers.domain.webhooks import WebhookSecrets, delivery, new_nonce

SOURCE = {"type": "run-completed"}
BLOCKS = [{"block": {"id": "b", "type": "Paragraph", "text": "Look."}}]


def told(activation: Activation, prompt: str = "Look.") -> dict[str, Any]:
    return firing.context(Fired("t1", "Name", SOURCE, BLOCKS, prompt), "f1", 7, activation)


def message(context: dict[str, Any], key: str | None = None) -> dict[str, Any]:
    return json.loads(firing.message(context, key))


def test_what_a_session_keeps() -> None:
    conditions = [{"id": "c", "source": SOURCE}]
    context = told(Activation("k", {"type": "x"}, "Sum", activity_key="a", matched=conditions))
    summary = {
        "triggerId": "t1", "triggerName": "Name", "firingId": "f1", "activityKey": "k", "activitySummary": "Sum",
        "source": SOURCE, "firedAt": 7, "matchedConditions": conditions,
    }  # fmt: skip
    assert firing.summary_of(context) == summary
    assert context == {
        **summary, "prompt": "Look.", "promptBlocks": BLOCKS, "activity": {"type": "x"}, "status": "created",
    }  # fmt: skip
    without = told(Activation("k", {}, "Sum"))
    assert without["activityKey"] == "k" and "matchedConditions" not in without


def test_the_first_message() -> None:
    event = {"type": "comment", "n": 1}
    said = message(told(Activation("k", event, "Sum", activity_key="a")), "a")
    assert (said["type"], said["role"], said["actor"]) == ("message", "user", "trigger")
    assert said["content"] == said["rawMarkdown"]
    prompt, _, rest = said["content"].partition("\n\n<trigger_context>\n")
    context, _, rest = rest.partition("\n</trigger_context>\n\n<trigger_instructions>\n")
    assert prompt == "Look." and rest.endswith("\n</trigger_instructions>")
    assert json.loads(context) == {
        "triggerId": "t1", "firingId": "f1", "activityKey": "a", "activitySummary": "Sum", "activity": event,
    }  # fmt: skip
    assert context.startswith('{\n  "triggerId"')
    for word in ("comment", "replyTo", "activity.target.id.id", "activity.comment.id", "activity.commentId.id"):
        assert word in rest
    assert '"activityKey": null' in message(told(Activation("k", {}, "Sum")))["content"]


@pytest.mark.parametrize("prompt", ["Look.", "é" * 30_000])
def test_a_message_has_an_end(prompt: str) -> None:
    said = message(told(Activation("k", {"payload": "ü" * 200_000}, "Sum"), prompt))["content"]
    assert byte_length(said) <= 64 * 1024 + 16 * 1024
    assert "too long for a message" in said and said.endswith("</trigger_instructions>")
    if prompt == "Look.":
        assert byte_length(said) <= 64 * 1024


@given(st.text(max_size=300), st.text(max_size=300))
def test_a_title_fits_and_is_one_line(name: str, summary: str) -> None:
    title = firing.title(name, summary)
    assert byte_length(title) <= 256 and "\n" not in title
    whole = " ".join(f"{name} — {summary}".split())
    assert title == whole or (title.endswith("…") and byte_length(whole) > 256)


def test_what_a_woken_run_gets() -> None:
    assert firing.signal_payload({"kind": "wake"}, {"type": "x"}) == b'{"type":"x"}'
    assert firing.signal_payload({"kind": "wake", "payload": None}, {"type": "x"}) == b"null"


def test_runs_of_firings() -> None:
    assert firing.firing_of(firing.run_id("f")) == "f"
    assert firing.firing_of("abc") is None


RUN = EndedRun("r1", "root", "acc", "ag", "s1", "Weekly Report", "succeeded")


@pytest.mark.parametrize(
    ("source", "matches"),
    [
        ({}, True),
        ({"agentId": "ag", "status": "succeeded", "titleMatch": "REPORT"}, True),
        ({"agentId": "other"}, False),
        ({"status": "failed"}, False),
        ({"titleMatch": "monthly"}, False),
    ],
)
def test_which_ends_a_source_is_about(source: dict[str, str], matches: bool) -> None:
    assert completed.matches({"type": "run-completed", **source}, RUN) is matches


def test_what_the_end_of_a_run_is() -> None:
    end = completed.activation(RUN)
    assert end == Activation(
        key="run:r1",
        event={
            "type": "run-completed", "runId": "r1", "runTitle": "Weekly Report", "runStatus": "succeeded",
            "agentId": "ag", "sessionId": "s1",
        },
        summary="Weekly Report succeeded",
        cause_run_id="root",
    )  # fmt: skip
    bare = completed.activation(EndedRun("r1", "r1", "acc", "", "", "", "failed"))
    assert bare.summary == "A run failed" and bare.event["agentId"] == "" and "sessionId" not in bare.event


def test_loops() -> None:
    assert Chain(("a", "b"), open_end=False).loops("b") and not Chain(("a",), open_end=False).loops("b")
    assert Chain(("a",) * completed.HOPS, open_end=True).loops("b")


def test_secrets_of_webhooks() -> None:
    ours, theirs = WebhookSecrets("", "i" * 32), WebhookSecrets("k" * 32, "i" * 32)
    one, two = new_nonce(), new_nonce()
    made = ours.secret("t", one)
    assert len(made) == 43 and made == ours.secret("t", one)
    assert len({made, ours.secret("t", two), ours.secret("u", one), theirs.secret("t", one)}) == 4
    assert ours.is_secret("t", one, made)
    for wrong in ("", made[:-1], made + "x", theirs.secret("t", one), "\udcff"):
        assert not ours.is_secret("t", one, wrong)
    assert theirs.secret("t", one) == WebhookSecrets("k" * 32, "j" * 32).secret("t", one)


def test_deliveries() -> None:
    free, named = delivery(b'{"a":1}', "", "new"), delivery(b'{"a":1}', " k ", "new")
    assert (free.key, free.digest, free.event) == ("webhook:new", None, {"type": "webhook", "payload": {"a": 1}})
    assert (named.key, named.digest) == ("webhook:k", delivery(b'{"a":1}', "k", "other").digest)
    assert named.digest != delivery(b'{"a": 1}', "k", "other").digest
    for body in (b"", b"{", b"\xff", b"[" * 100_000):
        with pytest.raises(Invalid, match="must be JSON"):
            delivery(body, "", "new")


def test_a_rate_comes_back_with_time() -> None:
    clock = [0]
    rate = Rate(60, lambda: clock[0])
    for _ in range(60):
        rate.take("a")
    with pytest.raises(TooMany) as refused:
        rate.take("a")
    assert refused.value.retry_after_s == pytest.approx(1.0)
    rate.take("b")
    clock[0] = 1_000
    rate.take("a")
    with pytest.raises(TooMany):
        rate.take("a")
    clock[0] = 10_000_000
    for _ in range(60):
        rate.take("a")
    with pytest.raises(TooMany):
        rate.take("a")
