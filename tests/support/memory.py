"""What tests of memory files do again and again: by the SDK, in the database, in the object store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import asyncpg
from msgspec import UNSET

from libs.client import Client
from libs.protocol import limits
from libs.protocol.actions import (
    BeginFileUpload,
    CommitFileUpload,
    DeleteAgentMemoryFile,
    ListAgentMemory,
    ReadAgentMemoryFile,
    WriteAgentMemoryFile,
)
from libs.protocol.memory import AgentMemoryBinaryFile, AgentMemoryEntry, AgentMemoryTextFile
from libs.protocol.sessions import MemoryUploadTarget
from libs.stack import Stack
from tests.support.kit import until


async def write(client: Client, agent: str, path: str, content: str | bytes) -> AgentMemoryEntry:
    """Store a file."""
    return (await client.call(WriteAgentMemoryFile(agent_id=agent, path=path, content=content))).entry


async def read(client: Client, agent: str, path: str) -> AgentMemoryTextFile | AgentMemoryBinaryFile:
    """A file."""
    answer = await client.call(ReadAgentMemoryFile(agent_id=agent, path=path))
    assert answer.agent_id == agent
    return answer.file


async def content(client: Client, agent: str, path: str) -> str | bytes:
    """What is in a file."""
    file = await read(client, agent, path)
    return file.content if isinstance(file, AgentMemoryTextFile) else file.data


async def delete(client: Client, agent: str, path: str) -> bool:
    """Whether something was deleted."""
    return (await client.call(DeleteAgentMemoryFile(agent_id=agent, path=path))).deleted


async def listed(client: Client, agent: str) -> list[tuple[str, str, int]]:
    """All entries as (path, type, size)."""
    answer = await client.call(ListAgentMemory(agent_id=agent))
    assert answer.total_bytes == sum(entry.size for entry in answer.entries)
    return [(entry.path, entry.type, entry.size) for entry in answer.entries]


async def begin(client: Client, agent: str, path: str, size: int) -> str:
    """Open an upload; its id."""
    answer = await client.call(BeginFileUpload(target=MemoryUploadTarget(agent_id=agent, path=path), size=size))
    assert answer.max_chunk_bytes == limits.UPLOAD_CHUNK_BYTES
    return answer.upload_id


async def commit(client: Client, upload: str) -> AgentMemoryEntry:
    """The file that an upload became."""
    answer = await client.call(CommitFileUpload(upload_id=upload))
    assert answer.attachment is UNSET
    return answer.entry


async def sql(stack: Stack, statement: str, *values: Any) -> list[asyncpg.Record]:
    """Rows of a statement run as the administrator."""
    database = await asyncpg.connect(stack.stores.database_url)
    try:
        return await database.fetch(statement, *values)
    finally:
        await database.close()


async def only_owned_objects_are_left(stack: Stack) -> None:
    """Wait until the object store holds what rows of memory name, and nothing else."""
    folder = stack.data_dir / "blobs"

    async def same() -> bool:
        rows = await sql(stack, "SELECT blob FROM memory.memory_entries UNION SELECT blob FROM memory.upload_chunks")
        return _objects(folder) == {row["blob"] for row in rows}

    await until(same, what="no object without an owner")


def _objects(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in (folder / "memory").rglob("*") if path.is_file()}
