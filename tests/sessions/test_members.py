"""Collaborators, invitations and public access over gRPC."""

from __future__ import annotations

import pytest

from tests.sessions.world import World

pytestmark = pytest.mark.asyncio(loop_scope="session")

CHANGED, INVITES = "agent-collaborators-changed", "agent-invites-changed"


async def test_an_invitation_is_accepted(world: World) -> None:
    c, m = world.account(), world.account()
    agent_id = await c.agent(name="Shared")
    owner_hears, member_hears = await world.ears(c.id), await world.ears(m.id)
    got = await c("InviteAgentCollaborator", agent_id=agent_id, account_id=m.id, role="reader")
    assert (got.collaborator.account_id, got.collaborator.role, got.collaborator.status) == (m.id, "reader", "pending")
    (invite,) = (await m("ListAgentInvites")).invites
    assert (invite.agent_id, invite.agent_name, invite.owner_account_id, invite.role) == (
        agent_id,
        "Shared",
        c.id,
        "reader",
    )
    (hint,) = await owner_hears.until(CHANGED)
    assert hint.agent_id == agent_id and not hint.account_hint.accounts
    (hint,) = await member_hears.until(INVITES)
    assert list(hint.account_hint.accounts) == [m.id] and hint.account == c.id and hint.agent_id == agent_id

    agent = (await m("AcceptAgentInvite", agent_id=agent_id)).agent
    assert (agent.id, agent.access_role) == (agent_id, "reader")
    await owner_hears.until(CHANGED)
    await member_hears.until(INVITES)
    assert not (await m("ListAgentInvites")).invites
    await m.fails(404, "Agent invitation not found", "AcceptAgentInvite", agent_id=agent_id)
    await m.fails(404, "Agent invitation not found", "DeclineAgentInvite", agent_id=agent_id)

    got = await c("InviteAgentCollaborator", agent_id=agent_id, account_id=m.id, role="writer")
    assert (got.collaborator.role, got.collaborator.status) == ("writer", "accepted"), "an accepted member stays one"
    assert (await m("ResolveAccess", agent_id=agent_id, need="writer")).role == "writer"


async def test_an_invitation_is_declined_or_withdrawn(world: World) -> None:
    c, m = world.account(), world.account()
    agent_id = await c.agent()
    for who, call, fields in (
        (m, "DeclineAgentInvite", {}),
        (c, "RemoveAgentCollaborator", {"account_id": m.id}),
    ):
        await c("InviteAgentCollaborator", agent_id=agent_id, account_id=m.id, role="writer")
        owner_hears, member_hears = await world.ears(c.id), await world.ears(m.id)
        await who(call, agent_id=agent_id, **fields)
        await owner_hears.until(CHANGED)
        await member_hears.until(INVITES)
        assert not (await m("ListAgentInvites")).invites
    await c.fails(404, "Collaborator not found", "RemoveAgentCollaborator", agent_id=agent_id, account_id=m.id)
    await c.fails(404, "Collaborator not found", "RemoveAgentCollaborator", agent_id=agent_id, account_id="a\0b")


async def test_a_removed_member_sees_nothing(world: World) -> None:
    c = world.account()
    agent_id = await c.agent()
    m = await world.member(c, agent_id)
    session_id = await m.session(agent_id)
    await c("RemoveAgentCollaborator", agent_id=agent_id, account_id=m.id)
    await m.fails(404, "Session not found", "GetSession", session_id=session_id)
    await m.fails(404, "Agent not found", "GetAgent", agent_id=agent_id)
    assert not (await m("ListAgents")).agents and not (await m("ListSessions")).sessions


async def test_rules_of_an_invitation(world: World) -> None:
    c = world.account()
    agent_id = await c.agent()
    for role, account, text in (
        ("owner", "", "Collaborator role must be reader or writer"),
        ("reader", "x", "Collaborator account must be a valid Seed account ID"),
        ("reader", c.id, "The agent owner is already a member"),
    ):
        await c.fails(400, text, "InviteAgentCollaborator", agent_id=agent_id, account_id=account, role=role)
    writer = await world.member(c, agent_id)
    text = "Only the agent owner can do this"
    await writer.fails(403, text, "InviteAgentCollaborator", agent_id=agent_id, account_id="x", role="x")


async def test_collaborators(world: World) -> None:
    c = world.account()
    agent_id = await c.agent()
    pending = await world.member(c, agent_id, "reader", accept=False)
    first, second = await world.member(c, agent_id, "writer"), await world.member(c, agent_id, "reader")
    await world.sql("UPDATE agent_members SET updated_at = updated_at - 9 WHERE account = $1", first.id)
    got = await c("ListAgentCollaborators", agent_id=agent_id)
    assert [(x.account_id, x.role, x.status) for x in got.collaborators] == [
        (c.id, "owner", "accepted"),
        (second.id, "reader", "accepted"),
        (first.id, "writer", "accepted"),
        (pending.id, "reader", "pending"),
    ]
    seen = await second("ListAgentCollaborators", agent_id=agent_id)
    assert [x.account_id for x in seen.collaborators] == [c.id, second.id, first.id]
    assert (seen.public_read, seen.public_chat) == (False, False)


