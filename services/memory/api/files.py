"""MemoryService."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

from seed.memory.v1 import memory_pb2 as pb

from libs.errors import BadGateway, Forbidden, Invalid
from libs.hypermedia import PublishFailed, ipfs_url, publish_file
from libs.hypermedia.publishing import Publishes
from libs.protocol import limits
from libs.protocol.files import check_chunk, guessed_type
from libs.rpc import Caller
from libs.store import Database
from services.memory.api.access import READER, WRITER, AgentAccess
from services.memory.domain import downloads, listing, paths
from services.memory.domain.listing import Entry
from services.memory.domain.uploads import checked_size
from services.memory.outside import Downloader
from services.memory.store.drops import DropStore
from services.memory.store.files import FileStore
from services.memory.store.spaces import Space, SpaceStore
from services.memory.store.uploads import Upload, UploadStore, missing

_BATCH = 1_000
"""Entries of a listing in one message."""


class MemoryApi:
    """Serves memory files. `now` gives Unix milliseconds."""

    def __init__(
        self,
        db: Database,
        access: AgentAccess,
        files: FileStore,
        uploads: UploadStore,
        spaces: SpaceStore,
        drops: DropStore,
        downloader: Downloader,
        hypermedia: Publishes,
        now: Callable[[], int],
    ) -> None:
        self._db, self._access, self._files, self._uploads = db, access, files, uploads
        self._spaces, self._drops, self._now = spaces, drops, now
        self._downloader, self._hypermedia = downloader, hypermedia

    async def ListMemory(
        self, request: pb.ListMemoryRequest, caller: Caller
    ) -> AsyncGenerator[pb.ListMemoryResponse, None]:
        """All entries, in batches."""
        space = await self._space(caller, request.agent_id, READER)
        files = await self._files.all(space.agent_id)
        total = sum(file.size for file in files)
        entries = listing.whole(files)
        for at in range(0, len(entries) or 1, _BATCH):
            yield pb.ListMemoryResponse(
                entries=map(_entry, entries[at : at + _BATCH]), total_bytes=total, agent_id=space.agent_id
            )

    async def ReadFile(self, request: pb.ReadFileRequest, caller: Caller) -> AsyncGenerator[pb.ReadFileResponse, None]:
        """A file, then its bytes; or a directory."""
        space = await self._space(caller, request.agent_id, READER)
        path = _path(request)
        if request.directories and (directory := await self._directory(space.agent_id, path)) is not None:
            yield pb.ReadFileResponse(directory=directory)
            return
        opened = await self._files.open(space.agent_id, paths.normalized(path))
        file = pb.File(entry=_entry(opened.entry), text=opened.is_text, sha256=opened.sha256, agent_id=space.agent_id)
        yield pb.ReadFileResponse(file=file)
        async for piece in opened.pieces:
            yield pb.ReadFileResponse(content=piece)

    async def WriteFile(self, requests: AsyncIterator[pb.WriteFileRequest], caller: Caller) -> pb.WriteFileResponse:
        """Replace the content of a file."""
        start: pb.WriteFileStart = await _start(requests)
        space = await self._space(caller, start.agent_id, WRITER)
        if start.size < 0:
            raise Invalid("Memory file content must be a string or bytes")
        path = paths.normalized(_path(start))
        entry = await self._files.write(space, path, _contents(requests), start.size)
        return pb.WriteFileResponse(entry=_entry(entry), agent_id=space.agent_id)

    async def DeleteFile(self, request: pb.DeleteFileRequest, caller: Caller) -> pb.DeleteFileResponse:
        """Delete a file, or a directory with all below it."""
        space = await self._space(caller, request.agent_id, WRITER)
        path = paths.normalized(_path(request))
        deleted = await self._files.delete(space, path)
        return pb.DeleteFileResponse(path=path, deleted=deleted, agent_id=space.agent_id)

    async def DownloadFile(self, request: pb.DownloadFileRequest, caller: Caller) -> pb.DownloadFileResponse:
        """Fetch a URL into a file."""
        space = await self._space(caller, request.agent_id, WRITER)
        url = downloads.checked_url(request.url)
        path = None if request.path_is_no_text else request.path
        if path != "":
            paths.normalized(path)
        room = await self._spaces.room(space.owner)
        async with self._downloader.fetch(url, room) as found:
            path = downloads.target(path, found.final_url, found.content_type, self._now())
            entry = await self._files.write(space, path, found.pieces)
        return pb.DownloadFileResponse(
            entry=_entry(entry), final_url=found.final_url, content_type=found.content_type, agent_id=space.agent_id
        )

    async def DownloadFromIpfs(
        self, request: pb.DownloadFromIpfsRequest, caller: Caller
    ) -> pb.DownloadFromIpfsResponse:
        """Fetch a file of IPFS into a file."""
        space = await self._space(caller, request.agent_id, WRITER)
        if not limits.IPFS_CID.fullmatch(request.cid):
            raise Invalid(f"Invalid IPFS CID: {request.cid}")
        chosen = paths.normalized(request.path or f"ipfs/{request.cid}")
        room = await self._spaces.room(space.owner)
        async with self._downloader.fetch_ipfs(request.cid, room) as found:
            path = downloads.target(chosen, found.final_url, found.content_type, self._now())
            entry = await self._files.write(space, path, found.pieces)
        return pb.DownloadFromIpfsResponse(entry=_entry(entry), content_type=found.content_type)

    async def UploadToIpfs(self, request: pb.UploadToIpfsRequest, caller: Caller) -> pb.UploadToIpfsResponse:
        """Publish a file."""
        space = await self._space(caller, request.agent_id, WRITER)
        opened = await self._files.open(space.agent_id, paths.normalized(_path(request)))
        # What has been published cannot be rolled back, so the signature is taken before.
        async with self._db.transaction():
            pass
        try:
            root = await publish_file(self._hypermedia, opened.pieces)
        except PublishFailed as e:
            raise BadGateway(f"Could not publish {opened.entry.path}: {e}") from None
        return pb.UploadToIpfsResponse(
            entry=_entry(opened.entry), cid=root.name, url=ipfs_url(root), agent_id=space.agent_id
        )

    async def BeginUpload(self, request: pb.BeginUploadRequest, caller: Caller) -> pb.BeginUploadResponse:
        """Open an upload in chunks."""
        space = await self._space(caller, request.agent_id, WRITER)
        size = checked_size(request.size)
        upload_id = await self._uploads.begin(space, paths.normalized(_path(request)), size)
        return pb.BeginUploadResponse(upload_id=upload_id, max_chunk_bytes=limits.UPLOAD_CHUNK_BYTES)

    async def AppendChunk(
        self, requests: AsyncIterator[pb.AppendChunkRequest], caller: Caller
    ) -> pb.AppendChunkResponse:
        """Store the next chunk."""
        start: pb.AppendChunkStart = await _start(requests)
        upload = await self._upload(caller, start.upload_id)
        check_chunk(start.offset, start.size, upload.received, upload.size)
        received = await self._uploads.append(upload, start.offset, start.size, _contents(requests))
        return pb.AppendChunkResponse(upload_id=upload.id, received=received)

    async def CommitUpload(self, request: pb.CommitUploadRequest, caller: Caller) -> pb.CommitUploadResponse:
        """Make an upload a file."""
        upload = await self._upload(caller, request.upload_id)
        return pb.CommitUploadResponse(entry=_entry(await self._uploads.commit(upload)))

    async def AbortUpload(self, request: pb.AbortUploadRequest, caller: Caller) -> pb.AbortUploadResponse:
        """Discard an upload."""
        upload = await self._upload(caller, request.upload_id)
        await self._uploads.abort(upload)
        return pb.AbortUploadResponse(upload_id=upload.id)

    async def Summary(self, request: pb.SummaryRequest, caller: Caller) -> pb.SummaryResponse:
        """What a Space index shows."""
        space = await self._space(caller, request.agent_id, READER)
        top = await self._files.top(space.agent_id)
        return pb.SummaryResponse(
            files=sum(entry.entry_count for entry in top),
            total_bytes=sum(entry.size for entry in top),
            top=map(_entry, top[: limits.SPACE_INDEX_MEMORY_ENTRIES]),
            top_count=len(top),
        )

    async def DropAgent(self, request: pb.DropAgentRequest, caller: Caller) -> pb.DropAgentResponse:
        """Delete all there is of an agent."""
        if caller.service != "sessions":
            raise Forbidden("This service may not make this call")
        await self._drops.drop(Space(request.agent_id, request.owner))
        return pb.DropAgentResponse()

    async def _directory(self, agent_id: str, path: str | None) -> pb.Directory | None:
        """The directory at a path; None when there is a file, or nothing."""
        if path is None or not paths.segments(path):
            paths.segments(path)
            files, directory = await self._files.all(agent_id), ""
        else:
            directory = paths.normalized(path)
            if await self._files.find(agent_id, directory) is not None:
                if path.replace("\\", "/").endswith("/"):
                    raise paths.is_file(directory)
                return None
            files = await self._files.below(agent_id, directory)
            if not files:
                return None
        entries = listing.level(files, directory)
        total = sum(entry.size for entry in entries)
        return pb.Directory(path=directory, entries=map(_entry, entries), total_bytes=total)

    async def _space(self, caller: Caller, agent_id: str, need: str) -> Space:
        found = await self._access.resolve(caller, agent_id, need)
        return Space(found.agent_id, found.owner)

    async def _upload(self, caller: Caller, value: str) -> Upload:
        if "\0" in value:
            raise missing()
        upload = await self._uploads.get(value)
        await self._access.resolve(caller, upload.space.agent_id, WRITER, "Upload")
        return upload


def _path(request: Any) -> str | None:
    return request.path if request.HasField("path") else None


def _entry(entry: Entry) -> pb.Entry:
    return pb.Entry(
        path=entry.path,
        directory=entry.directory,
        size=entry.size,
        updated_at=entry.updated_at,
        mime_type=None if entry.directory else guessed_type(entry.path),
        entry_count=entry.entry_count,
    )


async def _start(requests: AsyncIterator[Any]) -> Any:
    async for request in requests:
        if request.WhichOneof("part") == "start":
            return request.start
        break
    raise Invalid("The first message must say what follows")


async def _contents(requests: AsyncIterator[Any]) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request.content
