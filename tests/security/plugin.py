"""The secret scan as a part of every test run (tests/security/scan.py)."""

from __future__ import annotations

import pytest

from tests.security.collected import Collected
from tests.security.scan import Scan


class SecretScan:
    """Hooks of pytest: searches what tests start and print, and fails the run when something is found."""

    def __init__(self, config: pytest.Config) -> None:
        collected = Collected()
        self.scan = Scan(collected)
        self._printed: list[bytes] = []
        config.add_cleanup(self.scan.watch())
        config.add_cleanup(collected.listen())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what a test, and the services in its process, printed: searched when all secrets are known."""
        if report.passed:
            # What a test that fails prints is its own account of what went wrong.
            self._printed.extend(text.encode("utf-8", "replace") for _, text in report.sections)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Give the verdict."""
        self.scan.search("the run", "output", b"\n".join(self._printed))
        if self.scan.found:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was searched and found."""
        if self.scan.systems:
            terminalreporter.write_line(self.scan.summary(), red=bool(self.scan.found))
        for place in sorted(self.scan.found):
            terminalreporter.write_line(f"  {place}", red=True)
