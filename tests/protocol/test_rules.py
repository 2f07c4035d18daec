"""Unit: rules for texts, limits of listings, and what is known about models."""

from typing import Any

import pytest

from libs.protocol import Invalid, byte_length, derived_title, optional_text_argument, required_text, text_argument
from libs.protocol.limits import ATTACHMENT_ID, AUTHORED_TOOL_NAME, MCP_SERVER_NAME, TIME_OF_DAY, clamped_limit
from libs.protocol.models import PROVIDERS, base_url, default_reasoning, reasoning_levels, sees_images

LOW, XHIGH, FULL = ("low", "medium", "high"), ("low", "medium", "high", "xhigh"), ("minimal", "low", "medium", "high")


@pytest.mark.parametrize("value", [None, 5, True, b"x", [], "", "   ", "\n\t", "\u00a0\ufeff\u3000"])
def test_required(value: Any):
    with pytest.raises(Invalid, match=r"^Agent name is required$") as caught:
        required_text(value, "Agent name")
    assert caught.value.status == 400


def test_text_is_trimmed_then_measured():
    assert required_text("  a b \n", "X") == "a b"
    assert required_text(" " * 300 + "é" * 128, "X") == "é" * 128
    for value in ("é" * 128 + "x", "a" * 257, "\0" * 300):
        with pytest.raises(Invalid, match=r"^X is too large$"):
            required_text(value, "X")
    assert required_text("a" * 300, "X", 300) == "a" * 300


def test_nul():
    with pytest.raises(Invalid, match=r"^X contains an invalid character$"):
        required_text("a\0b", "X")
    assert required_text("a\0b", "X", allow_nul=True) == "a\0b"


def test_byte_length():
    assert [byte_length(x) for x in ("", "abc", "é", "日", "👩", "\ud800")] == [0, 3, 2, 3, 4, 3]


def test_arguments():
    action: dict[str, Any] = {"a": " x ", "b": 5, "c": None}
    assert [text_argument(action, k) for k in "abcd"] == [" x ", "", "", ""]
    assert [optional_text_argument(action, k) for k in "abcd"] == [" x ", "", "", None]


def test_derived_title():
    assert derived_title("\n  Hello \t world  \nsecond line") == "Hello world"
    assert derived_title("a" * 80) == "a" * 80
    assert derived_title("a" * 81) == "a" * 79 + "…"
    assert derived_title("word " * 16) == ("word " * 16).strip()
    assert derived_title(" \n ") == ""


@pytest.mark.parametrize(
    ("value", "limit"),
    [
        *((x, 50) for x in (None, "10", True, [], float("nan"))),
        *((x, 200) for x in (200, 201, 2**64, 1e300, float("inf"))),
        *((x, 1) for x in (1, 0, -5, 0.5, float("-inf"))),
        (10, 10),
        (10.9, 10),
    ],
)
def test_clamped_limit(value: Any, limit: int):
    assert clamped_limit(value) == limit


def test_patterns():
    assert TIME_OF_DAY.fullmatch("23:59")
    for wrong in ("24:00", "9:30", "12:60", "12:30\n", "١٢:٣٠"):
        assert not TIME_OF_DAY.fullmatch(wrong)
    assert AUTHORED_TOOL_NAME.fullmatch("a" + "b" * 63)
    assert not AUTHORED_TOOL_NAME.fullmatch("a" + "b" * 64)
    assert not AUTHORED_TOOL_NAME.fullmatch("a")
    assert MCP_SERVER_NAME.fullmatch("0" * 32)
    assert not MCP_SERVER_NAME.fullmatch("-a")
    assert ATTACHMENT_ID.fullmatch("0" * 64)
    assert not ATTACHMENT_ID.fullmatch("A" * 64)


REASONING = [
    ("openai", "o1", LOW, "default"),
    ("openai", "o3-mini", LOW, "default"),
    ("openai", "o4-mini-2025-04-16", LOW, "default"),
    ("openai", "gpt-5", FULL, "default"),
    ("openai", "gpt-5-mini", FULL, "default"),
    ("openai", "gpt-5-chat-latest", (), "off"),
    ("openai", "gpt-5.1", LOW, "none"),
    ("openai", "gpt-5.2", XHIGH, "none"),
    ("openai", "gpt-5.10-codex", XHIGH, "none"),
    ("openai", "gpt-6", XHIGH, "none"),
    ("openai", "gpt-4.1", (), "off"),
    ("openai", "o2", (), "off"),
    ("openai", "text-gpt-5", (), "off"),
    ("anthropic", "claude-3-5-sonnet-latest", (), "off"),
    ("anthropic", "claude-3-7-sonnet-latest", FULL, "off"),
    ("anthropic", "claude-4-0-x", FULL, "off"),
    ("anthropic", "claude-sonnet-4-5", FULL, "off"),
    ("anthropic", "claude-2.1", (), "off"),
    ("google", "gemini-1.5-pro", (), "off"),
    ("google", "gemini-2.0-flash", (), "off"),
    ("google", "gemini-2.5-flash", FULL, "off"),
    ("google", "gemini-2.5-pro", FULL, "default"),
    ("google", "gemini-3-pro-preview", FULL, "default"),
    ("custom", "gpt-5", (), "off"),
    ("openrouter", "o3", (), "off"),
]


@pytest.mark.parametrize(("provider", "model", "levels", "unset"), REASONING)
def test_reasoning(provider: str, model: str, levels: tuple[str, ...], unset: str):
    assert reasoning_levels(provider, model) == levels
    assert default_reasoning(provider, model) == unset


SEEING = {
    "openai": "o1 o1-2024-12-17 o1-pro o3 o3-pro o4-mini gpt-4o-mini chatgpt-4o-latest gpt-4.1 gpt-4-turbo gpt-5-chat",
    "anthropic": "claude-3-haiku claude-3-5-sonnet claude-opus-4-1",
    "google": "gemini-1.0-pro gemini-3-flash",
}
BLIND = {
    "openai": "o1-mini o3-mini gpt-4 gpt-3.5-turbo whisper",
    "anthropic": "claude-2.1 claude-instant-v1",
    "google": "gemma-3",
    "custom": "gpt-4o",
    "nope": "x",
}


def test_images():
    assert [(p, m) for p, models in SEEING.items() for m in models.split() if not sees_images(p, m)] == []
    assert [(p, m) for p, models in BLIND.items() for m in models.split() if sees_images(p, m)] == []


def test_providers():
    assert list(PROVIDERS) == [
        "openai",
        "anthropic",
        "google",
        "openrouter",
        "deepseek",
        "groq",
        "xai",
        "ollama",
        "custom",
    ]
    assert [name for name, p in PROVIDERS.items() if p.own_base_url] == ["ollama", "custom"]
    assert [name for name, p in PROVIDERS.items() if not p.needs_key] == ["ollama", "custom"]
    assert [name for name, p in PROVIDERS.items() if p.subscription] == ["openai"]


def test_a_stored_base_url_counts_only_where_allowed():
    assert base_url("openai", "http://evil.example") == "https://api.openai.com/v1"
    assert base_url("ollama", "http://host:1/v1") == "http://host:1/v1"
    assert base_url("ollama", None) == "http://localhost:11434/v1"
    assert base_url("custom", None) is None
    assert base_url("custom", "http://host/v1") == "http://host/v1"
    assert base_url("nope", "http://host/v1") is None
