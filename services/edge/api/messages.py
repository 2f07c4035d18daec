"""MessageSession and RetrySession: sessions opens the turn, runs starts it, the edge waits for its end."""

from __future__ import annotations

import hashlib
from typing import Any

from msgspec import UNSET
from seed.events.v1 import events_pb2
from seed.runs.v1 import runs_pb2
from seed.sessions.v1 import sessions_pb2 as se
from seed.sessions.v1 import types_pb2

from libs.errors import Unavailable
from libs.protocol import responses as out
from services.edge.api.call import Call, Handler
from services.edge.domain.turns import Outcome, TurnWaits, answer_of
from services.edge.upstream import Peers

ASK_SECONDS = 5.0
START_SECONDS = 15.0
LATER = Outcome("waiting")
"""What a caller is told who does not wait for the end."""


def outcome_of(o: types_pb2.TurnOutcome) -> Outcome:
    """The outcome in an internal message."""
    return Outcome(o.status, o.assistant_event_id, o.error_message, o.error_status, o.gone, o.continued_to_session_id)


class TurnNews:
    """Where this edge hears of the turns it waits for."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self.waits = TurnWaits(self._ask)

    async def _ask(self, run_id: str) -> Outcome | None:
        request = runs_pb2.GetTurnOutcomeRequest(run_id=run_id)
        r = await self._peers.runs.call(self._peers.runs_stub.GetTurnOutcome, request, timeout_s=ASK_SECONDS)
        return outcome_of(r.outcome) if r.HasField("outcome") else None

    def on_message(self, _subject: str, body: bytes) -> None:
        """Handle a TurnSettled message."""
        settled = events_pb2.TurnSettled.FromString(body)
        self.waits.settled(settled.outcome.run_id, outcome_of(settled.outcome))


class MessageActions:
    """Handlers of what runs a turn. `notify` is this edge's own subject, `wait_s` the most a caller waits."""

    def __init__(self, peers: Peers, waits: TurnWaits, *, notify: str, wait_s: float) -> None:
        self._peers, self._waits, self._notify, self._wait_s = peers, waits, notify, wait_s

    def handlers(self) -> dict[str, Handler]:
        """The actions served here."""
        return {"MessageSession": self.message, "RetrySession": self.retry}

    async def message(self, call: Call) -> out.MessageSessionResponse:
        """MessageSession."""
        session_id = call.text("sessionId")
        request = se.MessageSessionRequest(
            session_id=session_id,
            content=call.cbor("content") or b"",
            client_message_id=call.optional_text("clientMessageId"),
            signature_hash=hashlib.sha256(call.envelope.sig).digest(),
        )
        r = await call.write(self._peers.sessions, self._peers.sessions_stub.MessageSession, request)
        outcome = outcome_of(r.outcome) if r.HasField("outcome") else await self._turn(r.turn)
        return out.MessageSessionResponse(
            session_id=_session_of(r, session_id),
            assistant_event_id=answer_of(outcome),
            continued_to_session_id=outcome.continued_to or UNSET,
        )

    async def retry(self, call: Call) -> out.RetrySessionResponse:
        """RetrySession."""
        session_id = call.text("sessionId")
        request = se.RetrySessionRequest(session_id=session_id)
        r = await call.write(self._peers.sessions, self._peers.sessions_stub.RetrySession, request)
        event_id = answer_of(await self._turn(r.turn))
        return out.RetrySessionResponse(session_id=_session_of(r, session_id), assistant_event_id=event_id)

    async def _turn(self, turn: types_pb2.TurnStart) -> Outcome:
        """How a turn that is started here ends, as far as its caller waits for that."""
        if turn.queued_behind:
            await self._start(turn, "")
            return LATER
        outcome = await self._waits.wait(turn.run_id, self._wait_s, lambda: self._start(turn, self._notify))
        return outcome or LATER

    async def _start(self, turn: types_pb2.TurnStart, notify: str) -> None:
        request = runs_pb2.StartTurnRequest(turn=turn, notify=notify)
        try:
            await self._peers.runs.call(
                self._peers.runs_stub.StartTurn,
                request,
                account=turn.owner,
                timeout_s=START_SECONDS,
                retry=True,
            )
        except Unavailable:
            # The message is saved and its turn recorded: sessions starts it as soon as runs is back.
            return


def _session_of(r: Any, asked: str) -> str:
    return r.turn.session_id if r.HasField("turn") and r.turn.session_id else asked.strip()
