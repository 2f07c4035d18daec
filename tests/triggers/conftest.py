"""A PostgreSQL with the schema of triggers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.database import database_of


@pytest.fixture(scope="session")
def triggers_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of the service's own role."""
    folder = tmp_path_factory.mktemp("triggers-database")
    with database_of("triggers", folder, redis_url="redis://unused", nats_url="nats://unused") as (url, _):
        yield url
