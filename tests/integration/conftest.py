"""The whole system, real stores included, behind two edges."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator

import pytest

from libs.stack import Stack
from tests.security.spans import Spans
from tests.support.kit import World

ENVIRONMENT = {"SEED_AGENTS_SESSION_TITLE_GENERATION": "false"}


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory, spans: Spans) -> Iterator[Stack]:
    """Two edges, one worker, for all tests that leave it as they found it."""
    env = {**ENVIRONMENT, "SEED_AGENTS_OTLP_ENDPOINT": spans.endpoint}
    with Stack(tmp_path_factory.mktemp("stack") / "data", 0, edges=2, workers=1, env=env) as running:
        yield running


@pytest.fixture
async def world(stack: Stack) -> AsyncIterator[World]:
    """Clients and providers of one test."""
    async with World(stack.urls) as made:
        yield made


@pytest.fixture
def unused_port() -> Iterator[int]:
    """A loopback port that refuses connections: it is bound, and nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]
