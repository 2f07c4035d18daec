"""One agent for everybody in the table, with what it has, what was deleted, and the account that acts."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from libs.client import Client, Key
from libs.protocol.secrets import ModelProviderConfig
from libs.protocol.triggers import AgentTriggerInfo
from libs.wire import sign_capability
from tests.authorization.table import Who
from tests.support.kit import Owner, World

Revoke = Callable[[str, str], Awaitable[None]]
"""Takes the right to sign for an account (the first) from a key (the second)."""

GONE_PROVIDER = "was-mine"
CHAT = (Who.CHATTER, Who.GUEST)


@dataclass
class Place:
    """An agent with a session in which a turn has run, and a trigger."""

    owner: Owner
    agent: str
    session: str
    run: str
    trigger: str
    uploads: dict[bool, str] = field(default_factory=dict)
    """Ids of uploads to a session (False) and to memory (True)."""


@dataclass
class Holdings:
    """What an account has of its own, by the names it uses in requests."""

    provider: str
    identity: str
    login: str


@dataclass
class Scene:
    """What one of the table's rows of people sees: `own` is the agent their standing is about."""

    who: Who
    world: World
    client: Client
    own: Place
    deleted: Place
    gone: Holdings

    @property
    def owner(self) -> Client:
        """The owner of the agent."""
        return self.own.owner.client

    async def another(self) -> str:
        """A fresh agent on which the standing is the same."""
        owner = self.own.owner
        agent = await owner.client.create_agent(owner.definition())
        await stand(self.who, owner.client, agent, self.client)
        return agent


async def provider(client: Client, name: str, url: str) -> str:
    """A provider of the account; its name."""
    await client.set_secret(f"{name}-key", b"sk-own")
    refs = {"apiKey": f"{name}-key"}
    await client.set_provider(name, ModelProviderConfig(type="custom", base_url=url, secret_refs=refs))
    return name


async def holdings(client: Client, url: str) -> Holdings:
    """A provider, an identity and a sign-in of an account of which nobody else knows."""
    return Holdings(await provider(client, "theirs", url), await identity(client), await sign_in(client))


async def identity(client: Client) -> str:
    """A signing identity of the account; its name."""
    return (await client.call("ImportSigningIdentity", seed=Key.generate().seed)).identity.name


async def sign_in(client: Client) -> str:
    """A pending sign-in of the account; its id."""
    return (await client.call("StartProviderOAuth", providerType="openai")).login_id


async def place(owner: Owner, agent: str = "") -> Place:
    """A session of the agent (by default a new one) in which a turn has run."""
    agent = agent or await owner.client.create_agent(owner.definition())
    session = await owner.client.create_session(agent)
    await owner.client.message(session, "hello")
    (run,) = await owner.runs(session)
    return Place(owner, agent, session, run.id, (await trigger(owner.client, agent)).id)


async def trigger(client: Client, agent: str) -> AgentTriggerInfo:
    """A trigger of the agent that never fires."""
    source = {"type": "user-mention", "mentionedAccounts": [client.account]}
    new = {"name": "Never", "enabled": False, "prompt": "Look.", "source": source}
    return (await client.call("CreateAgentTrigger", agentId=agent, trigger=new)).trigger


async def stand(who: Who, owner: Client, agent: str, client: Client) -> None:
    """Give the account of `client` its standing on the owner's agent."""
    if who in (Who.PUBLIC, *CHAT):
        await owner.call("SetAgentPublicRead", agentId=agent, publicRead=True)
    if who in CHAT:
        await owner.call("SetAgentPublicChat", agentId=agent, publicChat=True)
    if who in (Who.WRITER, Who.READER, Who.GUEST, Who.INVITED, Who.REMOVED):
        role = "reader" if who in (Who.READER, Who.GUEST) else "writer"
        await owner.call("InviteAgentCollaborator", agentId=agent, accountId=client.account, role=role)
        if who is not Who.INVITED:
            await client.call("AcceptAgentInvite", agentId=agent)
        if who is Who.REMOVED:
            await owner.call("RemoveAgentCollaborator", agentId=agent, accountId=client.account)


async def scene(who: Who, world: World, revoke: Revoke) -> Scene:
    """Everything ready for the requests of `who`."""
    owner = await world.owner()
    own = await place(owner, owner.agent)
    deleted = await place(owner)
    client = await _client(who, world, owner.client)
    await stand(who, owner.client, own.agent, client)
    await stand(who, owner.client, deleted.agent, client)
    await owner.client.call("DeleteAgent", agentId=deleted.agent)
    gone = Holdings(GONE_PROVIDER, await identity(client), "")
    await client.set_provider(GONE_PROVIDER, ModelProviderConfig(type="ollama"))
    await client.call("DeleteModelProvider", name=GONE_PROVIDER)
    await client.call("DeleteSigningIdentity", name=gone.identity)
    if who is Who.FORMER:
        await revoke(client.account, client.signer.key.id)
    return Scene(who, world, client, own, deleted, gone)


async def _client(who: Who, world: World, owner: Client) -> Client:
    if who is Who.OWNER:
        return owner
    if who not in (Who.DELEGATE, Who.FORMER):
        return world.client()
    delegate = Key.generate()
    proof = sign_capability(owner.signer.key, delegate.principal, ts=int(time.time() * 1000))
    await world.client(key=delegate).call("RegisterSigner", capability=proof)
    return world.client(key=delegate, account=owner.account)
