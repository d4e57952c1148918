"""Lock of a run directory: its owner, the error that names the owner, the lock of a dead process;
all without flock.
"""

import errno
import fcntl
import os
import re
import socket
import subprocess
import sys
import threading
from typing import Any

import pytest
from support.subprocess_env import OURS

from morphogen.errors import ConfigError
from morphogen.log import locks, run_directory
from morphogen.log.log_file import LogFile
from morphogen.log.run_directory import own_directory

WITHOUT_FLOCK = """
import fcntl
from morphogen.log import locks
def flock(file, how):
    raise OSError(37, "No locks available")
fcntl.flock, locks.SOFT_WAIT_S = flock, 0.2
"""

HOLD = """
import sys
from pathlib import Path
from morphogen.log.run_directory import own_directory
with own_directory(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
TRY = """
import sys
from pathlib import Path
from morphogen.log.run_directory import own_directory
for _ in range(int(sys.argv[2])):
    try:
        with own_directory(Path(sys.argv[1])):
            inside = Path(sys.argv[1]) / "inside"
            inside.mkdir()
            inside.rmdir()
            print("in", flush=True)
    except ValueError:
        pass
"""


def take_flock(monkeypatch, number=errno.ENOLCK):
    """Let flock fail as on a file system without it."""

    def flock(file, how):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr(locks, "SOFT_WAIT_S", 0.2)


@pytest.fixture(params=["flock", "no flock"])
def prelude(request, monkeypatch):
    """Code that child processes begin with, on a file system with and without flock."""
    if request.param == "flock":
        return ""
    take_flock(monkeypatch)
    return WITHOUT_FLOCK


def named_pid(folder):
    """The process that the lock file names."""
    return int((folder / run_directory.LOCK).read_text().splitlines()[0])


def child(code, *words) -> Any:
    pipes: dict[str, Any] = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "env": OURS,
    }
    return subprocess.Popen([sys.executable, "-c", code, *map(str, words)], text=True, **pipes)


def holder(folder, prelude):
    process = child(prelude + HOLD, folder)
    assert process.stdout.readline() == "held\n"
    return process


def test_a_directory_that_another_process_owns_is_refused_with_who_it_is(tmp_path, prelude):
    hint = "; delete lock in it if that process has ended" if prelude else ""
    with holder(tmp_path, prelude) as process:
        owner = f"process {process.pid} on host {re.escape(socket.gethostname())} since 2"
        with pytest.raises(
            ConfigError, match=rf"^run directory .* is in use by {owner}\S*Z{hint}$"
        ):
            own_directory(tmp_path).__enter__()
        process.stdin.close()


def test_an_owner_that_leaves_leaves_nothing(tmp_path, prelude):
    for _ in range(2):
        with own_directory(tmp_path):
            assert [entry.name for entry in tmp_path.iterdir()] == [run_directory.LOCK]
        assert not list(tmp_path.iterdir())


def test_an_owner_that_fails_gives_the_directory_back(tmp_path):
    with pytest.raises(KeyError), own_directory(tmp_path):
        raise KeyError
    with own_directory(tmp_path):
        pass


def test_the_lock_of_a_killed_process_is_free_at_once(tmp_path, prelude):
    with holder(tmp_path, prelude) as process:
        process.kill()
        process.wait()
    assert (tmp_path / run_directory.LOCK).exists()
    with own_directory(tmp_path):
        assert named_pid(tmp_path) == os.getpid()


def test_a_process_does_not_own_a_directory_twice(tmp_path, prelude):
    with (
        own_directory(tmp_path),
        pytest.raises(ConfigError, match=f"process {os.getpid()} on host"),
        own_directory(tmp_path),
    ):
        pass


def test_a_thread_that_is_not_the_main_one_owns_as_well(tmp_path, prelude):
    found = []

    def attempt():
        with own_directory(tmp_path):
            found.append(named_pid(tmp_path))

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    assert found == [os.getpid()]


@pytest.mark.slow
def test_one_at_a_time_is_inside_however_many_try(tmp_path, prelude):
    processes = [child(prelude + TRY, tmp_path, 60) for _ in range(3)]
    reported = [process.communicate(timeout=60) for process in processes]
    assert all(not error for _, error in reported)  # two at once fail to make the directory
    assert any("in" in out for out, _ in reported)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["", "{", "[]", "1", "one\nhost\n", "\n\n\n", "[" * 9999])
def test_a_lock_file_that_says_nothing_is_taken_over_and_refused_without_a_name(tmp_path, text):
    (tmp_path / run_directory.LOCK).write_text(text)
    with own_directory(tmp_path):
        (tmp_path / run_directory.LOCK).write_text(text)
        with pytest.raises(ConfigError, match=r"is in use by another process$"):
            own_directory(tmp_path).__enter__()


def test_a_link_in_place_of_the_lock_file_is_not_followed(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "run" / run_directory.LOCK).symlink_to(tmp_path / "precious")
    with pytest.raises(ConfigError, match="lock is a link"):
        own_directory(tmp_path / "run").__enter__()
    assert (tmp_path / "precious").read_text() == "kept"


def test_a_place_that_cannot_be_locked_is_refused(tmp_path):
    (tmp_path / run_directory.LOCK).mkdir()
    with pytest.raises(ConfigError, match="cannot be locked: Is a directory"):
        own_directory(tmp_path).__enter__()


@pytest.mark.parametrize("number", sorted(locks.NO_FLOCK))
def test_every_error_of_a_file_system_without_flock_leads_to_the_other_lock(
    tmp_path, monkeypatch, number
):
    take_flock(monkeypatch, number)
    with (
        own_directory(tmp_path),
        pytest.raises(ConfigError, match="is in use by"),
        own_directory(tmp_path),
    ):
        pass
    assert not list(tmp_path.iterdir())


def test_an_error_of_the_disk_is_no_lack_of_flock(tmp_path, monkeypatch):
    take_flock(monkeypatch, errno.EIO)
    with (
        pytest.raises(ConfigError, match="cannot be locked: Input/output error"),
        run_directory.create_directory(tmp_path / "a" / "b", config="{}", manifest={}),
    ):
        pass
    assert not list(tmp_path.iterdir())


def test_without_flock_the_lock_of_another_host_counts_until_it_is_deleted(tmp_path, monkeypatch):
    take_flock(monkeypatch)
    (tmp_path / run_directory.LOCK).write_text("1\nelsewhere\n")
    with pytest.raises(
        ConfigError, match=r"process 1 on host elsewhere since .*; delete lock in it"
    ):
        own_directory(tmp_path).__enter__()
    (tmp_path / run_directory.LOCK).unlink()
    with own_directory(tmp_path):
        pass


def test_an_event_file_has_one_writer(tmp_path, prelude):
    first = LogFile(tmp_path / "events.jsonl")
    with pytest.raises(OSError, match="another process writes it"):
        LogFile(tmp_path / "events.jsonl")
    # events are written, and their file is closed, by a thread
    thread = threading.Thread(target=first.close)
    thread.start()
    thread.join()
    LogFile(tmp_path / "events.jsonl").close()
    assert [entry.name for entry in tmp_path.iterdir()] == ["events.jsonl"]
