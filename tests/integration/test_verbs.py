"""A model reads and writes its Space, and what stands around it."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from libs.stack.scripted import Calls
from tests.support.kit import Owner, World, until

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
TOOL = {
    "description": "Doubles a number. Slowly.",
    "input": {"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]},
    "source": "export default (i) => ({n: i.n * 2})",
}
TRIGGER = {
    "source": {"type": "schedule", "schedule": {"kind": "interval", "every": 6, "unit": "hours"}},
    "prompt": "Go.",
}

EVERY_MINUTE = {"kind": "interval", "every": 1, "unit": "minutes"}
OFTEN = {**TRIGGER, "source": {"type": "schedule", "schedule": EVERY_MINUTE}}


def read(address: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return ("read", {"address": address, **more})


def write(address: str, content: Any = None, **more: Any) -> tuple[str, dict[str, Any]]:
    text = content if isinstance(content, str | None) else json.dumps(content)
    return ("write", {"address": address, **({} if text is None else {"content": text}), **more})


def call(tool: Any, **given: Any) -> tuple[str, dict[str, Any]]:
    return ("call", {"tool": tool, "input": given})


async def outcomes(owner: Owner, session: str, *steps: tuple[str, dict[str, Any]]) -> list[Any]:
    """What the calls of one turn gave, made one after the other: outputs, or errors as text."""
    owner.provider.script.extend([*(Calls([step]) for step in steps), "Done."])
    before = len(await owner.events(session))
    await owner.client.message(session, "go")
    log = [event.event for event in (await owner.events(session))[before:]]
    return [e.get("output", e.get("error")) for e in log if e["type"] == "tool_result"]


async def one(owner: Owner, session: str, step: tuple[str, dict[str, Any]]) -> Any:
    [outcome] = await outcomes(owner, session, step)
    return outcome


async def test_the_verbs_are_offered_in_order(world: World) -> None:
    owner = await world.owner()
    await owner.client.message(await owner.session(), "hi")
    [request] = owner.provider.requests
    names = [tool["function"]["name"] for tool in request["tools"]]
    assert names[:6] == ["read", "write", "call", "delegate", "plan", "status"]


async def test_memory_from_the_first_file_to_the_last(world: World) -> None:
    owner = await world.owner()
    session = await owner.session()
    empty, wrote, text, again, listed, root, deleted, gone, missing, nothing = await outcomes(
        owner,
        session,
        read("~/memory/"),
        write("~/memory/notes/a.md", "héllo"),
        read("~/memory/notes/a.md"),
        write("~/memory/notes/a.md", "bye"),
        read("~/memory/notes"),
        read("~/memory"),
        write("~/memory/notes/a.md", options={"delete": True}),
        write("~/memory/notes/a.md", options={"delete": True}),
        read("~/memory/notes/a.md"),
        write("~/memory/x"),
    )
    assert (empty["entries"], empty["totalBytes"], empty["path"]) == ([], 0, "")
    assert (wrote["path"], wrote["size"], wrote["mimeType"]) == ("notes/a.md", 6, "text/markdown")
    assert (text["content"], text["encoding"], text["size"]) == ("héllo", "utf8", 6)
    assert again["size"] == 3
    assert [(e["path"], e["type"]) for e in listed["entries"]] == [("notes/a.md", "file")]
    assert [(e["path"], e["type"], e["entryCount"]) for e in root["entries"]] == [("notes", "dir", 1)]
    assert (deleted["deleted"], gone["deleted"]) == (True, False)
    assert missing == "Memory file not found: notes/a.md"
    assert "requires content" in nothing
    # What a verb did is there for people too.
    await one(owner, session, write("~/memory/kept.txt", "kept"))
    entries = (await owner.client.call("ListAgentMemory", agentId=owner.agent)).entries
    assert [e.path for e in entries] == ["kept.txt"]


async def test_attachments_are_read_seen_and_kept(world: World) -> None:
    owner = await world.owner()
    session = await owner.session()
    upload = owner.client.call
    note = (await upload("UploadSessionAttachment", sessionId=session, name="note.txt", content=b"hello")).attachment
    image = (
        await upload("UploadSessionAttachment", sessionId=session, name="dot.png", mimeType="image/png", content=PNG)
    ).attachment
    zipped = (
        await upload(
            "UploadSessionAttachment", sessionId=session, name="a.zip", mimeType="application/zip", content=b"PK"
        )
    ).attachment
    text, seen, other, kept, named, back, bad, unknown = await outcomes(
        owner,
        session,
        read(f"attachment:{note.id}"),
        read(f"attachment:{image.id}"),
        read(f"attachment:{zipped.id}"),
        write("~/memory/", options={"fromAttachment": note.id}),
        write("~/memory/img/dot.png", options={"fromAttachment": image.id}),
        read("~/memory/img/dot.png"),
        read("attachment:x"),
        read(f"attachment:{'0' * 64}"),
    )
    assert (text["content"], text["name"], text["shownAsImage"]) == ("hello", "note.txt", False)
    assert (
        seen["shownAsImage"] is False and "does not take images" in seen["summary"] and seen["mimeType"] == "image/png"
    )
    assert "content" not in other and "not text" in other["summary"]
    assert (kept["path"], named["path"]) == ("attachments/note.txt", "img/dot.png")
    assert back["encoding"] == "binary" and "content" not in back and back["size"] == len(PNG)
    assert (bad, unknown) == ("Invalid attachment id: x", f"Attachment not found: {'0' * 64}")


async def test_tools_are_authored_listed_and_judged_but_nothing_runs_them(world: World) -> None:
    owner = await world.owner()
    session = await owner.session()
    saved, listed, contract, verb, unknown, again, bad, taken = await outcomes(
        owner,
        session,
        write("~/tools/double", {**TOOL, "name": "other"}),
        read("~/tools/"),
        read("~/tools/double"),
        read("~/tools/write"),
        read("~/tools/nope"),
        write("~/tools/double", options={"tool": {**TOOL, "description": "Doubles."}}),
        write("~/tools/double", "[]"),
        write("~/tools/read", TOOL),
    )
    assert (saved["name"], saved["kind"]) == ("double", "lambda")
    assert "double" in listed["tools"] and "`double`: Doubles a number. (authored)" in listed["markdown"]
    assert "`read`" in listed["markdown"] and "`delegate`" in listed["markdown"]
    assert (contract["cid"], contract["kind"]) == (saved["cid"], "lambda") and "## Source" in contract["markdown"]
    assert verb["name"] == "write" and "cid" not in verb and "## Input schema" in verb["markdown"]
    assert unknown["summary"] == "No tool named nope." and unknown["tools"] == listed["tools"]
    assert again["cid"] != saved["cid"]
    assert bad == "write ~/tools/<name> expects JSON content: {description, input, output?, source, runtime?}"
    assert taken == '"read" is a builtin tool or verb and cannot be replaced'

    missed, refused, nobody, itself, empty, deleted, gone = await outcomes(
        owner,
        session,
        call(" double ", n="two"),
        call("double", n=2),
        call("nope"),
        call("read", address="~/self"),
        call(""),
        write("~/tools/double", options={"delete": True}),
        call("double", n=2),
    )
    assert missed["validationErrors"] == ["$.n: expected number, got string"] and "double" in missed["contract"]
    assert refused == "Tool double is written in typescript, for which this server has no runtime"
    assert nobody["summary"] == "No callable tool named nope. Here is what you can call."
    assert itself["summary"] == "No callable tool named read. Here is what you can call."
    assert empty["summary"] == "call requires a tool name. Here is what you can call."
    assert deleted["deleted"] is True and gone["summary"].startswith("No callable tool named double.")
    tools = (await owner.client.call("ListAgentTools", agentId=owner.agent)).tools
    assert "double" not in [tool.name for tool in tools]


async def test_triggers_are_written_whole_and_read(world: World) -> None:
    owner = await world.owner()
    session = await owner.session()
    wake = {"kind": "wake", "signal": "go"}
    listed, saved, read_back, again, kind, allowed, often, whole = await outcomes(
        owner,
        session,
        read("~/triggers/"),
        write("~/triggers/Morning", {**TRIGGER, "name": "x", "continuation": wake}),
        read("~/triggers/Morning"),
        write("~/triggers/Morning", {**TRIGGER, "prompt": "Other.", "enabled": False}),
        write("~/triggers/Morning", {**TRIGGER, "source": {"type": "webhook"}}),
        write("~/triggers/Morning", {**TRIGGER, "source": {"type": "webhook"}}, options={"replaceSource": True}),
        write("~/triggers/Often", OFTEN),
        read("~/triggers/"),
    )  # fmt: skip
    assert listed["triggers"] == [] and "write ~/triggers/<name>" in listed["contract"]
    assert (saved["name"], saved["enabled"], saved["source"]["type"]) == ("Morning", True, "schedule")
    assert read_back["prompt"].strip() == "Go." and read_back["continuation"]["signal"] == "go"
    assert read_back["recentFirings"] == [] and read_back["id"] == saved["id"]
    assert (again["id"], again["enabled"]) == (saved["id"], False)
    assert "replaceSource" in kind and allowed["source"]["type"] == "webhook" and allowed["enabled"] is True
    assert "frequentSchedule" in often
    [entry] = whole["triggers"]
    assert (entry["name"], entry["status"], entry["type"], entry["when"]) == (
        "Morning", "active", "webhook", "a call from outside",
    )  # fmt: skip
    bad, slashed, invalid, by_id, none, deleted, unknown = await outcomes(
        owner,
        session,
        write("~/triggers/Morning", "no json"),
        write("~/triggers/a/b", TRIGGER),
        write("~/triggers/Bad", {"source": {"type": "none"}, "prompt": "x"}),
        read(f"~/triggers/{saved['id']}"),
        write("~/triggers/None", options={"delete": True}),
        write("~/triggers/Morning", options={"delete": True}),
        read("~/triggers/Morning"),
    )
    assert bad == "write ~/triggers/<name> expects JSON content: {source, prompt, enabled?, continuation?}"
    assert "without a slash" in slashed and invalid == "Trigger source type is unsupported"
    assert by_id["name"] == "Morning" and by_id["prompt"].strip() == "Go."
    assert (none["deleted"], deleted["deleted"]) == (False, True)
    assert unknown["summary"] == "No trigger named Morning." and unknown["triggers"] == []


async def test_itself_threads_and_runs(world: World) -> None:
    owner = await world.owner(tools=["publish"], metadata={"mood": "calm"})
    other, session = await owner.session("Whales"), await owner.session()
    await owner.client.message(other, "tell me of the blue whale")
    [run] = await owner.runs(other)
    stranger = await world.owner()
    strange = await stranger.session()
    itself, listed, found, none, thread, hidden, seen, unseen, limited = await outcomes(
        owner,
        session,
        read("~/self"),
        read("thread:"),
        read("thread:", options={"query": "BLUE whale"}),
        read("thread:", options={"query": "red whale"}),
        read(f"thread:{other}"),
        read(f"thread:{strange}"),
        read(f"run:{run.id}"),
        read("run:nothing"),
        read("thread:", options={"limit": 1}),
    )
    assert (itself["name"], itself["agentId"], itself["modelProvider"]) == ("Scripted agent", owner.agent, "scripted")
    assert itself["grants"] == {"callableTools": [], "publish": True} and itself["metadata"] == {"mood": "calm"}
    assert (itself["sessionCount"], itself["memory"]["totalFiles"], itself["triggers"]) == (2, 0, [])
    assert {t["thread"] for t in listed["threads"]} == {f"thread:{other}", f"thread:{session}"}
    assert listed["threads"][0]["agent"] == "Scripted agent"
    [hit] = [t for t in found["threads"] if t["thread"] == f"thread:{other}"]
    assert hit["title"] == "Whales" and hit["snippet"] == "tell me of the blue whale"
    assert f"thread:{other}" not in [t["thread"] for t in none["threads"]]
    assert thread["markdown"] == "**user**: tell me of the blue whale\n\n**assistant**: Hello."
    assert hidden == f"No thread {strange}" and unseen == "No run nothing"
    assert (seen["id"], seen["status"], seen["rootRunId"]) == (run.id, "succeeded", run.id)
    assert len(limited["threads"]) == 1


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (read("  "), "read requires an address"),
        (("write", {}), "write requires an address"),
        (("read", {"address": 5}), "read requires an address"),
        (
            read("gopher://old"),
            "Unrecognized address: gopher://old. Supported: ~/memory/…, ~/tools/…, ~/triggers/…, ~/self, "
            "attachment:<id>, thread: or thread:<id>, run:<id>.",
        ),
        (
            write("~/self", "x"),
            "Unrecognized address: ~/self. Supported: ~/memory/…, ~/tools/…, ~/triggers/….",
        ),
        (
            write("~/memory/a", "x", options={"title": 1, "name": 2}),
            'write ~/memory/<path> does not understand options "title", "name". Supported options: delete, fromUrl, '
            "fromAttachment.",
        ),
        (
            write("~/tools/a", "{}", options={"dryRun": True}),
            'write ~/tools/<name> does not understand option "dryRun". Supported options: delete, tool. dryRun stands '
            "beside address and content, not in options.",
        ),
        (write("~/memory/a", "x", dryRun="yes"), "write dryRun must be a boolean"),
        (
            write("~/memory/a", "x", dryRun=True),
            "write ~/memory/<path> cannot be rehearsed: dryRun is not supported there",
        ),
        (write("~/memory/../a", "x"), 'Memory path cannot contain ".."'),
    ],
    ids=range(10),
)  # fmt: skip
async def test_refusals_say_what_to_do(world: World, step: tuple[str, dict[str, Any]], error: str) -> None:
    owner = await world.owner()
    assert await one(owner, await owner.session(), step) == error


async def test_the_model_gets_a_part_of_what_is_stored_whole(world: World) -> None:
    owner = await world.owner()
    session = await owner.session()
    _, text = await outcomes(owner, session, write("~/memory/big.txt", "x" * 20_000), read("~/memory/big.txt"))
    assert text["content"] == "x" * 20_000
    shown = owner.provider.requests[-1]["messages"][-1]
    assert shown["role"] == "tool" and len(shown["content"]) < 9_000 and "cut: 8192 of" in shown["content"]


async def test_the_prompt_shows_the_space_and_is_what_is_sent(world: World) -> None:
    owner = await world.owner()
    session = await owner.session()
    await outcomes(
        owner,
        session,
        write("~/memory/notes/a.md", "a"),
        write("~/memory/b.md", "b"),
        write("~/tools/double", TOOL),
        write("~/triggers/Morning", TRIGGER),
    )
    tools = "\n- double: Doubles a number. (authored)\n"
    rest = "\nmemory/ — 2 files: b.md, notes/ (1)\ntriggers/ — 1 active: Morning\n</space>"

    async def prompted() -> str:
        text = (await owner.client.session(session)).system_prompt_markdown
        return text if tools in text and rest in text else ""

    prompt = await until(prompted, what="the index")
    await owner.client.message(session, "again")
    sent = owner.provider.requests[-1]["messages"][0]["content"]

    def untimed(text: str) -> str:
        before, _, after = text.partition("The current time is: ")
        return before + after[len("2026-01-01T00:00:00.000Z") :]

    assert untimed(sent) == untimed(prompt) and "The current time is: " in sent
    assert prompt.index("# Your files") < prompt.index("<user_action>") < prompt.index("<space>")


async def test_a_delegated_child_may_use_what_it_was_given(world: World) -> None:
    owner = await world.owner()
    session = await owner.session()

    def reply(body: dict[str, Any]) -> Any:
        users = [m for m in body["messages"] if m["role"] == "user"]
        done = any(m["role"] == "tool" for m in body["messages"])
        if "child" in str(users[0]["content"]):
            return "Done." if done else Calls([write("~/memory/child.txt", "from the child")])
        return "Ok." if done else Calls([("delegate", {"brief": "you are a child"})])

    owner.provider.reply = reply
    await owner.client.message(session, "go")
    await owner.at_rest(session)
    file = (await owner.client.call("ReadAgentMemoryFile", agentId=owner.agent, path="child.txt")).file
    assert file.content == "from the child"
