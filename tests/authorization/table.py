"""Who may do what: the one table behind `docs/authorization.md` and the test that proves it.

A rule says what an action needs; `expected` derives from it the answer that everybody gets.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Who(StrEnum):
    """Who signs, by what they are to the agent that is named."""

    OWNER = "owner"
    WRITER = "writer"
    READER = "reader"
    CHATTER = "public chatter"
    GUEST = "chatting reader"
    PUBLIC = "public reader"
    INVITED = "pending invitee"
    STRANGER = "stranger"
    REMOVED = "removed member"
    DELEGATE = "delegated signer"
    FORMER = "revoked delegate"


WHO: dict[Who, str] = {
    Who.OWNER: "the account that made the agent",
    Who.WRITER: "accepted an invitation as writer",
    Who.READER: "accepted an invitation as reader of an agent that is not public",
    Who.CHATTER: "no member, while the agent is open to public chat",
    Who.GUEST: "accepted an invitation as reader of an agent that is open to public chat: does what a stranger may",
    Who.PUBLIC: "no member, while the agent is open to public reading",
    Who.INVITED: "has an invitation and did not answer it",
    Who.STRANGER: "no member of an agent that is not public",
    Who.REMOVED: "was a writer and was removed",
    Who.DELEGATE: "a key that the owner authorized, acting for the owner",
    Who.FORMER: "a key whose authorization an operator revoked, acting for the owner",
}


class Whose(StrEnum):
    """What the id in the request names."""

    OWN = "own"
    FOREIGN = "foreign"
    DELETED = "deleted"


class Need(StrEnum):
    """What an action asks of who signs (the levels of the protocol, and two special ones)."""

    ANYBODY = "anybody"
    SIGNER = "the delegate itself"
    ACCOUNT = "account"
    INVITEE = "invitee"
    READER = "reader"
    CHATTER = "chatter"
    WRITER = "writer"
    OWNER = "owner"


NEEDS: dict[Need, str] = {
    Need.ANYBODY: "any account",
    Need.SIGNER: "any key, for itself: what counts is the capability it brings",
    Need.ACCOUNT: "acts on what the acting account has, whoever it is; what others have is not found",
    Need.INVITEE: "who has a pending invitation to the agent",
    Need.READER: "owner, accepted members, and everybody while public reading is on",
    Need.CHATTER: "owner, accepted writers, and everybody who may read while public chat is on",
    Need.WRITER: "owner and accepted writers",
    Need.OWNER: "owner",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """HTTP status and, of a refusal, the message."""

    status: int
    message: str = ""

    def __str__(self) -> str:
        return f"{self.status} {self.message}".strip()


OK = Answer(200)
UNAUTHORIZED = Answer(401, "Signer is not authorized for account")
REFUSALS = {
    Need.CHATTER: Answer(403, "Chat access is required"),
    Need.WRITER: Answer(403, "Write access is required"),
    Need.OWNER: Answer(403, "Only the agent owner can do this"),
}

_RANK = {Need.READER: 1, Need.CHATTER: 2, Need.WRITER: 3, Need.OWNER: 4}
_RIGHTS = {
    Who.OWNER: 4,
    Who.DELEGATE: 4,
    Who.WRITER: 3,
    Who.CHATTER: 2,
    Who.GUEST: 2,
    Who.READER: 1,
    Who.PUBLIC: 1,
}
_ALL = tuple(Whose)
_NAMES_NOTHING = (Whose.OWN,)
_NEVER_DELETED = (Whose.OWN, Whose.FOREIGN)


@dataclass(frozen=True, slots=True)
class Rule:
    """What one action needs.

    `variant` names the argument that chooses among several uses of the action. `noun` is what looks missing to who may
    not see it, `missing` the whole answer where it is not 404 `<noun> not found`. `allowed` is what who may do it gets
    here: for instance, nothing can be retried in a session whose last run did not fail. `whose`: what an id can name.
    """

    action: str
    need: Need
    noun: str = "Agent"
    variant: str = ""
    allowed: Answer = OK
    missing: Answer | None = None
    whose: tuple[Whose, ...] = _ALL

    @property
    def name(self) -> str:
        """The action with its variant."""
        return f"{self.action} ({self.variant})" if self.variant else self.action


def expected(rule: Rule, who: Who, whose: Whose) -> Answer:
    """The answer to `who` asking for `rule`'s action with an id that names what is own, another's or deleted."""
    not_found = rule.missing or Answer(404, f"{rule.noun} not found")
    if rule.need is Need.SIGNER:
        return rule.allowed if whose is Whose.OWN else not_found
    if who is Who.FORMER:
        return UNAUTHORIZED
    if whose is not Whose.OWN:
        return not_found
    if rule.need in (Need.ANYBODY, Need.ACCOUNT):
        return rule.allowed
    if rule.need is Need.INVITEE:
        return rule.allowed if who is Who.INVITED else not_found
    rights = _RIGHTS.get(who, 0)
    if not rights:
        return not_found
    return rule.allowed if rights >= _RANK[rule.need] else REFUSALS[rule.need]


AREAS: dict[str, tuple[Rule, ...]] = {
    "Agents and members": (
        Rule("ListAgents", Need.ACCOUNT, whose=_NAMES_NOTHING),
        Rule("CreateAgent", Need.ACCOUNT, whose=_NAMES_NOTHING),
        Rule("GetAgent", Need.READER),
        Rule("UpdateAgent", Need.WRITER),
        Rule("DeleteAgent", Need.OWNER),
        Rule("ListAgentInvites", Need.ACCOUNT, whose=_NAMES_NOTHING),
        Rule("ListAgentCollaborators", Need.READER),
        Rule("InviteAgentCollaborator", Need.OWNER),
        Rule("RemoveAgentCollaborator", Need.OWNER),
        Rule("SetAgentPublicRead", Need.OWNER),
        Rule("SetAgentPublicChat", Need.OWNER),
        Rule("AcceptAgentInvite", Need.INVITEE, "Agent invitation"),
        Rule("DeclineAgentInvite", Need.INVITEE, "Agent invitation"),
    ),
    "Sessions": (
        Rule("CreateSession", Need.CHATTER),
        Rule("ListSessions", Need.ACCOUNT, whose=_NAMES_NOTHING),
        Rule("ListSessions", Need.READER, variant="agentId"),
        Rule("ListSessions", Need.READER, "Session", "parentSessionId"),
        Rule("GetSession", Need.READER, "Session"),
        Rule("UpdateSession", Need.WRITER, "Session"),
        Rule("DeleteSession", Need.WRITER, "Session"),
        Rule("MessageSession", Need.CHATTER, "Session"),
        Rule("StopSession", Need.CHATTER, "Session"),
        Rule(
            "RetrySession",
            Need.CHATTER,
            "Session",
            allowed=Answer(400, "Nothing to retry: the latest run did not fail"),
        ),
        Rule("InvokeSessionTool", Need.WRITER, "Session"),
    ),
    "Attachments and uploads": (
        Rule("UploadSessionAttachment", Need.CHATTER, "Session"),
        Rule("ReadSessionAttachment", Need.READER, "Session"),
        Rule("BeginFileUpload", Need.CHATTER, "Session", "to a session"),
        Rule("AppendFileUploadChunk", Need.CHATTER, "Upload"),
        Rule("CommitFileUpload", Need.CHATTER, "Upload"),
        Rule("AbortFileUpload", Need.CHATTER, "Upload"),
        Rule("BeginFileUpload", Need.WRITER, variant="to memory"),
        Rule("AppendFileUploadChunk", Need.WRITER, "Upload", "to memory"),
        Rule("CommitFileUpload", Need.WRITER, "Upload", "to memory"),
        Rule("AbortFileUpload", Need.WRITER, "Upload", "to memory"),
    ),
    "Runs": (
        Rule("GetRun", Need.READER, "Run"),
        Rule("ListRuns", Need.READER, "Run", "rootRunId"),
        Rule("ListRuns", Need.READER, "Session", "sessionId"),
        Rule("ListRuns", Need.READER, "Agent", "agentId"),
        Rule("CancelRun", Need.WRITER, "Run"),
        Rule("SignalRun", Need.WRITER, "Run"),
        Rule("GetRunJournal", Need.READER, "Run"),
    ),
    "Memory files": (
        Rule("ListAgentMemory", Need.READER),
        Rule("ReadAgentMemoryFile", Need.READER),
        Rule("WriteAgentMemoryFile", Need.WRITER),
        Rule("DeleteAgentMemoryFile", Need.WRITER),
        Rule(
            "DownloadAgentMemoryFile",
            Need.WRITER,
            allowed=Answer(400, "Download URL must use http or https"),
        ),
        Rule("UploadAgentMemoryFileToIpfs", Need.WRITER),
    ),
    "Tool documents": (
        Rule("ListAgentTools", Need.READER),
        Rule("SaveAgentTool", Need.WRITER),
        Rule("DeleteAgentTool", Need.WRITER),
    ),
    "Triggers": (
        Rule("ListAgentTriggers", Need.READER),
        Rule("GetAgentTrigger", Need.READER, "Agent trigger"),
        Rule("CreateAgentTrigger", Need.WRITER),
        Rule("UpdateAgentTrigger", Need.WRITER, "Agent trigger"),
        Rule("DeleteAgentTrigger", Need.WRITER, "Agent trigger"),
        Rule("CombineAgentTriggers", Need.WRITER, "Agent trigger"),
    ),
    "Secrets, providers, signing identities": (
        Rule("SetSecret", Need.ACCOUNT, whose=_NAMES_NOTHING),
        Rule("SetModelProvider", Need.ACCOUNT, whose=_NAMES_NOTHING),
        Rule("DeleteModelProvider", Need.ACCOUNT, "Model provider"),
        Rule("ListModelProviders", Need.ACCOUNT, whose=_NAMES_NOTHING),
        Rule("ListModelProviders", Need.READER, variant="agentId"),
        Rule("ListProviderModels", Need.ACCOUNT, "Model provider"),
        Rule("ListProviderModels", Need.READER, variant="agentId"),
        Rule("StartProviderOAuth", Need.ACCOUNT, whose=_NAMES_NOTHING),
        Rule(
            "SubmitProviderOAuthCode",
            Need.ACCOUNT,
            missing=Answer(400, "Sign-in not found"),
            whose=_NEVER_DELETED,
        ),
        Rule("GetProviderOAuthStatus", Need.ACCOUNT, "Sign-in", whose=_NEVER_DELETED),
        Rule("CancelProviderOAuth", Need.ACCOUNT, "Sign-in", whose=_NEVER_DELETED),
        Rule("ListSigningIdentities", Need.ACCOUNT, whose=_NAMES_NOTHING),
        Rule("ListSigningIdentities", Need.READER, variant="agentId"),
        Rule("CreateSigningIdentity", Need.ACCOUNT, whose=_NAMES_NOTHING),
        Rule("ImportSigningIdentity", Need.ACCOUNT, whose=_NAMES_NOTHING),
        Rule("UpdateSigningIdentity", Need.ACCOUNT, "Signing identity"),
        Rule("DeleteSigningIdentity", Need.ACCOUNT, "Signing identity"),
        Rule(
            "RegisterSigner",
            Need.SIGNER,
            missing=Answer(400, "Capability delegate does not match envelope signer"),
            whose=_NEVER_DELETED,
        ),
    ),
    "Subscriptions (WebSocket)": (
        Rule(
            "Subscribe",
            Need.ACCOUNT,
            variant="account/…",
            missing=Answer(400, "Subscription key is not authorized"),
            whose=_NEVER_DELETED,
        ),
        Rule("Subscribe", Need.READER, "Agent", "agents/…"),
        Rule("Subscribe", Need.READER, "Session", "sessions/…"),
        Rule("Subscribe", Need.READER, "Run", "runs/…"),
        Rule(
            "Subscribe",
            Need.ANYBODY,
            variant="over HTTP",
            allowed=Answer(400, "Subscribe is only supported over WebSocket"),
            whose=_NAMES_NOTHING,
        ),
        Rule(
            "Unsubscribe",
            Need.ANYBODY,
            variant="over HTTP",
            allowed=Answer(400, "Unsubscribe is only supported over WebSocket"),
            whose=_NAMES_NOTHING,
        ),
    ),
}
"""All rules, by area."""

RULES: tuple[Rule, ...] = tuple(rule for rules in AREAS.values() for rule in rules)
