"""`~/tools/` and the verb `call`: tool documents, and using them by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from seed.memory.v1 import tools_pb2 as pb
from seed.memory.v1 import tools_pb2_grpc

from libs import wire
from libs.errors import Conflict, NotFound
from libs.protocol.limits import AUTHORED_TOOL_NAME
from libs.protocol.schema_subset import errors
from libs.protocol.tools import CALLABLES, callable_name, contract_markdown, summary_of
from libs.rpc import Peer
from services.runs.domain.addresses import Form, Reading, Writing, flag
from services.runs.domain.verbs import VerbError
from services.runs.providers.contract import ToolSpec
from services.runs.verbs.contract import Actor, Output
from services.runs.verbs.waiting import PATIENCE_S

Executor = Callable[[Actor, Mapping[str, Any]], Awaitable[Output]]
"""Runs a callable of this server with input that its contract allows."""

LAMBDA, BUILTIN = "lambda", "builtin"
_EXPECTS = "write ~/tools/<name> expects JSON content: {description, input, output?, source, runtime?}"
_DELEGATION = "Delegation is a conversational ask; message the agent instead"
_HOW_TO = (
    "A tool of your own is a document that you write to `~/tools/<name>`: JSON with description, input (a schema), "
    "output (optional), source and runtime (typescript or python). TypeScript exports a default function of the input, "
    "Python defines main(input)."
)


class Tools:
    """Tools of an agent. `executors` run the callables of this server, `verbs` are told of beside them."""

    form = Form("~/tools", "~/tools/…", written="~/tools/<name>", options=("delete", "tool"))

    def __init__(self, memory: Peer, executors: Mapping[str, Executor], verbs: Sequence[ToolSpec]) -> None:
        if executors.keys() != CALLABLES.keys():
            raise ValueError("every callable of this server needs an executor")
        self._peer = memory
        self._stub: Any = memory.stub(tools_pb2_grpc.ToolDocumentsServiceStub)
        self._executors = executors
        self.verbs: dict[str, ToolSpec] = {verb.name: verb for verb in verbs}

    async def read(self, actor: Actor, rest: str, given: Reading) -> Output:
        """The contract of a tool or verb, else all there are."""
        name = rest.strip("/")
        if not name:
            return Output(await self.listing(actor))
        if (verb := self.verbs.get(name)) is not None:
            return Output({"summary": f"The contract of {name}.", "name": name, "markdown": _verb_markdown(verb)})
        tool = await self._get(actor, name)
        if tool is None:
            return Output(await self.listing(actor, f"No tool named {name}."))
        document, cid = tool
        return Output(
            {
                "summary": f"The contract of {name}, version {cid}.",
                "name": document["name"],
                "cid": cid,
                "kind": document["kind"],
                "markdown": contract_markdown(document, cid),
            }
        )

    async def write(self, actor: Actor, rest: str, given: Writing) -> Output:
        """Author, replace or delete a tool."""
        name = rest.rstrip("/")
        if flag(given.options, "delete"):
            request = pb.DeleteToolRequest(agent_id=actor.agent_id, name=name)
            r = await self._call(self._stub.DeleteTool, request, actor)
            summary = f"The tool {r.name} is deleted." if r.deleted else f"There was no tool {r.name}."
            return Output({"summary": summary, "name": r.name, "deleted": r.deleted})
        saved = await self._save(actor, name, wire.encode({**json_object(given, "tool", _EXPECTS), "name": name}))
        document: Any = wire.decode(saved.document)
        summary = f"The tool {name} is saved; use it with call."
        return Output({"summary": summary, "name": document["name"], "cid": saved.cid, "kind": document["kind"]})

    async def call(self, actor: Actor, arguments: Mapping[str, Any]) -> Output:
        """Use a tool; what cannot be used as it was asked for is answered by what can be."""
        value, given = arguments.get("tool"), arguments.get("input")
        name = callable_name(value) if isinstance(value, str) else ""
        given = given if isinstance(given, Mapping) else {}
        if actor.by_user and name == "delegate":
            raise VerbError(_DELEGATION)
        if name in actor.callables and name in self._executors:
            contract = CALLABLES[name]
            faults = errors(given, contract.input)
            if faults:
                document = {"name": name, "kind": BUILTIN, "description": contract.description, "input": contract.input}
                return Output(_contract_of(document, faults))
            return await self._executors[name](actor, given)
        tool = await self._get(actor, name) if name and name not in self.verbs else None
        if tool is not None and tool[0]["kind"] == LAMBDA:
            return self._authored(actor, *tool, given)
        if not name:
            return Output(await self.listing(actor, "call requires a tool name. Here is what you can call."))
        return Output(await self.listing(actor, f"No callable tool named {name}. Here is what you can call."))

    async def listing(self, actor: Actor, summary: str = "") -> dict[str, Any]:
        """Verbs and callables, one line each."""
        tools = await self._offered(actor)
        lines = ["# ~/tools", "", "## Verbs", ""]
        lines += [f"- `{verb.name}`: {summary_of(verb.description)}" for verb in self.verbs.values()]
        lines += ["", "## Tools, to be used with `call`", ""]
        lines += [line(tool) for tool in tools] or ["There are none yet."]
        return {
            "summary": summary or f"{len(self.verbs)} verbs and {len(tools)} tools.",
            "markdown": "\n".join([*lines, "", _HOW_TO]),
            "tools": [tool.name for tool in tools],
        }

    def promoted(self, name: str) -> ToolSpec:
        """A callable as a tool of its own."""
        contract = CALLABLES[name]
        return ToolSpec(name=name, description=contract.description, input_schema=contract.input)

    def _authored(self, actor: Actor, document: dict[str, Any], cid: str, given: Mapping[str, Any]) -> Output:
        """Nothing here runs code, so that an authored tool is refused after its input has been judged."""
        name, runtime = document["name"], document.get("runtime") or "typescript"
        faults = errors(given, document["input"])
        if faults:
            return Output(_contract_of(document, faults, cid))
        if not str(document.get("source", "")).strip():
            raise VerbError(f"Tool {name} has no source")
        raise VerbError(f"Tool {name} is written in {runtime}, for which this server has no runtime")

    async def _offered(self, actor: Actor) -> list[pb.Tool]:
        request = pb.ListToolsRequest(agent_id=actor.agent_id, brief=True)
        r = await self._call(self._stub.ListTools, request, actor)
        return [tool for tool in r.tools if tool.enabled and (tool.kind != BUILTIN or tool.name in actor.callables)]

    async def _get(self, actor: Actor, name: str) -> tuple[dict[str, Any], str] | None:
        if name in CALLABLES and name not in actor.callables:
            return None
        if name not in CALLABLES and not AUTHORED_TOOL_NAME.fullmatch(name):
            return None
        try:
            r = await self._call(self._stub.GetTool, pb.GetToolRequest(agent_id=actor.agent_id, name=name), actor)
        except NotFound:
            return None
        document: Any = wire.decode(r.tool.document)
        return (document, r.tool.cid) if r.tool.enabled else None

    async def _save(self, actor: Actor, name: str, tool: bytes) -> pb.Tool:
        """Replace the tool of a name, or make it: whichever it is by then."""
        replace = pb.SaveToolRequest(agent_id=actor.agent_id, tool=tool, previous_name=name)
        create = pb.SaveToolRequest(agent_id=actor.agent_id, tool=tool)
        for request in (replace, create):
            try:
                return (await self._call(self._stub.SaveTool, request, actor)).tool
            except (NotFound, Conflict) as e:
                if isinstance(e, NotFound) and e.message == "Agent not found":
                    raise
        return (await self._call(self._stub.SaveTool, replace, actor)).tool

    async def _call(self, method: Any, request: Any, actor: Actor) -> Any:
        return await self._peer.call(method, request, account=actor.owner, timeout_s=PATIENCE_S, retry=True)


def json_object(given: Writing, option: str, expects: str) -> dict[str, Any]:
    """The object that a write brings as JSON content, or as an option. Raises VerbError with `expects`."""
    value = given.options.get(option)
    if given.content is not None:
        try:
            value = msgspec.json.decode(given.content)
        except (msgspec.DecodeError, UnicodeEncodeError):
            raise VerbError(expects) from None
    if not isinstance(value, dict):
        raise VerbError(expects)
    return value


def line(tool: pb.Tool) -> str:
    """One line about a tool."""
    return f"- `{tool.name}`: {tool.summary}{' (authored)' if tool.kind == LAMBDA else ''}"


def _verb_markdown(verb: ToolSpec) -> str:
    return contract_markdown(
        {"name": verb.name, "kind": "verb", "description": verb.description, "input": dict(verb.input_schema)}
    )


def _contract_of(document: Mapping[str, Any], faults: Sequence[str], cid: str = "") -> dict[str, Any]:
    return {
        "summary": f"The input does not fit the contract of {document['name']}, which follows. Call it again.",
        "contract": contract_markdown(document, cid),
        "validationErrors": list(faults),
    }
