"""Output of a run: progress on stderr, results on stdout, numbers for people."""

import io
import re
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.generated_logs import anomaly

from morphogen.config.spec import RunSpec, resolve
from morphogen.log.console import (
    Console,
    closing_lines,
)
from morphogen.log.events import Envelope
from morphogen.log.kinds.run import CheckpointFailed, SinkFailed

SPEC = resolve(RunSpec(rounds=4, envs=32, episode_length=24))
ROWS = [
    {"policy": "wait", "network value": 0.81, "parameters": 438},
    {"policy": "ppo", "network value": None, "parameters": 12_345},
]


def summary(round, **more):
    numbers = {
        "return_mean": 0.5 + round,
        "network_value_mean": 0.75,
        "accuracy_mean": 80.0 + round,
        "live": 21,
        "fossilized": 5,
        "pruned": 3,
        "rollbacks": 0,
        "anomalies": (),
        "env_epochs_per_s": 1234.5,
    }
    return SimpleNamespace(round=round, **{**numbers, **more})


class Screen(io.StringIO):
    def isatty(self):
        return True


def reported(quiet=False, err=None):
    """A run of four rounds of a minute each: what stood on stderr and stdout."""
    err, out, now = err or io.StringIO(), io.StringIO(), [0.0]
    with Console(quiet, err=err, out=out, clock=lambda: now[0]) as console:
        console.start(SPEC, {"task": "digits", "host": "438 parameters"})
        for round in range(4):
            console.end_epoch(round, 0, (round + 0.5) / 4)
            now[0] += 60.0
            console.end_epoch(round, 23, (round + 1) / 4)
            console.end_round(summary(round))
        console.print_table(ROWS, title="held-out instances")
        console.finish(
            SimpleNamespace(history=[summary(round) for round in range(4)], run_dir="runs/x")
        )
    return err.getvalue(), out.getvalue()


def test_off_a_terminal_every_round_is_one_line_on_stderr():
    err, _ = reported()
    lines = [line for line in err.splitlines() if line.startswith("round ")]
    assert len(lines) == 4
    start = (
        "round 1/4  accuracy 80.0 %  return 0.500  value 0.750  alive 21  fossilized 5  pruned 3"
    )
    assert lines[0].startswith(start)
    assert "1,234 env-epochs/s" in lines[0]
    assert [line.partition("ETA ")[2] for line in lines] == ["3:00", "2:00", "1:00", ""]
    assert "\x1b" not in err


def test_the_start_names_the_facts_and_explains_the_words():
    err, _ = reported()
    assert err.splitlines()[0].split() == ["task", "digits"]
    assert "fossilized (kept for good)" in err


def test_table_and_summary_are_on_stdout_quiet_or_not():
    _, out = reported()
    assert reported(quiet=True) == ("", out)
    assert "held-out instances" in out
    assert "12,345" in out
    assert " - " in out
    assert "4 rounds in 4:00" in out
    assert "best round: 4 with a mean accuracy of 83.0 %" in out
    assert out.splitlines()[-1] == "files: runs/x"


def plain(text):
    """Text of a terminal, without control sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def test_on_a_terminal_progress_is_kept_up_to_date_above_which_every_round_is_a_line():
    err, out = reported(err=Screen())
    assert "\x1b[" in err
    assert "\x1b" not in out
    shown = plain(err)
    assert re.search(r"round 4/4  epoch 24/24 \S+ +100% accuracy 82.0 %  closing", shown)
    rounds = [
        one for one in re.split(r"[\r\n]", shown) if one.startswith("round ") and "return" in one
    ]
    assert [one.split()[1] for one in rounds] == ["1/4", "2/4", "3/4", "4/4"]


FAILED = Envelope(SinkFailed(sink="wandb", error="no network"))
UNSAVED = Envelope(CheckpointFailed(path="checkpoints/x", error="disk full"))


@pytest.mark.parametrize(
    ("quiet", "said"),
    [
        (
            False,
            [
                "warning: SinkFailed: sink wandb, error no network",
                "error: CheckpointFailed: path checkpoints/x, error disk full",
                "warning: AnomalyDetected: kind kl_spike, value 0.2, limit 0.1, streak 1",
            ],
        ),
        (True, ["error: CheckpointFailed: path checkpoints/x, error disk full"]),
    ],
)
def test_what_is_out_of_the_ordinary_is_said_at_once(quiet, said):
    err = io.StringIO()
    with Console(quiet, err=err) as console:
        console.write([UNSAVED, anomaly(3), anomaly(3, "wait_only", "info")])
        console.write([FAILED])
    assert sorted(set(err.getvalue().splitlines())) == sorted(said)


def test_a_round_says_what_was_rolled_back_and_the_summary_which_rounds_had_anomalies():
    err, out = io.StringIO(), io.StringIO()
    with Console(err=err, out=out) as console:
        console.start(SPEC, {})
        console.end_round(summary(0, rollbacks=3))
        history = [
            summary(0, anomalies=("rollbacks",)),
            summary(1, anomalies=("rollbacks", "kl_spike")),
        ]
        console.finish(SimpleNamespace(history=history, run_dir=None))
    assert "pruned 3  rolled back 3" in err.getvalue()
    assert "rounds with anomalies: rollbacks 2, kl_spike 1" in out.getvalue()


def test_a_run_without_rounds_or_rows_still_ends_well():
    out = io.StringIO()
    console = Console(err=io.StringIO(), out=out)
    console.print_table([])
    console.finish(SimpleNamespace(history=(), run_dir=None))
    assert out.getvalue() == "no round was run\n"


def test_wide_tables_and_long_paths_are_not_cut():
    out = io.StringIO()
    console = Console(err=io.StringIO(), out=out)
    console.finish(SimpleNamespace(history=(), run_dir="runs/" + "x" * 200))
    assert "x" * 200 in out.getvalue()


def test_the_summary_compares_the_first_and_the_last_rounds():
    lines = closing_lines([summary(round) for round in range(10)], 90.0)
    assert lines[0] == "10 rounds in 1:30"
    assert lines[1] == "return: 2.500 in the first 5 rounds, 7.500 in the last 5"


@given(
    columns=st.lists(
        st.tuples(st.text("abcdefgh", min_size=1, max_size=14), st.integers(1, 12)),
        min_size=1,
        max_size=14,
    ),
    width=st.integers(40, 120),
)
def test_no_table_is_cut_and_every_block_is_led_by_the_first_column(columns, width):
    names = [f"{name}{i}" for i, (name, _) in enumerate(columns)]
    rows = [{name: "x" * size for name, (_, size) in zip(names, columns, strict=True)}] * 2
    out = io.StringIO()
    screen = Console(out=out)
    screen._out.width = width
    screen.print_table(rows)
    lines = out.getvalue().splitlines()
    assert all(len(line) <= width for line in lines)
    assert "\u2026" not in out.getvalue()
    heads = [line.split() for line in lines if names[0] in line.split()]
    assert [name for head in heads for name in head if name != names[0]] == names[1:]
