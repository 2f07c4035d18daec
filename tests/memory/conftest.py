"""A real PostgreSQL with the memory schema."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.database import database_of


@pytest.fixture(scope="session")
def database_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a migrated database."""
    folder = tmp_path_factory.mktemp("memory-stores")
    with database_of("memory", folder, redis_url="redis://unused") as (url, _):
        yield url
