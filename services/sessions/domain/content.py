"""The content of MessageSession: its rules (actions.md, Content rules) and the events it becomes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from libs.errors import Invalid, NotFound
from libs.protocol import derived_title, json_bytes, limits
from libs.protocol.text import byte_length, required_text
from libs.richtext import BlocksInvalid, message_markdown, validate_blocks


@dataclass(slots=True)
class Text:
    """One text part: it becomes one event."""

    text: str
    blocks: list[Any] | None = None
    client_message_id: str | None = None


@dataclass(slots=True)
class Content:
    """A message: at least one text; context lines and attachments go onto the first one's event."""

    texts: list[Text]
    context_lines: list[str] = field(default_factory=list)
    attachment_ids: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        """Title of the run, from the first text. PostgreSQL text cannot hold NUL."""
        return derived_title(self.texts[0].text).replace("\0", "\ufffd")


def parsed(value: object) -> Content:
    """The parts of a message. Raises Invalid with the documented texts."""
    if not isinstance(value, list) or not value:
        raise Invalid("Message content is required")
    content = Content(texts=[])
    for part in value:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "context":
            _add_context(content.context_lines, part.get("lines"))
        elif kind == "attachment":
            _add_attachment(content.attachment_ids, part.get("id"))
        elif kind == "text" and isinstance(part.get("text"), str):
            content.texts.append(_text(part))
        else:
            raise Invalid("Only text message content is supported")
    if not content.texts:
        raise Invalid("Message content is required")
    for text in content.texts:
        text.text = required_text(text.text, "Message content", sys.maxsize, allow_nul=True)
    if byte_length("\n".join(text.text for text in content.texts)) > limits.MESSAGE_BYTES:
        raise Invalid("Message content is too large")
    return content


def check_attachments(content: Content, known: Mapping[str, object]) -> None:
    """Raises NotFound `Attachment not found: <id>` for the first one the session does not have."""
    for attachment in content.attachment_ids:
        if attachment not in known:
            raise NotFound(f"Attachment not found: {attachment}")


def payloads(content: Content, account: str, signer: str, attachments: Mapping[str, Any]) -> list[bytes]:
    """The events of a message, as JSON. `attachments` gives the public SessionAttachmentInfo by id."""
    return [json_bytes(_payload(content, index, account, signer, attachments)) for index in range(len(content.texts))]


def _payload(content: Content, index: int, account: str, signer: str, attachments: Mapping[str, Any]) -> dict[str, Any]:
    text = content.texts[index]
    event: dict[str, Any] = {
        "type": "message",
        "role": "user",
        "content": message_markdown(text.text, text.blocks) if text.blocks else text.text,
        "rawMarkdown": text.text,
    }
    if text.blocks:
        event["blocks"] = text.blocks
    if index == 0 and content.context_lines:
        event["contextLines"] = content.context_lines
    if index == 0 and content.attachment_ids:
        event["attachments"] = [attachments[i] for i in content.attachment_ids]
    if text.client_message_id is not None:
        event["clientMessageId"] = text.client_message_id
    event["meta"] = {"accountId": account, "signerId": signer}
    return event


def _text(part: dict[str, Any]) -> Text:
    text = Text(part["text"], _well_formed(part.get("blocks")))
    if "clientMessageId" in part:
        text.client_message_id = required_text(part["clientMessageId"], "Client message ID", allow_nul=True)
    return text


def _well_formed(blocks: object) -> list[Any] | None:
    # Readers render the blocks of an event, so malformed ones are not passed on; the text says the same.
    if not isinstance(blocks, list) or not blocks:
        return None
    try:
        return validate_blocks(blocks, "Message")
    except BlocksInvalid:
        return None


def _add_context(lines: list[str], value: object) -> None:
    if not isinstance(value, list) or not all(isinstance(line, str) for line in value):
        raise Invalid("Context lines must be an array of strings")
    if len(lines) + len(value) > limits.CONTEXT_LINES:
        raise Invalid("Too many context lines")
    if any(byte_length(line) > limits.CONTEXT_LINE_BYTES for line in value):
        raise Invalid("Context line is too large")
    lines.extend(value)


def _add_attachment(ids: list[str], value: object) -> None:
    if not isinstance(value, str) or not limits.ATTACHMENT_ID.fullmatch(value):
        raise Invalid("Invalid attachment id")
    if value in ids:
        return
    if len(ids) >= limits.ATTACHMENTS_PER_MESSAGE:
        raise Invalid(f"A message can reference at most {limits.ATTACHMENTS_PER_MESSAGE} attachments")
    ids.append(value)
