"""Memory files, and uploads to memory. Their bytes go on in pieces, and come back as they come."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

from msgspec import UNSET
from seed.memory.v1 import memory_pb2 as pb

from libs.protocol import responses as out
from libs.protocol import to_wire
from libs.protocol.memory import AgentMemoryBinaryFile, AgentMemoryEntry, AgentMemoryFile, AgentMemoryTextFile
from libs.wire import encode_around
from services.edge.api.call import Call, Handler, Streamed, StreamHandler
from services.edge.api.pieces import PIECE_BYTES, around, declared_size, first, in_pieces
from services.edge.domain.seq import after_seq
from services.edge.upstream import Peers

UPLOAD_PREFIX = "mem-"
"""With it begin the ids of uploads to memory."""
TARGET_KIND = "memory"

_STORE_SECONDS = 120.0
"""What storing a file may take."""
_COMMIT_SECONDS = 600.0
"""What putting up to 2 GiB of chunks together may take."""
_OUTSIDE_SECONDS = 3_600.0
"""What a download or publishing may take; the client decides how long it waits."""


class MemoryActions:
    """Handlers of memory files; memory owns the data."""

    def __init__(self, peers: Peers) -> None:
        self._peer, self._memory = peers.memory, peers.memory_stub

    def handlers(self) -> dict[str, Handler]:
        """The actions served here."""
        return {
            "ListAgentMemory": self.list_memory,
            "WriteAgentMemoryFile": self.write,
            "DeleteAgentMemoryFile": self.delete,
            "DownloadAgentMemoryFile": self.download,
            "UploadAgentMemoryFileToIpfs": self.publish,
        }

    def streams(self) -> dict[str, StreamHandler]:
        """The actions served here whose answers are not held."""
        return {"ReadAgentMemoryFile": self.read}

    async def list_memory(self, call: Call) -> out.ListAgentMemoryResponse:
        """ListAgentMemory."""
        entries: list[AgentMemoryEntry] = []
        agent_id, total = "", 0
        request = pb.ListMemoryRequest(agent_id=call.text("agentId"))
        async with call.stream(self._peer, self._memory.ListMemory, request) as answers:
            async for answer in answers:
                agent_id, total = answer.agent_id, answer.total_bytes
                entries += map(_entry, answer.entries)
        return out.ListAgentMemoryResponse(agent_id=agent_id, entries=entries, total_bytes=total)

    async def read(self, call: Call) -> Streamed:
        """ReadAgentMemoryFile."""
        request = pb.ReadFileRequest(agent_id=call.text("agentId"), path=_path(call.action))
        async with AsyncExitStack() as stack:
            answers = await stack.enter_async_context(call.stream(self._peer, self._memory.ReadFile, request))
            file: pb.File = (await first(answers)).file
            answer = out.ReadAgentMemoryFileResponse(agent_id=file.agent_id, file=_file(file))
            place = "file.content" if file.text else "file.data"
            head, tail = encode_around(to_wire(answer), place, file.entry.size, text=file.text)
            size = len(head) + file.entry.size + len(tail)
            return Streamed(size, around(head, answers, tail), stack.pop_all().aclose)

    async def write(self, call: Call) -> out.WriteAgentMemoryFileResponse:
        """WriteAgentMemoryFile."""
        content = call.action.get("content")
        start = pb.WriteFileStart(agent_id=call.text("agentId"), path=_path(call.action))
        if isinstance(content, str):
            start.size = sum(map(len, _encoded(content)))
            requests = _requests(start, _encoded(content))
        elif isinstance(content, bytes):
            start.size = len(content)
            requests = in_pieces(pb.WriteFileRequest, start, content)
        else:
            start.size = -1
            requests = _requests(start, iter(()))
        r = await call.send(self._peer, self._memory.WriteFile, requests, timeout_s=_STORE_SECONDS)
        return out.WriteAgentMemoryFileResponse(agent_id=r.agent_id, entry=_entry(r.entry))

    async def delete(self, call: Call) -> out.DeleteAgentMemoryFileResponse:
        """DeleteAgentMemoryFile."""
        request = pb.DeleteFileRequest(agent_id=call.text("agentId"), path=_path(call.action))
        r = await call.write(self._peer, self._memory.DeleteFile, request)
        return out.DeleteAgentMemoryFileResponse(agent_id=r.agent_id, path=r.path, deleted=r.deleted)

    async def download(self, call: Call) -> out.DownloadAgentMemoryFileResponse:
        """DownloadAgentMemoryFile."""
        request = pb.DownloadFileRequest(
            agent_id=call.text("agentId"),
            url=call.text("url"),
            path=call.text("path"),
            path_is_no_text="path" in call.action and not isinstance(call.action["path"], str),
        )
        r = await call.write(self._peer, self._memory.DownloadFile, request, timeout_s=_OUTSIDE_SECONDS)
        return out.DownloadAgentMemoryFileResponse(
            agent_id=r.agent_id,
            entry=_entry(r.entry),
            final_url=r.final_url,
            content_type=r.content_type if r.HasField("content_type") else UNSET,
        )

    async def publish(self, call: Call) -> out.UploadAgentMemoryFileToIpfsResponse:
        """UploadAgentMemoryFileToIpfs."""
        request = pb.UploadToIpfsRequest(agent_id=call.text("agentId"), path=_path(call.action))
        r = await call.write(self._peer, self._memory.UploadToIpfs, request, timeout_s=_OUTSIDE_SECONDS)
        return out.UploadAgentMemoryFileToIpfsResponse(
            agent_id=r.agent_id,
            path=r.entry.path,
            cid=r.cid,
            url=r.url,
            size=r.entry.size,
            mime_type=r.entry.mime_type if r.entry.HasField("mime_type") else UNSET,
        )

    async def begin(self, call: Call) -> out.BeginFileUploadResponse:
        """BeginFileUpload to memory."""
        target: dict[str, Any] = call.action["target"]
        agent_id = target.get("agentId")
        request = pb.BeginUploadRequest(
            agent_id=agent_id if isinstance(agent_id, str) else "",
            path=_path(target),
            size=declared_size(call.action.get("size")),
        )
        r = await call.write(self._peer, self._memory.BeginUpload, request)
        return out.BeginFileUploadResponse(upload_id=r.upload_id, max_chunk_bytes=r.max_chunk_bytes)

    async def append(self, call: Call) -> out.AppendFileUploadChunkResponse:
        """AppendFileUploadChunk of an upload to memory."""
        content = call.binary("content") or b""
        start = pb.AppendChunkStart(
            upload_id=call.text("uploadId").strip(), offset=after_seq(call.action.get("offset")), size=len(content)
        )
        requests = in_pieces(pb.AppendChunkRequest, start, content)
        r = await call.send(self._peer, self._memory.AppendChunk, requests, timeout_s=_STORE_SECONDS)
        return out.AppendFileUploadChunkResponse(upload_id=r.upload_id, received=r.received)

    async def commit(self, call: Call) -> out.CommitFileUploadResponse:
        """CommitFileUpload of an upload to memory."""
        request = pb.CommitUploadRequest(upload_id=call.text("uploadId").strip())
        r = await call.write(self._peer, self._memory.CommitUpload, request, timeout_s=_COMMIT_SECONDS)
        return out.CommitFileUploadResponse(entry=_entry(r.entry))

    async def abort(self, call: Call) -> out.AbortFileUploadResponse:
        """AbortFileUpload of an upload to memory."""
        request = pb.AbortUploadRequest(upload_id=call.text("uploadId").strip())
        r = await call.write(self._peer, self._memory.AbortUpload, request)
        return out.AbortFileUploadResponse(upload_id=r.upload_id)


def is_memory_target(call: Call) -> bool:
    """Whether a BeginFileUpload is to memory."""
    target = call.action.get("target")
    return isinstance(target, dict) and target.get("kind") == TARGET_KIND


def is_memory_upload(call: Call) -> bool:
    """Whether the upload that is named is one to memory."""
    return call.text("uploadId").strip().startswith(UPLOAD_PREFIX)


def _path(holder: dict[str, Any]) -> str | None:
    """The path as it was sent; None when it is not text."""
    path = holder.get("path")
    return path if isinstance(path, str) else None


def _entry(entry: pb.Entry) -> AgentMemoryEntry:
    return AgentMemoryEntry(
        path=entry.path,
        type="dir" if entry.directory else "file",
        size=entry.size,
        updated_at=entry.updated_at,
        mime_type=entry.mime_type if entry.HasField("mime_type") else UNSET,
    )


def _file(file: pb.File) -> AgentMemoryFile:
    """The file without its bytes."""
    entry = file.entry
    told: dict[str, Any] = {
        "path": entry.path,
        "size": entry.size,
        "updated_at": entry.updated_at,
        "mime_type": entry.mime_type if entry.HasField("mime_type") else UNSET,
    }
    return AgentMemoryTextFile(**told, content="") if file.text else AgentMemoryBinaryFile(**told, data=b"")


def _encoded(text: str) -> Iterator[bytes]:
    """A text's bytes, some at a time: it is not held twice."""
    step = PIECE_BYTES // 4
    return (text[at : at + step].encode() for at in range(0, len(text), step))


def _requests(start: pb.WriteFileStart, pieces: Iterator[bytes]) -> Iterator[pb.WriteFileRequest]:
    yield pb.WriteFileRequest(start=start)
    for piece in pieces:
        yield pb.WriteFileRequest(content=piece)
