"""What the API asks of blocks: the messages of actions.md."""

import itertools
from typing import Any

import pytest

from libs.richtext import BlocksInvalid, message_markdown, resolve_prompt, validate_blocks

LIMIT = 64 * 1024


def para(text: str, block_id: str = "b1", **more: Any) -> dict[str, Any]:
    return {"block": {"id": block_id, "type": "Paragraph", "text": text, "annotations": []}, **more}


def resolve(value: object) -> list[Any]:
    counter = itertools.count()
    return resolve_prompt(value, "System prompt", LIMIT, lambda: f"n{next(counter)}")


@pytest.mark.parametrize(
    "value, message",
    [
        (None, "must be blocks"),
        (5, "must be blocks"),
        ({}, "must be blocks"),
        ("", "is required"),
        (" \n", "is required"),
        ([], "is required"),
        ([para("")], "is required"),
        (["x"], "blocks are invalid"),
        ([{}], "blocks are invalid"),
        ([{"block": {"id": "a"}}], "blocks are invalid"),
        ([{"block": {"id": "", "type": "Paragraph"}}], "blocks are invalid"),
        ([{"block": {"id": "a", "type": 5}}], "blocks are invalid"),
        ([para("x", children={})], "block children are invalid"),
        ([para("x", children=[{"block": 1}])], "blocks are invalid"),
        ([para("x", children=[para("y", children=5)]), "x"], "block children are invalid"),
        ("x" * (LIMIT + 1), "is too large"),
        ("é" * (LIMIT // 2) + "x", "is too large"),
        ([para("x" * (LIMIT + 1))], "is too large"),
    ],
)
def test_a_rule_of_prompts(value: object, message: str) -> None:
    with pytest.raises(BlocksInvalid) as caught:
        resolve(value)
    assert caught.value.message == f"System prompt {message}"


def test_a_prompt_may_be_as_large_as_the_limit() -> None:
    assert resolve("x" * LIMIT)[0]["block"]["text"] == "x" * LIMIT
    assert resolve([para("x" * LIMIT)]) == [para("x" * LIMIT)]


def test_blocks_come_back_as_they_were_sent() -> None:
    sent = [
        {
            "block": {
                "id": "b1",
                "type": "Heading",
                "text": "Title",
                "annotations": [],
                "attributes": {"childrenType": "Group"},
            },
            "children": [para("Body", "b2", children=[para("Deeper", "b3", children=[])])],
        },
        {"block": {"id": "b4", "type": "Custom", "text": "x", "extra": {"y": 1}}, "children": None, "other": 1},
    ]
    assert resolve(sent) is sent


def test_blocks_nest_without_limit() -> None:
    node = para("x")
    for _ in range(10_000):
        node = para("x", children=[node])
    assert validate_blocks([node], "Prompt") == [node]


def test_blocks_of_a_message_are_its_content() -> None:
    blocks = [
        {
            "block": {
                "id": "p",
                "type": "Paragraph",
                "text": "loud",
                "annotations": [{"type": "Bold", "starts": [0], "ends": [4]}],
            }
        }
    ]
    assert message_markdown("loud", blocks) == "**loud**"


@pytest.mark.parametrize("blocks", [None, [], 5, [5], [{}], [{"block": 5}], ["x"], [para("")], [para("x", children=5)]])
def test_text_of_a_message_is_its_content_without_good_blocks(blocks: object) -> None:
    assert message_markdown("  plain ", blocks) == "  plain "
