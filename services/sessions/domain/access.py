"""Who may do what (actions.md, Conventions, Access)."""

from __future__ import annotations

from libs.errors import Forbidden, Internal, NotFound
from services.sessions.domain.fields import Fields

OWNER, WRITER, CHATTER, READER = "owner", "writer", "chatter", "reader"
_RANK = {READER: 1, CHATTER: 2, WRITER: 3, OWNER: 4}
_REFUSAL = {
    CHATTER: "Chat access is required",
    WRITER: "Write access is required",
    OWNER: "Only the agent owner can do this",
}


def effective_role(account: str, agent: Fields) -> str:
    """Role of `account` on an agent; empty when it may not even see it.

    `agent` has owner, public_read, public_chat, and member_role and member_status of the account's membership (None
    without one). A pending invitation gives nothing. An accepted reader of an agent in public chat is a chatter too:
    otherwise an invited account could do less than a stranger.
    """
    if account and account == agent["owner"]:
        return OWNER
    public = (CHATTER if agent["public_chat"] else READER) if agent["public_read"] else ""
    if agent["member_status"] == "accepted":
        role: str = agent["member_role"]
        return public if role == READER and public else role
    return public if account else ""


def is_member(account: str, agent: Fields) -> bool:
    """Whether the account owns the agent or has joined it."""
    return account == agent["owner"] or agent["member_status"] == "accepted"


def require(role: str, need: str, noun: str) -> None:
    """Let pass a role that is at least `need`.

    Raises NotFound `<noun> not found` for no role at all, else Forbidden with the text of `need`.
    """
    if need not in _RANK:
        raise Internal(f"Unknown access level {need}")
    if not role:
        raise NotFound(f"{noun} not found")
    if _RANK[role] < _RANK[need]:
        raise Forbidden(_REFUSAL[need])
