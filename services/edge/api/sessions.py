"""Sessions: create, read, list, change, delete. Messages are in messages.py."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET
from seed.sessions.v1 import sessions_pb2 as se

from libs.protocol import responses as out
from libs.protocol.sessions import SessionListCursor
from services.edge.api import views
from services.edge.api.call import Call, Handler
from services.edge.domain.shims import context_for, session_for, sessions_for
from services.edge.upstream import Peers


class SessionActions:
    """Handlers of the sessions area; sessions owns the data."""

    def __init__(self, peers: Peers) -> None:
        self._peer, self._sessions = peers.sessions, peers.sessions_stub

    def handlers(self) -> dict[str, Handler]:
        """The actions served here."""
        return {
            "CreateSession": self.create,
            "ListSessions": self.list,
            "GetSession": self.get,
            "UpdateSession": self.update,
            "DeleteSession": self.delete,
        }

    async def create(self, call: Call) -> out.CreateSessionResponse:
        """CreateSession."""
        request = se.CreateSessionRequest(
            agent_id=call.text("agentId"),
            title=call.optional_text("title"),
            client_request_id=call.optional_text("clientRequestId"),
        )
        r = await call.write(self._peer, self._sessions.CreateSession, request)
        return out.CreateSessionResponse(session_id=r.session_id)

    async def list(self, call: Call) -> out.ListSessionsResponse:
        """ListSessions."""
        children = call.action.get("includeChildren")
        request = se.ListSessionsRequest(
            agent_id=call.optional_text("agentId"),
            parent_session_id=call.optional_text("parentSessionId"),
            limit=call.limit(),
            cursor=call.cbor("cursor") or b"",
            include_children=children if isinstance(children, bool) else None,
        )
        r = await call.read(self._peer, self._sessions.ListSessions, request)
        last = r.sessions[-1] if r.more and r.sessions else None
        return out.ListSessionsResponse(
            sessions=sessions_for(call.protocol, [views.session(s) for s in r.sessions]),
            agents=[views.agent(a) for a in r.agents],
            next_cursor=UNSET if last is None else SessionListCursor(updated_before=last.updated_at, id_before=last.id),
        )

    async def get(self, call: Call) -> out.GetSessionResponse:
        """GetSession."""
        request = se.GetSessionRequest(session_id=call.text("sessionId"), after_seq=call.after_seq())
        r = await call.read(self._peer, self._sessions.GetSession, request)
        return out.GetSessionResponse(
            session=session_for(call.protocol, views.session(r.session)),
            events=[views.session_event(e) for e in r.events],
            system_prompt_markdown=r.system_prompt,
            trigger_context=context_for(call.protocol, views.DECODED(r.trigger_context))
            if r.trigger_context
            else UNSET,
        )

    async def update(self, call: Call) -> out.UpdateSessionResponse:
        """UpdateSession."""
        request = se.UpdateSessionRequest(
            session_id=call.text("sessionId"),
            title=call.optional_text("title"),
            model_override=call.cbor("modelOverride"),
        )
        r = await call.write(self._peer, self._sessions.UpdateSession, request)
        return out.UpdateSessionResponse(session=session_for(call.protocol, views.session(r.session)))

    async def delete(self, call: Call) -> out.DeleteSessionResponse:
        """DeleteSession."""
        request = se.DeleteSessionRequest(session_id=call.text("sessionId"))
        r = await call.write(self._peer, self._sessions.DeleteSession, request)
        return out.DeleteSessionResponse(session_id=r.session_id, agent_id=r.agent_id)


def _trigger_context(call: Call, told: bytes) -> Any:
    return context_for(call.protocol, views.DECODED(told)) if told else UNSET
