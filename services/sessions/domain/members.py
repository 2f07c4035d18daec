"""Rules of an invitation (actions.md, InviteAgentCollaborator)."""

from __future__ import annotations

from libs.errors import Invalid
from libs.wire import is_account_id


def invitation(role: str, account: str, owner: str) -> tuple[str, str]:
    """Role and account of an invitation. Raises Invalid with the documented texts, in their order."""
    if role not in ("reader", "writer"):
        raise Invalid("Collaborator role must be reader or writer")
    if not is_account_id(account):
        raise Invalid("Collaborator account must be a valid Seed account ID")
    if account == owner:
        raise Invalid("The agent owner is already a member")
    return role, account
