"""Text or not, whatever pieces the bytes come in."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.memory.domain.contents import TextCheck

CUTS = st.lists(st.integers(0, 64), max_size=6)


def _is_text(data: bytes, cuts: list[int]) -> bool:
    check = TextCheck()
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in itertools.pairwise(edges):
        check.see(data[start:end])
    return check.is_text()


def _by_the_rule(data: bytes) -> bool:
    try:
        return "\0" not in data.decode("utf-8")
    except UnicodeDecodeError:
        return False


@given(st.binary(max_size=64) | st.text(max_size=20).map(lambda t: t.encode("utf-8", "replace")), CUTS)
def test_text_is_utf8_without_nul(data: bytes, cuts: list[int]) -> None:
    assert _is_text(data, cuts) == _by_the_rule(data)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", True),
        ("é".encode(), True),
        ("é".encode()[:1], False),
        (b"a\0", False),
        (b"\xff", False),
        (b"\xed\xa0\x80", False),
    ],
)
def test_known_contents(data: bytes, text: bool) -> None:
    assert _is_text(data, []) is text
