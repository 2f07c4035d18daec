"""The dispatcher with services behind it that are not there, or that a person or a seeing model asks."""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from seed.memory.v1 import memory_pb2, tools_pb2
from seed.sessions.v1 import attachments_pb2
from seed.triggers.v1 import triggers_pb2

from libs import signatures, wire
from libs.errors import NotFound, Unavailable
from libs.protocol import limits
from libs.protocol.tools import CALLABLES
from libs.rpc import Caller, Peer, RpcServer, TokenSigner, TokenVerifier
from libs.stack.scripted import Calls
from services.runs.domain.verbs import VerbError
from services.runs.providers.contract import ImagePart, TextPart, UserMessage
from services.runs.server import OTHER_VERBS
from services.runs.verbs.build import build_verbs
from services.runs.verbs.contract import Actor, Output
from services.runs.verbs.dispatch import Verbs
from services.runs.verbs.threads import CUT, transcript
from services.runs.worker.space import Space
from tests.runs.house import AGENT, INTERNAL_KEY, OWNER
from tests.runs.workshop import Workshop

ACTOR = Actor(owner=OWNER, agent_id=AGENT, session_id="s", definition={}, callables=frozenset(CALLABLES))
DOUBLE = {"name": "double", "kind": "lambda", "summary": "Doubles.", "description": "Doubles.", "input": {}}


class Backends:
    """Attachments of a session, files and tools of an agent, for its owner alone."""

    def __init__(self) -> None:
        self.attachments: dict[str, tuple[str, bytes]] = {}
        self.file, self.names = b"", list[str]()
        self.taken: list[bytes] = []

    async def ReadAttachment(
        self, request: attachments_pb2.ReadAttachmentRequest, caller: Caller
    ) -> AsyncIterator[attachments_pb2.ReadAttachmentResponse]:
        assert (caller.account, request.session_id) == (OWNER, "s")
        found = self.attachments.get(request.attachment_id)
        if found is None:
            raise NotFound(f"Attachment not found: {request.attachment_id}")
        mime, body = found
        about = attachments_pb2.Attachment(id=request.attachment_id, name="a", mime_type=mime or None, size=len(body))
        yield attachments_pb2.ReadAttachmentResponse(attachment=about)
        for at in range(0, len(body), 4):
            yield attachments_pb2.ReadAttachmentResponse(content=body[at : at + 4])

    async def ReadFile(
        self, request: memory_pb2.ReadFileRequest, caller: Caller
    ) -> AsyncIterator[memory_pb2.ReadFileResponse]:
        if self.names:
            entries = [memory_pb2.Entry(path=name) for name in self.names]
            yield memory_pb2.ReadFileResponse(directory=memory_pb2.Directory(path=request.path, entries=entries))
            return
        entry = memory_pb2.Entry(path=request.path, size=len(self.file))
        yield memory_pb2.ReadFileResponse(file=memory_pb2.File(entry=entry, text=True))
        for at in range(0, len(self.file), limits.MIB):
            yield memory_pb2.ReadFileResponse(content=self.file[at : at + limits.MIB])

    async def WriteFile(self, requests: Any, caller: Caller) -> memory_pb2.WriteFileResponse:
        parts = [request async for request in requests]
        body = b"".join(part.content for part in parts[1:])
        assert parts[0].start.size == len(body)
        self.taken.append(body)
        return memory_pb2.WriteFileResponse(entry=memory_pb2.Entry(path=parts[0].start.path, size=len(body)))

    async def GetTool(self, request: tools_pb2.GetToolRequest, caller: Caller) -> tools_pb2.GetToolResponse:
        if request.name != "double":
            raise NotFound(f'Tool "{request.name}" not found')
        tool = tools_pb2.Tool(document=wire.encode(DOUBLE), cid="b", enabled=True)
        return tools_pb2.GetToolResponse(tool=tool)

    async def ListTools(self, request: tools_pb2.ListToolsRequest, caller: Caller) -> tools_pb2.ListToolsResponse:
        tools = [tools_pb2.Tool(name="double", kind="lambda", summary="Doubles.", enabled=True)]
        tools += [tools_pb2.Tool(name=name, kind="builtin", summary="Is.", enabled=True) for name in CALLABLES]
        return tools_pb2.ListToolsResponse(tools=tools)


