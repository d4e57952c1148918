"""`morphogen watch`: what stands on the screen, when it is drawn, and how it ends."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from functools import reduce
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from support import small_runs
from support.handwritten_logs import (
    acted,
    anomaly,
    at_level,
    ended,
    epoch,
    evaluated,
    germinated,
    moved,
    regime_began,
    started,
    summary,
    whole,
    written,
)

from morphogen.analysis import console
from morphogen.analysis.watch import loop
from morphogen.analysis.watch.draw import ScreenFrame, draw, sparkline
from morphogen.analysis.watch.view import RunView, update_view
from morphogen.cli import main
from morphogen.errors import ConfigError
from morphogen.run import train
from morphogen.telemetry.jsonl import encode

WIDE = ScreenFrame(width=160)


class Screen(io.StringIO):
    def isatty(self):
        return True


def screen(events, frame=WIDE, idle=0.0):
    """Screen after the events, as text."""
    view = reduce(update_view, events, RunView())
    paper = Console(width=frame.width, file=io.StringIO(), record=True, markup=False, highlight=False)
    paper.print(draw(view, run="runs/x", idle=idle, frame=frame))
    return paper.export_text()


def row(text, start):
    return next(one for one in text.splitlines() if one.strip().startswith(start))


def test_a_screen_says_how_far_the_run_is():
    text = screen([started(rounds=4), epoch(0, 3), summary(0), epoch(1, 1)])
    assert "running  digits, ppo, seed 7, 3 envs, telemetry normal  runs/x" in text
    assert "round 2/4  epoch 2/4" in text
    assert "38%  1,234 env-epochs/s  ETA 0:25" in text


def test_every_env_is_a_row_with_slots_alphas_accuracy_and_actions():
    alphas = ((0.5, None), (None, None), (None, None))
    text = screen(
        [
            started(),
            *germinated(),
            moved("GERMINATED", "BLENDING"),
            epoch(0, 0),
            epoch(0, 1, alpha=alphas, op_effective=("GERMINATE", "PRUNE", "WAIT"), success=(True, False, True)),
        ]
    )
    first = row(text, "0 ").split()
    assert first == ["0", "blending", "norm", "▅0.50", "empty", "▁█", "51.0", "x1.50", "+0.500", ".G"]
    assert row(text, "1 ").split()[-1] == ".p"
    assert "slots of all envs: empty 5, blending 1" in text


def test_regimes_have_a_column_in_runs_whose_worlds_change():
    events = [started(regime={"hazard": 0.2}), regime_began(0, 2, env=1, regime=1, view="noisy"), epoch(0, 2)]
    text = screen(events)
    assert row(text, "0 ").split()[1] == "0"
    assert row(text, "1 ").split()[1:3] == ["1", "noisy"]
    assert "regime" in row(text, "env")
    assert row(screen([*events, summary(0), epoch(1, 0)]), "1 ").split()[1] == "0"
    assert "regime" not in row(screen([started(), epoch(0, 2)]), "env")


def test_a_narrow_screen_says_the_same_in_letters():
    events = [started(slots=tuple(f"r{i}c0" for i in range(4)), envs=1)]
    events += [*germinated(), moved("GERMINATED", "HOLDING")]
    assert row(screen(events, ScreenFrame(width=160)), "0 ").split()[:3] == ["0", "h", "norm"]
    assert row(screen(events, ScreenFrame(width=80)), "0 ").split()[:3] == ["0", "h█", "."]
    assert "h holding" in screen(events, ScreenFrame(width=80))


def test_curves_counts_and_anomalies_stand_below():
    text = screen([started(), epoch(0, 3), summary(0, 40.0), acted(0), anomaly(0), epoch(1, 3), summary(1, 60.0)])
    assert row(text, "accuracy %  ").split()[:5] == ["accuracy", "%", "▁█", "40", "60"]
    assert "executed of sampled in the last round: wait 9/9, germinate 2/3" in text
    assert "anomalies so far: kl_spike 1" in text
    assert "kl_spike: 0.2, limit 0.1" in text


def test_the_last_screen_says_how_it_ended():
    text = screen(whole())
    assert "completed" in text
    assert "2 rounds in 1:05, best round 2: 56.0 %" in text
    assert "64 held-out episodes: value 0.700 (0.600 .. 0.800)" in text
    assert "100%" in text
    assert "ETA" not in text
    assert "error: RuntimeError: gone" in screen([*whole()[:-1], ended("failed", "RuntimeError: gone")])


def test_a_run_that_has_not_begun_is_waited_for():
    assert screen([]).strip() == "runs/x: no event yet; waiting for the run to begin"


def test_a_low_level_says_what_is_not_recorded():
    text = screen(at_level(whole(level="minimal"), "minimal"))
    assert "level minimal: alphas, accuracies, rewards and actions of epochs are not recorded" in text
    assert row(text, "0 ").split()[1:3] == ["training", "norm"]
    assert "not recorded" not in screen(whole())


def test_a_run_that_is_silent_is_said_to_be_so_until_it_has_ended():
    assert "nothing new for 2:05" in screen([started()], idle=125.0)
    assert "nothing new" not in screen([started()], idle=5.0)
    assert "nothing new" not in screen(whole(), idle=125.0)


@settings(max_examples=15)
@given(count=st.integers(0, 60), width=st.integers(80, 200), height=st.integers(34, 60), envs=st.integers(1, 40))
def test_a_screen_fits_its_terminal(count, width, height, envs):
    text = screen(whole(envs=envs)[:count], ScreenFrame(width, height))
    lines = text.splitlines()
    assert len(lines) <= height
    assert all(len(one.rstrip()) <= width for one in lines)


def test_a_terminal_without_other_characters_gets_ascii():
    view = reduce(update_view, [*whole(rounds=3)[:-4], moved("TRAINING", "HOLDING", 2)], RunView())
    raw = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    paper = Console(width=120, file=raw, markup=False, highlight=False)
    paper.print(draw(view, run="runs/x", frame=ScreenFrame(120, ascii=paper.options.ascii_only)))
    raw.flush()
    assert b"holding    norm" in raw.buffer.getvalue()


@given(st.lists(st.one_of(st.none(), st.floats(-1e9, 1e9)), max_size=50), st.integers(1, 30))
def test_a_sparkline_has_a_character_for_each_of_its_newest_values(values, width):
    shown = sparkline(values, width)
    assert len(shown) == min(len(values), width)
    assert [one == " " for one in shown] == [value is None for value in values[-width:]]


def test_a_sparkline_goes_from_the_least_to_the_largest():
    assert sparkline([0.0, 7.0, 3.0], 3) == "▁█▄"
    assert sparkline([5.0, 5.0], 3) == "▅▅"


def run_of(path, config=None):
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config or {}))
    return path / "events.jsonl"


def test_one_screen_is_printed_of_a_run_that_goes_on(tmp_path):
    run, out = tmp_path / "run", io.StringIO()
    written(run_of(run), whole()[:8])
    loop.watch(run, once=True, out=out, wait=never)
    assert "running" in out.getvalue()
    assert "\x1b" not in out.getvalue()


def never(seconds):
    pytest.fail(f"waited {seconds} s")


def growing(path, portions):
    """A wait in which the run writes on; after the last portion somebody presses Ctrl-C."""
    left = iter(portions)

    def wait(seconds):
        portion = next(left, None)
        if portion is None:
            raise KeyboardInterrupt
        path.parent.mkdir(exist_ok=True)
        written(path, portion)

    return wait


@pytest.mark.parametrize("kind", [io.StringIO, Screen])
def test_a_run_is_followed_from_before_its_begin_to_its_end(tmp_path, kind):
    events, out = whole(), kind()
    portions = [[], events[:3], events[3:9], events[9:]]
    (tmp_path / "run").mkdir()
    loop.watch(tmp_path / "run", out=out, wait=growing(tmp_path / "run" / "events.jsonl", portions))
    assert "2 rounds in 1:05" in out.getvalue()


def test_off_a_terminal_there_is_a_screen_for_every_round_and_a_last_one(tmp_path):
    events, out = whole(rounds=3), io.StringIO()
    portions = [[event] for event in events]
    (tmp_path / "run").mkdir()
    loop.watch(tmp_path / "run", out=out, wait=growing(tmp_path / "run" / "events.jsonl", portions))
    heads = [one.split()[0] for one in out.getvalue().splitlines() if "seed 7" in one]
    assert heads == ["running"] * 3 + ["completed"]


def test_ctrl_c_ends_the_view_and_leaves_the_last_screen(tmp_path):
    out = Screen()
    path = run_of(tmp_path / "run")
    loop.watch(tmp_path / "run", out=out, wait=growing(path, [whole()[:8]]))
    assert "running" in out.getvalue().rpartition("\x1b[?1049l")[2]


def test_a_log_that_a_resume_cuts_is_told_anew(tmp_path):
    path, out = run_of(tmp_path / "run"), io.StringIO()
    events = whole()
    written(path, events[:-1])

    def wait(seconds):
        again = enumerate([*events[:3], ended("stopped")])
        path.write_text("".join(encode(one, seq=i, time=5.0) for i, one in again))

    loop.watch(tmp_path / "run", out=out, wait=wait)
    last = out.getvalue().rpartition("stopped  digits")[2]
    assert "round 1/2  epoch 1/4" in last
    assert "in 1:05" in last


@settings(max_examples=20)
@given(cut=st.integers(0, 40_000))
def test_a_log_cut_at_any_byte_has_a_screen(tmp_path_factory, cut):
    run, out = tmp_path_factory.mktemp("runs") / "run", io.StringIO()
    whole_log = "".join(encode(one, seq=i, time=0.0) for i, one in enumerate(whole()))
    run_of(run).write_text(whole_log[: cut % len(whole_log)])
    loop.watch(run, once=True, out=out)
    assert "run" in out.getvalue()


def test_event_files_may_lie_elsewhere(tmp_path):
    run_of(tmp_path / "run", {"telemetry": {"dir": str(tmp_path / "there"), "level": "normal"}})
    (tmp_path / "there").mkdir()
    written(tmp_path / "there" / "events.jsonl", whole())
    out = io.StringIO()
    loop.watch(tmp_path / "run", out=out, wait=never)
    assert "completed" in out.getvalue()


def test_a_run_that_writes_no_events_and_what_is_no_run_are_refused(tmp_path):
    run_of(tmp_path / "run", {"telemetry": {"level": "off"}})
    with pytest.raises(ConfigError, match=r"expected a run with telemetry.level minimal, normal or debug"):
        loop.watch(tmp_path / "run")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"RUN: expected a run directory, got .*, whose config.json cannot be read"):
        loop.watch(tmp_path / "file")
    (tmp_path / "run" / "config.json").write_text("[]")
    with pytest.raises(ConfigError, match="expected a run directory"):
        loop.watch(tmp_path / "run")


def _heeding():
    """A process that is started in the background ignores Ctrl-C, and so does what it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_is_no_error(tmp_path):
    written(run_of(tmp_path / "run"), whole()[:-1])
    words = [sys.executable, "-u", "-m", "morphogen", "watch", str(tmp_path / "run")]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, **pipes, preexec_fn=_heeding) as process:
        assert process.stdout is not None
        assert "running" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")


@pytest.mark.parametrize("names", [[], ["lock"], ["lock", "config.json.new"]])
def test_the_command_waits_for_a_run_that_begins(tmp_path, capsys, monkeypatch, names):
    monkeypatch.setattr("signal.signal", lambda *_: None)
    for name in names:
        (tmp_path / name).touch()
    assert main.main(["watch", str(tmp_path), "--once"]) == 0
    assert "waiting for the run to begin" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("none", "which does not exist"),
        ("file", "whose config.json cannot be read"),
        ("folder", "which has no config.json"),
    ],
)
@pytest.mark.parametrize("words", [[], ["--once"]])
def test_the_command_refuses_what_is_no_run(tmp_path, capsys, monkeypatch, name, reason, words):
    monkeypatch.setattr("signal.signal", lambda *_: None)
    (tmp_path / "file").touch()
    (tmp_path / "folder" / "runs").mkdir(parents=True)
    assert main.main(["watch", str(tmp_path / name), *words]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"morphogen: error: RUN: expected a run directory, got {tmp_path / name}, {reason}")


def until(look, word, seconds=30.0):
    """Text of a terminal as soon as it holds the word."""
    end = time.monotonic() + seconds
    while word not in (text := look()) and time.monotonic() < end:
        time.sleep(0.1)
    return text


