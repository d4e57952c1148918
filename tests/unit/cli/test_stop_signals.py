"""Stop signals: noted once, obeyed at once the second time, and heard by nobody afterwards."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest
from support.run_comparison import differences
from support.small_runs import tiny
from support.subprocess_env import OURS

from morphogen.train import checkpoint_store, stop_signals
from morphogen.train.loop import Hooks, Parts
from morphogen.train.stop_signals import StopSignals
from morphogen.train.train import resume, train_ppo_vectorized

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
CODES |= {warning: 128 + warning for warning in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)}
each_signal = pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)
WORKS = """
import sys
from morphogen.train.stop_signals import StopSignals
with StopSignals() as stop:
    print("begun", flush=True)
    for line in sys.stdin:
        print(stop.exit_code, flush=True)
sys.exit(stop.exit_code)
"""


@pytest.fixture(autouse=True)
def heeding():
    """Set the default handlers of signals that are ignored in the background, and restore the old
    ones.
    """
    before = {number: signal.getsignal(number) for number in CODES}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which nohup ignores
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number):
    os.kill(os.getpid(), number)


def working(*, ignored=False) -> Any:
    def prepared():
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN if ignored else signal.SIG_DFL)

    pipes: dict[str, Any] = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "env": OURS,
    }
    child: Any = subprocess.Popen(
        [sys.executable, "-c", WORKS], text=True, preexec_fn=prepared, **pipes
    )
    assert child.stdout.readline() == "begun\n"
    return child


@each_signal
def test_the_first_signal_is_noted_and_told_once_while_the_work_goes_on(number):
    child = working()
    child.send_signal(number)
    out, error = child.communicate("one\ntwo\n", timeout=20)
    assert out == f"{CODES[number]}\n" * 2
    assert error == "morphogen: stopping after this epoch; once more stops at once\n"
    assert child.returncode == CODES[number]


@each_signal
@pytest.mark.parametrize("first", CODES, ids=lambda number: number.name)
def test_the_second_signal_stops_at_once_whichever_the_first_was(first, number, capfd):
    wanted = KeyboardInterrupt if number == signal.SIGINT else SystemExit
    heard = StopSignals()
    with pytest.raises(wanted) as raised, heard:  # noqa: PT012  (both signals are to come while it listens)
        send(first)
        assert heard.exit_code == CODES[first]
        send(number)
    assert heard.exit_code == CODES[first]
    if wanted is SystemExit:
        assert raised.value.code == CODES[number]
    assert capfd.readouterr().err.count("stopping") == 1


@each_signal
@pytest.mark.parametrize("fails", [False, True])
def test_who_heard_the_signals_before_hears_them_again(number, fails):
    heard = []

    def mine(number, frame):
        heard.append(number)

    signal.signal(number, mine)
    with contextlib.suppress(KeyError), StopSignals():
        send(number)
        assert not heard
        if fails:
            raise KeyError
    assert signal.getsignal(number) is mine
    send(number)
    assert heard == [number]


@each_signal
def test_one_inside_another_hears_alone_and_gives_back(number):
    with StopSignals() as outer:
        with StopSignals() as inner:
            send(number)
        assert (outer.exit_code, inner.exit_code) == (None, CODES[number])
        send(number)
        assert outer.exit_code == CODES[number]


def test_what_is_ignored_in_the_background_stays_ignored():
    child = working(ignored=True)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGINT):
        child.send_signal(number)
    child.stdin.write("one\n")
    child.stdin.flush()
    assert child.stdout.readline() == "None\n"
    child.send_signal(signal.SIGTERM)
    out, _ = child.communicate("two\n", timeout=20)
    assert (out, child.returncode) == ("143\n", 143)


def test_another_thread_than_the_main_one_changes_no_handler():
    found = []

    def work():
        with StopSignals() as heard:
            found.extend((heard.exit_code, signal.getsignal(signal.SIGTERM)))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [None, before]


def test_a_stderr_that_nobody_reads_does_not_matter(monkeypatch):
    monkeypatch.setattr(stop_signals, "STDERR_FD", 9999)
    with StopSignals() as heard:
        send(signal.SIGTERM)
    assert heard.exit_code == 143


@pytest.mark.slow
def test_in_python_the_first_interrupt_saves_the_run_and_the_rest_of_it_has_the_same_bits(tmp_path):
    spec = tiny(rounds=2, episode_length=3, final_episodes=0)
    train_ppo_vectorized(spec, out=tmp_path / "whole")

    def interrupt(round, epoch):
        if (round, epoch) == (1, 1):
            os.kill(os.getpid(), signal.SIGINT)

    parts = Parts(hooks=Hooks(on_epoch=interrupt))
    with pytest.raises(
        KeyboardInterrupt, match=r"the run is saved: morphogen.resume\('.*cut'\) continues it"
    ):
        train_ppo_vectorized(spec, parts=parts, out=tmp_path / "cut")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert [
        path.name for path in checkpoint_store.list_checkpoints(tmp_path / "cut" / "checkpoints")
    ] == ["round-000001-epoch-0002"]
    resume(tmp_path / "cut")
    assert not list(differences(tmp_path / "whole", tmp_path / "cut"))
