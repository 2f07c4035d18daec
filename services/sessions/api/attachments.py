"""AttachmentsService."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from seed.sessions.v1 import attachments_pb2 as pb

from libs.errors import Invalid
from libs.protocol import limits
from libs.protocol.files import check_chunk
from libs.protocol.text import text_argument
from libs.rpc import Caller
from services.sessions.api.decoding import document
from services.sessions.domain import access
from services.sessions.domain import attachments as rules
from services.sessions.domain.ids import named
from services.sessions.store.access import AccessStore
from services.sessions.store.attachments import AttachmentStore
from services.sessions.store.uploads import Upload, UploadStore


class AttachmentsApi:
    """Serves files of sessions."""

    def __init__(
        self, access: AccessStore, attachments: AttachmentStore, uploads: UploadStore, bounds: rules.Bounds
    ) -> None:
        self._access, self._attachments, self._uploads, self._bounds = access, attachments, uploads, bounds

    async def UploadAttachment(
        self, requests: AsyncIterator[pb.UploadAttachmentRequest], caller: Caller
    ) -> pb.UploadAttachmentResponse:
        """Store a file at once."""
        start: pb.UploadAttachmentStart = await _start(requests)
        session_id = await self._session(caller, start.session_id, access.CHATTER)
        file = rules.described(start.name, start.mime_type, start.size, self._bounds)
        stored = await self._attachments.upload(session_id, file, _contents(requests))
        return pb.UploadAttachmentResponse(attachment=stored)

    async def ReadAttachment(
        self, request: pb.ReadAttachmentRequest, caller: Caller
    ) -> AsyncGenerator[pb.ReadAttachmentResponse, None]:
        """An attachment, then its bytes."""
        session_id = await self._session(caller, request.session_id, access.READER)
        opened = await self._attachments.open(session_id, rules.checked_id(request.attachment_id))
        yield pb.ReadAttachmentResponse(attachment=opened.attachment)
        async for piece in opened.pieces:
            yield pb.ReadAttachmentResponse(content=piece)

    async def BeginUpload(self, request: pb.BeginUploadRequest, caller: Caller) -> pb.BeginUploadResponse:
        """Open an upload in chunks."""
        target = rules.session_target(document(request.target), request.size)
        session_id = named(text_argument(target, "sessionId"), "Session ID", "Session")
        found = await self._access.session(caller.account, session_id, access.CHATTER)
        file = rules.described_by(target, request.size, self._bounds)
        upload_id = await self._uploads.begin(session_id, found.owner, file)
        return pb.BeginUploadResponse(upload_id=upload_id, max_chunk_bytes=limits.UPLOAD_CHUNK_BYTES)

    async def AppendUploadChunk(
        self, requests: AsyncIterator[pb.AppendUploadChunkRequest], caller: Caller
    ) -> pb.AppendUploadChunkResponse:
        """Store the next chunk."""
        start: pb.AppendUploadChunkStart = await _start(requests)
        upload = await self._upload(caller, start.upload_id)
        check_chunk(start.offset, start.size, upload.received, upload.file.size)
        received = await self._uploads.append(upload, start.offset, start.size, _contents(requests))
        return pb.AppendUploadChunkResponse(upload_id=upload.id, received=received)

    async def CommitUpload(self, request: pb.CommitUploadRequest, caller: Caller) -> pb.CommitUploadResponse:
        """Make an upload an attachment."""
        upload = await self._upload(caller, request.upload_id)
        return pb.CommitUploadResponse(attachment=await self._uploads.commit(upload))

    async def AbortUpload(self, request: pb.AbortUploadRequest, caller: Caller) -> pb.AbortUploadResponse:
        """Discard an upload."""
        upload = await self._upload(caller, request.upload_id)
        await self._uploads.abort(upload)
        return pb.AbortUploadResponse(upload_id=upload.id)

    async def _session(self, caller: Caller, value: str, need: str) -> str:
        session_id = named(value, "Session ID", "Session")
        await self._access.session(caller.account, session_id, need)
        return session_id

    async def _upload(self, caller: Caller, value: str) -> Upload:
        return await self._uploads.get(caller.account, named(value, "Upload ID", "Upload"))


async def _start(requests: AsyncIterator[Any]) -> Any:
    async for request in requests:
        if request.WhichOneof("part") == "start":
            return request.start
        break
    raise Invalid("The first message must say what follows")


async def _contents(requests: AsyncIterator[Any]) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request.content
