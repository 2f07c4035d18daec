"""Embeds in blocks: documents, comments, single blocks, names; what fails or never ends stays a link."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from libs.hypermedia import embeds
from libs.hypermedia.embeds import resolved_markdown
from libs.hypermedia.server import AskFailed


def paragraph(text: str, **more: Any) -> dict[str, Any]:
    return {"block": {"id": f"p{abs(hash(text)) % 997}", "type": "Paragraph", "text": text, **more}}


def embed(link: str, **more: Any) -> dict[str, Any]:
    return {"block": {"id": "e", "type": "Embed", "link": link, "text": "", **more}}


def document(*content: Any, name: str = "") -> dict[str, Any]:
    return {"type": "document", "document": {"content": list(content), "metadata": {"name": name}}}


class Server:
    def __init__(self, **resources: Any) -> None:
        self.resources = {f"hm://{name}": resource for name, resource in resources.items()}
        self.asked: list[str] = []

    async def ask(self, key: str, parameters: Mapping[str, str]) -> Any:
        assert key == "Resource"
        self.asked.append(parameters["id"])
        found = self.resources.get(parameters["id"])
        if found is None:
            raise AskFailed("HTTP 404")
        return found


async def test_documents_and_comments_take_their_place() -> None:
    comment = {"type": "comment", "comment": {"content": [paragraph("Said.")]}}
    server = Server(a=document(paragraph("Written.")), b=comment)
    text = await resolved_markdown([paragraph("Before."), embed("hm://a"), embed("hm://b")], server.ask)
    assert "Before." in text and "Written." in text and "Said." in text
    assert "hm://" not in text


async def test_two_levels_and_no_more() -> None:
    server = Server(
        a=document(paragraph("One."), embed("hm://b")),
        b=document(paragraph("Two."), embed("hm://c")),
        c=document(paragraph("Three.")),
    )
    text = await resolved_markdown([embed("hm://a")], server.ask)
    assert "One." in text and "Two." in text and "Three." not in text and "hm://c" in text
    assert "hm://c" not in server.asked


async def test_a_fragment_names_one_block() -> None:
    inner = {"block": {"id": "x1", "type": "Paragraph", "text": "This."}}
    server = Server(a=document(paragraph("Not this."), {**paragraph("Nor this."), "children": [inner]}))
    for link in ("hm://a#x1", "hm://a#x1+"):
        text = await resolved_markdown([embed(link)], server.ask)
        assert "This." in text and "ot this." not in text and "Nor" not in text
    assert "hm://a#gone" in await resolved_markdown([embed("hm://a#gone")], server.ask)


async def test_names_of_what_is_mentioned() -> None:
    mention = paragraph("\ufffc hi", annotations=[{"type": "Embed", "link": "hm://a", "starts": [0], "ends": [1]}])
    server = Server(a=document(name=" Alice\nA. "))
    assert "Alice A." in await resolved_markdown([mention], server.ask)


@pytest.mark.parametrize(
    "answer", [None, [], {}, {"type": "tombstone"}, {"type": []}, {"type": "document", "document": 5}]
)
async def test_what_is_not_there_stays_a_link(answer: Any) -> None:
    async def ask(key: str, parameters: Mapping[str, str]) -> Any:
        return answer

    text = await resolved_markdown([paragraph("Text."), embed("hm://a"), embed("https://web.example/x")], ask)
    assert "Text." in text and "hm://a" in text and "https://web.example/x" in text
    assert "hm://a" in await resolved_markdown([embed("hm://a")], Server().ask)


async def test_what_embeds_itself_ends() -> None:
    server = Server(a=document(paragraph("One."), embed("hm://b")), b=document(paragraph("Two."), embed("hm://a")))
    text = await resolved_markdown([embed("hm://a")], server.ask, depth=50)
    assert text.count("One.") == 1 and text.count("Two.") == 1
    assert server.asked == ["hm://a", "hm://b"]


async def test_too_much_or_too_late_stays_a_link(monkeypatch: pytest.MonkeyPatch) -> None:
    large = Server(a=document(paragraph("x" * 40_000)), b=document(paragraph("Small.")))
    text = await resolved_markdown([embed("hm://a"), embed("hm://b")], large.ask)
    assert "hm://a" in text and "Small." in text and len(text) < 1_000
    many = Server(**{f"r{n}": document(paragraph(f"No {n}.")) for n in range(40)})
    await resolved_markdown([embed(f"hm://r{n}") for n in range(40)], many.ask)
    assert len(many.asked) == 32
    monkeypatch.setattr(embeds, "_SECONDS", 0.05)

    async def slow(key: str, parameters: Mapping[str, str]) -> Any:
        if parameters["id"] == "hm://b":
            await asyncio.Event().wait()
        return document(paragraph("Quick."))

    text = await resolved_markdown([embed("hm://a"), embed("hm://b")], slow)
    assert "Quick." in text and "hm://b" in text
