"""`thread:` and `thread:<id>`: the conversations of the account."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from seed.sessions.v1 import threads_pb2 as pb
from seed.sessions.v1 import threads_pb2_grpc, types_pb2

from libs.errors import NotFound
from libs.protocol import limits
from libs.rpc import Peer
from services.runs.domain.addresses import Form, Reading, text_option
from services.runs.domain.verbs import VerbError
from services.runs.verbs.contract import Actor, Output
from services.runs.verbs.waiting import PATIENCE_S

CUT = "[truncated]\n\n"


class Threads:
    """Lists, searches and reads sessions of the account that owns the agent."""

    form = Form("thread:", "thread: or thread:<id>")

    def __init__(self, sessions: Peer) -> None:
        self._peer = sessions
        self._stub: Any = sessions.stub(threads_pb2_grpc.ThreadsServiceStub)

    async def read(self, actor: Actor, rest: str, given: Reading) -> Output:
        """One conversation, or the newest ones."""
        return await (self._one(actor, rest) if rest else self._list(actor, given.options))

    async def count(self, actor: Actor) -> int:
        """How many conversations the agent has."""
        request = pb.CountThreadsRequest(agent_id=actor.agent_id)
        r = await self._call(self._stub.CountThreads, request, actor)
        return r.threads

    async def _call(self, method: Any, request: Any, actor: Actor) -> Any:
        return await self._peer.call(method, request, account=actor.owner, timeout_s=PATIENCE_S, retry=True)

    async def _list(self, actor: Actor, options: Mapping[str, Any]) -> Output:
        query = text_option(options, "query")
        limit = limits.clamped_limit(
            options.get("limit"), default=limits.THREAD_LISTING_DEFAULT, most=limits.THREAD_LISTING_MAX
        )
        request = pb.ListThreadsRequest(query=query, agent_id=text_option(options, "agentId"), limit=limit)
        r = await self._call(self._stub.ListThreads, request, actor)
        found = f"{len(r.threads)} conversation{'' if len(r.threads) == 1 else 's'}"
        summary = f'{found} with "{query}" in the title or in recent messages.' if query else f"{found}, newest first."
        return Output({"summary": summary, "threads": [_entry(thread) for thread in r.threads]})

    async def _one(self, actor: Actor, session_id: str) -> Output:
        request = pb.ReadThreadRequest(session_id=session_id, events=limits.THREAD_EVENTS)
        try:
            r = await self._call(self._stub.ReadThread, request, actor)
        except NotFound:
            raise VerbError(f"No thread {session_id}") from None
        session: types_pb2.Session = r.session
        shown = session.title if session.HasField("title") else session.id
        value: dict[str, Any] = {
            "summary": f'"{shown}": the last {len(r.events)} events.',
            "sessionId": session.id,
            "title": session.title if session.HasField("title") else None,
        }
        value |= {"description": session.description} if session.HasField("description") else {}
        older = bool(r.events) and r.events[0].seq > 1
        return Output(value | {"markdown": transcript([msgspec.json.decode(e.payload) for e in r.events], cut=older)})


def transcript(events: list[dict[str, Any]], *, cut: bool = False) -> str:
    """Events as markdown, the end of it; `cut` says that older ones are missing already."""
    text = "\n\n".join(map(_line, events))
    body = text.encode("utf-8", "replace")
    if len(body) > limits.THREAD_BYTES:
        text, cut = body[-limits.THREAD_BYTES :].decode("utf-8", "ignore"), True
    return (CUT if cut else "") + text


def _line(event: dict[str, Any]) -> str:
    kind, name = event.get("type"), event.get("name", "")
    who = event.get("actor") or event.get("role") or "agent"
    if kind == "message":
        return f"**{who}**: {event.get('content', '')}"
    if kind == "tool_call":
        return f"*{who} uses {name}*"
    if kind == "tool_result":
        return f"*{name} failed: {event['error']}*" if "error" in event else f"*{name} answered*"
    if kind == "error":
        return f"*error: {event.get('message', '')}*"
    return f"*{kind}*"


def _entry(thread: pb.Thread) -> dict[str, Any]:
    session = thread.session
    entry: dict[str, Any] = {"thread": f"thread:{session.id}"}
    entry |= {"title": session.title} if session.HasField("title") else {}
    entry |= {"description": session.description} if session.HasField("description") else {}
    entry |= {"agent": thread.agent_name, "agentId": session.agent_id, "status": session.status}
    if session.HasField("parent_session_id"):
        entry["parentThread"] = f"thread:{session.parent_session_id}"
    entry["updatedAt"] = session.updated_at
    return entry | ({"snippet": thread.snippet} if thread.snippet else {})