class Wakers:
    """Triggers of an agent."""

    def __init__(self) -> None:
        self.triggers: list[triggers_pb2.Trigger] = []
        self.tried: list[Any] = []
        self.created: list[str] = []

    def add(self, name: str, trigger_id: str, **more: Any) -> None:
        source = json.dumps({"type": "webhook"}).encode()
        self.triggers.append(triggers_pb2.Trigger(id=trigger_id, name=name, source=source, enabled=True, **more))

    async def ListTriggers(
        self, request: triggers_pb2.ListTriggersRequest, caller: Caller
    ) -> triggers_pb2.ListTriggersResponse:
        assert (caller.account, request.agent_id) == (OWNER, AGENT)
        return triggers_pb2.ListTriggersResponse(triggers=self.triggers)

    async def CreateTrigger(
        self, request: triggers_pb2.CreateTriggerRequest, caller: Caller
    ) -> triggers_pb2.CreateTriggerResponse:
        # The first answer is lost: the request comes again, with the same id.
        self.created.append(request.client_request_id)
        if len(self.created) == 1:
            raise Unavailable("lost")
        made = triggers_pb2.Trigger(id="t", name="New", source=b'{"type":"webhook"}', enabled=True)
        return triggers_pb2.CreateTriggerResponse(trigger=made, webhook_secret="never shown")

    async def DryRun(self, request: triggers_pb2.DryRunRequest, caller: Caller) -> triggers_pb2.DryRunResponse:
        self.tried.append(wire.decode(request.trigger))
        matches = [
            triggers_pb2.DryRunMatch(activity_key="k", activity_summary="A comment", at=7, matched_conditions=["a"]),
            triggers_pb2.DryRunMatch(activity_key="l", activity_summary="Another"),
        ]
        return triggers_pb2.DryRunResponse(checked=100, matches=matches)


@pytest.fixture
def wakers() -> Wakers:
    return Wakers()


@pytest.fixture
def backends() -> Backends:
    return Backends()


@pytest.fixture
async def verbs(backends: Backends, wakers: Wakers) -> AsyncIterator[Verbs]:
    async def execute(actor: Actor, given: Any) -> Output:
        return Output({"summary": "Ran.", "given": dict(given)})

    async def no_run(_: str) -> None:
        return None

    sessions, memory, triggers = (
        RpcServer(TokenVerifier(name, INTERNAL_KEY), host="127.0.0.1", port=0)
        for name in ("sessions", "memory", "triggers")
    )
    sessions.add(attachments_pb2.DESCRIPTOR.services_by_name["AttachmentsService"], backends)
    memory.add(memory_pb2.DESCRIPTOR.services_by_name["MemoryService"], backends)
    memory.add(tools_pb2.DESCRIPTOR.services_by_name["ToolDocumentsService"], backends)
    triggers.add(triggers_pb2.DESCRIPTOR.services_by_name["TriggersService"], wakers)
    servers = {"sessions": sessions, "memory": memory, "triggers": triggers}
    await asyncio.gather(*(server.start() for server in servers.values()))
    tokens = TokenSigner("runs-worker", INTERNAL_KEY)
    peers = [Peer(name, f"127.0.0.1:{server.port}", tokens) for name, server in servers.items()]
    yield build_verbs(
        sessions=peers[0],
        memory=peers[1],
        triggers=peers[2],
        run=no_run,
        others=OTHER_VERBS,
        executors=dict.fromkeys(CALLABLES, execute),
    )
    for peer in peers:
        await peer.close()
    await asyncio.gather(*(server.stop(0) for server in servers.values()))


async def test_a_model_that_sees_is_shown_an_image_once(backends: Backends, verbs: Verbs) -> None:
    backends.attachments["i"] = ("image/png", b"\x89PNG and so on")
    space = Space(verbs, lambda: replace(ACTOR, sees_images=True), [])
    value = await space.execute("read", {"address": "attachment:i"})
    assert value["shownAsImage"] is True and "content" not in value
    [shown] = space.shown()
    assert isinstance(shown, UserMessage)
    assert shown.parts == [TextPart(value["summary"]), ImagePart(b"\x89PNG and so on", "image/png")]
    assert space.shown() == []


