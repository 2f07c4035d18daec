"""Subjects and the messages that go on them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seed.events.v1 import events_pb2 as ev
from seed.runs.v1 import runs_pb2
from seed.sessions.v1 import types_pb2 as types

from libs import events
from libs.events import account_subject, agent_subject, edge_subject, event_subject

ACCOUNT, AGENT = "z6MkfAccount", "9b2f3a10-0000-4000-8000-000000000001"
BAD = ["", ".", "*", ">", "a.b", "a b", "a\tb", "a\r\nb", "a\x00", "é", "_", "a\u2028b", "a*"]


@pytest.mark.parametrize("bad", BAD)
def test_what_would_change_a_subjects_meaning_is_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="not usable"):
        account_subject(bad)
    with pytest.raises(ValueError, match="not usable"):
        agent_subject(ACCOUNT, bad)
    with pytest.raises(ValueError, match="not usable"):
        agent_subject(bad, AGENT)
    with pytest.raises(ValueError, match="not usable"):
        event_subject(bad, AGENT, "kind")
    with pytest.raises(ValueError, match="not usable"):
        event_subject(ACCOUNT, AGENT, bad)
    with pytest.raises(ValueError, match="not usable"):
        edge_subject(bad)
    if bad:  # no agent: an event of the account itself
        with pytest.raises(ValueError, match="not usable"):
            event_subject(ACCOUNT, bad, "kind")


@given(st.text(max_size=6), st.text(max_size=6), st.text(max_size=6))
def test_subjects_that_are_built_have_exactly_their_tokens(owner: str, agent: str, kind: str) -> None:
    try:
        subject = event_subject(owner, agent, kind)
    except ValueError:
        return
    assert subject.split(".") == ["seed", "v1", owner, agent or "_", kind]
    assert not set(subject) & set("*> \t\r\n")


def test_a_listener_of_an_account_or_an_agent_hears_its_events() -> None:
    subject = event_subject(ACCOUNT, AGENT, "agent_changed")
    assert subject.startswith(account_subject(ACCOUNT).removesuffix(">"))
    assert subject.startswith(agent_subject(ACCOUNT, AGENT).removesuffix(">"))
    assert event_subject(ACCOUNT, "", "account_hint") == f"seed.v1.{ACCOUNT}._.account_hint"


SESSION = types.Session(id="s", account=ACCOUNT, agent_id=AGENT)
RUN = runs_pb2.Run(id="r", account=ACCOUNT, agent_id=AGENT)
EVENT = types.SessionEvent(session_id="s", seq=3, payload=b"{}")
BUILT: list[tuple[str, tuple[str, bytes], Any]] = [
    ("session_appended", events.session_appended(ACCOUNT, AGENT, EVENT), ev.SessionAppended(event=EVENT)),
    ("session_changed", events.session_changed(SESSION), ev.SessionChanged(session=SESSION)),
    (
        "session_partial",
        events.session_partial(ACCOUNT, AGENT, ev.SessionPartial(session_id="s")),
        ev.SessionPartial(session_id="s"),
    ),
    (
        "agent_changed",
        events.agent_changed(types.Agent(id=AGENT, account=ACCOUNT)),
        ev.AgentChanged(agent=types.Agent(id=AGENT, account=ACCOUNT)),
    ),
    ("account_hint", events.account_hint(ACCOUNT, "why", agent_id=AGENT), ev.AccountHint(reason="why")),
    ("run_changed", events.run_changed(RUN), ev.RunChanged(run=RUN)),
    ("run_partial", events.run_partial(ACCOUNT, AGENT, ev.RunPartial(run_id="r")), ev.RunPartial(run_id="r")),
]


@pytest.mark.parametrize(("kind", "message", "body"), BUILT, ids=[kind for kind, _, _ in BUILT])
def test_a_built_event_says_what_it_was_given(kind: str, message: tuple[str, bytes], body: Any) -> None:
    subject, data = message
    event = ev.Event.FromString(data)
    assert subject == f"seed.v1.{ACCOUNT}.{AGENT}.{kind}"
    assert event.WhichOneof("body") == kind
    assert getattr(event, kind) == body
    assert (event.account, event.agent_id) == (ACCOUNT, AGENT)
    assert len(event.id) == 32


def test_every_kind_of_event_has_a_builder() -> None:
    kinds = {field.name for field in ev.Event.DESCRIPTOR.oneofs_by_name["body"].fields}
    # The journal of a run is asked for when its run_changed comes.
    assert {kind for kind, _, _ in BUILT} == kinds - {"run_appended"}


def test_every_event_has_an_id_of_its_own() -> None:
    ids = {ev.Event.FromString(events.session_changed(SESSION)[1]).id for _ in range(100)}
    assert len(ids) == 100


def test_a_hint_for_one_listener_goes_to_its_own_subject() -> None:
    subject, data = events.account_hint(ACCOUNT, "why", agent_id=AGENT, session_id="s", only=("z6MkOther",))
    event = ev.Event.FromString(data)
    assert subject == "seed.v1.z6MkOther._.account_hint"
    assert list(event.account_hint.accounts) == ["z6MkOther"]
    assert (event.account, event.agent_id, event.account_hint.session_id) == (ACCOUNT, AGENT, "s")
