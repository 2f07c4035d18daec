"""SessionsService."""

from __future__ import annotations

from collections.abc import Callable

from seed.sessions.v1 import sessions_pb2 as pb

from libs import signatures
from libs.errors import Invalid
from libs.protocol import limits
from libs.rpc import Caller
from services.sessions.api.decoding import document, only, optional
from services.sessions.api.peers import References, Runs
from services.sessions.api.space import SpaceIndexes
from services.sessions.domain import access, children, content, naming, paging, prompt
from services.sessions.domain.ids import message_key, named, request_hash, request_key
from services.sessions.store.access import AccessStore
from services.sessions.store.children import ChildStore
from services.sessions.store.deletions import DeletionStore
from services.sessions.store.messages import Message, MessageStore
from services.sessions.store.repeats import Request
from services.sessions.store.rows import Row, agent_of, session_of
from services.sessions.store.sessions import Selection, SessionStore
from services.sessions.store.triggered import TriggeredStore
from services.sessions.store.turns import roster_of

_HEADS_MAX = 1_000


def _session_id(value: str) -> str:
    return named(value, "Session ID", "Session")


def _agent_id(value: str) -> str:
    return named(value, "Agent ID", "Agent")


class SessionsApi:
    """Serves conversations. `now` gives Unix milliseconds."""

    def __init__(
        self,
        access: AccessStore,
        sessions: SessionStore,
        messages: MessageStore,
        deletions: DeletionStore,
        references: References,
        runs: Runs,
        kids: ChildStore,
        spaces: SpaceIndexes,
        triggered: TriggeredStore,
        now: Callable[[], int],
    ) -> None:
        self._access, self._sessions, self._messages = access, sessions, messages
        self._children, self._spaces = kids, spaces
        self._deletions, self._references, self._runs, self._now = deletions, references, runs, now
        self._triggered = triggered

    async def CreateSession(self, request: pb.CreateSessionRequest, caller: Caller) -> pb.CreateSessionResponse:
        """Open an idle session."""
        found = await self._access.agent(caller.account, _agent_id(request.agent_id), access.CHATTER)
        sent, client_id = optional(request, "title"), optional(request, "client_request_id")
        title = None if sent is None else naming.provisional_title(sent)
        repeat = None
        if client_id is not None:
            compared = {"agentId": found.agent_id} if sent is None else {"agentId": found.agent_id, "title": sent}
            # Agent-scoped creations belong to the owner (envelope.md, section 7).
            repeat = Request(found.owner, "CreateSession", request_key(client_id), request_hash(**compared))
        return pb.CreateSessionResponse(session_id=await self._sessions.create(found.agent_id, title, repeat))

    async def ListSessions(self, request: pb.ListSessionsRequest, caller: Caller) -> pb.ListSessionsResponse:
        """One page of sessions with the agents they belong to."""
        agent_id, parent_id = optional(request, "agent_id"), optional(request, "parent_session_id")
        include_children = optional(request, "include_children")
        if agent_id is not None:
            agent_id = (await self._access.agent(caller.account, _agent_id(agent_id))).agent_id
        if parent_id is not None:
            parent_id = named(parent_id, "Parent session ID", "Session")
            await self._access.session(caller.account, parent_id)
        after = paging.cursor(document(request.cursor)) if request.cursor else paging.Cursor()
        limit = min(request.limit or limits.LIST_DEFAULT, limits.LIST_MAX)
        selection = Selection(agent_id or "", parent_id or "", top_level=include_children is False)
        rows = await self._sessions.page(caller.account, selection, after, limit + 1)
        page = rows[:limit]
        agents = await self._listable(caller.account, page, asked=agent_id is not None or parent_id is not None)
        return pb.ListSessionsResponse(
            sessions=[session_of(row) for row in page], agents=agents, more=len(rows) > limit
        )

    async def GetSession(self, request: pb.GetSessionRequest, caller: Caller) -> pb.GetSessionResponse:
        """A session with its log and the prompt a turn would send now."""
        session_id = _session_id(request.session_id)
        row, role = await self._sessions.view(caller.account, session_id)
        after = optional(request, "after_seq")
        if after is not None and after < 0:
            raise Invalid("afterSeq must be a non-negative integer")
        events = await self._sessions.events(session_id, after or 0)
        text = ""
        if not request.without_prompt:
            members = prompt.roster(row["owner"], roster_of(row))
            own = document(row["definition"])
            spec = await self._children.contract(row["run_id"]) if row["run_id"] is not None else b""
            text = prompt.system_prompt(
                children.persona(spec) or prompt.instructions(row["definition"]),
                members,
                self._now(),
                # The turn that a delegation opened may not; later ones, which people open, may.
                continues=not children.typed(spec) and (row["parent_session_id"] is None or not row["live_turns"]),
                space=await self._spaces.text(row["owner"], row["agent_id"], own, children.tools(spec)),
            )
        return pb.GetSessionResponse(
            session=session_of(row),
            events=events,
            system_prompt=text,
            access_role=role,
            # The log may have grown since the session was read.
            last_seq=max(row["last_seq"], events[-1].seq if events else 0),
            trigger_context=await self._triggered.context(session_id) if row["started_by_trigger"] is not None else b"",
        )

    async def UpdateSession(self, request: pb.UpdateSessionRequest, caller: Caller) -> pb.UpdateSessionResponse:
        """Rename a session, set or clear its model override."""
        session_id = _session_id(request.session_id)
        found = await self._access.session(caller.account, session_id, access.WRITER)
        title, sent = optional(request, "title"), optional(request, "model_override")
        if title is None and sent is None:
            raise Invalid("Nothing to update: provide a title or a model override")
        if title is not None:
            title = naming.title(title)
        override = None if sent is None else naming.override(document(sent))
        stored = None
        if override is not None:
            kind = (await self._references.find(found.owner, override.provider)).provider_type
            stored = override.checked(kind)
        session = await self._sessions.update(session_id, title, overrides=sent is not None, model_override=stored)
        return pb.UpdateSessionResponse(session=session)

    async def DeleteSession(self, request: pb.DeleteSessionRequest, caller: Caller) -> pb.DeleteSessionResponse:
        """Remove a session with its log."""
        session_id = _session_id(request.session_id)
        found = await self._access.session(caller.account, session_id, access.WRITER)
        await self._runs.detach(await self._deletions.session(session_id))
        return pb.DeleteSessionResponse(session_id=session_id, agent_id=found.agent_id)

    async def MessageSession(self, request: pb.MessageSessionRequest, caller: Caller) -> pb.MessageSessionResponse:
        """Append the user's message and open its turn."""
        session_id = _session_id(request.session_id)
        _, seen = await self._access.open_session(caller.account, session_id, access.CHATTER)
        key = message_key(optional(request, "client_message_id"), request.signature_hash)
        # The key stands for as long as the account does, and a repeat gets what the first got.
        signatures.leave_unrecorded()
        sent = document(request.content)
        message = content.parsed(sent)
        attachments = await self._messages.attachments(session_id, message.attachment_ids)
        content.check_attachments(message, attachments)
        answer = await self._messages.send(
            session_id,
            Message(
                account=caller.account,
                key=key,
                request_hash=request_hash(sessionId=session_id, content=sent),
                title=message.title,
                payloads=content.payloads(message, caller.account, caller.signer, attachments),
            ),
            seen,
        )
        return pb.MessageSessionResponse(turn=answer.start, outcome=answer.outcome)

    async def RetrySession(self, request: pb.RetrySessionRequest, caller: Caller) -> pb.RetrySessionResponse:
        """Open a new turn on the same transcript."""
        session_id = _session_id(request.session_id)
        await self._access.session(caller.account, session_id, access.CHATTER)
        return pb.RetrySessionResponse(turn=await self._messages.retry(session_id))

    async def GetHeads(self, request: pb.GetHeadsRequest, caller: Caller) -> pb.GetHeadsResponse:
        """Newest state of many sessions, for the edge."""
        only(caller, "edge")
        if len(request.session_ids) > _HEADS_MAX:
            raise Invalid("Too many sessions")
        ids = [session_id for session_id in request.session_ids if "\0" not in session_id]
        return pb.GetHeadsResponse(heads=await self._sessions.heads(ids))

    async def _listable(self, account: str, page: list[Row], *, asked: bool) -> list:
        """Agents of a page that ListAgents would show; also publicly read ones when the page was asked for by name."""
        rows = await self._sessions.agents(account, sorted({row["agent_id"] for row in page}))
        roles = [(row, access.effective_role(account, row)) for row in rows]
        return [agent_of(row, role) for row, role in roles if role and (asked or access.is_member(account, row))]
