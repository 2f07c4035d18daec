"""Attachments of sessions, and uploads in chunks. Their bytes go on in pieces, and come back as they come."""

from __future__ import annotations

from contextlib import AsyncExitStack

from seed.sessions.v1 import attachments_pb2 as pb

from libs.protocol import responses as out
from libs.protocol import to_wire
from libs.wire import encode_around
from services.edge.api import views
from services.edge.api.call import Call, Handler, Streamed, StreamHandler
from services.edge.api.memory import MemoryActions, is_memory_target, is_memory_upload
from services.edge.api.pieces import around, declared_size, first, in_pieces
from services.edge.domain.seq import after_seq
from services.edge.upstream import Peers

_STORE_SECONDS = 120.0
"""What storing a file may take."""


class AttachmentActions:
    """Handlers of attachments and uploads; sessions owns the data, memory that of uploads to it."""

    def __init__(self, peers: Peers, memory: MemoryActions) -> None:
        self._memory = memory
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
        requests = in_pieces(pb.UploadAttachmentRequest, start, content)
        r = await call.send(self._peer, self._attachments.UploadAttachment, requests, timeout_s=_STORE_SECONDS)
        return out.UploadSessionAttachmentResponse(attachment=views.attachment(r.attachment))

    async def read(self, call: Call) -> Streamed:
        """ReadSessionAttachment."""
        request = pb.ReadAttachmentRequest(session_id=call.text("sessionId"), attachment_id=call.text("attachmentId"))
        async with AsyncExitStack() as stack:
            answers = await stack.enter_async_context(
                call.stream(self._peer, self._attachments.ReadAttachment, request)
            )
            attachment = (await first(answers)).attachment
            answer = out.ReadSessionAttachmentResponse(attachment=views.attachment(attachment), data=b"")
            head, tail = encode_around(to_wire(answer), "data", attachment.size)
            size = len(head) + attachment.size + len(tail)
            return Streamed(size, around(head, answers, tail), stack.pop_all().aclose)

    async def begin(self, call: Call) -> out.BeginFileUploadResponse:
        """BeginFileUpload."""
        if is_memory_target(call):
            return await self._memory.begin(call)
        request = pb.BeginUploadRequest(target=call.cbor("target") or b"", size=declared_size(call.action.get("size")))
        r = await call.write(self._peer, self._attachments.BeginUpload, request)
        return out.BeginFileUploadResponse(upload_id=r.upload_id, max_chunk_bytes=r.max_chunk_bytes)

    async def append(self, call: Call) -> out.AppendFileUploadChunkResponse:
        """AppendFileUploadChunk."""
        if is_memory_upload(call):
            return await self._memory.append(call)
        content = call.binary("content") or b""
        start = pb.AppendUploadChunkStart(
            upload_id=call.text("uploadId"), offset=after_seq(call.action.get("offset")), size=len(content)
        )
        requests = in_pieces(pb.AppendUploadChunkRequest, start, content)
        r = await call.send(self._peer, self._attachments.AppendUploadChunk, requests, timeout_s=_STORE_SECONDS)
        return out.AppendFileUploadChunkResponse(upload_id=r.upload_id, received=r.received)

    async def commit(self, call: Call) -> out.CommitFileUploadResponse:
        """CommitFileUpload."""
        if is_memory_upload(call):
            return await self._memory.commit(call)
        request = pb.CommitUploadRequest(upload_id=call.text("uploadId"))
        r = await call.write(self._peer, self._attachments.CommitUpload, request, timeout_s=_STORE_SECONDS)
        return out.CommitFileUploadResponse(attachment=views.attachment(r.attachment))

    async def abort(self, call: Call) -> out.AbortFileUploadResponse:
        """AbortFileUpload."""
        if is_memory_upload(call):
            return await self._memory.abort(call)
        request = pb.AbortUploadRequest(upload_id=call.text("uploadId"))
        r = await call.write(self._peer, self._attachments.AbortUpload, request)
        return out.AbortFileUploadResponse(upload_id=r.upload_id)
