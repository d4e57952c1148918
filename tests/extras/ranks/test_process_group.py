"""Joining: a store of the ranks that cannot be reached, and signals while torch waits."""

import errno
import os
import signal
import socket
import threading
import time

import pytest
import torch
from support.forked_commands import FORKS, wait_for

from morphogen.errors import RankError
from morphogen.extras.ranks import process_group, workers


@pytest.fixture
def place(monkeypatch):
    """The address of the store, where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()
    monkeypatch.setenv("MASTER_ADDR", address[0])
    monkeypatch.setenv("MASTER_PORT", str(address[1]))
    monkeypatch.setattr(process_group, "REACH_S", 0.1)
    return address


def test_a_rank_waits_for_a_store_that_begins_to_listen(place):
    late = threading.Timer(0.3, lambda: listening.append(socket.create_server(place)))
    listening: list[socket.socket] = []
    late.start()
    process_group._reach_store(1, timeout_s=20.0)
    listening.pop().close()


def test_a_store_that_never_listens_is_named_after_the_time_out(place):
    line = rf"^rank 1: rank 0 at 127.0.0.1:{place[1]} cannot be reached: Connection refused$"
    started = time.monotonic()
    with pytest.raises(RankError, match=line):
        process_group._reach_store(1, timeout_s=0.4)
    assert 0.4 <= time.monotonic() - started < 5


@pytest.mark.parametrize(
    "error", [OSError(errno.ENETUNREACH, "Network is unreachable"), TimeoutError("timed out")]
)
def test_a_network_without_a_way_to_the_store_is_given_up_long_before_the_time_out(
    place, monkeypatch, error
):
    def connect(address, timeout):
        assert timeout <= process_group.REACH_S
        raise error

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(
        RankError, match=r"rank 0 at .* cannot be reached: (Network is unreachable|timed out)"
    ):
        process_group._reach_store(1, timeout_s=600.0)
    monkeypatch.setattr(workers, "END_S", process_group.REACH_S)
    with pytest.raises(
        RankError,
        match=r"rank 0 at 127.0.0.1:1 cannot be reached: (Network is unreachable|timed out)",
    ):
        workers.check_loopback(("127.0.0.1", 1))


def join_alone(job, pipe):
    """Wait for another rank, deaf while torch waits."""
    os.environ.update(job)
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(9))
    pipe.send("joining")
    process_group.join_ranks(torch.device("cpu"), timeout_s=60)


@pytest.mark.slow
def test_a_signal_ends_a_rank_that_waits_for_others_at_once():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    job = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    answer, pipe = FORKS.Pipe()
    rank = FORKS.Process(target=join_alone, args=(job, pipe))
    rank.start()
    assert answer.recv() == "joining"
    time.sleep(0.5)  # in torch by now
    started = time.monotonic()
    os.kill(rank.pid, signal.SIGTERM)
    assert wait_for(rank) == -signal.SIGTERM
    assert time.monotonic() - started < 5
