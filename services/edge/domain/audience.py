"""Who hears what: standings of accounts on agents, roles and keys of their copies (websocket.md, section 5)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from libs.errors import Invalid

KINDS = ("account", "agents", "sessions", "runs")
_KEY = re.compile(rf"({'|'.join(KINDS)})/([^/]+)")


def parse_key(key: object, account: str) -> tuple[str, str]:
    """(kind, id) of a subscription key. Raises Invalid when it is none, or another account's `account/…`."""
    match = _KEY.fullmatch(key) if isinstance(key, str) else None
    if match is None or (match[1] == "account" and match[2] != account):
        raise Invalid("Subscription key is not authorized")
    return match[1], match[2]


@dataclass(slots=True)
class Standing:
    """What one account is to one agent: `role` as last told by the owner of the data, `member` owner and members."""

    account: str
    agent_id: str
    owner: str
    role: str
    member: bool


def role_now(standing: Standing, *, public_read: bool, public_chat: bool) -> str | None:
    """The role an agent's new state gives a standing; None when it gives none any more."""
    if standing.account == standing.owner:
        return "owner"
    if standing.member:
        return member_role(standing.role, public_chat=public_chat)
    if not public_read:
        return None
    return "chatter" if public_chat else "reader"


def member_role(role: str, *, public_chat: bool) -> str:
    """The effective role of an accepted member: a reader of a public-chat agent may chat."""
    if role == "writer":
        return role
    return "chatter" if public_chat else "reader"


def hint_account(standing: Standing) -> str:
    """Whose account key a hint about the agent carries: members have their own, public readers see the owner's."""
    return standing.account if standing.member else standing.owner
