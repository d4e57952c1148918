"""A run as a whole: crossings, independence of envs, repeatability, and faults that stay where they
happen.
"""

import sys

import pytest
import torch
from support.extras import needs_extra, rows_of_extra
from support.faulty_sinks import all_events
from support.launch_count import CountLaunches
from support.ledgers import expected_ledger
from support.run_comparison import differences
from support.small_runs import cifar_files, live, tiny, tiny_setup, world_of

from bench.harness.memory_sink import MemorySink
from morphogen.config.groups import DataSpec, HostSpec
from morphogen.config.policy_spec import PpoSpec
from morphogen.config.task import TASKS
from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.env.episodes import first_carry
from morphogen.env.setup import build_setup
from morphogen.log.kinds.epoch import EpisodeCompleted
from morphogen.log.log_file import LogFile
from morphogen.train.loop import Hooks, Parts, Scheduler
from morphogen.train.train import train_ppo_vectorized

SLOTS = {1: ("r0c1",), 3: ("r0c0", "r0c1", "r1c0")}
SLOTS |= rows_of_extra("cifar", lambda: {6: TASKS["cifar_multichannel"].slots})
MOST = max(SLOTS)


@pytest.fixture(scope="session")
def cifar(tmp_path_factory):
    """A folder of made-up CIFAR files, for hosts with six slots."""
    folder = tmp_path_factory.mktemp("cifar")
    cifar_files(folder)
    return str(folder)


def ledger(setup, *sinks):
    scheduler = Scheduler(setup, Parts(sinks=sinks))
    with torch.no_grad():
        scheduler.run()
    scheduler.reporter.close()
    return scheduler.transfers.ledger


@pytest.mark.slow
@pytest.mark.parametrize(
    ("slots", "envs", "placement", "reported"),
    [
        (1, 1, "resident", True),
        pytest.param(3, 4, "streamed", True, marks=needs_extra("streaming")),
        (MOST, 32, "resident", False),
    ],
)
def test_the_ledger_equals_the_fence_table(envs, slots, placement, reported, cifar, tmp_path):
    """For any number of envs and slots, wherever the data lies, whether nothing is logged or every
    event.
    """
    few = {"rounds": 2, "episode_length": 3, "ppo": PpoSpec(epochs=1)}
    telemetry = TelemetrySpec(level="normal" if reported else "off")
    task, host = ("cifar_multichannel", HostSpec(width=1)) if slots == 6 else ("digits", HostSpec())
    data = DataSpec(dir=cifar, placement=placement, batch=2, minibatches=2, val_samples=4)
    seen = MemorySink()
    sinks = (LogFile(tmp_path / "events.jsonl"), seen) if reported else ()
    where = {"task": task, "host": host, "slots": SLOTS[slots], "data": data}
    found = ledger(tiny_setup(envs=envs, telemetry=telemetry, **where, **few), *sinks)
    assert found == expected_ledger(
        rounds=2, epochs=3, streamed=2 if placement == "streamed" else 0
    )
    if reported:
        ended = [
            event.env for event in all_events(seen) if isinstance(event.data, EpisodeCompleted)
        ]
        assert ended == [*range(envs)] * 2, "an episode of every env ends in each round"


def test_a_baseline_crosses_as_often_as_a_trained_policy():
    assert ledger(tiny_setup(policy_name="heuristic")) == expected_ledger(rounds=1, epochs=6)


@pytest.mark.slow
def test_a_whole_run_crosses_once_more_per_save_and_evaluation(tmp_path):
    seen = []
    hooks = Hooks(on_round=lambda _, scheduler: seen.append(scheduler.transfers))
    train_ppo_vectorized(tiny(final_episodes=4), out=tmp_path / "run", parts=Parts(hooks=hooks))
    # the networks and the result of each arm; the state at the end, and the policy
    more = {"evaluated_epochs": 4 * 6, "networks": 4, "result": 4, "checkpoint": 2}
    assert seen[0].ledger == expected_ledger(rounds=1, epochs=6, **more)


@pytest.mark.slow
def test_an_env_alone_lives_as_among_others():
    setup = tiny_setup(envs=32, episode_length=8)
    env, near = 17, {"rtol": 0, "atol": 1e-4}
    alone, among = (
        live(world_of(setup, **part), "ppo") for part in ({"first": env, "envs": 1}, {})
    )
    for one, many in zip(alone, among, strict=True):
        assert torch.equal(one.choice.action[0], many.choice.action[env])
        assert torch.equal(one.after.slots.stage[0], many.after.slots.stage[env])
        for name in ("metrics", "validation"):
            own, shared = (getattr(each.step, name).loss for each in (one, many))
            torch.testing.assert_close(own[0], shared[env], **near)


@pytest.mark.slow
def test_the_same_command_twice_leaves_the_same_files_but_for_times(tmp_path):
    for name in ("a", "b"):
        train_ppo_vectorized(tiny(rounds=1, final_episodes=2), out=tmp_path / name)
    assert not list(differences(tmp_path / "a", tmp_path / "b"))


