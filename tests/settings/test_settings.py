"""Reading settings, and that the catalog and the page say what the services declare."""

from __future__ import annotations

import pytest

from libs.settings import Settings, SettingsError, catalog, load
from libs.settings.catalog import KNOWN, OTHERS, PREFIX
from tools import settings_doc

KEY = {"SEED_AGENTS_INTERNAL_KEY": "k" * 32}


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("SEED_AGENTS_LOGLEVEL", "SEED_AGENTS_LOG_LEVEL"),
        ("SEED_AGENTS_SESSION_ADDR", "SEED_AGENTS_SESSIONS_ADDR"),
        ("SEED_AGENTS_HTTP_PROT", "SEED_AGENTS_HTTP_PORT"),
        ("SEED_AGENTS_WORKERSLOTS", "SEED_AGENTS_WORKER_SLOTS"),
        ("SEED_AGENTS_URI", "SEED_AGENTS_URL"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_one(name: str, near: str) -> None:
    with pytest.raises(SettingsError) as e:
        load(Settings, KEY | {name: "x"})
    assert str(e.value) == f"Unknown setting {name}. Did you mean {near}?"


def test_settings_of_other_services_and_other_variables_are_let_be() -> None:
    settings = load(Settings, KEY | {"SEED_AGENTS_WORKER_SLOTS": "4", "HOME": "/h", "seed_agents_grpc_port": "x"})
    assert settings.grpc_port == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GRPC_PORT", "seventy"),
        ("GRPC_PORT", "65536"),
        ("DATABASE_POOL", "0"),
        ("LOG_LEVEL", "loud"),
        ("INTERNAL_KEY", "s3cret-but-short"),
    ],
)
def test_an_unusable_value_names_its_variable_and_is_not_repeated(name: str, value: str) -> None:
    with pytest.raises(SettingsError) as e:
        load(Settings, KEY | {PREFIX + name: value})
    assert f"\n  {PREFIX}{name}: " in str(e.value)
    assert value not in str(e.value)


def test_all_unusable_values_are_named_at_once_and_a_missing_key_is_one_of_them() -> None:
    with pytest.raises(SettingsError) as e:
        load(Settings, {"SEED_AGENTS_GRPC_PORT": "-1", "SEED_AGENTS_METRICS_PORT": "x"})
    named = [line.strip().partition(":")[0] for line in str(e.value).splitlines()[1:]]
    assert sorted(named) == ["SEED_AGENTS_GRPC_PORT", "SEED_AGENTS_INTERNAL_KEY", "SEED_AGENTS_METRICS_PORT"]


def test_a_rule_between_settings_says_its_own_names() -> None:
    low = {"SEED_AGENTS_BODIES_IN_FLIGHT_BYTES": "5", "SEED_AGENTS_BODY_LIMIT_BYTES": "6"}
    with pytest.raises(SettingsError) as e:
        load(settings_doc.PROCESSES["edge"], KEY | low)
    assert str(e.value).splitlines()[1:] == [
        "  Value error, BODIES_IN_FLIGHT_BYTES must not be less than BODY_LIMIT_BYTES"
    ]


def test_only_the_environment_that_is_given_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEED_AGENTS_GRPC_PORT", "7001")
    monkeypatch.setenv("SEED_AGENTS_INTERNAL_KEY", "e" * 32)
    assert load(Settings, KEY).grpc_port == 0
    assert load(Settings).grpc_port == 7001


def test_a_printed_settings_object_holds_no_secret() -> None:
    given = {
        "SEED_AGENTS_DATABASE_URL": "postgresql://u:hidden@h/d",
        "SEED_AGENTS_NATS_URL": "nats://u:hidden@h",
        "SEED_AGENTS_REDIS_URL": "redis://:hidden@h",
    }
    settings = load(Settings, {"SEED_AGENTS_INTERNAL_KEY": "hidden".ljust(32, "-")} | given)
    assert "hidden" not in repr(settings) + str(settings)
    assert settings.database_url == given["SEED_AGENTS_DATABASE_URL"]


def test_the_level_may_be_written_in_capitals() -> None:
    assert load(Settings, KEY | {"SEED_AGENTS_LOG_LEVEL": "WARNING"}).log_level == "warning"


def test_the_catalog_is_what_all_services_declare_and_the_command_line_reads() -> None:
    declared = {PREFIX + name.upper() for cls in settings_doc.PROCESSES.values() for name in cls.model_fields}
    others = {PREFIX + name for name in OTHERS}
    assert declared | others == KNOWN
    assert not declared & others
    assert list(catalog._NAMES) == sorted(set(catalog._NAMES)), "sorted, each once"


def test_every_setting_says_what_it_means() -> None:
    for cls in settings_doc.PROCESSES.values():
        assert all(field.description for field in cls.model_fields.values()), cls.__name__


def test_the_page_of_settings_is_current() -> None:
    assert settings_doc.PAGE.read_text("utf-8") == settings_doc.page(), "run `make settings-doc`"


def test_the_page_says_who_reads_what() -> None:
    rows = {line.split(" | ")[0]: line.split(" | ")[1:3] for line in settings_doc.page().splitlines()}
    assert rows["| `SEED_AGENTS_WORKER_SLOTS`"] == ["`128`", "runs worker"]
    assert rows["| `SEED_AGENTS_INTERNAL_KEY`"] == ["required", "all"]
    assert rows["| `SEED_AGENTS_KEY_FILE`"][1] == "command line"
    assert "edge" not in rows["| `SEED_AGENTS_DATABASE_URL`"][1]
