"""Rules of configs, metadata, texts and lists of models, without a database."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs import wire
from libs.errors import Invalid
from libs.protocol.models import PROVIDERS
from libs.settings import SettingsError, load
from services.secrets.domain.models import Model, joined, models_request, read_models
from services.secrets.domain.providers import SECRET_REFS, Usable, read_config
from services.secrets.domain.secrets import read_metadata
from services.secrets.settings import SecretsSettings

B257 = "é" * 128 + "x"

RULES: list[tuple[Any, str]] = [
    (None, "Provider config is required"),
    ([], "Provider config is required"),
    ({}, "Provider type is required"),
    ({"type": B257, "authMode": "odd"}, "Provider type is too large"),
    ({"type": "a\0b"}, "Provider type contains an invalid character"),
    ({"type": "openai", "authMode": "odd"}, "Provider auth mode must be 'api-key' or 'subscription'"),
    ({"type": "openai", "authMode": ["odd"]}, "Provider auth mode must be 'api-key' or 'subscription'"),
    ({"type": "custom", "authMode": "subscription"}, "Provider type does not support subscription auth: custom"),
    (
        {"type": "openai", "authMode": "subscription", "secretRefs": []},
        "Subscription providers require a secretRefs.oauth credential reference",
    ),
    ({"type": "openai", "authMode": "subscription", "secretRefs": {"oauth": 5}}, "Secret ref value is required"),
    ({"type": "custom", "baseUrl": None}, "Provider base URL is required"),
    ({"type": "custom", "baseUrl": "http://x/" + "a" * 2040}, "Provider base URL is too large"),
    ({"type": "custom", "modelDefaults": "x"}, "Model defaults must be an object"),
    ({"type": "custom", "modelDefaults": {"x": "y" * 16384}}, "Model defaults are too large"),
    ({"type": "custom", "secretRefs": "x"}, "Secret refs must be an object"),
    ({"type": "custom", "secretRefs": {str(n): "k" for n in range(SECRET_REFS + 1)}}, "Too many secret refs"),
    ({"type": "custom", "secretRefs": {" ": "k"}}, "Secret ref key is required"),
    ({"type": "custom", "secretRefs": {"apiKey": "a\0b"}}, "Secret ref value contains an invalid character"),
    ({"type": "custom", "baseUrl": 5, "modelDefaults": 5, "secretRefs": 5}, "Provider base URL is required"),
    ({"type": "custom", "modelDefaults": 5, "secretRefs": 5}, "Model defaults must be an object"),
]


@pytest.mark.parametrize(("config", "message"), RULES)
def test_provider_rules_in_their_order(config: Any, message: str) -> None:
    with pytest.raises(Invalid) as e:
        read_config(wire.encode(config))
    assert e.value.message == message


def test_no_config_at_all() -> None:
    with pytest.raises(Invalid, match="Provider config is required"):
        read_config(b"")


@pytest.mark.parametrize(
    "url",
    ["not a url", "/v1", "x", "ftp://x/", "http://", "http://[::1", "http://x:99999/", "http://a b/", "http://x/\x7f"],
)
def test_a_base_url_is_absolute_http(url: str) -> None:
    with pytest.raises(Invalid, match="Provider base URL is invalid"):
        read_config(wire.encode({"type": "custom", "baseUrl": url}))


def test_a_config_is_trimmed_and_unknown_keys_are_dropped() -> None:
    config = read_config(
        wire.encode(
            {
                "type": " custom\n",
                "baseUrl": "  https://h/v1  ",
                "secretRefs": {" apiKey ": " k "},
                "modelDefaults": {"b": 1, "a": {"c": [1]}},
                "authMode": "api-key",
                "other": 5,
            }
        )
    )
    assert (config.type, config.base_url, config.secret_refs, config.auth_mode) == (
        "custom",
        "https://h/v1",
        {"apiKey": "k"},
        "api-key",
    )
    assert wire.decode(config.model_defaults or b"") == {"b": 1, "a": {"c": [1]}}


def test_metadata() -> None:
    assert read_metadata(None).encoded is None
    for value in (None, [], "m", 5):
        with pytest.raises(Invalid, match="Metadata must be an object"):
            read_metadata(wire.encode(value))
    with pytest.raises(Invalid, match="Metadata is too large"):
        read_metadata(wire.encode({"x": "y" * 16384}))
    largest = wire.encode({"x": b"\0" * 16376})
    assert read_metadata(largest).encoded == largest
    key = read_metadata(wire.encode({"kind": "hm-account-key", "needsReauth": True}))
    assert key.is_account_key and key.needs_reauth
    other = read_metadata(wire.encode({"kind": "api-key", "needsReauth": "yes"}))
    assert not other.is_account_key and not other.needs_reauth


def usable(kind: str, key: str = "k", base_url: str = "") -> Usable:
    return Usable(kind, PROVIDERS[kind], "api-key", base_url, key, b"", "")


def test_what_each_vendor_is_asked() -> None:
    asked = {kind: models_request(usable(kind, "k+/&="), {}) for kind in PROVIDERS if kind != "custom"}
    assert {kind: r.url for kind, r in asked.items()} == {
        "openai": "https://api.openai.com/v1/models",
        "anthropic": "https://api.anthropic.com/v1/models",
        "google": "https://generativelanguage.googleapis.com/v1beta/models?key=k%2B%2F%26%3D",
        "openrouter": "https://openrouter.ai/api/v1/models",
        "deepseek": "https://api.deepseek.com/models",
        "groq": "https://api.groq.com/openai/v1/models",
        "xai": "https://api.x.ai/v1/models",
        "ollama": "http://localhost:11434/v1/models",
    }
    assert asked["openai"].headers == {"authorization": "Bearer k+/&="} and asked["google"].headers == {}
    assert asked["anthropic"].headers == {"x-api-key": "k+/&=", "anthropic-version": "2023-06-01"}
    assert "k%2B" not in repr(asked["google"]) and "k+" not in repr(usable("openai", "k+"))


def test_only_the_operators_urls_are_free_of_the_policy() -> None:
    vendors = {"openai": "http://10.0.0.1/v1", "ollama": "http://10.0.0.2/v1"}
    assert models_request(usable("openai"), vendors).by_operator
    assert models_request(usable("openai"), vendors).url == "http://10.0.0.1/v1/models"
    assert models_request(usable("ollama"), vendors).by_operator
    assert not models_request(usable("ollama"), {}).by_operator
    assert not models_request(usable("ollama", base_url="http://10.0.0.3/v1"), vendors).by_operator
    assert not models_request(usable("custom", base_url="http://10.0.0.2/v1"), vendors).by_operator


@pytest.mark.parametrize("key", ["a\r\nx: y", "ü", "a\0"])
def test_a_key_that_no_header_carries_is_a_fault_of_the_configuration(key: str) -> None:
    with pytest.raises(Invalid, match="openai API key contains an invalid character"):
        models_request(usable("openai", key), {})


def test_joining() -> None:
    for base in ("http://h:1/v1", "http://h:1/v1/", "http://h:1/v1//", "http://h:1/v1?a=b#c"):
        assert joined(base, "models") == "http://h:1/v1/models"
    assert joined("http://h", "v1/models") == "http://h/v1/models"


def test_junk_rows_are_left_out() -> None:
    rows = [
        {"id": "b"},
        {"id": 5},
        "junk",
        None,
        [],
        {},
        {"id": "a", "display_name": "A"},
        {"id": "c", "display_name": 5},
    ]
    body = json.dumps({"data": rows}).encode()
    assert read_models("openai", body) == [Model("b", "b"), Model("a", "a"), Model("c", "c")]
    assert read_models("anthropic", body) == [Model("b", "b"), Model("a", "A"), Model("c", "c")]
    google = [
        {"name": "models/g", "displayName": "G", "supportedGenerationMethods": ["generateContent"]},
        {"name": "models/embed", "supportedGenerationMethods": ["embedContent"]},
        {"name": "plain"},
        {"displayName": "no name"},
        5,
    ]
    assert read_models("google", json.dumps({"models": google}).encode()) == [Model("g", "G"), Model("plain", "plain")]


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"{}", b"[]", b"null", b'{"data": {}}', b'"x"', b"\xff", b"[" * 100_000]
)
def test_what_is_no_list_of_models(body: bytes) -> None:
    assert read_models("openai", body) is None and read_models("google", body) is None


@given(st.binary(max_size=200))
def test_no_answer_of_a_provider_is_a_fault_of_ours(body: bytes) -> None:
    for how in ("openai", "anthropic", "google"):
        read_models(how, body)


BASE = {"SEED_AGENTS_INTERNAL_KEY": "x" * 32}


def test_one_key_ring_setting_is_needed() -> None:
    for more in ({}, {"SEED_AGENTS_SECRETS_KEYRING": "{}", "SEED_AGENTS_SECRETS_KEYRING_FILE": "/x"}):
        with pytest.raises(SettingsError, match="exactly one of"):
            load(SecretsSettings, BASE | more)


def test_the_key_ring_comes_from_where_it_is(tmp_path: Any) -> None:
    path = tmp_path / "ring"
    path.write_text("from a file")
    for more, text in (
        ({"SEED_AGENTS_SECRETS_KEYRING": "from a variable"}, "from a variable"),
        ({"SEED_AGENTS_SECRETS_KEYRING_FILE": str(path)}, "from a file"),
        ({"SEED_AGENTS_SECRETS_KEYRING_COMMAND": f"cat '{path}'"}, "from a file"),
    ):
        settings = load(SecretsSettings, BASE | more)
        assert settings.keyring_text() == text and "from a variable" not in repr(settings)
    for more in (
        {"SEED_AGENTS_SECRETS_KEYRING_FILE": str(tmp_path / "none")},
        {"SEED_AGENTS_SECRETS_KEYRING_COMMAND": "false"},
        {"SEED_AGENTS_SECRETS_KEYRING_COMMAND": "/no/such/program"},
    ):
        with pytest.raises(SettingsError):
            load(SecretsSettings, BASE | more).keyring_text()


def test_settings_of_hosts_and_vendors() -> None:
    ring = BASE | {"SEED_AGENTS_SECRETS_KEYRING": "{}"}
    settings = load(SecretsSettings, ring | {"SEED_AGENTS_ALLOWED_PROVIDER_HOSTS": " A.example., b ,"})
    assert settings.allowed_hosts() == {"a.example", "b"} and settings.vendor_urls() == {}
    for value in ("nonsense", "[]", '{"openai": 5}'):
        with pytest.raises(SettingsError, match="provider_vendor_urls"):
            load(SecretsSettings, ring | {"SEED_AGENTS_PROVIDER_VENDOR_URLS": value})
