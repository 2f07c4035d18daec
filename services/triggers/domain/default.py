"""The trigger that a new agent begins with (triggers.md, section 8)."""

from __future__ import annotations

from typing import Any, Final

from libs.protocol import limits

_NAME: Final = "Mentions, replies, and comments for "
_PROMPT: Final = "Respond to the mention, reply, or comment on your document, performing any action requested."


def default_trigger(agent_name: str, account_id: str) -> dict[str, Any]:
    """The AgentTriggerInput for an agent that signs as `account_id`: whoever speaks to it there wakes it."""
    return {
        "name": _cut(_NAME + agent_name),
        "enabled": True,
        "source": {
            "type": "activity",
            "conditions": [
                {"id": "mention", "source": {"type": "user-mention", "mentionedAccounts": [account_id]}},
                {"id": "reply", "source": {"type": "comment-reply", "repliedToAccounts": [account_id]}},
                {
                    "id": "document-comment",
                    "source": {"type": "document-author-comment", "documentAuthors": [account_id]},
                },
            ],
        },
        "prompt": _PROMPT,
    }


def _cut(name: str) -> str:
    # An agent's name may be as long as a trigger's.
    return name.encode("utf-8", "replace")[: limits.LABEL_BYTES].decode("utf-8", "ignore").strip()
