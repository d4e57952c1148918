"""A run that was stopped anywhere and resumed is the run that was not; what does not fit is refused
by name.
"""

import itertools
import json
import shutil
from dataclasses import replace

import pytest
import torch
from support.extras import CSV, needs_extra, rows_of_extra
from support.run_comparison import differences, events, tree_differences
from support.small_runs import tiny

from morphogen.config.execution_spec import CheckpointSpec, EngineSpec
from morphogen.config.groups import DataSpec, HostSpec
from morphogen.config.policy_spec import PpoSpec
from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.errors import CheckpointError, TrainingDiverged
from morphogen.log import run_log
from morphogen.train import checkpoint_store
from morphogen.train.checkpoint import load_checkpoint
from morphogen.train.loop import Hooks, Parts
from morphogen.train.train import resume, train_ppo_vectorized

ROUNDS = 3
EPOCHS = 3
STOP = (1, 2)  # position at which a run is stopped
SHORT = {"rounds": 2, "final_episodes": 0}  # where the claim is about rounds alone


def spec(**fields):
    """Three rounds of three epochs, saved after each."""
    given = {"rounds": ROUNDS, "envs": 2, "episode_length": EPOCHS, "final_episodes": 2}
    return tiny(**{**given, "checkpoint": CheckpointSpec(every_rounds=1, keep=9), **fields})


def stopping(round, epoch, **more):
    """Parts that stop a run before the epoch at a position."""
    asked = itertools.count(1)
    return Parts(hooks=Hooks(should_stop=lambda: next(asked) == round * EPOCHS + epoch), **more)


def stopped(place, position, wanted):
    """A run that was stopped at a position."""
    assert train_ppo_vectorized(wanted, out=place, parts=stopping(*position)).stopped
    return place


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A run that is left alone."""
    place = tmp_path_factory.mktemp("alone") / "run"
    train_ppo_vectorized(spec(), out=place)
    return place


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """The same run, stopped inside a round."""
    return stopped(tmp_path_factory.mktemp("half") / "run", STOP, spec())


@pytest.fixture
def run(half, tmp_path):
    """A copy of the stopped run."""
    return shutil.copytree(half, tmp_path / "run")


def newest(run):
    return checkpoint_store.list_checkpoints(run / "checkpoints")[0]


def resumed(run):
    """The report of the last resume of a run."""
    return [one["data"] for one in events(run) if one["event"] == "RunResumed"][-1]


def test_a_run_that_was_stopped_inside_a_round_ends_with_the_same_bits(alone, run):
    assert newest(run).name == checkpoint_store.checkpoint_name(*STOP)
    result = resume(run)
    assert not list(differences(alone, run))
    assert (result.stopped, len(result.history)) == (False, ROUNDS)
    assert resumed(run)["checkpoint"] == checkpoint_store.checkpoint_name(*STOP)


OTHERS = {
    **rows_of_extra(
        "alarms",
        lambda: {"an alarm": {"telemetry": TelemetrySpec(limits={"gradient_drift": 0.0})}},
    ),
    "adamw and loggers": {
        "telemetry": TelemetrySpec(loggers=CSV),
        "host": HostSpec(
            lr=0.01,
            seed_lr=0.01,
            optimizer="adamw",
            schedule="warmup_cosine",
            freeze=("block0.*",),
        ),
    },
    "demonstrations": {"ppo": PpoSpec(epochs=2, minibatches=2, world_envs=2, imitation_rounds=2)},
    **rows_of_extra(
        "streaming",
        lambda: {
            "after demonstrations, streamed": {
                "ppo": PpoSpec(epochs=2, minibatches=2, world_envs=2, imitation_rounds=1),
                "data": DataSpec(batch=8, minibatches=2, val_samples=32, placement="streamed"),
            }
        },
    ),
}


@pytest.mark.parametrize("fields", OTHERS.values(), ids=OTHERS)
def test_so_does_a_run_of_another_kind(tmp_path, fields):
    wanted = spec(**SHORT, **fields)
    train_ppo_vectorized(wanted, out=tmp_path / "alone")
    run = stopped(tmp_path / "run", STOP, wanted)
    resume(run)
    assert not list(differences(tmp_path / "alone", run))


@needs_extra("compiler")
def test_a_compiled_run_ends_with_the_same_bits(tmp_path):
    from morphogen.extras.compiler.compiled_units import CompiledUnits

    engine, run = EngineSpec(compile="default"), tmp_path / "run"
    wanted = spec(engine=engine, **SHORT)

    def units():
        """Units of a compiled run without their graphs."""
        return CompiledUnits(engine, compiler=lambda function, **_: function)

    train_ppo_vectorized(wanted, out=tmp_path / "alone", parts=Parts(compiled=units()))
    assert train_ppo_vectorized(wanted, out=run, parts=stopping(*STOP, compiled=units())).stopped
    resume(run, parts=Parts(compiled=units()))
    assert not list(differences(tmp_path / "alone", run))


def test_a_run_that_is_stopped_again_and_again_ends_with_the_same_bits(alone, tmp_path):
    run = stopped(tmp_path / "run", (0, 1), spec())
    for _ in range(ROUNDS * EPOCHS):
        if not resume(run, parts=stopping(1, 2)).stopped:
            break
    assert not list(differences(alone, run))


def test_rounds_that_are_added_later_are_those_that_were_there_from_the_start(alone, tmp_path):
    train_ppo_vectorized(spec(rounds=1), out=tmp_path / "run")
    resume(tmp_path / "run", rounds=ROUNDS)
    found, wanted = (load_checkpoint(newest(run)) for run in (tmp_path / "run", alone))
    assert not list(tree_differences(found.carry, wanted.carry, "carry"))
    assert not list(tree_differences(found.learner, wanted.learner, "learner"))
    assert json.loads((tmp_path / "run" / "config.json").read_text())["rounds"] == ROUNDS
    assert (tmp_path / "run" / "result.json").read_bytes() == (alone / "result.json").read_bytes()


def contents(folder):
    """The bytes of every file below a folder, by path."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_that_is_over_is_left_as_it_is(alone, tmp_path):
    run = shutil.copytree(alone, tmp_path / "run")
    before = contents(run)
    result = resume(run)
    assert contents(run) == before
    assert (len(result.history), result.results, result.stopped) == (ROUNDS, (), False)


