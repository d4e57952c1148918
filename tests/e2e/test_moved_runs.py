"""A run whose directory is moved or deleted stops with one line; it never writes into another's."""

import itertools
import shutil

import pytest
from support.extras import CSV
from support.small_runs import tiny

from morphogen.cli.main import main
from morphogen.config.execution_spec import CheckpointSpec
from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.errors import CheckpointError
from morphogen.log.run_directory import own_directory
from morphogen.train.loop import Hooks, Parts
from morphogen.train.train import resume, train_ppo_vectorized

ROUNDS = 2
EPOCHS = 2
TAKEN = "run directory {} was moved or deleted while it was in use"


def spec(**fields):
    """Two rounds of two epochs, saved after each."""
    defaults = {
        "task": "tiny",
        "rounds": ROUNDS,
        "envs": 2,
        "episode_length": EPOCHS,
        "final_episodes": 2,
    }
    checkpoint = CheckpointSpec(every_rounds=1, keep=9)
    telemetry = TelemetrySpec(loggers=CSV)
    return tiny(**{**defaults, "checkpoint": checkpoint, "telemetry": telemetry, **fields})


def before_epoch(number, act, count=None):
    """Parts that call `act` before an epoch, counted from 0 over all rounds."""
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
    """A run that nothing disturbs."""
    run = tmp_path_factory.mktemp("alone") / "run"
    train_ppo_vectorized(spec(), out=run)
    return run


@pytest.mark.parametrize(
    ("at", "is_moved", "successor"),
    [
        (1, False, "folder"),
        (2, True, "run"),
        (2, False, None),
        (ROUNDS * EPOCHS, False, "file"),
    ],
)
def test_a_run_whose_directory_is_taken_stops_with_one_line(
    alone, tmp_path, at, is_moved, successor
):
    place = tmp_path / "run"
    moved = tmp_path / "moved"
    epochs = itertools.count()

    def take():
        place.rename(moved)
        if not is_moved:
            shutil.rmtree(moved)
        if successor == "run":
            shutil.copytree(alone, place)
        elif successor is not None:
            place.mkdir() if successor == "folder" else place.write_text("mine")

    with pytest.raises(CheckpointError) as raised:
        train_ppo_vectorized(spec(), out=place, parts=before_epoch(at, take, epochs))
    assert str(raised.value) == TAKEN.format(place)
    assert next(epochs) == at + 1 or at == ROUNDS * EPOCHS, "it went on"
    if successor == "run":
        assert contents(place) == contents(alone)
    elif successor == "file":
        assert place.read_text() == "mine"
    else:
        assert not place.exists() or not list(place.iterdir())


def test_a_moved_run_can_be_resumed_where_it_is_now(tmp_path):
    place = tmp_path / "run"
    moved = tmp_path / "moved"
    with pytest.raises(CheckpointError, match="was moved"):
        train_ppo_vectorized(spec(), out=place, parts=before_epoch(2, lambda: place.rename(moved)))
    assert len(resume(moved).history) == ROUNDS
    assert main(["inspect", str(moved)]) == 0


def test_an_evaluation_of_a_moved_run_is_printed_and_written_nowhere(alone, tmp_path):
    place = tmp_path / "run"
    shutil.copytree(alone, place)
    evaluate = pytest.importorskip("morphogen.extras.evaluate.evaluation").evaluate
    lines = []

    def report(line):
        lines.append(line)
        if not (tmp_path / "moved").exists():
            place.rename(tmp_path / "moved")
            shutil.copytree(alone, place)

    evaluate(place, ["wait"], episodes=2, report=report)
    assert lines[-1] == f"evaluation.json was not written: {TAKEN.format(place)}"
    assert contents(place) == contents(alone) == contents(tmp_path / "moved")


def test_the_lock_of_a_successor_is_left_alone(tmp_path):
    place = tmp_path / "run"
    place.mkdir()
    with own_directory(place):
        place.rename(tmp_path / "moved")
        place.mkdir()
        (place / "lock").write_text("of another process")
    assert (place / "lock").read_text() == "of another process"
