"""Integration: the command `up` with the real services, as a person or a service manager runs it."""

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import psutil
import pytest

from libs.stack.layout import SERVICE_PROCESSES
from libs.stack.record import read_record

from .conftest import wait_for

_STORES = ("postgres", "nats", "valkey")

Environment = dict[str, str]


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SEED_AGENTS_")}
    return {**kept, "SEED_AGENTS_DATA_DIR": str(tmp_path / "data"), "SEED_AGENTS_HTTP_PORT": "0", "COLUMNS": "200"}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "import sys; from libs.stack.cli import main; sys.exit(main())", *arguments]


def test_up_serves_refuses_a_second_and_leaves_nothing_behind(environment: Environment, tmp_path: Path) -> None:
    data = Path(environment["SEED_AGENTS_DATA_DIR"])
    output = tmp_path / "output"
    with output.open("wb") as file:
        first = subprocess.Popen(command("up", "--timings"), env=environment, stdout=file, stderr=subprocess.STDOUT)
    try:
        wait_for(lambda: first.poll() is not None or "Next, in another terminal" in output.read_text(), within=90)
        assert first.poll() is None, output.read_text()
        record = read_record(data)
        assert record is not None and record["ready"]
        url = record["url"]
        shown = output.read_text()
        for name in (*_STORES, *(process.name for process in SERVICE_PROCESSES), url, "keys new"):
            assert name in shown
        with urllib.request.urlopen(f"{url}/api/health") as answer:
            assert answer.status == 200

        second = subprocess.run(command("up"), env=environment, capture_output=True, text=True, timeout=30)
        assert second.returncode == 1
        assert url in second.stderr and str(first.pid) in second.stderr

        pids = [entry["pid"] for entry in record["processes"]]
        assert len(pids) == len(SERVICE_PROCESSES) + len(_STORES)
        first.send_signal(signal.SIGTERM)
        assert first.wait(60) == 0, output.read_text()
        assert [pid for pid in pids if psutil.pid_exists(pid)] == []
        assert read_record(data) is None
        assert "Stopped in" in output.read_text()
    finally:
        first.kill()


def test_migrate_alone_prepares_the_database_and_is_repeatable(environment: Environment) -> None:
    first = subprocess.run(command("migrate"), env=environment, capture_output=True, text=True, timeout=90)
    assert first.returncode == 0, first.stderr
    for service in ("runs", "secrets", "sessions"):
        assert f"created role seed_{service}" in first.stdout
        assert f"migrated {service}" in first.stdout
    again = subprocess.run(command("migrate"), env=environment, capture_output=True, text=True, timeout=90)
    assert (again.returncode, again.stdout.strip()) == (0, "everything is up to date")


def test_an_unknown_setting_is_named_with_the_nearest_known_one(environment: Environment) -> None:
    wrong = {**environment, "SEED_AGENTS_HTTP_PROT": "1"}
    done = subprocess.run(command("up"), env=wrong, capture_output=True, text=True, timeout=90)
    assert done.returncode == 2
    assert "Unknown setting SEED_AGENTS_HTTP_PROT. Did you mean SEED_AGENTS_HTTP_PORT?" in done.stderr
