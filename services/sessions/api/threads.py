"""ThreadsService: an account's sessions for its agents."""

from __future__ import annotations

from seed.sessions.v1 import threads_pb2 as pb

from libs.errors import Forbidden
from libs.protocol.limits import THREAD_EVENTS, THREAD_LISTING_MAX
from libs.rpc import Caller
from services.sessions.api.decoding import only
from services.sessions.domain.ids import named
from services.sessions.store.threads import ThreadStore


class ThreadsApi:
    """Serves runs alone; the calling account is the owner of the agent that reads."""

    def __init__(self, threads: ThreadStore) -> None:
        self._threads = threads

    async def ListThreads(self, request: pb.ListThreadsRequest, caller: Caller) -> pb.ListThreadsResponse:
        """List, or look for a text."""
        account = _owner(caller)
        limit = max(1, min(request.limit, THREAD_LISTING_MAX))
        agent_id = request.agent_id.replace("\0", "\ufffd")
        query = request.query.strip()
        found = (
            await self._threads.search(account, agent_id, query, limit)
            if query
            else await self._threads.list(account, agent_id, limit)
        )
        return pb.ListThreadsResponse(
            threads=[pb.Thread(session=f.session, agent_name=f.agent_name, snippet=f.snippet) for f in found]
        )

    async def ReadThread(self, request: pb.ReadThreadRequest, caller: Caller) -> pb.ReadThreadResponse:
        """One session with the end of its log."""
        account = _owner(caller)
        session_id = named(request.session_id, "Session ID", "Session")
        session, events = await self._threads.read(account, session_id, min(request.events, THREAD_EVENTS))
        return pb.ReadThreadResponse(session=session, events=events)

    async def CountThreads(self, request: pb.CountThreadsRequest, caller: Caller) -> pb.CountThreadsResponse:
        """How many sessions an agent has."""
        return pb.CountThreadsResponse(threads=await self._threads.count(_owner(caller), request.agent_id))


def _owner(caller: Caller) -> str:
    only(caller, "runs-api", "runs-worker")
    if not caller.account:
        raise Forbidden("This call is made for an account")
    return caller.account
