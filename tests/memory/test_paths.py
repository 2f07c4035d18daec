"""Paths: what they become, and the order of refusals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.errors import Invalid
from services.memory.domain.paths import below, normalized, parents, segments

SEGMENT = st.text(
    st.characters(exclude_characters="/\\\0", exclude_categories=("Cs",)), min_size=1, max_size=20
).filter(lambda s: s not in (".", ".."))
PATHS = st.lists(SEGMENT, min_size=1, max_size=16).map("/".join).filter(lambda p: len(p.encode()) <= 512)


@pytest.mark.parametrize(
    ("given_path", "stored"),
    [
        ("a", "a"),
        ("/a/b.txt", "a/b.txt"),
        ("a//b/./c/", "a/b/c"),
        ("\\a\\b", "a/b"),
        ("./.hidden", ".hidden"),
        ("...", "..."),
        ("..a/b..", "..a/b.."),
        (" a ", " a "),
        ("é/日本.md", "é/日本.md"),
        ("/".join("abcdefghijklmnop"), "/".join("abcdefghijklmnop")),
        ("x" * 512, "x" * 512),
    ],
)
def test_paths_are_normalised(given_path: str, stored: str) -> None:
    assert normalized(given_path) == stored


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (None, "Memory path must be a string"),
        ("a\0b", "Memory path contains an invalid character"),
        ("../\0", "Memory path contains an invalid character"),
        ("", "Memory path is required"),
        ("/", "Memory path is required"),
        ("./\\.", "Memory path is required"),
        ("../" * 17, "Memory path is nested too deeply"),
        ("/".join("a" * 17), "Memory path is nested too deeply"),
        ("..", 'Memory path cannot contain ".."'),
        ("a/../b", 'Memory path cannot contain ".."'),
        ("a\\..\\b", 'Memory path cannot contain ".."'),
        ("../" + "x" * 600, 'Memory path cannot contain ".."'),
        ("x" * 513, "Memory path is too long"),
        ("é" * 257, "Memory path is too long"),
    ],
)
def test_refusals_come_in_the_documented_order(path: str | None, text: str) -> None:
    with pytest.raises(Invalid) as e:
        normalized(path)
    assert e.value.message == text


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=60))
def test_what_is_accepted_stays_inside_and_stays_the_same(path: str) -> None:
    try:
        found = normalized(path)
    except Invalid:
        return
    assert normalized(found) == found
    assert found.split("/") == segments(path)
    assert not {"", ".", ".."} & set(found.split("/"))
    assert "\\" not in found and "\0" not in found


@given(PATHS, PATHS)
def test_the_range_below_a_directory_holds_its_files_and_no_others(directory: str, file: str) -> None:
    first, after = (bound.encode() for bound in below(directory))
    assert first <= f"{directory}/{file}".encode() < after
    inside = first <= file.encode() < after
    assert inside == file.startswith(f"{directory}/")


@given(PATHS)
def test_parents_are_the_directories_on_the_way(path: str) -> None:
    found = parents(path)
    assert len(found) == path.count("/")
    assert all(path.startswith(f"{parent}/") for parent in found)