@pytest.mark.parametrize(
    ("mime", "body", "change", "why"),
    [
        ("image/png", b"x", {}, "does not take images"),
        ("image/png", b"x", {"sees_images": True, "by_user": True}, "shown to the model alone"),
        ("image/tiff", b"x", {"sees_images": True}, "images of type image/tiff"),
        ("image/png", b"x" * (limits.INLINE_IMAGE_BYTES + 1), {"sees_images": True}, "larger than 4500000 bytes"),
        ("text/plain", b"x" * (limits.TEXT_ATTACHMENT_BYTES + 1), {}, "longer than 262144 bytes"),
        ("application/zip", b"x", {}, "not text"),
        ("", b"\xff", {}, "not text"),
        ("text/plain", b"a\0b", {}, "not text"),
    ],
)
async def test_attachments_that_are_not_shown(
    backends: Backends, verbs: Verbs, mime: str, body: bytes, change: Any, why: str
) -> None:
    backends.attachments["a"] = (mime, body)
    output = await verbs.execute("read", replace(ACTOR, **change), {"address": "attachment:a"})
    assert why in output.value["summary"] and "content" not in output.value and not output.images
    assert output.value["shownAsImage"] is False and ("mimeType" in output.value) == bool(mime)


async def test_attachments_go_to_memory_as_they_are(backends: Backends, verbs: Verbs) -> None:
    backends.attachments["a"] = ("application/zip", b"\xff\x00 all of it")
    kept = await verbs.execute("write", ACTOR, {"address": "~/memory", "options": {"fromAttachment": "a"}})
    assert backends.taken == [b"\xff\x00 all of it"] and kept.value["path"] == "attachments/a"
    with pytest.raises(VerbError, match="Attachment not found: b"):
        await verbs.execute("write", ACTOR, {"address": "~/memory/x", "options": {"fromAttachment": "b"}})


async def test_of_a_long_file_the_beginning_is_told(backends: Backends, verbs: Verbs) -> None:
    backends.file = "ä".encode() * (2 * limits.MIB)
    value = (await verbs.execute("read", ACTOR, {"address": "~/memory/long.txt"})).value
    assert value["truncated"] is True and value["content"].endswith("\n[truncated]")
    assert len(value["content"].encode()) == limits.RESULT_MARKDOWN_BYTES + len("\n[truncated]")


async def test_of_a_long_directory_the_beginning_is_listed(backends: Backends, verbs: Verbs) -> None:
    backends.names = [f"{n:05}" for n in range(10)]
    value = (await verbs.execute("read", ACTOR, {"address": "~/memory/d/"})).value
    assert len(value["entries"]) == 10 and "truncated" not in value
    backends.names = [f"{n:05}" for n in range(10_000)]
    value = (await verbs.execute("read", ACTOR, {"address": "~/memory/d/"})).value
    assert 1_000 < len(value["entries"]) < 10_000 and value["truncated"] is True
    assert len(json.dumps(value["entries"], separators=(",", ":"))) <= limits.RESULT_MARKDOWN_BYTES + 10_000
    assert f"The first {len(value['entries'])} of them are listed." in value["summary"]


async def test_callables_run_for_whom_they_are_granted(verbs: Verbs) -> None:
    name, contract = next(iter(CALLABLES.items()))
    given = dict.fromkeys(contract.input.get("required", ()), "text")
    space = Space(verbs, lambda: ACTOR, [])
    before = [spec.name for spec in space.specs]
    assert before[:3] == ["read", "write", "call"] and not space.has(name)
    value = await space.execute("call", {"tool": f" {name} ", "input": given})
    assert value == {"summary": "Ran.", "given": given}
    # It has been looked at: from now on it is a tool of its own.
    assert [spec.name for spec in space.specs] == [name, *before] and space.has(name)
    assert (await space.execute(name, given))["given"] == given
    wrong = await space.execute(name, {"no such": 1})
    assert any("$." in fault for fault in wrong["validationErrors"]) and f"# {name}" in wrong["contract"]
    refused = await verbs.execute("call", replace(ACTOR, callables=frozenset()), {"tool": name, "input": given})
    assert refused.value["summary"].startswith(f"No callable tool named {name}.") and refused.value["tools"] == [
        "double"
    ]


async def test_a_tool_without_a_source(verbs: Verbs) -> None:
    with pytest.raises(VerbError, match="Tool double has no source"):
        await verbs.execute("call", ACTOR, {"tool": "double"})


async def test_a_fault_of_ours_ends_the_verb_alone(verbs: Verbs) -> None:
    # Nothing there lists sessions.
    with pytest.raises(VerbError, match="Internal server error"):
        await verbs.execute("read", ACTOR, {"address": "thread:"})


