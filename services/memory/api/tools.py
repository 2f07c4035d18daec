"""ToolDocumentsService."""

from __future__ import annotations

from collections.abc import Collection

from seed.memory.v1 import tools_pb2 as pb

from libs import wire
from libs.errors import Invalid, NotFound
from libs.protocol import tools
from libs.rpc import Caller
from libs.store import Row
from services.memory.api.access import READER, WRITER, Access, AgentAccess
from services.memory.domain import tools as rules
from services.memory.store.tools import ToolStore


class ToolDocumentsApi:
    """Serves tool documents."""

    def __init__(self, access: AgentAccess, store: ToolStore) -> None:
        self._access, self._store = access, store

    async def ListTools(self, request: pb.ListToolsRequest, caller: Caller) -> pb.ListToolsResponse:
        """All tool documents of an agent."""
        access = await self._access.resolve(caller, request.agent_id, READER, with_definition=True)
        rows = await self._store.list(access.owner, access.agent_id, brief=request.brief)
        granted = _granted(access)
        listed = [_tool(row, granted, brief=request.brief) for row in rows]
        return pb.ListToolsResponse(tools=listed, agent_id=access.agent_id)

    async def GetTool(self, request: pb.GetToolRequest, caller: Caller) -> pb.GetToolResponse:
        """One tool document of an agent."""
        access = await self._access.resolve(caller, request.agent_id, READER, with_definition=True)
        name = rules.tool_name(request.name)
        row = await self._store.get(access.owner, access.agent_id, name)
        if row is None:
            raise NotFound(f'Tool "{name}" not found')
        return pb.GetToolResponse(tool=_tool(row, _granted(access)))

    async def SaveTool(self, request: pb.SaveToolRequest, caller: Caller) -> pb.SaveToolResponse:
        """Make, replace or rename an authored tool."""
        access = await self._access.resolve(caller, request.agent_id, WRITER)
        tool = wire.decode(request.tool) if request.tool else None
        if not isinstance(tool, dict):
            raise Invalid("Tool document must be an object")
        name = rules.tool_name(tool.get("name"))
        previous = (
            rules.tool_name(request.previous_name, "Previous tool name") if request.HasField("previous_name") else None
        )
        row = await self._store.save(access.owner, access.agent_id, name, previous, rules.draft(name, tool))
        return pb.SaveToolResponse(tool=_tool(row, ()), agent_id=access.agent_id)

    async def DeleteTool(self, request: pb.DeleteToolRequest, caller: Caller) -> pb.DeleteToolResponse:
        """Delete an authored tool."""
        access = await self._access.resolve(caller, request.agent_id, WRITER)
        name = rules.tool_name(request.name)
        deleted = await self._store.delete(access.owner, access.agent_id, name)
        return pb.DeleteToolResponse(name=name, deleted=deleted, agent_id=access.agent_id)


def _granted(access: Access) -> frozenset[str]:
    return tools.granted_callables(wire.decode(access.definition).get("tools"))


def _tool(row: Row, granted: Collection[str], *, brief: bool = False) -> pb.Tool:
    return pb.Tool(
        name=row["name"],
        kind=row["kind"],
        summary=row["summary"].decode(),
        document=b"" if brief else row["document"],
        cid=row["cid"],
        enabled=row["enabled"],
        granted=row["kind"] != rules.BUILTIN or row["name"] in granted,
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )
