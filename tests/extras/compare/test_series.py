"""Series of training seeds: the form of `--seeds`, runs that fail alone, and the table that closes
a series.
"""

import json
from types import SimpleNamespace

import pytest
from support.small_runs import tiny

from morphogen.cli import main
from morphogen.config.spec import resolve
from morphogen.errors import ConfigError, RankError, TrainingDiverged
from morphogen.extras.compare import series
from morphogen.log import run_directory
from morphogen.log.run_log import read_rounds
from morphogen.log.writer import Losses
from morphogen.ppo.exchange import ALONE, Exchange
from morphogen.train.loop import Hooks, Parts
from morphogen.train.train import train_ppo_vectorized


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("3", [3]), ("1..3", [1, 2, 3]), ("1,3,7", [1, 3, 7]), ("9,1..2,5..5,2", [9, 1, 2, 5])],
)
def test_seeds_are_numbers_and_ranges(text, seeds):
    assert series.parse_seeds(text) == seeds


@pytest.mark.parametrize(
    "text",
    ["", "1..", "..3", "3..1", "a", "1,,2", "-1", "1..1001", "1.5", "1...3"],
)
def test_other_seeds_are_refused(text):
    with pytest.raises(ConfigError, match="--seeds: expected"):
        series.parse_seeds(text)


REFUSED = [
    (["--seed", "3"], "--seed, --seeds: expected one of them, got both"),
    (["--print-config"], "--print-config: not allowed with argument --seeds"),
    (["--telemetry-dir", "there"], "telemetry.dir: expected null with --seeds"),
    (["--out", "used"], "--out: expected no run of another configuration, got used/seed-1"),
]


