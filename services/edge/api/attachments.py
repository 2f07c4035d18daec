"""Attachments of sessions, and uploads in chunks. Their bytes go on in pieces, and come back as they come."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

from seed.sessions.v1 import attachments_pb2 as pb

from libs.errors import Internal
from libs.protocol import responses as out
from libs.protocol import to_wire
from libs.protocol.limits import MIB
from libs.wire import encode_around
from services.edge.api import views
from services.edge.api.call import Call, Handler, Streamed, StreamHandler
from services.edge.domain.seq import after_seq
from services.edge.upstream import Peers

_PIECE_BYTES = MIB
_STORE_SECONDS = 120.0
"""What storing a file may take."""
_INT64_MAX = (1 << 63) - 1


class AttachmentActions:
    """Handlers of attachments and uploads; sessions owns the data."""

    def __init__(self, peers: Peers) -> None:
        self._peer, self._attachments = peers.sessions, peers.attachments_stub

    def handlers(self) -> dict[str, Handler]:
        """The actions served here."""
        return {
            "UploadSessionAttachment": self.upload,
            "BeginFileUpload": self.begin,
            "AppendFileUploadChunk": self.append,
            "CommitFileUpload": self.commit,
            "AbortFileUpload": self.abort,
        }

    def streams(self) -> dict[str, StreamHandler]:
        """The actions served here whose answers are not held."""
        return {"ReadSessionAttachment": self.read}

    async def upload(self, call: Call) -> out.UploadSessionAttachmentResponse:
        """UploadSessionAttachment."""
        content = call.binary("content") or b""
        start = pb.UploadAttachmentStart(
            session_id=call.text("sessionId"),
            name=call.text("name"),
            mime_type=call.text("mimeType"),
            size=len(content),
        )
        requests = _in_pieces(pb.UploadAttachmentRequest, start, content)
        r = await call.send(self._peer, self._attachments.UploadAttachment, requests, timeout_s=_STORE_SECONDS)
        return out.UploadSessionAttachmentResponse(attachment=views.attachment(r.attachment))

    async def read(self, call: Call) -> Streamed:
        """ReadSessionAttachment."""
        request = pb.ReadAttachmentRequest(session_id=call.text("sessionId"), attachment_id=call.text("attachmentId"))
        async with AsyncExitStack() as stack:
            answers = await stack.enter_async_context(
                call.stream(self._peer, self._attachments.ReadAttachment, request)
            )
            attachment = (await _first(answers)).attachment
            answer = out.ReadSessionAttachmentResponse(attachment=views.attachment(attachment), data=b"")
            head, tail = encode_around(to_wire(answer), "data", attachment.size)
            size = len(head) + attachment.size + len(tail)
            return Streamed(size, _around(head, answers, tail), stack.pop_all().aclose)

    async def begin(self, call: Call) -> out.BeginFileUploadResponse:
        """BeginFileUpload. Uploads to memory are refused by sessions as long as nothing here serves memory."""
        request = pb.BeginUploadRequest(target=call.cbor("target") or b"", size=_size(call.action.get("size")))
        r = await call.write(self._peer, self._attachments.BeginUpload, request)
        return out.BeginFileUploadResponse(upload_id=r.upload_id, max_chunk_bytes=r.max_chunk_bytes)

    async def append(self, call: Call) -> out.AppendFileUploadChunkResponse:
        """AppendFileUploadChunk."""
        content = call.binary("content") or b""
        start = pb.AppendUploadChunkStart(
            upload_id=call.text("uploadId"), offset=after_seq(call.action.get("offset")), size=len(content)
        )
        requests = _in_pieces(pb.AppendUploadChunkRequest, start, content)
        r = await call.send(self._peer, self._attachments.AppendUploadChunk, requests, timeout_s=_STORE_SECONDS)
        return out.AppendFileUploadChunkResponse(upload_id=r.upload_id, received=r.received)

    async def commit(self, call: Call) -> out.CommitFileUploadResponse:
        """CommitFileUpload."""
        request = pb.CommitUploadRequest(upload_id=call.text("uploadId"))
        r = await call.write(self._peer, self._attachments.CommitUpload, request, timeout_s=_STORE_SECONDS)
        return out.CommitFileUploadResponse(attachment=views.attachment(r.attachment))

    async def abort(self, call: Call) -> out.AbortFileUploadResponse:
        """AbortFileUpload."""
        request = pb.AbortUploadRequest(upload_id=call.text("uploadId"))
        r = await call.write(self._peer, self._attachments.AbortUpload, request)
        return out.AbortFileUploadResponse(upload_id=r.upload_id)


def _size(value: Any) -> int:
    """A positive integer; 0 for anything else."""
    usable = isinstance(value, int) and not isinstance(value, bool) and value > 0
    return min(value, _INT64_MAX) if usable else 0


def _in_pieces(kind: Any, start: Any, content: bytes) -> Iterator[Any]:
    yield kind(start=start)
    view = memoryview(content)
    for at in range(0, len(view), _PIECE_BYTES):
        yield kind(content=bytes(view[at : at + _PIECE_BYTES]))


async def _first(answers: AsyncIterator[Any]) -> Any:
    async for answer in answers:
        return answer
    raise Internal("Internal server error")


async def _around(head: bytes, answers: AsyncIterator[Any], tail: bytes) -> AsyncIterator[bytes]:
    yield head
    async for answer in answers:
        yield answer.content
    yield tail
