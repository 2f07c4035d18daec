"""`~/memory/`: the files of an agent."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from typing import Any

from seed.memory.v1 import memory_pb2 as pb
from seed.memory.v1 import memory_pb2_grpc

from libs.protocol import json_bytes
from libs.protocol.limits import MIB, RESULT_MARKDOWN_BYTES
from libs.rpc import Peer
from services.runs.domain.addresses import Form, Reading, Writing, flag, text_option
from services.runs.domain.verbs import VerbError
from services.runs.verbs.attachments import Attachments
from services.runs.verbs.contract import Actor, Output
from services.runs.verbs.waiting import DOWNLOAD_S, PATIENCE_S, STREAM_S, again

TRUNCATED = "\n[truncated]"


class Memory:
    """Reads and writes files through the memory service, for the owner of the agent."""

    form = Form(
        "~/memory",
        "~/memory/…",
        written="~/memory/<path>",
        options=("delete", "fromUrl", "fromAttachment"),
    )

    def __init__(self, memory: Peer, attachments: Attachments) -> None:
        self._peer = memory
        self._stub: Any = memory.stub(memory_pb2_grpc.MemoryServiceStub)
        self._attachments = attachments

    async def read(self, actor: Actor, rest: str, given: Reading) -> Output:
        """A file, or what is in a directory."""
        request = pb.ReadFileRequest(agent_id=actor.agent_id, path=rest, directories=True)
        async with self._peer.stream(
            self._stub.ReadFile, request, account=actor.owner, timeout_s=STREAM_S, retry=True
        ) as answers:
            first = await anext(aiter(answers))
            if first.HasField("directory"):
                return Output(_directory(first.directory))
            kept = bytearray()
            if first.file.text:
                async for answer in answers:
                    kept += answer.content
                    if len(kept) > RESULT_MARKDOWN_BYTES:
                        break
        return Output(_file(first.file, bytes(kept)))

    async def write(self, actor: Actor, rest: str, given: Writing) -> Output:
        """Replace, delete, download or keep an attachment."""
        url, attachment = text_option(given.options, "fromUrl"), text_option(given.options, "fromAttachment")
        if flag(given.options, "delete"):
            return await self._delete(actor, rest)
        if url:
            return await self._download(actor, rest, url)
        if attachment:
            return await self._keep(actor, rest, attachment)
        if given.content is None:
            raise VerbError(
                "write ~/memory/<path> requires content, or one of the options delete, fromUrl and fromAttachment"
            )
        body = given.content.encode("utf-8", "replace")
        entry = await again(lambda: self._store(actor, rest, len(body), lambda: _pieces(body)))
        return Output({"summary": f"Stored {entry.path}: {entry.size} bytes.", **_entry(entry)})

    async def summary(self, actor: Actor) -> pb.SummaryResponse:
        """What there is, in short."""
        request = pb.SummaryRequest(agent_id=actor.agent_id)
        return await self._peer.call(self._stub.Summary, request, account=actor.owner, timeout_s=PATIENCE_S, retry=True)

    async def _delete(self, actor: Actor, rest: str) -> Output:
        request = pb.DeleteFileRequest(agent_id=actor.agent_id, path=rest)
        r = await self._peer.call(self._stub.DeleteFile, request, account=actor.owner, timeout_s=PATIENCE_S, retry=True)
        summary = f"{r.path} is deleted." if r.deleted else f"There was nothing at {r.path}."
        return Output({"summary": summary, "path": r.path, "deleted": r.deleted})

    async def _download(self, actor: Actor, rest: str, url: str) -> Output:
        request = pb.DownloadFileRequest(agent_id=actor.agent_id, url=url, path=rest or None)
        r = await self._peer.call(self._stub.DownloadFile, request, account=actor.owner, timeout_s=DOWNLOAD_S)
        value = {
            "summary": f"{r.final_url} is now {r.entry.path}: {r.entry.size} bytes.",
            "path": r.entry.path,
            "size": r.entry.size,
            **_mime(r.entry),
            "finalUrl": r.final_url,
        }
        return Output(value | ({"contentType": r.content_type} if r.HasField("content_type") else {}))

    async def _keep(self, actor: Actor, rest: str, attachment_id: str) -> Output:
        async with self._attachments.open(actor, attachment_id) as (info, content):
            path = rest or f"attachments/{info.name}"
            entry = await self._store(actor, path, info.size, lambda: content)
        return Output(
            {
                "summary": f"The attachment {info.name} is now {entry.path}: {entry.size} bytes.",
                "id": info.id,
                "path": entry.path,
                "size": entry.size,
                **_mime(entry),
            }
        )

    async def _store(
        self, actor: Actor, path: str, size: int, content: Callable[[], AsyncIterable[bytes] | Iterator[bytes]]
    ) -> pb.Entry:
        start = pb.WriteFileRequest(start=pb.WriteFileStart(agent_id=actor.agent_id, path=path, size=size))
        r = await self._peer.send(
            self._stub.WriteFile, _requests(start, content()), account=actor.owner, timeout_s=STREAM_S
        )
        return r.entry


async def _requests(start: Any, content: AsyncIterable[bytes] | Iterator[bytes]) -> AsyncIterator[Any]:
    yield start
    if isinstance(content, AsyncIterable):
        async for piece in content:
            yield pb.WriteFileRequest(content=piece)
    else:
        for piece in content:
            yield pb.WriteFileRequest(content=piece)


def _pieces(body: bytes) -> Iterator[bytes]:
    return (body[at : at + MIB] for at in range(0, len(body), MIB))


def _mime(entry: pb.Entry) -> dict[str, Any]:
    return {"mimeType": entry.mime_type} if entry.HasField("mime_type") else {}


def _entry(entry: pb.Entry) -> dict[str, Any]:
    value = {
        "path": entry.path,
        "type": "dir" if entry.directory else "file",
        "size": entry.size,
        "updatedAt": entry.updated_at,
        **_mime(entry),
    }
    return value | ({"entryCount": entry.entry_count} if entry.directory else {})


def _file(file: pb.File, body: bytes) -> dict[str, Any]:
    entry = file.entry
    value: dict[str, Any] = {"path": entry.path, "size": entry.size, "updatedAt": entry.updated_at, **_mime(entry)}
    if not file.text:
        return {
            "summary": f"{entry.path} is not text ({entry.size} bytes); its content is not shown.",
            **value,
            "encoding": "binary",
        }
    if len(body) <= RESULT_MARKDOWN_BYTES:
        return {
            "summary": f"{entry.path}: {entry.size} bytes.",
            **value,
            "encoding": "utf8",
            "content": body.decode("utf-8", "replace"),
        }
    shown = body[:RESULT_MARKDOWN_BYTES].decode("utf-8", "ignore")
    return {
        "summary": f"{entry.path}: {entry.size} bytes, of which the first {RESULT_MARKDOWN_BYTES} are shown.",
        **value,
        "encoding": "utf8",
        "content": shown + TRUNCATED,
        "truncated": True,
    }


def _directory(directory: pb.Directory) -> dict[str, Any]:
    where = f"{directory.path}/" if directory.path else "~/memory/"
    folders = sum(entry.directory for entry in directory.entries)
    held = f"{len(directory.entries) - folders} files and {folders} directories, {directory.total_bytes} bytes"
    shown, left = [], RESULT_MARKDOWN_BYTES
    for entry in map(_entry, directory.entries):
        left -= len(json_bytes(entry))
        if left < 0:
            break
        shown.append(entry)
    cut = len(shown) < len(directory.entries)
    first = f" The first {len(shown)} of them are listed." if cut else ""
    return {
        "summary": f"{where} holds {held}.{first}" if directory.entries else f"{where} is empty.",
        "path": directory.path,
        "entries": shown,
        "totalBytes": directory.total_bytes,
        **({"truncated": True} if cut else {}),
    }
