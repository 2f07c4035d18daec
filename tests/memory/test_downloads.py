"""Downloads: which URLs are taken, and what the files are called."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.errors import Invalid
from services.memory.domain.downloads import checked_url, target


@pytest.mark.parametrize(
    "url", ["http://a.b/c", "https://a.b", " https://a.b:8443/x?y#z ", "http://[::1]/", "HTTP://A/"]
)
def test_urls_that_are_taken(url: str) -> None:
    assert checked_url(url) == url.strip()


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("", "Download URL is required"),
        ("  ", "Download URL is required"),
        ("https://a/" + "x" * 2048, "Download URL is too large"),
        ("nonsense", "Invalid download URL: nonsense"),
        ("//a.b/c", "Invalid download URL: //a.b/c"),
        ("http://", "Invalid download URL: http://"),
        ("http://a:b/", "Invalid download URL: http://a:b/"),
        ("http://[::1/", "Invalid download URL: http://[::1/"),
        ("ftp://a/b", "Download URL must use http or https"),
        ("file:///etc/passwd", "Download URL must use http or https"),
        ("data:text/plain,x", "Download URL must use http or https"),
    ],
)
def test_urls_that_are_refused(url: str, text: str) -> None:
    with pytest.raises(Invalid) as e:
        checked_url(url)
    assert e.value.message == text


@pytest.mark.parametrize(
    ("path", "url", "content_type", "stored"),
    [
        ("", "https://a/b/report.pdf?x=1#y", None, "downloads/report.pdf"),
        ("", "https://a/b/folder/", "text/html; charset=utf-8", "downloads/folder.html"),
        ("", "https://a/photo", "image/jpeg", "downloads/photo.jpg"),
        ("", "https://a/photo", "IMAGE/PNG ;q=1", "downloads/photo.png"),
        ("", "https://a/photo", "application/x-unheard-of", "downloads/photo"),
        ("", "https://a", "text/plain", "downloads/download-77.txt"),
        ("", "https://a/%2e%2e%2Fsecret%5Cx", None, "downloads/--secret-x"),
        ("", "https://a/%00%0a.txt", None, "downloads/.txt"),
        ("", "https://a/" + "n" * 200, None, "downloads/" + "n" * 128),
        ("", "https://a/caf%C3%A9.md", None, "downloads/café.md"),
        ("notes/x", "https://a/b.pdf", "text/markdown", "notes/x.md"),
        ("notes/x.bin", "https://a/b.pdf", "text/markdown", "notes/x.bin"),
        ("/notes//x", "https://a/b.pdf", None, "notes/x"),
    ],
)
def test_names(path: str, url: str, content_type: str | None, stored: str) -> None:
    assert target(path, url, content_type, 77) == stored


def test_the_path_rules_hold() -> None:
    for path, text in ((None, "Memory path must be a string"), ("a/..", 'Memory path cannot contain ".."')):
        with pytest.raises(Invalid) as e:
            target(path, "https://a/b", None, 1)
        assert e.value.message == text


@given(
    st.text(st.characters(exclude_categories=("Cs",)), max_size=300), st.sampled_from([None, "text/html", "nonsense"])
)
def test_a_name_can_be_made_of_any_url(last: str, content_type: str | None) -> None:
    try:
        checked = checked_url(f"https://a/{last}"[:2048])
    except Invalid:
        return
    assert target("", checked, content_type, 1).startswith("downloads/")