def test_a_run_without_a_checkpoint_begins_again(alone, run):
    shutil.rmtree(run / "checkpoints")
    resume(run)
    assert not list(differences(alone, run))


def test_settings_that_do_not_fit_are_refused_in_a_list(run):
    before = (run / "events.jsonl").read_bytes()
    with pytest.raises(CheckpointError) as refused:
        resume(run, ppo=replace(spec().ppo, lr=0.5), seed=7, telemetry=TelemetrySpec(queue=9))
    _, *lines = str(refused.value).splitlines()
    assert lines == ["seed: expected 0, got 7", "ppo.lr: expected 0.001, got 0.5"]
    with pytest.raises(CheckpointError, match="rounds: expected at least 2, got 1"):
        resume(run, rounds=1)
    assert (run / "events.jsonl").read_bytes() == before


def test_data_that_changed_is_refused(run):
    manifest = {**checkpoint_store.read_manifest(newest(run)), "data_sha256": "another"}
    (newest(run) / "manifest.json").write_text(
        json.dumps({**manifest, "seal": checkpoint_store.manifest_sha256(manifest)})
    )
    with pytest.raises(
        CheckpointError, match=r"sha256 of the data: expected another, got [0-9a-f]{64}"
    ):
        resume(run)


def test_a_damaged_checkpoint_is_passed_over_with_its_reason(alone, run):
    (newest(run) / "state.safetensors").write_bytes(b"")
    resume(run)
    reported = resumed(run)
    assert reported["checkpoint"] == checkpoint_store.checkpoint_name(1, 0)
    assert [one["checkpoint"] for one in reported["skipped"]] == [
        checkpoint_store.checkpoint_name(*STOP)
    ]
    assert "state.safetensors has 0 bytes" in reported["skipped"][0]["reason"]
    assert not list(differences(alone, run))


def test_events_that_are_lost_are_made_again_from_an_older_checkpoint(alone, tmp_path):
    run = shutil.copytree(alone, tmp_path / "run")
    whole = (run / "events.jsonl").read_bytes()
    (run / "events.jsonl").write_bytes(whole[: bytes_at(run, 2) + 10])
    assert resume(run, telemetry=TelemetrySpec(console=False), parts=stopping(0, 1)).stopped
    reported = resumed(run)
    assert reported["checkpoint"] == checkpoint_store.checkpoint_name(2, 0)
    assert "expected a file of at least" in reported["skipped"][0]["reason"]
    assert [path.name for path in checkpoint_store.list_checkpoints(run / "checkpoints")] == [
        checkpoint_store.checkpoint_name(*position) for position in ((2, 1), (2, 0), (1, 0))
    ]


def bytes_at(run, round):
    """Bytes of the event file that a checkpoint stands for."""
    path = run / "checkpoints" / checkpoint_store.checkpoint_name(round, 0)
    position = load_checkpoint(path).log
    assert position is not None
    return position.bytes


def test_checkpoints_that_are_all_damaged_are_refused_each_with_its_reason(run):
    for path in checkpoint_store.list_checkpoints(run / "checkpoints"):
        (path / "manifest.json").write_text("{}")
    with pytest.raises(CheckpointError, match="has no usable checkpoint") as refused:
        resume(run)
    assert str(refused.value).count("has format null") == 2


