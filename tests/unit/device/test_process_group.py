"""Joining: a rank 0 that cannot be reached, and actions outside of Python that block."""

import errno
import os
import signal
import socket
import threading
import time

import pytest

from morphogen.device import process_group
from morphogen.errors import RankError


@pytest.fixture
def place(monkeypatch):
    """The address of rank 0, where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()
    monkeypatch.setenv("MASTER_ADDR", address[0])
    monkeypatch.setenv("MASTER_PORT", str(address[1]))
    monkeypatch.setattr(process_group, "REACH_S", 0.1)
    return address


def test_a_rank_waits_for_a_rank_0_that_begins_to_listen(place):
    late = threading.Timer(0.3, lambda: listening.append(socket.create_server(place)))
    listening: list[socket.socket] = []
    late.start()
    process_group._reach_first(1, timeout_s=20.0)
    listening.pop().close()


def test_a_rank_0_that_never_listens_is_named_after_the_time_out(place):
    line = rf"^rank 1: rank 0 at 127.0.0.1:{place[1]} cannot be reached: Connection refused$"
    started = time.monotonic()
    with pytest.raises(RankError, match=line):
        process_group._reach_first(1, timeout_s=0.4)
    assert 0.4 <= time.monotonic() - started < 5


@pytest.mark.parametrize("error", [OSError(errno.ENETUNREACH, "Network is unreachable"), TimeoutError("timed out")])
def test_a_network_without_a_way_to_rank_0_is_given_up_long_before_the_time_out(place, monkeypatch, error):
    def connect(address, timeout):
        assert timeout <= process_group.REACH_S
        raise error

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(RankError, match=r"rank 0 at .* cannot be reached: (Network is unreachable|timed out)"):
        process_group._reach_first(1, timeout_s=600.0)


def test_an_action_returns_or_raises_as_without_a_thread():
    assert process_group._run_interruptibly(lambda: 3, 5.0) == 3
    with pytest.raises(ZeroDivisionError):
        process_group._run_interruptibly(lambda: 1 // 0, 5.0)


def test_an_action_that_blocks_ends_after_its_limit_or_with_a_signal(monkeypatch):
    never = threading.Event()

    def stop(number, frame):
        raise SystemExit(143)

    with pytest.raises(TimeoutError, match=r"no answer in 0.1 s"):
        process_group._run_interruptibly(never.wait, 0.1)
    before = signal.signal(signal.SIGTERM, stop)
    try:
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
        with pytest.raises(SystemExit):
            process_group._run_interruptibly(never.wait, 600.0)
    finally:
        signal.signal(signal.SIGTERM, before)
        never.set()