async def test_public_access(world: World) -> None:
    c, x = world.account(), world.account()
    agent_id = await c.agent()
    session_id = await c.session(agent_id)
    ears = await world.ears(c.id)
    text = "Enable public access before enabling public chat"
    await c.fails(400, text, "SetAgentPublicChat", agent_id=agent_id, public_chat=True)
    assert not (await c("SetAgentPublicChat", agent_id=agent_id, public_chat=False)).agent.public_chat
    await ears.until("agent_changed", CHANGED)
    agent = (await c("SetAgentPublicRead", agent_id=agent_id, public_read=True)).agent
    assert agent.public_read and agent.access_role == "owner"
    changed, _ = await ears.until("agent_changed", CHANGED)
    assert changed.agent_changed.agent.public_read

    assert (await x("GetAgent", agent_id=agent_id)).agent.access_role == "reader"
    found = await x("ResolveAccess", session_id=session_id)
    assert (found.role, found.member) == ("reader", False)
    await x.fails(403, "Chat access is required", "MessageSession", session_id=session_id)
    assert not (await x("ListAgents")).agents and not (await x("ListSessions")).sessions
    asked = await x("ListSessions", agent_id=agent_id)
    assert [s.id for s in asked.sessions] == [session_id]
    assert [(a.id, a.access_role) for a in asked.agents] == [(agent_id, "reader")]

    await c("SetAgentPublicChat", agent_id=agent_id, public_chat=True)
    assert (await x.say(session_id)).turn.owner == c.id
    assert await x.session(agent_id)
    await x.fails(403, "Write access is required", "DeleteSession", session_id=session_id)
    agent = (await c("SetAgentPublicRead", agent_id=agent_id, public_read=False)).agent
    assert not agent.public_read and not agent.public_chat
    await x.fails(404, "Session not found", "MessageSession", session_id=session_id)


async def test_members_are_in_the_prompt_by_time_of_joining(world: World) -> None:
    c = world.account()
    agent_id = await c.agent()
    session_id = await c.session(agent_id)
    assert "conversation_members" not in (await c("GetSession", session_id=session_id)).system_prompt
    late, early = await world.member(c, agent_id, "reader", accept=False), await world.member(c, agent_id, "writer")
    await late("AcceptAgentInvite", agent_id=agent_id)
    await world.sql("UPDATE agent_members SET accepted_at = accepted_at - 9 WHERE account = $1", early.id)
    text = (await c("GetSession", session_id=session_id)).system_prompt
    assert text.index(c.id) < text.index(early.id) < text.index(late.id)
    turn = (await c.say(session_id)).turn
    begun = (await world.begin(turn.run_id)).system_prompt
    assert begun.rpartition("<conversation_members>")[2] == text.rpartition("<conversation_members>")[2]


async def test_the_audit_tells_who_changed_members(world: World) -> None:
    c, m, ops = world.account(), world.account(), world.client("ops")
    agent_id = await c.agent()
    await c("InviteAgentCollaborator", agent_id=agent_id, account_id=m.id, role="reader")
    await m("AcceptAgentInvite", agent_id=agent_id)
    await c("InviteAgentCollaborator", agent_id=agent_id, account_id=m.id, role="writer")
    await c("RemoveAgentCollaborator", agent_id=agent_id, account_id=m.id)
    await c("InviteAgentCollaborator", agent_id=agent_id, account_id=m.id, role="reader")
    await m("DeclineAgentInvite", agent_id=agent_id)
    await m.fails(404, "Agent invitation not found", "DeclineAgentInvite", agent_id=agent_id)
    await c.fails(
        400,
        "Enable public access before enabling public chat",
        "SetAgentPublicChat",
        agent_id=agent_id,
        public_chat=True,
    )
    await c("SetAgentPublicRead", agent_id=agent_id, public_read=True)
    await c("SetAgentPublicChat", agent_id=agent_id, public_chat=True)
    entries = list((await ops("ListAudit", account=c.id)).entries)
    assert [(e.action, e.actor, e.detail) for e in reversed(entries)] == [
        ("member.invite", c.id, f"{m.id} reader"),
        ("member.accept", m.id, f"{m.id} reader"),
        ("member.set-role", c.id, f"{m.id} writer"),
        ("member.remove", c.id, m.id),
        ("member.invite", c.id, f"{m.id} reader"),
        ("member.decline", m.id, m.id),
        ("agent.set-public-read", c.id, "on"),
        ("agent.set-public-chat", c.id, "on"),
    ]
    assert {(e.account, e.subject, e.via) for e in entries} == {(c.id, agent_id, "edge")}
    await c.fails(403, "This service may not make this call", "ListAudit")
