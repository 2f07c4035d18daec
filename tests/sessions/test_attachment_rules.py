"""Names, types, bounds and the order of refusals, without a service."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.errors import Conflict, Invalid, SeedError, TooLarge
from libs.protocol import limits
from libs.protocol.files import check_chunk, check_complete, guessed_type
from services.sessions.domain.attachments import (
    Bounds,
    checked_id,
    described,
    described_by,
    safe_name,
    session_target,
)

BOUNDS = Bounds(attachment_bytes=100 << 20, attachments_per_session=200, uploads_per_account=8, upload_idle_ms=1)
CHUNK = limits.UPLOAD_CHUNK_BYTES


def refusal(kind: type[SeedError], text: str) -> Any:
    return pytest.raises(kind, match=f"^{text}$")


@pytest.mark.parametrize(
    ("given_name", "stored"),
    [
        ("notes.txt", "notes.txt"),
        (" \t padded.md \n", "padded.md"),
        ("one/two\\three.png", "three.png"),
        ("..\\..\\secret", "secret"),
        ("folder/", "file"),
        ("\x00\x7f", "file"),
        ("", "file"),
        ("a\rb\x1bc", "abc"),
        ("é" * 128, "é" * 128),
        ("é" * 129, "é" * 64),
        ("字.文", "字.文"),
        ("x/ y ", "y"),
    ],
)
def test_a_name_is_one_component_without_control_characters(given_name: str, stored: str) -> None:
    assert safe_name(given_name) == stored


@given(st.text(max_size=400))
def test_a_safe_name_is_safe_and_stays_as_it_is(name: str) -> None:
    safe = safe_name(name)
    assert safe and len(safe.encode("utf-8", "surrogatepass")) <= limits.ATTACHMENT_NAME_BYTES
    assert not set(safe) & {*map(chr, range(32)), "\x7f", "/", "\\"}
    assert len(safe) == limits.ATTACHMENT_NAME_KEPT_CHARS or safe_name(safe) == safe


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.PNG", "image/png"),
        ("b.tar.gz", "application/gzip"),
        ("c.md", "text/markdown"),
        ("d", None),
        ("txt", None),
        ("e.", None),
        (".hidden", None),
        ("f.unheard-of", None),
    ],
)
def test_the_type_is_guessed_by_the_extension(name: str, kind: str | None) -> None:
    assert guessed_type(name) == kind


def test_a_given_type_wins_and_is_trimmed() -> None:
    assert described("a.png", "  text/x ", 1, BOUNDS).mime_type == "text/x"
    assert described("a.png", "  ", 1, BOUNDS).mime_type == "image/png"
    with refusal(Invalid, "MIME type is too large"):
        described("a", "x" * 257, 1, BOUNDS)
    with refusal(Invalid, "MIME type contains an invalid character"):
        described("a", "x\0y", 1, BOUNDS)


def test_the_bounds_of_a_file_and_their_texts() -> None:
    assert described("a", "", 100 << 20, BOUNDS).size == 100 << 20
    with refusal(Invalid, "Attachment content must be non-empty bytes"):
        described("a", "", 0, BOUNDS)
    with refusal(TooLarge, "Attachment exceeds the 100 MiB limit"):
        described("a", "", (100 << 20) + 1, BOUNDS)
    with refusal(TooLarge, "Attachment exceeds the 1000 bytes limit"):
        described("a", "", 1001, Bounds(1000, 1, 1, 1))


def test_the_order_in_which_an_upload_is_refused() -> None:
    fine = {"kind": "session-attachment", "sessionId": "s", "name": "a"}
    for target in (None, 5, [], "x", {}, {"kind": "memory", "agentId": "a", "path": "p"}, {"kind": 5}):
        with refusal(Invalid, "Upload size must be a positive integer"):
            session_target(target, 0)
    for target in (None, 5, [], "x"):
        with refusal(Invalid, "Upload target is required"):
            session_target(target, 1)
    for target in ({}, {"kind": "memory"}, {"kind": None}, {"sessionId": "s"}):
        with refusal(Invalid, "Unsupported upload target"):
            session_target(target, 1)
    assert session_target(fine, 0) == fine, "whether its session is there comes first"
    with refusal(Invalid, "Upload size must be a positive integer"):
        described_by({**fine, "name": ""}, 0, BOUNDS)
    with refusal(Invalid, "Attachment name is required"):
        described_by({**fine, "name": " "}, 1 << 40, BOUNDS)
    with refusal(TooLarge, "Upload exceeds the maximum attachment size"):
        described_by(fine, (100 << 20) + 1, BOUNDS)


@pytest.mark.parametrize(
    ("offset", "size", "kind", "text"),
    [
        (0, 0, Invalid, "Chunk content must be non-empty bytes"),
        (9, CHUNK + 1, TooLarge, "Chunk is too large"),
        (-1, 1, Invalid, "Chunk offset must be a non-negative integer"),
        (2, 1, Conflict, "Chunk offset 2 does not match 3 bytes received"),
        (4, 100, Conflict, "Chunk offset 4 does not match 3 bytes received"),
        (3, 4, Invalid, "Upload exceeds its declared size"),
    ],
)
def test_the_order_in_which_a_chunk_is_refused(offset: int, size: int, kind: type[SeedError], text: str) -> None:
    with refusal(kind, text):
        check_chunk(offset, size, 3, 6)


def test_a_chunk_that_fits_passes_and_only_a_whole_upload_is_committed() -> None:
    check_chunk(3, 3, 3, 6)
    check_complete(6, 6)
    with refusal(Invalid, "Upload has 5 of 6 bytes; cannot commit"):
        check_complete(5, 6)


@pytest.mark.parametrize("bad", ["", "x", "A" * 64, "a" * 63, "a" * 65, "g" * 64, f"{'a' * 64}\n", "../" + "a" * 61])
def test_an_attachment_id_is_a_digest(bad: str) -> None:
    with pytest.raises(Invalid) as e:
        checked_id(bad)
    assert e.value.message == f"Invalid attachment id: {bad}"
    assert checked_id("0f" * 32) == "0f" * 32
