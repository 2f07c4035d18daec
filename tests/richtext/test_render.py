"""Blocks to markdown, and there and back."""

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libs.richtext import blocks_to_markdown, embed_links, markdown_to_blocks


def block(kind: str, text: object = "", children: object = None, **more: Any) -> dict[str, Any]:
    node: dict[str, Any] = {"block": {"id": "x", "type": kind, "text": text, **more}}
    return node if children is None else {**node, "children": children}


def mark(kind: str, start: int, end: int, **more: Any) -> dict[str, Any]:
    return {"type": kind, "starts": [start], "ends": [end], **more}


def view(nodes: list[dict[str, Any]]) -> list[Any]:
    """Everything but ids, which differ from one parse to the next."""
    return [
        (
            {k: v for k, v in n["block"].items() if k not in ("id", "attributes")},
            {k: v for k, v in n["block"]["attributes"].items() if k != "columnId"},
            view(n.get("children", [])),
        )
        for n in nodes
    ]


def parse(text: str) -> list[dict[str, Any]]:
    counter = itertools.count()
    return markdown_to_blocks(text, lambda: f"n{next(counter)}")


def test_a_heading_with_its_paragraph() -> None:
    body = block("Paragraph", "loud words", [], annotations=[mark("Bold", 0, 4)])
    assert blocks_to_markdown([block("Heading", "Title", [body], annotations=[])]) == "# Title\n\n**loud** words"


def test_headings_are_as_deep_as_they_are_nested() -> None:
    assert (
        blocks_to_markdown([block("Heading", "a", [block("Heading", "b"), block("Paragraph", "c")])])
        == "# a\n\n## b\n\nc"
    )


@pytest.mark.parametrize(
    "text, shown",
    [
        ("plain text, snake_case, <tag>, [x], 1 * 2 & more!", "plain text, snake_case, <tag>, [x], 1 * 2 & more!"),
        ("really *loud* and <tag>", "really \\*loud\\* and <tag>"),
        ("- no list", "\\- no list"),
        ("1. no list", "1\\. no list"),
        ("# no heading", "\\# no heading"),
        ("first\n\nsecond *x*", "first\n\nsecond \\*x\\*"),
    ],
)
def test_only_what_would_be_markup_is_escaped(text: str, shown: str) -> None:
    assert blocks_to_markdown([block("Paragraph", text)]) == shown


def test_text_of_a_math_fence_does_not_swallow_what_follows() -> None:
    nodes = [block("Paragraph", "$$"), block("Math", "x")]
    assert blocks_to_markdown(nodes) == "\\$$\n\n$$\nx\n$$"


def test_marks_that_overlap_or_touch_words_are_read_back() -> None:
    annotations = [
        mark("Bold", 0, 6),
        mark("Italic", 4, 9),
        mark("Link", 7, 9, link="http://x/(y) z"),
        mark("Code", 9, 11),
    ]
    spans = parse(blocks_to_markdown([block("Paragraph", 'ab"cd"ef`gh', annotations=annotations)]))[0]["block"]
    assert spans["text"] == 'ab"cd"ef`gh'
    assert sorted(map(str, spans["annotations"])) == sorted(map(str, annotations))


@pytest.mark.parametrize(
    "annotations",
    [
        None,
        "x",
        [None, 5, {}],
        [{"type": "Bold"}],
        [{"type": "Bold", "starts": [0], "ends": []}],
        [{"type": "Bold", "starts": ["0"], "ends": [1.5]}],
        [{"type": "Bold", "starts": [-1, 3, 9], "ends": [2, 3, 20]}],
        [{"type": "Odd", "starts": [0], "ends": [2]}],
        [{"type": ["Bold"], "starts": [0], "ends": [2]}],
        [{"type": "Link", "starts": [0], "ends": [2]}],
    ],
)
def test_malformed_annotations_mark_nothing(annotations: object) -> None:
    assert blocks_to_markdown([block("Paragraph", "text", annotations=annotations)]) == "text"


def test_ends_beyond_the_text_are_its_end() -> None:
    assert blocks_to_markdown([block("Paragraph", "text", annotations=[mark("Bold", 2, 99)])]) == "te**xt**"


def test_unknown_and_malformed_blocks_are_their_text() -> None:
    nodes = [
        block("Custom", "x", [block("Other", "y")]),
        block("Paragraph", 5),
        {"block": 1},
        "z",
        block("Paragraph", "w", 7),
    ]
    assert blocks_to_markdown(nodes) == "x\n\ny\n\nw"
    assert blocks_to_markdown(None) == "" and blocks_to_markdown([]) == ""


