"""What all tests share. The project's root and the generated stubs are on the path (see tools/install)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.security.plugin import SecretScan
from tests.security.spans import Spans

# A busy machine must not fail a property: how long an example takes is no property of ours (bench/ measures).
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("house")

_SCAN = "secret-scan"


def pytest_configure(config: pytest.Config) -> None:
    """Search whatever tests start for what was handed to it."""
    config.pluginmanager.register(SecretScan(config), _SCAN)


@pytest.fixture(scope="session")
def spans(request: pytest.FixtureRequest) -> Iterator[Spans]:
    """A collector for the spans of stacks; what came is searched when the run ends."""
    collector = Spans()
    yield collector
    collector.close()
    plugin = request.config.pluginmanager.get_plugin(_SCAN)
    assert isinstance(plugin, SecretScan)
    plugin.scan.search("the run", "spans", collector.held)
