"""Asking sessions who may do what with an agent. Nothing is kept: a revocation holds from the next call on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from seed.sessions.v1 import access_pb2, access_pb2_grpc

from libs.errors import Forbidden
from libs.rpc import Caller, Peer

READER, WRITER = "reader", "writer"

_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Access:
    """The calling account's access to an agent. `owner` is the account all of the agent's data belongs to."""

    agent_id: str
    owner: str
    definition: bytes = b""


class AgentAccess:
    """Asks as the account that called."""

    def __init__(self, sessions: Peer) -> None:
        self._sessions = sessions
        self._stub: Any = sessions.stub(access_pb2_grpc.AccessServiceStub)

    async def resolve(
        self, caller: Caller, agent_id: str, need: str, noun: str = "Agent", *, with_definition: bool = False
    ) -> Access:
        """Access of `need` (reader or writer) or better; on demand with the DAG-CBOR of the agent's definition.

        Raises NotFound `<noun> not found` for who may not see the agent, Forbidden for who may do less, Invalid for an
        empty id.
        """
        if not caller.account:
            raise Forbidden("This call needs an acting account")
        request = access_pb2.ResolveAccessRequest(
            agent_id=agent_id, need=need, noun=noun, with_definition=with_definition
        )
        answer = await self._sessions.call(
            self._stub.ResolveAccess,
            request,
            account=caller.account,
            signer=caller.signer,
            timeout_s=_SECONDS,
            retry=True,
        )
        return Access(answer.agent_id, answer.owner, answer.definition)