def test_a_checkpoint_under_another_name_or_of_another_run_is_passed_over(run, tmp_path):
    other = stopped(tmp_path / "other", (1, 1), spec(seed=1))
    newest(run).rename(run / "checkpoints" / checkpoint_store.checkpoint_name(2, 1))
    shutil.copytree(newest(other), run / "checkpoints" / checkpoint_store.checkpoint_name(1, 1))
    assert resume(run, parts=stopping(0, 1)).stopped
    reported = resumed(run)
    reasons = [one["reason"] for one in reported["skipped"]]
    assert "is of round 1, epoch 2" in reasons[0]
    assert "run_id: expected" in reasons[1]
    assert reported["checkpoint"] == checkpoint_store.checkpoint_name(1, 0)


def test_an_older_checkpoint_goes_on_in_a_directory_of_its_own(alone, tmp_path):
    run = shutil.copytree(alone, tmp_path / "run")
    before = contents(run)
    resume(run, checkpoint=checkpoint_store.checkpoint_name(1, 0), out=tmp_path / "branch")
    assert not list(differences(alone, tmp_path / "branch"))
    assert contents(run) == before
    with pytest.raises(
        CheckpointError,
        match=r'checkpoint: expected one of round-000003-epoch-0000, round-.*, got "\.\./x"',
    ):
        resume(run, checkpoint="../x", out=tmp_path / "more")
    assert not (tmp_path / "more").exists()


def test_a_run_that_diverges_is_saved_before_it_ends(tmp_path):
    def spoil(summary, scheduler):
        for leaf in scheduler.learned.params["net"].values():
            leaf.fill_(torch.nan)

    with pytest.raises(
        TrainingDiverged, match="no step in 3 consecutive rounds, the last of them round 4"
    ):
        train_ppo_vectorized(
            spec(rounds=6, final_episodes=0),
            out=tmp_path / "run",
            parts=Parts(hooks=Hooks(on_round=spoil)),
        )
    saved = [one["data"] for one in events(tmp_path / "run") if one["event"] == "CheckpointSaved"]
    assert (saved[-1]["kind"], saved[-1]["path"]) == (
        "stop",
        f"checkpoints/{checkpoint_store.checkpoint_name(4, 0)}",
    )
    assert events(tmp_path / "run")[-1]["data"]["status"] == "failed"


class Screen:
    """A console that keeps what a run says at its start."""

    local = retries = False
    kinds = None

    def start(self, spec, facts, *, done):
        self.said, self.done = facts["resumed from"], done

    def __getattr__(self, name):
        return lambda *given, **knobs: None


def test_what_is_promised_names_what_changed_and_starts_from_the_saved_bits(run, tmp_path):
    wanted, screen = load_checkpoint(newest(run)).carry["state"], Screen()
    same = resume(
        shutil.copytree(run, tmp_path / "same"),
        console=screen,
        parts=Parts(hooks=Hooks(should_stop=lambda: True)),
    )
    assert same.stopped
    assert screen.said == "round-000001-epoch-0002, bitwise equal to a run without the stop"
    assert screen.done == pytest.approx((EPOCHS + 2) / (ROUNDS * EPOCHS))
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        resume(run, console=screen, parts=Parts(hooks=Hooks(should_stop=lambda: True)))
    finally:
        torch.set_num_threads(before)
    changed = f"because threads was {before}, is {before + 1}"
    assert (
        screen.said
        == f"round-000001-epoch-0002, equal up to rounding to a run without the stop, {changed}"
    )
    found = load_checkpoint(newest(run)).carry["state"]
    assert not list(tree_differences(found["instance"], wanted["instance"], "instance"))
    other = load_checkpoint(newest(tmp_path / "same")).carry["state"]
    torch.testing.assert_close(found["host"]["params"], other["host"]["params"])


def test_a_run_with_relative_folders_is_read_and_resumed_from_anywhere(tmp_path, monkeypatch):
    (tmp_path / "start").mkdir()
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path / "start")
    relative = spec(telemetry=TelemetrySpec(dir="events"), **SHORT)
    run = stopped(tmp_path / "run", STOP, relative)
    assert json.loads((run / "config.json").read_text())["telemetry"]["dir"] == str(
        tmp_path / "start" / "events"
    )
    monkeypatch.chdir(tmp_path / "else")
    assert len(run_log.read_rounds(run)) == 1
    assert (
        len(resume(run, telemetry=TelemetrySpec(dir=str(tmp_path / "start" / "events"))).history)
        == SHORT["rounds"]
    )
    assert not list((tmp_path / "else").iterdir())
