"""Key files: an Ed25519 seed as JSON, readable by its owner only."""

from __future__ import annotations

import json
import os
from pathlib import Path

from libs.wire import Key

from .errors import ClientError

KEY_FILE_VARIABLE = "SEED_AGENTS_KEY_FILE"
_MODE = 0o600


class KeyFileError(ClientError):
    """The key file is missing, unreadable or not a key. The message says which and what to do."""


def default_key_path() -> Path:
    """`$SEED_AGENTS_KEY_FILE`, else `seed-agents/key.json` below the user's configuration directory."""
    if given := os.environ.get(KEY_FILE_VARIABLE):
        return Path(given)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "seed-agents" / "key.json"


def load_key(path: Path | None = None) -> Key:
    """The key in `path` (default: `default_key_path()`). Raises KeyFileError."""
    path = path or default_key_path()
    try:
        text = path.read_text()
    except FileNotFoundError:
        raise KeyFileError(f"There is no key at {path}. Make one: seed-agents keys new") from None
    except OSError as e:
        raise KeyFileError(f"{path} cannot be read: {e.strerror}") from None
    try:
        return Key(bytes.fromhex(json.loads(text)["seed"]))
    except (ValueError, TypeError, KeyError):
        raise KeyFileError(f'{path} is not a key file: it needs {{"seed": "<64 hex digits>"}}') from None


def save_key(key: Key, path: Path | None = None, *, replace: bool = False) -> Path:
    """Write the key to `path`, mode 0600, and return the path. Raises KeyFileError when a file is there already."""
    path = path or default_key_path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
    try:
        with os.fdopen(descriptor, "w") as file:
            json.dump({"account": key.id, "seed": key.seed.hex()}, file)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        if replace:
            fresh.replace(path)
        else:
            # A link fails where a rename would overwrite: two `keys new` at once cannot lose a key.
            os.link(fresh, path)
    except FileExistsError:
        raise KeyFileError(f"There is a key at {path} already. Losing it means losing its account.") from None
    finally:
        fresh.unlink(missing_ok=True)
    return path
