"""`attachment:<id>`: files of the session."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from seed.sessions.v1 import attachments_pb2 as pb
from seed.sessions.v1 import attachments_pb2_grpc

from libs.protocol.limits import INLINE_IMAGE_BYTES, TEXT_ATTACHMENT_BYTES
from libs.rpc import Peer
from services.runs.domain.addresses import Form, Reading
from services.runs.providers.contract import ImagePart
from services.runs.verbs.contract import Actor, Output
from services.runs.verbs.waiting import STREAM_S

IMAGES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
"""What models see."""
_TEXTS = ("text/", "application/json", "application/xml", "application/javascript", "application/yaml")
_UNKNOWN = ("", "application/octet-stream")


class Attachments:
    """Reads attachments of the actor's session."""

    form = Form("attachment:", "attachment:<id>")

    def __init__(self, sessions: Peer) -> None:
        self._peer = sessions
        self._stub: Any = sessions.stub(attachments_pb2_grpc.AttachmentsServiceStub)

    @asynccontextmanager
    async def open(self, actor: Actor, attachment_id: str) -> AsyncIterator[tuple[pb.Attachment, AsyncIterator[bytes]]]:
        """An attachment and its bytes as they come. Raises NotFound, Invalid, Unavailable."""
        request = pb.ReadAttachmentRequest(session_id=actor.session_id, attachment_id=attachment_id)
        async with self._peer.stream(
            self._stub.ReadAttachment, request, account=actor.owner, timeout_s=STREAM_S, retry=True
        ) as answers:
            first = await anext(aiter(answers))
            yield first.attachment, (answer.content async for answer in answers)

    async def read(self, actor: Actor, rest: str, given: Reading) -> Output:
        """An image for who sees images, text that is not too long, else what is known of the file."""
        async with self.open(actor, rest) as (info, content):
            mime = info.mime_type.partition(";")[0].strip().lower()
            value: dict[str, Any] = {"id": info.id, "name": info.name}
            value |= {"mimeType": info.mime_type} if info.HasField("mime_type") else {}
            value |= {"size": info.size}
            if mime.startswith("image/"):
                reason = _why_unseen(mime, info.size, actor)
                if not reason:
                    body = b"".join([piece async for piece in content])
                    summary = f"You see {info.name} ({mime}, {info.size} bytes) below."
                    return Output({"summary": summary, **value, "shownAsImage": True}, [ImagePart(body, mime)])
            elif info.size > TEXT_ATTACHMENT_BYTES:
                reason = f"it is longer than {TEXT_ATTACHMENT_BYTES} bytes"
            elif not mime.startswith(_TEXTS) and mime not in _UNKNOWN and not mime.endswith(("+json", "+xml")):
                reason = "it is not text"
            else:
                text = _text(b"".join([piece async for piece in content]))
                if text is not None:
                    summary = f"{info.name}: {info.size} bytes."
                    return Output({"summary": summary, **value, "shownAsImage": False, "content": text})
                reason = "it is not text"
        summary = (
            f"{info.name} ({info.mime_type or 'unknown type'}, {info.size} bytes) is not shown: {reason}. "
            "You can keep it: write ~/memory/<path> with options fromAttachment."
        )
        return Output({"summary": summary, **value, "shownAsImage": False})


def _why_unseen(mime: str, size: int, actor: Actor) -> str:
    if actor.by_user:
        return "images are shown to the model alone"
    if not actor.sees_images:
        return "the model does not take images"
    if mime not in IMAGES:
        return f"the model does not take images of type {mime}"
    if size > INLINE_IMAGE_BYTES:
        return f"it is larger than {INLINE_IMAGE_BYTES} bytes"
    return ""


def _text(body: bytes) -> str | None:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text
