"""Public structs of internal messages. The WebSocket splices stored JSON as it is, the action API decodes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET
from seed.memory.v1 import tools_pb2
from seed.runs.v1 import runs_pb2
from seed.secrets.v1 import secrets_pb2
from seed.sessions.v1 import attachments_pb2, members_pb2, types_pb2
from seed.triggers.v1 import triggers_pb2

from libs.protocol.agents import AgentCollaboratorInfo, AgentInfo, AgentInviteInfo
from libs.protocol.memory import AgentToolInfo
from libs.protocol.responses import ProviderOAuthStatusResponse
from libs.protocol.runs import RunInfo, RunJournalEntryInfo
from libs.protocol.secrets import ProviderModelInfo, RedactedModelProvider, RedactedSecret, SigningIdentity
from libs.protocol.sessions import SessionAttachmentInfo, SessionEvent, SessionInfo
from libs.protocol.triggers import AgentTriggerFiring, AgentTriggerInfo
from libs.wire import decode

Embed = Callable[[bytes], Any]
"""Makes a field of JSON text."""
DECODED: Embed = msgspec.json.decode
SPLICED: Embed = msgspec.Raw


def _optional(message: Any, name: str) -> Any:
    return getattr(message, name) if message.HasField(name) else UNSET


def agent(a: types_pb2.Agent, role: str | None = None) -> AgentInfo:
    """An agent as an account with `role` sees it; by default the role the owner of the data reported."""
    shown: Any = role or a.access_role or UNSET
    definition: Any = decode(a.definition)
    status: Any = a.status
    return AgentInfo(
        id=a.id,
        account=a.account,
        definition=definition,
        state_dir=f"agents/{a.id}",
        status=status,
        created_at=a.created_at,
        updated_at=a.updated_at,
        access_role=shown,
        public_read=a.public_read,
        public_chat=a.public_chat,
    )


def session(s: types_pb2.Session, embed: Embed = DECODED) -> SessionInfo:
    """A session."""
    status: Any = s.status
    return SessionInfo(
        id=s.id,
        account=s.account,
        agent_id=s.agent_id,
        title=_optional(s, "title"),
        status=status,
        created_at=s.created_at,
        updated_at=s.updated_at,
        started_by_trigger=embed(s.started_by_trigger) if s.started_by_trigger else UNSET,
        parent_session_id=_optional(s, "parent_session_id"),
        run_id=_optional(s, "run_id"),
        plan=embed(s.plan) if s.plan else UNSET,
        child_session_count=s.child_session_count or UNSET,
        model_override=embed(s.model_override) if s.model_override else UNSET,
        description=_optional(s, "description"),
        continued_from=embed(s.continued_from) if s.continued_from else UNSET,
        continued_to=embed(s.continued_to) if s.continued_to else UNSET,
    )


def session_event(e: types_pb2.SessionEvent) -> SessionEvent:
    """A session event with its payload decoded."""
    return SessionEvent(id=e.id, session_id=e.session_id, seq=e.seq, event=DECODED(e.payload), created_at=e.created_at)


def attachment(a: attachments_pb2.Attachment) -> SessionAttachmentInfo:
    """An attachment of a session."""
    return SessionAttachmentInfo(
        id=a.id,
        session_id=a.session_id,
        name=a.name,
        mime_type=_optional(a, "mime_type"),
        size=a.size,
        created_at=a.created_at,
    )


def run(r: runs_pb2.Run, embed: Embed = DECODED, *, children: bool = True) -> RunInfo:
    """A run. `children` False leaves out how many there are, as in events."""
    kind: Any = r.kind
    origin: Any = r.origin
    status: Any = r.status
    return RunInfo(
        id=r.id,
        account=r.account,
        root_run_id=r.root_run_id,
        parent_run_id=_optional(r, "parent_run_id"),
        parent_tool_call_id=_optional(r, "parent_tool_call_id"),
        continued_from_run_id=_optional(r, "continued_from_run_id"),
        depth=r.depth,
        kind=kind,
        agent_id=_optional(r, "agent_id"),
        session_id=_optional(r, "session_id"),
        origin=origin,
        title=r.title,
        step_label=_optional(r, "step_label"),
        plan_step_id=_optional(r, "plan_step_id"),
        source_text=_optional(r, "source_text"),
        child_run_count=(children and r.child_run_count) or UNSET,
        status=status,
        wait=embed(r.wait) if r.wait else UNSET,
        plan=embed(r.plan) if r.plan else UNSET,
        error=embed(r.error) if r.error else UNSET,
        unmet_obligations=embed(r.unmet_obligations) if r.unmet_obligations else UNSET,
        usage=embed(r.usage) if r.usage else UNSET,
        created_at=r.created_at,
        started_at=_optional(r, "started_at"),
        finished_at=_optional(r, "finished_at"),
        updated_at=r.updated_at,
    )


def trigger(t: triggers_pb2.Trigger) -> AgentTriggerInfo:
    """A trigger."""
    return AgentTriggerInfo(
        id=t.id,
        account=t.account,
        agent_id=t.agent_id,
        name=t.name,
        enabled=t.enabled,
        source=DECODED(t.source),
        prompt=DECODED(t.prompt),
        continuation=DECODED(t.continuation) if t.continuation else UNSET,
        merged_into=_optional(t, "merged_into"),
        created_at=t.created_at,
        updated_at=t.updated_at,
        last_checked_at=_optional(t, "last_checked_at"),
        last_fired_at=_optional(t, "last_fired_at"),
        last_error=_optional(t, "last_error"),
    )


def firing(f: triggers_pb2.Firing) -> AgentTriggerFiring:
    """A firing of a trigger."""
    status: Any = f.status
    return AgentTriggerFiring(
        firing_id=f.id,
        session_id=_optional(f, "session_id"),
        status=status,
        error=_optional(f, "error"),
        fired_at=f.fired_at,
        activity_key=_optional(f, "activity_key"),
        activity_summary=f.activity_summary,
        matched_conditions=DECODED(f.matched_conditions) if f.matched_conditions else UNSET,
    )


def journal_entry(e: runs_pb2.JournalEntry) -> RunJournalEntryInfo:
    """A journal entry with its content decoded."""
    return RunJournalEntryInfo(run_id=e.run_id, seq=e.seq, entry=DECODED(e.entry), created_at=e.created_at)


def collaborator(c: members_pb2.Collaborator) -> AgentCollaboratorInfo:
    """A member or an invited account."""
    role: Any = c.role
    status: Any = c.status
    return AgentCollaboratorInfo(
        account_id=c.account_id, role=role, status=status, created_at=c.created_at, updated_at=c.updated_at
    )


def invite(i: members_pb2.Invite) -> AgentInviteInfo:
    """An open invitation."""
    role: Any = i.role
    return AgentInviteInfo(
        agent_id=i.agent_id,
        agent_name=i.agent_name,
        owner_account_id=i.owner_account_id,
        role=role,
        created_at=i.created_at,
        updated_at=i.updated_at,
    )


def secret(s: secrets_pb2.Secret) -> RedactedSecret:
    """A secret without its value."""
    metadata: Any = decode(s.metadata) if s.metadata else UNSET
    return RedactedSecret(id=s.id, name=s.name, metadata=metadata, created_at=s.created_at, updated_at=s.updated_at)


def provider(p: secrets_pb2.ModelProvider) -> RedactedModelProvider:
    """A model provider without its secrets."""
    mode: Any = p.auth_mode or UNSET
    status: Any = p.auth_status or UNSET
    return RedactedModelProvider(
        id=p.id,
        name=p.name,
        type=p.type,
        has_secrets=p.has_secrets,
        auth_mode=mode,
        auth_status=status,
        created_at=p.created_at,
        updated_at=p.updated_at,
    )


def provider_model(m: secrets_pb2.ProviderModel) -> ProviderModelInfo:
    """A model of a provider."""
    return ProviderModelInfo(id=m.id, name=m.name)


def sign_in(s: secrets_pb2.GetProviderOAuthStatusResponse) -> ProviderOAuthStatusResponse:
    """How a sign-in stands."""
    status: Any = s.status
    return ProviderOAuthStatusResponse(
        login_id=s.login_id, status=status, secret_name=s.secret_name or UNSET, error=s.error or UNSET
    )


def identity(i: secrets_pb2.SigningIdentity) -> SigningIdentity:
    """A signing identity."""
    return SigningIdentity(
        id=i.id,
        name=i.name,
        account_id=i.account_id or UNSET,
        label=i.label or UNSET,
        icon=i.icon or UNSET,
        server_url=i.server_url or UNSET,
        created_at=i.created_at,
        updated_at=i.updated_at,
    )


def tool(t: tools_pb2.Tool) -> AgentToolInfo:
    """A tool document, without what it is bound to."""
    return msgspec.convert(
        {
            **decode(t.document),
            "cid": t.cid,
            "enabled": t.enabled,
            "granted": t.granted,
            "createdAt": t.created_at,
            "updatedAt": t.updated_at,
        },
        AgentToolInfo,
    )
