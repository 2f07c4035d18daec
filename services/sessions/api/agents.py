"""AgentsService."""

from __future__ import annotations

import secrets

from seed.sessions.v1 import agents_pb2 as pb

from libs.rpc import Caller
from services.sessions.api.decoding import document, optional
from services.sessions.api.newcomers import Newcomers
from services.sessions.api.peers import Found, References, Runs
from services.sessions.domain import access, definition
from services.sessions.domain.ids import named, request_hash, request_key
from services.sessions.store.access import AccessStore
from services.sessions.store.agents import AgentStore
from services.sessions.store.deletions import DeletionStore
from services.sessions.store.repeats import Request
from services.sessions.store.sessions import SessionStore


def _block_id() -> str:
    return secrets.token_urlsafe(6)


class AgentsApi:
    """Serves agents and their definitions."""

    def __init__(
        self,
        access: AccessStore,
        agents: AgentStore,
        sessions: SessionStore,
        deletions: DeletionStore,
        references: References,
        runs: Runs,
        newcomers: Newcomers,
    ) -> None:
        self._access, self._agents, self._sessions = access, agents, sessions
        self._deletions, self._references, self._runs, self._newcomers = deletions, references, runs, newcomers

    async def ListAgents(self, request: pb.ListAgentsRequest, caller: Caller) -> pb.ListAgentsResponse:
        """The account's own agents and those it has joined."""
        return pb.ListAgentsResponse(agents=await self._agents.listed(caller.account))

    async def CreateAgent(self, request: pb.CreateAgentRequest, caller: Caller) -> pb.CreateAgentResponse:
        """Store a new agent of the account."""
        sent, client_id = document(request.definition), optional(request, "client_request_id")
        repeat = None
        if client_id is not None:
            key = request_key(client_id)
            repeat = Request(caller.account, "CreateAgent", key, request_hash(definition=sent))
        agent_id = await self._agents.created_before(repeat)
        if agent_id is None:
            new = definition.normalized(sent, _block_id)
            references = await self._check_references(caller.account, new)
            signs_as = references.signing_accounts.get(next(iter(definition.named_keys(new)), ""), "")
            agent_id, newcomer = await self._agents.create(caller.account, new, repeat, signs_as)
            if newcomer is not None:
                await self._newcomers.greet(newcomer)
        return pb.CreateAgentResponse(agent_id=agent_id)

    async def GetAgent(self, request: pb.GetAgentRequest, caller: Caller) -> pb.GetAgentResponse:
        """An agent with its sessions."""
        agent_id = named(request.agent_id, "Agent ID", "Agent")
        agent = await self._agents.get(caller.account, agent_id)
        return pb.GetAgentResponse(agent=agent, sessions=await self._sessions.of_agent(agent_id))

    async def UpdateAgent(self, request: pb.UpdateAgentRequest, caller: Caller) -> pb.UpdateAgentResponse:
        """Replace the whole definition."""
        agent_id = named(request.agent_id, "Agent ID", "Agent")
        found = await self._access.agent(caller.account, agent_id, access.WRITER)
        new = definition.normalized(document(request.definition), _block_id)

        def check(stored: definition.Definition) -> None:
            if found.role != access.OWNER:
                definition.check_grants(stored, new)

        # Grants come before references; the update checks them again, on the row it locks.
        check(document((await self._agents.get(caller.account, agent_id)).definition))
        await self._check_references(found.owner, new)
        agent = await self._agents.update(agent_id, found.role, new, check)
        return pb.UpdateAgentResponse(agent=agent, sessions=await self._sessions.of_agent(agent_id))

    async def DeleteAgent(self, request: pb.DeleteAgentRequest, caller: Caller) -> pb.DeleteAgentResponse:
        """Remove an agent and all it owns."""
        agent_id = named(request.agent_id, "Agent ID", "Agent")
        await self._access.agent(caller.account, agent_id, access.OWNER)
        await self._runs.detach(await self._deletions.agent(agent_id))
        return pb.DeleteAgentResponse(agent_id=agent_id)

    async def _check_references(self, owner: str, new: definition.Definition) -> Found:
        found = await self._references.find(owner, new["modelProvider"], definition.named_keys(new))
        definition.check_references(new, found.provider_type, found.missing_keys)
        return found