@pytest.mark.parametrize(("words", "said"), REFUSED, ids=[words[0] for words, _ in REFUSED])
def test_settings_that_exclude_several_runs_are_refused(tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "used" / "seed-1").mkdir(parents=True)
    (tmp_path / "used" / "seed-1" / run_directory.CONFIG).write_text("{}")
    (tmp_path / "used" / "seed-1" / run_directory.MANIFEST).write_text('{"run_id": "1"}')
    assert main.main(["train", "--preset", "smoke", "--seeds", "1..2", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.fixture
def runs(tmp_path):
    """Three runs of a series, by their directories."""
    return {tmp_path / f"seed-{seed}": resolve(tiny(seed=seed)) for seed in (1, 2, 3)}


def play_series(runs, monkeypatch, ends, *, exchange=ALONE):
    """Train a series whose runs end as `ends` says, by seed; return the result and the seeds that
    were trained.
    """
    trained = []

    def train(spec, **keywords):
        trained.append(spec.seed)
        end = ends.get(spec.seed, SimpleNamespace(losses=Losses(), stopped=False))
        if isinstance(end, Exception):
            raise end
        return end

    monkeypatch.setattr("morphogen.train.train.train_ppo_vectorized", train)
    return series.train_seeds(runs, command="", exchange=exchange), trained


@pytest.mark.parametrize(
    "error", [TrainingDiverged("no step"), ZeroDivisionError("a fault of a part")]
)
def test_a_run_that_fails_does_not_stop_the_others(runs, monkeypatch, capsys, error):
    result, trained = play_series(runs, monkeypatch, {2: error})
    assert trained == [1, 2, 3]
    assert list(result.errors.values()) == [error]
    assert f"seed-2: {type(error).__name__}: {error}" in capsys.readouterr().err
    assert [row["status"] for row in series.seed_rows(runs, result.errors)] == [
        "not begun",
        "failed",
        "not begun",
    ]


@pytest.mark.parametrize("error", [RankError("another one ended"), ZeroDivisionError()])
def test_an_error_that_other_processes_do_not_have_ends_the_series(runs, monkeypatch, error):
    with pytest.raises(type(error)):
        play_series(runs, monkeypatch, {2: error}, exchange=Exchange())


def test_a_stopped_run_stops_the_series(runs, monkeypatch):
    result, trained = play_series(
        runs, monkeypatch, {2: SimpleNamespace(losses=Losses(), stopped=True)}
    )
    assert (result.stopped, trained) == (True, [1, 2])


def test_losses_are_named_by_their_runs(runs, monkeypatch, capsys):
    lost = SimpleNamespace(losses=Losses({"csv": "disk full"}, incomplete=True), stopped=False)
    result, _ = play_series(runs, monkeypatch, {3: lost})
    assert result.losses == Losses(incomplete=True)
    assert "note: seed-3: csv failed: disk full" in capsys.readouterr().err


def test_the_table_has_a_row_for_each_seed_and_means_over_those_with_a_result(runs, capsys):
    for run, value in zip(list(runs)[:2], (0.25, 0.75), strict=True):
        run.mkdir()
        numbers = {
            "network_value": [value, value + 0.5],
            "committed_accuracy": [50.0, 60.0],
            "params": [10, 30],
        }
        idle = {**numbers, "network_value": [0.0, 0.5]}
        policies = {"wait": idle, "ppo": numbers}
        (run / run_directory.RESULT).write_text(json.dumps({"policies": policies}))
    rows = series.seed_rows(runs, ())
    series.print_series(next(iter(runs)).parent, rows, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert [row["network value"] for row in found["seeds"]] == [0.5, 1.0, None]
    assert [row["minus wait"] for row in found["seeds"]] == [0.25, 0.75, None]
    assert found["over seeds"]["network value"]["value"] == 0.75
    assert found["over seeds"]["minus wait"]["value"] == 0.5
    series.print_series(next(iter(runs)).parent, rows, as_json=False)
    shown = capsys.readouterr().out
    assert "3 training seeds: means over the held-out instances of each" in shown
    assert "minus wait over the seeds: 0.500 (" in shown


@pytest.mark.slow
def test_a_stopped_run_is_resumed(tmp_path):
    spec = resolve(tiny(rounds=2, episode_length=3))
    parts = Parts(hooks=Hooks(on_round=lambda *_: False))
    train_ppo_vectorized(spec, out=tmp_path / "run", parts=parts)
    assert series.find_status(tmp_path / "run") == "stopped"
    series.train_seeds({tmp_path / "run": spec}, command="", exchange=ALONE)
    assert series.find_status(tmp_path / "run") == "completed"
    assert len(read_rounds(tmp_path / "run")) == 2


@pytest.mark.slow
def test_a_series_of_a_command_is_a_run_per_seed_and_continues(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("signal.signal", lambda *_: None)
    words = [
        "train",
        "--preset=tiny",
        "--rounds=1",
        "--final-episodes=2",
        "--episode-length=4",
        "--set=data.minibatches=1",
        "--ranks",
        "1",
        "--seeds",
        "1..2",
        "--quiet",
        "--json",
    ]
    assert main.main([*words, "--out", str(tmp_path / "s"), "--dry-run"]) == 0
    assert json.loads(capsys.readouterr().out)["training seeds"] == "1, 2"
    assert main.main([*words, "--out", str(tmp_path / "s")]) == 0
    first = json.loads(capsys.readouterr().out)
    assert [(row["seed"], row["status"]) for row in first["seeds"]] == [
        (1, "completed"),
        (2, "completed"),
    ]
    assert sorted(path.name for path in (tmp_path / "s").iterdir()) == ["seed-1", "seed-2"]
    assert main.main([*words, "--out", str(tmp_path / "s")]) == 0
    assert json.loads(capsys.readouterr().out) == first
    alone = [word for word in words if word not in ("--seeds", "1..2")]
    assert main.main([*alone, "--seed", "2", "--out", str(tmp_path / "alone")]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["run_dir"], document["status"], document["rounds"]) == (
        str(tmp_path / "alone"),
        "completed",
        1,
    )
    results = [
        (tmp_path / name / run_directory.RESULT).read_text() for name in ("s/seed-2", "alone")
    ]
    assert results[0] == results[1]
