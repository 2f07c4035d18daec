"""Integration: who serves from a data directory, and what a killed supervisor leaves behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from libs.stack import AlreadyRunning, ManagedProcess
from libs.stack.record import DataDirectoryLock, Record, end_leftovers, read_record, write_record

from .conftest import MakeCommand


def record_of(data_dir: Path, *processes: ManagedProcess) -> None:
    record = Record(
        pid=os.getpid(),
        url="http://127.0.0.1:1",
        urls=["http://127.0.0.1:1"],
        ready=True,
        database_url="",
        nats_url="",
        redis_url="",
        internal_key="",
        addresses={},
    )
    write_record(data_dir, record, processes)


def test_a_second_one_is_told_who_and_where_the_first_is(tmp_path: Path) -> None:
    first, second = DataDirectoryLock(tmp_path), DataDirectoryLock(tmp_path)
    first.acquire()
    record_of(tmp_path)
    with pytest.raises(AlreadyRunning) as refusal:
        second.acquire()
    assert (refusal.value.pid, refusal.value.url) == (os.getpid(), "http://127.0.0.1:1")
    assert "SEED_AGENTS_DATA_DIR" in str(refusal.value)
    first.release()
    second.acquire()
    second.release()


def test_the_lock_ends_with_its_process_and_is_not_inherited(tmp_path: Path, stand_in: MakeCommand) -> None:
    lock = DataDirectoryLock(tmp_path)
    lock.acquire()
    child = ManagedProcess(stand_in())
    child.start()
    try:
        lock.release()
        other = DataDirectoryLock(tmp_path)
        other.acquire()
        other.release()
    finally:
        child.stop()
    code = (
        "import os, pathlib, sys; from libs.stack.record import DataDirectoryLock\n"
        "DataDirectoryLock(pathlib.Path(sys.argv[1])).acquire(); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == 9
    lock.acquire()
    lock.release()


def test_the_record_is_private_and_says_what_runs(tmp_path: Path, stand_in: MakeCommand) -> None:
    child = ManagedProcess(stand_in())
    child.start()
    try:
        record_of(tmp_path, child)
        record = read_record(tmp_path)
        assert record is not None
        [entry] = record["processes"]
        assert (entry["name"], entry["pid"], entry["address"]) == ("child", child.pid, child.address)
        assert (tmp_path / "stack.json").stat().st_mode & 0o777 == 0o600
    finally:
        child.stop()


def test_leftovers_are_ended_and_strangers_are_not(tmp_path: Path, journal: Path, stand_in: MakeCommand) -> None:
    left = stand_in("left")
    orphan = subprocess.Popen(left.argv, env={})
    stranger = ManagedProcess(stand_in("stranger"))
    stranger.start()
    try:
        record_of(tmp_path, stranger)
        record = json.loads((tmp_path / "stack.json").read_text())
        # The stranger got the pid of a process of ours that had started at another time.
        record["processes"][0]["started"] -= 100.0
        record["processes"].append(
            {
                "name": "left",
                "pid": orphan.pid,
                "started": psutil.Process(orphan.pid).create_time(),
                "address": "",
                "log": "",
                "stop_signal": 15,
            }
        )
        (tmp_path / "stack.json").write_text(json.dumps(record))
        assert end_leftovers(tmp_path) == ["left"]
        assert orphan.wait(10) is not None
        assert stranger.pid is not None
        assert read_record(tmp_path) is None
        assert end_leftovers(tmp_path) == []
    finally:
        orphan.kill()
        stranger.stop()
