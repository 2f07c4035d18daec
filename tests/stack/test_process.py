"""Unit: one supervised child, played by a stand-in."""

import os
import signal
import threading
from pathlib import Path

import psutil
import pytest

from libs.stack import Aborted, Death, ManagedProcess, StartError
from libs.stack.process import Backoff

from .conftest import MakeCommand, wait_for


def test_backoff_doubles_up_to_its_limit_and_forgets_after_a_healthy_while() -> None:
    backoff = Backoff(first=0.2, limit=10.0, healthy_after=30.0)
    assert [backoff.after(1.0) for _ in range(8)] == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0])
    assert backoff.after(29.9) == 10.0
    assert backoff.after(30.0) == 0.2
    assert backoff.streak == 1


def test_backoff_never_overflows() -> None:
    backoff = Backoff()
    assert {backoff.after(0.0) for _ in range(2_000)} <= {0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0}


def test_a_killed_child_comes_back_at_its_address(stand_in: MakeCommand) -> None:
    deaths: list[Death] = []
    process = ManagedProcess(stand_in(), deaths.append)
    process.start()
    try:
        process.wait_ready(10)
        first = process.pid
        process.crash()
        wait_for(lambda: process.starts == 2)
        process.wait_ready(10)
        assert process.pid not in (None, first)
        assert [(death.name, death.exit_code, death.streak) for death in deaths] == [("child", -signal.SIGKILL, 1)]
        assert "killed by signal 9" in deaths[0].describe()
    finally:
        process.stop()


def test_kill_keeps_it_down_until_start(stand_in: MakeCommand) -> None:
    process = ManagedProcess(stand_in())
    process.start()
    process.wait_ready(10)
    process.kill()
    assert process.pid is None
    assert process.command.probe is not None and not process.command.probe()
    process.start()
    try:
        process.wait_ready(10)
        assert process.starts == 2
    finally:
        process.stop()


def test_stop_is_clean_and_is_no_death(stand_in: MakeCommand, journal: Path) -> None:
    deaths: list[Death] = []
    process = ManagedProcess(stand_in(), deaths.append)
    process.start()
    process.wait_ready(10)
    process.stop()
    assert journal.read_text().splitlines() == ["start child", "stop child"]
    assert process.pid is None
    assert deaths == []


def test_a_child_that_will_not_stop_is_killed(stand_in: MakeCommand) -> None:
    process = ManagedProcess(stand_in("stubborn", "hang"))
    process.start()
    process.wait_ready(10)
    pid = process.pid
    process.stop(grace=0.1)
    assert pid is not None and not psutil.pid_exists(pid)


def test_a_child_that_keeps_dying_fails_the_start_with_its_exit_code_and_last_words(stand_in: MakeCommand) -> None:
    deaths: list[Death] = []
    process = ManagedProcess(stand_in("sick", "die"), deaths.append)
    process.start()
    try:
        with pytest.raises(StartError) as failure:
            process.wait_ready(10)
        assert "sick exited with code 7" in str(failure.value)
        assert failure.value.last_lines == ["first line", "I cannot work like this"]
        wait_for(lambda: len(deaths) >= 4)
        assert [death.streak for death in deaths[:4]] == [1, 2, 3, 4]
        assert deaths[3].retry_in == 0.05
    finally:
        process.stop()
    assert process.pid is None


def test_waiting_is_given_up_on_request(stand_in: MakeCommand) -> None:
    process = ManagedProcess(stand_in(probe=lambda: False))
    abort = threading.Event()
    process.start()
    try:
        threading.Timer(0.05, abort.set).start()
        with pytest.raises(Aborted):
            process.wait_ready(10, abort=abort)
        with pytest.raises(StartError, match="not ready after 0 s"):
            process.wait_ready(0.1)
    finally:
        process.stop()


def test_a_child_runs_in_a_group_of_its_own(stand_in: MakeCommand) -> None:
    process = ManagedProcess(stand_in())
    process.start()
    try:
        assert process.pid is not None
        assert os.getpgid(process.pid) == process.pid != os.getpgid(0)
    finally:
        process.stop()