@pytest.mark.skipif(shutil.which("tmux") is None, reason="there is no tmux to look at a terminal with")
def test_a_real_terminal_shows_the_run_and_is_left_with_its_last_screen(tmp_path):
    path = run_of(tmp_path / "run")
    written(path, whole()[:8])
    tmux = ["tmux", "-L", f"watch-{os.getpid()}", "-f", os.devnull]
    command = f"env -u COLUMNS -u LINES {sys.executable} -m morphogen watch {tmp_path / 'run'}"
    subprocess.run(
        [*tmux, "new-session", "-d", "-x", "110", "-y", "40", f"{command}; echo ended with $?; sleep 60"], check=True
    )

    def look():
        return subprocess.run([*tmux, "capture-pane", "-p"], capture_output=True, text=True, check=True).stdout

    try:
        first = until(look, "3 envs")
        written(path, whole()[8:])
        last = until(look, "ended with")
    finally:
        subprocess.run([*tmux, "kill-session"], check=True)
    assert "running" in first.splitlines()[0]
    assert row(first, "0 ").split()[1:3] == ["training", "norm"]
    assert "2 rounds in 1:05" in last
    assert "ended with 0" in last


def test_watching_loads_no_torch(tmp_path):
    run = tmp_path / "run"
    written(run_of(run), whole())
    code = (
        "import sys\nfrom morphogen.cli import main as cli\n"
        f"code = cli.main(['watch', {str(run)!r}])\n"
        "print('END', code, sorted({'torch', 'tensordict', 'torchrl'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "END 0 []"
    assert "completed" in done.stdout


@pytest.mark.slow
def test_a_real_run_is_told_by_its_console_and_by_its_log(tmp_path):
    err, text, out = io.StringIO(), io.StringIO(), io.StringIO()
    told = train.train_ppo_vectorized(
        small_runs.tiny(rounds=2), out=tmp_path / "run", console=console.Console(err=err, out=text)
    )
    assert [one.split()[1] for one in err.getvalue().splitlines() if one.startswith("round ")] == ["1/2", "2/2"]
    assert "2 rounds in" in text.getvalue()
    loop.watch(tmp_path / "run", once=True, out=out)
    assert "round 2/2  epoch 6/6" in out.getvalue()
    rows = out.getvalue().partition("\nenv ")[2].splitlines()[1:5]
    accuracies = [one.rpartition(" x")[0].split()[-1] for one in rows]
    assert accuracies == [f"{value:.1f}" for value in told.history[-1].env_accuracy]


def test_a_judged_policy_is_on_the_screen_before_the_end():
    assert "64 held-out episodes" in screen([started(), evaluated()])
