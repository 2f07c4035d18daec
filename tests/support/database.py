"""A database of one service for its tests, in stores of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from libs.stack import Stores
from libs.stack.keys import Keys
from libs.stack.layout import role_of, role_url
from libs.stack.prepare import prepare


@contextmanager
def database_of(service: str, folder: Path, **others: Any) -> Iterator[tuple[str, Stores]]:
    """URL of the service's own role in a migrated database, and the stores; `others` are URLs of stores not started."""
    keys = Keys(folder)
    stores = Stores(folder, keys, folder, **others)
    stores.start()
    try:
        passwords = keys.role_passwords([service])
        asyncio.run(prepare(stores.database_url, passwords, [service]))
        role = role_of(service)
        yield role_url(stores.database_url, role, passwords[role]), stores
    finally:
        stores.stop(1)
