"""Tool documents."""

from __future__ import annotations

from seed.memory.v1 import tools_pb2 as pb

from libs.protocol import responses as out
from services.edge.api import views
from services.edge.api.call import Call, Handler
from services.edge.upstream import Peers


class ToolActions:
    """Handlers of tool documents; memory owns the data."""

    def __init__(self, peers: Peers) -> None:
        self._peer, self._tools = peers.memory, peers.tools_stub

    def handlers(self) -> dict[str, Handler]:
        """The actions served here."""
        return {
            "ListAgentTools": self.list_tools,
            "SaveAgentTool": self.save_tool,
            "DeleteAgentTool": self.delete_tool,
        }

    async def list_tools(self, call: Call) -> out.ListAgentToolsResponse:
        """ListAgentTools."""
        request = pb.ListToolsRequest(agent_id=call.text("agentId"))
        r = await call.read(self._peer, self._tools.ListTools, request)
        return out.ListAgentToolsResponse(agent_id=r.agent_id, tools=[views.tool(t) for t in r.tools])

    async def save_tool(self, call: Call) -> out.SaveAgentToolResponse:
        """SaveAgentTool."""
        request = pb.SaveToolRequest(
            agent_id=call.text("agentId"), tool=call.cbor("tool"), previous_name=call.optional_text("previousName")
        )
        r = await call.write(self._peer, self._tools.SaveTool, request)
        return out.SaveAgentToolResponse(agent_id=r.agent_id, tool=views.tool(r.tool))

    async def delete_tool(self, call: Call) -> out.DeleteAgentToolResponse:
        """DeleteAgentTool."""
        request = pb.DeleteToolRequest(agent_id=call.text("agentId"), name=call.text("name"))
        r = await call.write(self._peer, self._tools.DeleteTool, request)
        return out.DeleteAgentToolResponse(agent_id=r.agent_id, name=r.name, deleted=r.deleted)