SICK = torch.arange(32) == 5


def poison(t, state):
    params = torch.where(SICK.unsqueeze(-1), torch.nan, state.host.params)
    return state.replace(host=state.host.replace(params=params)) if t == 4 else state


@pytest.mark.slow
def test_a_nan_in_one_host_rolls_that_env_back_and_leaves_the_others_bitwise():
    world = world_of(tiny_setup(envs=32, episode_length=8))
    healthy, poisoned = live(world, "wait"), live(world, "wait", change=poison)
    back = poisoned[4]
    assert back.step.report.rolled_back.tolist() == SICK.tolist()
    assert back.step.score.terminated.tolist() == SICK.tolist()
    assert back.step.score.reward[5] == -1.0
    assert back.after.host.params.isfinite().all()
    assert poisoned[5].inputs.observation.env.isfinite().all()
    for one, other in zip(healthy, poisoned, strict=True):
        assert (one.after[~SICK] == other.after[~SICK]).all(), "a neighbour of the sick env changed"


@pytest.mark.slow
def test_a_nan_among_growing_envs_changes_the_others_at_most_by_the_rounding_of_smaller_groups():
    world = world_of(tiny_setup(envs=32, episode_length=8))
    healthy, poisoned = live(world), live(world, change=poison)
    assert poisoned[4].step.report.rolled_back.tolist() == SICK.tolist()
    for one, other in zip(healthy[:5], poisoned[:5], strict=True):
        assert (one.after[~SICK] == other.after[~SICK]).all(), (
            "a neighbour changed before any group did"
        )
    for one, other in zip(healthy[5:], poisoned[5:], strict=True):
        assert torch.equal(one.after.slots.stage[~SICK], other.after.slots.stage[~SICK])
        torch.testing.assert_close(
            one.step.validation.loss[~SICK], other.step.validation.loss[~SICK], rtol=0, atol=1e-4
        )


def test_resetting_trains_nothing_and_measures_once():
    world = world_of(tiny_setup())
    state, _ = world.reset(3)
    assert (state.clock.episode == 3).all()
    assert state.signals.history_valid.sum(-1).tolist() == [1, 1, 1, 1]
    assert (state.host.momentum == 0).all()
    assert torch.equal(state.host.params, world.reset(3)[0].host.params)
    assert not torch.equal(state.host.params, world.reset(4)[0].host.params)


@pytest.mark.slow
def test_sinks_and_hooks_change_no_number_of_the_run():
    sink, epochs = MemorySink(), []
    hooks = Hooks(on_epoch=lambda round, epoch: epochs.append((round, epoch)))
    parts = Parts(sinks=(sink,), hooks=hooks)
    watched, plain = Scheduler(build_setup(tiny()), parts), Scheduler(build_setup(tiny()))
    with torch.no_grad():
        watched.run()
        plain.run()
    watched.reporter.close()
    assert (watched.params["net"] == plain.params["net"]).all()
    assert (watched.state == plain.state).all()
    assert epochs == [(0, t) for t in range(6)]
    assert sum(event.name == "RoundCompleted" for event in sink.events) == 1


def test_a_hook_stops_a_bare_scheduler_between_two_epochs():
    asked = []
    parts = Parts(hooks=Hooks(should_stop=lambda: asked.append(None) or len(asked) == 2))
    scheduler = Scheduler(tiny_setup(rounds=3, episode_length=4), parts)
    with torch.no_grad():
        assert scheduler.run() == ()
    assert (scheduler.round, scheduler.epoch) == (0, 2)


def test_a_hook_that_returns_false_stops_the_run_after_its_round():
    hooks = Hooks(on_round=lambda summary, _: summary.round < 1)
    result = train_ppo_vectorized(tiny(rounds=5), parts=Parts(hooks=hooks))
    assert [summary.round for summary in result.history] == [0, 1]
    assert result.stopped


class CountCalls:
    """Count the calls of functions of Python, and of built-in ones."""

    count = 0

    def __call__(self, frame, event, arg):
        self.count += event in ("call", "c_call")

    def __enter__(self):
        sys.setprofile(self)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)


@pytest.mark.parametrize(("counter", "most"), [(CountLaunches, 1_850), (CountCalls, 12_500)])
def test_an_epoch_takes_few_operators_and_calls_beside_training_and_validation(
    monkeypatch, counter, most
):
    scheduler = Scheduler(tiny_setup(envs=1, rounds=2))
    scheduler.run_round()  # builds constant tables
    counted, excluded = counter(), []

    def exclude(phase):
        def run(*args, **options):
            before = counted.count
            result = phase(*args, **options)
            excluded.append(counted.count - before)
            return result

        return run

    kind = scheduler.setup.kind
    for name in ("train", "validate"):
        monkeypatch.setattr(kind, name, exclude(getattr(kind, name)))
    carry = first_carry(scheduler.env, scheduler.policy, 1)
    excluded.clear()
    with counted:
        scheduler.run_epoch(carry, 0)
    assert 0 < counted.count - sum(excluded) <= most
