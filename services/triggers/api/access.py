"""Asking sessions who may do what. Nothing is kept: a revocation holds from the next request on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from seed.sessions.v1 import access_pb2, access_pb2_grpc, triggered_pb2, triggered_pb2_grpc, types_pb2

from libs.errors import Forbidden
from libs.rpc import Caller, Peer

_SECONDS = 5.0

READER, WRITER = "reader", "writer"


@dataclass(frozen=True, slots=True)
class Access:
    """The calling account's access to an agent."""

    agent_id: str
    owner: str
    role: str

    @property
    def edits(self) -> bool:
        """Whether it may change triggers."""
        return self.role in ("owner", WRITER)


class AgentAccess:
    """Asks as the account that called."""

    def __init__(self, sessions: Peer) -> None:
        self._sessions = sessions
        self._stub: Any = sessions.stub(access_pb2_grpc.AccessServiceStub)
        self._triggered: Any = sessions.stub(triggered_pb2_grpc.TriggeredServiceStub)

    async def of(self, caller: Caller, agent_id: str, need: str, noun: str = "") -> Access:
        """The access to an agent, `need` at least. Raises NotFound `<noun> not found`, Forbidden."""
        if not caller.account:
            raise Forbidden("This call needs an acting account")
        request = access_pb2.ResolveAccessRequest(agent_id=agent_id, need=need, noun=noun)
        found = await self._sessions.call(
            self._stub.ResolveAccess,
            request,
            account=caller.account,
            signer=caller.signer,
            timeout_s=_SECONDS,
            retry=True,
        )
        return Access(found.agent_id, found.owner, found.role)

    async def sessions(self, agent_id: str, session_ids: Sequence[str]) -> Sequence[types_pb2.Session]:
        """Sessions of an agent whose reader has asked, in the order of their ids, as far as they exist."""
        if not session_ids:
            return ()
        request = triggered_pb2.ListTriggeredRequest(agent_id=agent_id, session_ids=session_ids)
        found = await self._sessions.call(self._triggered.ListTriggered, request, timeout_s=_SECONDS, retry=True)
        return found.sessions


def only(caller: Caller, *services: str) -> None:
    """Raises Forbidden unless one of `services` is calling."""
    if caller.service not in services:
        raise Forbidden("This call is internal")
