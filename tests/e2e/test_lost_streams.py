"""Output that nobody can read never decides about a run; `tests/tools/lose_streams.py` tries every
command.
"""

import io
import os
import signal
import subprocess
import sys
import time

import pytest
from support import generated_logs
from support.forked_commands import start_command, wait_for
from support.run_comparison import differences
from support.standard_streams import run_with
from support.subprocess_env import OURS
from tools.lose_streams import COMMANDS, Trial

from morphogen.cli.streams import LenientStream, describe_loss, find_error

CASES = (
    ("train", "stdout", "full"),
    ("train", "stderr", "broken"),
    ("train", "stderr", "closed"),
    ("evaluate", "stdout", "full"),
)
CASES = [case for case in CASES if case[0] in COMMANDS]


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    return Trial(tmp_path_factory.mktemp("streams"))


@pytest.mark.parametrize(("command", "stream", "fault"), CASES, ids=map(" ".join, CASES))
def test_a_result_does_not_depend_on_the_streams(trial, command, stream, fault):
    assert trial.fault(command, stream, fault) is None


@pytest.mark.parametrize(("fault", "code"), [("broken", 0), ("full", 7)])
def test_a_view_that_nobody_reads_ends(tmp_path, fault, code):
    run = generated_logs.write(tmp_path / "run", rounds=3, envs=2, epochs=3)
    ended = run_with("stdout", fault, ["watch", str(run)], tmp_path)
    assert ended.returncode == code
    lost = "morphogen: error: stdout could not be written: No space left on device\n"
    assert ended.stderr == (lost if fault == "full" else "")


def test_output_does_not_land_in_a_file_that_took_the_number_of_a_closed_stream(tmp_path):
    run = generated_logs.write(tmp_path / "run", rounds=1, envs=1, epochs=2)
    before = {path: path.read_bytes() for path in run.iterdir() if path.is_file()}
    assert wait_for(start_command(tmp_path, ["report", "run"], (os.devnull, None, None))) == 0
    assert {path: path.read_bytes() for path in before} == before
    assert (run / "report/index.html").read_bytes().endswith(b"</html>\n")


def test_a_stream_drops_what_cannot_be_written_and_remembers_the_first_error(monkeypatch):
    device = os.open("/dev/full", os.O_WRONLY)
    raw = LenientStream(device)
    text = io.TextIOWrapper(io.BufferedWriter(raw), "utf-8")
    monkeypatch.setattr(sys, "stdout", text)
    assert (describe_loss("stdout"), find_error(text)) == (None, None)
    print("lost", file=text, flush=True)
    assert describe_loss("stdout") == "stdout could not be written: No space left on device"
    print("lost as well", file=text, flush=True)
    os.close(device)


def test_a_pipe_whose_reader_left_is_no_loss(monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    raw = LenientStream(writer)
    assert raw.write(b"unread") == len(b"unread")
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(raw), "utf-8"))
    assert describe_loss("stdout") is None
    assert raw.error is not None
    os.close(writer)


@pytest.mark.parametrize("blocking", [True, False])
def test_a_stream_writes_everything_to_a_slow_reader(blocking):
    reader, writer = os.pipe()
    os.set_blocking(writer, blocking)
    data = bytes(range(256)) * 4_096  # sixteen times the size of a pipe
    child = os.fork()
    if not child:
        os.close(reader)
        LenientStream(writer).write(data)
        os._exit(0)
    os.close(writer)
    parts = []
    while part := os.read(reader, 50_000):
        parts.append(part)
        time.sleep(0.001)
    os.close(reader)
    os.waitpid(child, 0)
    assert b"".join(parts) == data


HOSTILE = "import os, pathlib; pathlib.Path(__file__ + '.ran').touch()\n"
TWO_COMMANDS = """
import sys
from morphogen.cli.main import main, run_process
run, *sizes = sys.argv[1:]
assert main(["report", run]) == 0
sys.argv[1:] = ["train", "--task", "tiny", *sizes, "--quiet"]
exit(run_process())
"""


def test_no_command_runs_modules_of_the_working_directory(tmp_path):
    run = generated_logs.write(tmp_path / "run", rounds=1, envs=1, epochs=2)
    for name in ("pickle", "socket", "json", "torch", "numpy", "matplotlib", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text(HOSTILE)
    # as the installed one: its own folder is on the path, the working one is not
    script = tmp_path / "bin/morphogen"
    script.parent.mkdir()
    script.write_text(TWO_COMMANDS)
    environment = {name: value for name, value in OURS.items() if name != "PYTHONSAFEPATH"}
    sizes = ["--rounds", "1", "--envs", "2", "--episode-length", "2", "--final-episodes", "0"]
    ended = subprocess.run(
        [sys.executable, str(script), str(run), *sizes],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    assert not list(tmp_path.glob("*.ran"))


def test_a_run_that_is_halted_and_continued_is_the_run_that_was_not(trial, tmp_path):
    process = start_command(tmp_path, [*COMMANDS["train"], "--quiet"])
    events = tmp_path / "run/events.jsonl"
    while process.is_alive() and not (events.exists() and events.read_text().count("\n") > 1):
        time.sleep(0.005)
    for number in (signal.SIGSTOP, signal.SIGCONT, signal.SIGSTOP, signal.SIGCONT):
        os.kill(process.pid, number)
        time.sleep(0.1)
    assert wait_for(process) == 0
    assert not list(differences(trial.alone("train") / "run", tmp_path / "run"))