def test_blocks_with_links() -> None:
    nodes = [
        block("Image", "alt", link="ipfs://i"),
        block("Video", link="ipfs://v"),
        block("File", link="ipfs://f", attributes={"name": "a.pdf"}),
        block("Button", "Go", link="http://b"),
        block("Embed", link="hm://e"),
    ]
    shown = "![alt](ipfs://i)\n\n[Video](ipfs://v)\n\n[a.pdf](ipfs://f)\n\n[Go](http://b)\n\n> [Embed: hm://e](hm://e)"
    assert blocks_to_markdown(nodes) == shown
    assert "![alt](https://g/i)" in blocks_to_markdown(nodes, media_url=lambda u: u.replace("ipfs://", "https://g/"))


def test_embeds_are_put_in_place_of_their_links() -> None:
    text = block("Paragraph", "by \ufffc", annotations=[mark("Embed", 3, 4, link="hm://p")])
    nodes = [text, block("Embed", link="hm://d", children=[block("Embed", link="hm://d")])]
    assert embed_links(nodes) == (["hm://d"], ["hm://p"])
    shown = blocks_to_markdown(
        [text, block("Embed", link="hm://d")], embeds={"hm://d": "the *text*"}, labels={"hm://p": "Ann"}
    )
    assert shown == "by [Ann](hm://p)\n\nthe *text*"
    assert blocks_to_markdown(nodes[:1]) == "by <hm://p>"


def test_code_with_fences_in_it() -> None:
    nodes = [block("Code", "```\nx\n```", attributes={"language": "md"})]
    assert blocks_to_markdown(nodes) == "````md\n```\nx\n```\n````"
    assert view(parse(blocks_to_markdown(nodes)))[0][0]["text"] == "```\nx\n```"


def test_ids_are_written_and_read_back() -> None:
    text = "# T\n\nintro\n\n- a\n  - b\n\npara *x*\nline\n\n```py\ny\n```\n\n$$\nz\n$$\n\n"
    text += "![i](u)\n\n> [Embed: hm://e](hm://e)\n\n- c"
    nodes = parse(text)
    shown = blocks_to_markdown(nodes, ids=True)
    assert "# T <!-- id:n0 -->" in shown
    assert markdown_to_blocks(shown, lambda: "new", keep_ids=True) == nodes


def test_table_ids_are_written_and_read_back() -> None:
    (table,) = parse("| a | b |\n|-|-|\n| c | d |")
    (again,) = markdown_to_blocks(blocks_to_markdown([table], ids=True), lambda: "new", keep_ids=True)
    assert [n["block"] for n in again["children"]] == [n["block"] for n in table["children"]]
    assert again["block"] == table["block"]


def test_depth_without_limit() -> None:
    for group in ("Group", "Unordered", "Blockquote"):
        node = block("Paragraph", "leaf")
        for _ in range(5000):
            node = block("Paragraph", "t", [node], attributes={"childrenType": group})
        shown = blocks_to_markdown([node])
        assert "leaf" in shown and shown.count("t") == 5000


PIECES = st.sampled_from(
    [
        *(
            "a",
            "b",
            " ",
            "  ",
            "\n",
            "\n\n",
            "*",
            "**",
            "***",
            "_",
            "__",
            "~~",
            "`",
            "``",
            "[",
            "]",
            "(",
            ")",
            "](u)",
            "![",
        ),
        *(
            "<hm://x>",
            "<http://y>",
            "<u>",
            "</u>",
            "# ",
            "## ",
            "- ",
            "* ",
            "1. ",
            "3) ",
            "> ",
            "```",
            "~~~",
            "$$",
            "|",
        ),
        *(
            "|-|",
            "\\",
            "&amp;",
            "<",
            "!",
            "---",
            "    ",
            "\t",
            '"',
            ".",
            "é",
            "👩",
            "<br>",
            "<!-- -->",
            "\n- ",
            "\n  - ",
        ),
        *("\n> ", "\n| a | b |\n|-|-|\n", "\ufffc", "\u00a0", "[a](b)", "**b**", "\n$$\nx\n$$\n", "\n```\n"),
    ]
)


@settings(max_examples=400, deadline=None)
@given(st.lists(PIECES, max_size=16).map("".join))
def test_markdown_of_blocks_reads_back_as_the_same_blocks(text: str) -> None:
    nodes = parse(text)
    assert view(parse(blocks_to_markdown(nodes))) == view(nodes)


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=40))
def test_any_text_reads_back_as_the_same_blocks(text: str) -> None:
    nodes = parse(text)
    assert view(parse(blocks_to_markdown(nodes))) == view(nodes)


SPANS = st.builds(
    lambda kind, start, length: mark(kind, start, start + length, link="hm://z"),
    st.sampled_from(["Bold", "Italic", "Strike", "Underline", "Code", "Link", "Embed", "Odd"]),
    st.integers(0, 12),
    st.integers(0, 12),
)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet='ab *"_`é', max_size=12).map(lambda t: f"x{t}x"), st.lists(SPANS, max_size=4))
def test_text_under_any_marks_is_kept(text: str, annotations: list[dict[str, Any]]) -> None:
    nodes = parse(blocks_to_markdown([block("Paragraph", text, annotations=annotations)]))
    assert [n["block"]["text"] for n in nodes] == [text]
