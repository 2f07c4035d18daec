"""Markdown text to blocks."""

import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest

from libs.richtext import markdown_to_blocks


def ids() -> Callable[[], str]:
    counter = itertools.count(1)
    return lambda: f"b{next(counter)}"


def parse(text: str) -> list[dict[str, Any]]:
    return markdown_to_blocks(text, ids())


def outline(nodes: list[dict[str, Any]]) -> list[Any]:
    """Nested `[type, text, childrenType, children]`, what is absent left out."""
    result: list[Any] = []
    for node in nodes:
        block = node["block"]
        entry: list[Any] = [block["type"], block["text"]]
        if "childrenType" in block["attributes"]:
            entry.append(block["attributes"]["childrenType"])
        if "children" in node:
            entry.append(outline(node["children"]))
        result.append(entry)
    return result


def walk(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [b for n in nodes for b in (n["block"], *walk(n.get("children", [])))]


def marks(block: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (a["type"], block["text"][s:e])
        for a in block["annotations"]
        for s, e in zip(a["starts"], a["ends"], strict=True)
    ]


def test_a_prompt_with_heading_paragraph_and_code() -> None:
    nodes = parse(
        "# Title\n\nSome *soft* and **loud** and [linked](https://example.org/a) words.\n\n```py\nprint(1)\n```"
    )
    assert outline(nodes) == [
        ["Heading", "Title", "Group", [["Paragraph", "Some soft and loud and linked words."], ["Code", "print(1)"]]]
    ]
    _, paragraph, code = walk(nodes)
    assert marks(paragraph) == [("Italic", "soft"), ("Bold", "loud"), ("Link", "linked")]
    assert paragraph["annotations"][2]["link"] == "https://example.org/a"
    assert code["attributes"] == {"language": "py"} and code["annotations"] == []


def test_headings_own_what_is_below_them() -> None:
    nodes = parse("before\n# A\na\n### B\nb\n## C\nc\n# D")
    assert outline(nodes) == [
        ["Paragraph", "before"],
        [
            "Heading",
            "A",
            "Group",
            [
                ["Paragraph", "a"],
                ["Heading", "B", "Group", [["Paragraph", "b"]]],
                ["Heading", "C", "Group", [["Paragraph", "c"]]],
            ],
        ],
        ["Heading", "D", "Group"],
    ]


def test_a_list_belongs_to_the_text_before_it() -> None:
    assert outline(parse("Intro:\n\n- a\n  1. b\n- c\n\n  more")) == [
        [
            "Paragraph",
            "Intro:",
            "Unordered",
            [
                ["Paragraph", "a", "Ordered", [["Paragraph", "b"]]],
                ["Paragraph", "c", "Group", [["Paragraph", "more"]]],
            ],
        ]
    ]


def test_a_list_without_text_before_it_gets_a_container() -> None:
    assert outline(parse("- a\n- b")) == [["Paragraph", "", "Unordered", [["Paragraph", "a"], ["Paragraph", "b"]]]]


def test_a_list_is_the_headings_own_only_while_alone() -> None:
    assert outline(parse("# T\n- a")) == [["Heading", "T", "Unordered", [["Paragraph", "a"]]]]
    assert outline(parse("# T\n- a\n\nmore")) == [
        ["Heading", "T", "Group", [["Paragraph", "", "Unordered", [["Paragraph", "a"]]], ["Paragraph", "more"]]]
    ]


def test_an_ordered_list_keeps_the_number_it_starts_with() -> None:
    (node,) = parse("3. c\n4. d")
    assert node["block"]["attributes"] == {"childrenType": "Ordered", "start": 3}
    (node,) = parse("1. a")
    assert node["block"]["attributes"] == {"childrenType": "Ordered"}


def test_a_quote() -> None:
    assert outline(parse("said:\n> one\n>\n> two")) == [
        ["Paragraph", "said:", "Blockquote", [["Paragraph", "one"], ["Paragraph", "two"]]]
    ]


def test_images_math_and_embeds() -> None:
    nodes = parse("![alt *x*](ipfs://cid)\n\n$$\nx^2\n$$\n\n<hm://acc/doc>\n\n> [Embed: hm://q](hm://q)\n\n$$ y $$")
    image, math, paragraph, embed, line = walk(nodes)
    assert (image["type"], image["text"], image["link"]) == ("Image", "alt x", "ipfs://cid")
    assert (math["type"], math["text"]) == ("Math", "x^2")
    assert paragraph["text"] == "\ufffc"
    assert paragraph["annotations"] == [{"type": "Embed", "starts": [0], "ends": [1], "link": "hm://acc/doc"}]
    assert (embed["type"], embed["text"], embed["link"]) == ("Embed", "", "hm://q")
    assert (line["type"], line["text"]) == ("Math", "y")


def test_an_image_in_a_line_of_text_keeps_its_address() -> None:
    (block,) = walk(parse("see ![this](http://x/i.png) now"))
    assert block["text"] == "see this now" and block["annotations"][0]["link"] == "http://x/i.png"


def test_all_inline_marks_and_code_point_offsets() -> None:
    (block,) = walk(parse("👩‍💻 **b *bi*** ~~s~~ `c` <u>u</u> <https://x.org> é"))
    assert marks(block) == [
        ("Bold", "b bi"),
        ("Italic", "bi"),
        ("Strike", "s"),
        ("Code", "c"),
        ("Underline", "u"),
        ("Link", "https://x.org"),
    ]


def test_a_table() -> None:
    (table,) = parse("| a | b |\n|---|:-:|\n| `x\\|y` | *i*<br>z |\n| only |")
    rows = [n for n in table["children"] if n["block"]["type"] == "TableRow"]
    columns = [n["block"]["id"] for n in table["children"] if n["block"]["type"] == "TableColumn"]
    assert [[c["block"]["text"] for c in r["children"]] for r in rows] == [["a", "b"], ["x|y", "i\nz"], ["only", ""]]
    assert all([c["block"]["attributes"]["columnId"] for c in r["children"]] == columns for r in rows)
    assert rows[0]["block"]["attributes"] == {"isHeader": True} and rows[1]["block"]["attributes"] == {}


def test_a_table_that_would_lose_cells_stays_text() -> None:
    (block,) = walk(parse("| a |\n|---|\n| b | c |"))
    assert (block["type"], block["text"]) == ("Paragraph", "| a |\n|---|\n| b | c |")


@pytest.mark.parametrize(
    "text",
    [
        "snake_case, 1 * 2, <tag> and </tag>, &amp; [x] [1] a\u0000b",
        "[label]: http://example.org",
        "<!-- a comment -->",
        "[x](javascript:alert)",
        "***",
        "-----",
        "$$\nnot closed",
        "x" * 65536,
        "[" * 65536,
    ],
)
def test_text_that_is_no_markup_is_kept(text: str) -> None:
    (block,) = walk(parse(text))
    assert (block["type"], block["text"], block["annotations"]) == ("Paragraph", text, [])


def test_nothing_but_blanks() -> None:
    assert parse("") == [] and parse(" \n\t\n") == []


def test_nesting_without_limit_keeps_the_text() -> None:
    for text in (">" * 65536, "> " * 500 + "deep", "- " * 500 + "deep"):
        assert "".join(b["text"] for b in walk(parse(text))).strip() == text.strip()
    indented = "".join("  " * level + "- a\n" for level in range(200))
    assert sum(b["text"].count("a") for b in walk(parse(indented))) == 200


@pytest.mark.parametrize(
    "unit",
    ["[", "![", "[a][", "[a](", "*", "_a", "**a ", "`", "``a`", "<", "<!--", "<u>", ">", "$$", "$$ \n", "|", " ", "\\"],
)
def test_hostile_text_takes_time_by_its_length(unit: str) -> None:
    def seconds(text: str) -> float:
        start = time.process_time()
        parse(text)
        return time.process_time() - start

    # Twice the text may take about twice the time; what is quadratic takes many seconds at this size.
    assert seconds(unit * (65536 // len(unit))) < 2


def test_ids_come_from_new_id() -> None:
    found = [b["id"] for b in walk(parse("# a\n- b\n- c\n\n| d |\n|-|\n| e |"))]
    assert len(set(found)) == len(found) and all(found)


def test_id_comments_name_blocks_when_asked() -> None:
    text = "# T <!-- id:t1 -->\n\nsame <!-- id:t1 -->\n\n<!-- id:list -->\n- a <!-- id:i1 -->\n\n"
    text += "```py <!-- id:c1 -->\nx\n```"
    kept = markdown_to_blocks(text, ids(), keep_ids=True)
    assert [(b["id"], b["text"]) for b in walk(kept)] == [
        ("t1", "T"),
        ("b1", "same"),
        ("list", ""),
        ("i1", "a"),
        ("c1", "x"),
    ]
    assert walk(parse("a <!-- id:x -->"))[0]["text"] == "a <!-- id:x -->"