TRIGGER = {"source": {"type": "webhook"}, "prompt": "Go."}


def write_trigger(name: str, **more: Any) -> dict[str, Any]:
    return {"address": f"~/triggers/{name}", "content": json.dumps(TRIGGER), **more}


async def test_a_trigger_is_tried_and_not_saved(wakers: Wakers, verbs: Verbs) -> None:
    value = (await verbs.execute("write", ACTOR, write_trigger("New", dryRun=True))).value
    assert (value["dryRun"], value["checked"], wakers.created) == (True, 100, [])
    assert value["matches"] == [
        {"activityKey": "k", "activitySummary": "A comment", "at": 7, "matchedConditions": ["a"]},
        {"activityKey": "l", "activitySummary": "Another", "matchedConditions": []},
    ]
    assert wakers.tried == [{**TRIGGER, "name": "New", "enabled": True}]
    with pytest.raises(VerbError, match="deletion cannot be rehearsed"):
        await verbs.execute("write", ACTOR, {"address": "~/triggers/N", "options": {"delete": True}, "dryRun": True})


async def test_a_trigger_is_made_once_and_its_secret_not_told(wakers: Wakers, verbs: Verbs) -> None:
    value = (await verbs.execute("write", ACTOR, write_trigger("New"))).value
    assert value == {
        "summary": 'The trigger "New" is saved and on: a call from outside.',
        "id": "t",
        "name": "New",
        "enabled": True,
        "source": {"type": "webhook"},
    }
    assert len(wakers.created) == 2 and len(set(wakers.created)) == 1


async def test_triggers_that_share_a_name_and_merged_ones(wakers: Wakers, verbs: Verbs) -> None:
    wakers.add("Two", "1")
    wakers.add("Two", "2")
    wakers.add("Gone", "3", merged_into="1")
    for verb, given in (("read", {"address": "~/triggers/Two"}), ("write", write_trigger("Two"))):
        with pytest.raises(VerbError, match=r"2 triggers are named Two\..*~/triggers/1, ~/triggers/2"):
            await verbs.execute(verb, ACTOR, given)
    with pytest.raises(VerbError, match="merged into 1 and cannot be written"):
        await verbs.execute("write", ACTOR, write_trigger("Gone"))


async def test_a_turn_outlives_a_service_that_is_away(shop: Workshop) -> None:
    download = ("write", {"address": "~/memory/x", "options": {"fromUrl": "http://127.0.0.1:9/x"}})
    shop.provider.script.extend([Calls([download]), "It is away."])
    await shop.worker()
    turn = await shop.say()
    assert (await shop.ended(turn.run_id, within_s=30))["status"] == "succeeded"
    [_, _, result, answer] = shop.sessions.conversation(turn.session_id).log
    assert result["error"] == "The memory service is not available, try again" and answer["content"] == "It is away."
    [_, second] = shop.provider.requests
    assert json.dumps(second["messages"][-1]).count("not available") == 1


def test_a_signed_call_goes_on_to_another_service() -> None:
    def described() -> str:
        value = signatures.header(b"s" * 64, 7)
        signatures.bind(value, OWNER)
        return signatures.forwarded() if signatures.forwarded() == value else ""

    assert signatures.forwarded() == "" and contextvars.copy_context().run(described)


def test_a_thread_as_text() -> None:
    events: list[dict[str, Any]] = [
        {"type": "message", "role": "user", "content": "hi"},
        {"type": "message", "role": "user", "actor": "system", "content": "note"},
        {"type": "tool_call", "name": "read", "actor": "user"},
        {"type": "tool_result", "name": "read", "output": 1},
        {"type": "tool_result", "name": "read", "error": "no"},
        {"type": "error", "message": "failed"},
        {"type": "later"},
    ]
    assert transcript(events).split("\n\n") == [
        "**user**: hi", "**system**: note", "*user uses read*", "*read answered*", "*read failed: no*",
        "*error: failed*", "*later*",
    ]  # fmt: skip
    assert transcript(events[:1], cut=True) == CUT + "**user**: hi"
    long = transcript([{"type": "message", "role": "user", "content": "ä" * 200_000}])
    assert long.startswith(CUT) and len(long.encode()) <= limits.THREAD_BYTES + len(CUT)
