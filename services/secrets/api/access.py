"""Asking sessions who may see an agent. Nothing is kept: a revocation holds from the next request on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from seed.sessions.v1 import access_pb2, access_pb2_grpc, agents_pb2, agents_pb2_grpc

from libs import wire
from libs.rpc import Caller, Peer

_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Access:
    """The calling account's access to an agent."""

    owner: str
    is_owner: bool


class AgentAccess:
    """Asks as the account that called."""

    def __init__(self, sessions: Peer) -> None:
        self._sessions = sessions
        self._access: Any = sessions.stub(access_pb2_grpc.AccessServiceStub)
        self._agents: Any = sessions.stub(agents_pb2_grpc.AgentsServiceStub)

    async def reader(self, caller: Caller, agent_id: str) -> Access:
        """The access of a reader or better. Raises NotFound `Agent not found` for anybody else."""
        request = access_pb2.ResolveAccessRequest(agent_id=agent_id, need="reader")
        answer = await self._ask(self._access.ResolveAccess, request, caller)
        return Access(answer.owner, answer.role == "owner")

    async def granted_signing_keys(self, caller: Caller, agent_id: str) -> frozenset[str]:
        """Names of the signing keys that the agent's definition grants. Raises NotFound."""
        answer = await self._ask(self._agents.GetAgent, agents_pb2.GetAgentRequest(agent_id=agent_id), caller)
        definition = wire.decode(answer.agent.definition)
        if "signingKeys" in definition:
            return frozenset(definition["signingKeys"])
        # The older form of a definition names one key.
        return frozenset([definition["signingKey"]] if definition.get("signingKey") else [])

    async def _ask(self, method: Any, request: Any, caller: Caller) -> Any:
        return await self._sessions.call(
            method, request, account=caller.account, signer=caller.signer, timeout_s=_SECONDS, retry=True
        )
