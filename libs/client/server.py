"""Which server a command talks to when nobody says."""

from __future__ import annotations

import json
import os
from pathlib import Path

URL_VARIABLE = "SEED_AGENTS_URL"
FALLBACK_URL = "http://127.0.0.1:3050"


def default_url() -> str:
    """`$SEED_AGENTS_URL`, else the server that runs from the data directory, else the default port on this machine."""
    return os.environ.get(URL_VARIABLE) or running_url() or FALLBACK_URL


def running_url() -> str | None:
    """The address of the server that `seed-agents up` runs from `$SEED_AGENTS_DATA_DIR` (or `data`), or None."""
    record = Path(os.environ.get("SEED_AGENTS_DATA_DIR") or "data") / "stack.json"
    try:
        running = json.loads(record.read_text())
        os.kill(running["pid"], 0)
        return running["url"] if running["ready"] else None
    except PermissionError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
