"""A run whose directory is moved, replaced or deleted goes on in it, or stops with one line; never
in another's.
"""

import itertools
import shutil
from pathlib import Path

import pytest
from support.run_comparison import differences
from support.small_runs import tiny
from tools import move_runs

from morphogen.cli.main import main
from morphogen.config.execution_spec import CheckpointSpec
from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.errors import CheckpointError
from morphogen.evaluation.evaluate import evaluate
from morphogen.log import run_directory
from morphogen.log.run_directory import own_directory
from morphogen.train.loop import Hooks, Parts
from morphogen.train.train import resume, train_ppo_vectorized

ROUNDS, EPOCHS = 3, 4


def spec(**fields):
    """Three rounds of four epochs, saved after each."""
    known = {"rounds": ROUNDS, "envs": 2, "episode_length": EPOCHS, "final_episodes": 2}
    telemetry = TelemetrySpec(loggers=("csv",))
    return tiny(
        **{
            **known,
            "checkpoint": CheckpointSpec(every_rounds=1, keep=9),
            "telemetry": telemetry,
            **fields,
        }
    )


def before_epoch(number, act, count=None):
    """Parts that call `act` before an epoch, counted from 0 over the whole run."""
    count = count or itertools.count()

    def should_stop():
        if next(count) == number:
            act()
        return False

    return Parts(hooks=Hooks(should_stop=should_stop))


def contents(folder):
    """Everything below a folder, by path."""
    return {
        path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A run that is left alone."""
    run = tmp_path_factory.mktemp("alone") / "run"
    train_ppo_vectorized(spec(), out=run)
    return run


@pytest.mark.parametrize("at", [1, 6, ROUNDS * EPOCHS])
@pytest.mark.parametrize("successor", [None, "run", "file", "folder"])
def test_a_run_that_is_moved_goes_on_in_its_directory(alone, tmp_path, capsys, at, successor):
    place, moved = tmp_path / "run", tmp_path / "moved"

    def move():
        place.rename(moved)
        if successor == "run":
            shutil.copytree(alone, place)
            (place / "lock").write_text("of another process")
        elif successor is not None:
            place.mkdir() if successor == "folder" else place.write_text("mine")

    result = train_ppo_vectorized(spec(), out=place, parts=before_epoch(at, move))
    assert result.run_dir == moved
    assert not list(differences(alone, moved))
    assert not (moved / "lock").exists()
    if successor == "run":
        assert contents(place) == {**contents(alone), Path("lock"): b"of another process"}
    elif successor == "folder":
        assert list(place.iterdir()) == []
    else:
        assert not place.exists() if successor is None else place.read_text() == "mine"


def test_a_run_that_is_moved_while_it_is_resumed_goes_on_in_its_directory(alone, tmp_path):
    short, place, moved = tmp_path / "short", tmp_path / "run", tmp_path / "moved"
    train_ppo_vectorized(spec(rounds=1), out=short)
    short.rename(place)
    result = resume(place, rounds=ROUNDS, parts=before_epoch(5, lambda: place.rename(moved)))
    assert result.run_dir == moved
    assert main(["inspect", str(moved)]) == 0


@pytest.mark.parametrize("at", [1, 6, ROUNDS * EPOCHS])
@pytest.mark.parametrize("successor", [False, True])
def test_a_run_whose_directory_is_deleted_stops_with_one_line(alone, tmp_path, at, successor):
    place, epochs = tmp_path / "run", itertools.count()

    def delete():
        shutil.rmtree(place)
        if successor:
            shutil.copytree(alone, place)

    with pytest.raises(CheckpointError) as raised:
        train_ppo_vectorized(spec(), out=place, parts=before_epoch(at, delete, epochs))
    assert next(epochs) == at + 1 or at == ROUNDS * EPOCHS, "it went on"
    assert str(raised.value) == f"run directory {place} was deleted while it was in use"
    assert contents(place) == contents(alone) if successor else not place.exists()


def test_where_descriptors_have_no_paths_a_run_that_is_moved_stops(alone, tmp_path, monkeypatch):
    monkeypatch.setattr(run_directory, "DESCRIPTORS", str(tmp_path / "none" / "{}"))
    place, moved = tmp_path / "run", tmp_path / "moved"

    def move():
        place.rename(moved)
        shutil.copytree(alone, place)

    with pytest.raises(CheckpointError, match="was replaced by another one while it was in use"):
        train_ppo_vectorized(
            spec(telemetry=TelemetrySpec()), out=place, parts=before_epoch(6, move)
        )
    assert contents(place) == contents(alone)


def test_an_evaluation_of_a_run_that_is_moved_is_written_into_it(alone, tmp_path):
    place, moved = tmp_path / "run", tmp_path / "moved"
    shutil.copytree(alone, place)
    expected = contents(alone)

    def report(line):
        if not moved.exists():
            place.rename(moved)
            shutil.copytree(alone, place)

    evaluate(place, ["wait"], episodes=2, report=report)
    assert contents(place) == expected
    assert (moved / "evaluation.json").exists()


def test_the_lock_of_a_successor_is_left_alone(tmp_path):
    place = tmp_path / "run"
    place.mkdir()
    with own_directory(place):
        place.rename(tmp_path / "moved")
        place.mkdir()
        with own_directory(place):
            assert (tmp_path / "moved/lock").exists()
        (place / "lock").write_text("of another process")
    assert (place / "lock").read_text() == "of another process"
    assert not (tmp_path / "moved/lock").exists()


def test_a_process_whose_directory_is_taken_tells_the_truth(tmp_path):
    moment, fault = move_runs.Trial(tmp_path, seed=5).taken(0, "moved, with a successor")
    assert fault is None, moment
