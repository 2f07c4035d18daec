"""Key files."""

import json
from pathlib import Path

import pytest

from libs.client import Key, KeyFileError, default_key_path, load_key, save_key


def test_a_saved_key_is_the_same_key_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    key = Key.generate()
    path = save_key(key, tmp_path / "new" / "key.json")
    assert load_key(path).id == key.id
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert list(path.parent.iterdir()) == [path]
    assert json.loads(path.read_text()) == {"account": key.id, "seed": key.seed.hex()}


def test_a_key_is_never_overwritten_unasked(tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    first = Key.generate()
    save_key(first, path)
    with pytest.raises(KeyFileError, match="already"):
        save_key(Key.generate(), path)
    assert load_key(path).id == first.id
    second = Key.generate()
    save_key(second, path, replace=True)
    assert load_key(path).id == second.id


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"seed": 1}', '{"seed": "zz"}', '{"seed": "00"}'])
def test_what_is_not_a_key_file_is_said_to_be_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "key.json"
    path.write_text(text)
    with pytest.raises(KeyFileError, match="not a key file"):
        load_key(path)


def test_a_missing_key_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="keys new"):
        load_key(tmp_path / "none.json")


def test_the_variable_moves_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("SEED_AGENTS_KEY_FILE", raising=False)
    assert default_key_path() == tmp_path / "seed-agents" / "key.json"
    monkeypatch.setenv("SEED_AGENTS_KEY_FILE", str(tmp_path / "k"))
    assert default_key_path() == tmp_path / "k"
