"""A run over ranks is the run of one process: policies, states, events, exchange, stops, and ranks
that drift.
"""

from importlib import import_module

import pytest
import torch
from support.extras import needs_extra, rows_of_extra
from support.faulty_sinks import all_events
from support.run_comparison import same, timeless
from support.small_runs import tiny

import morphogen as mg
from bench.harness.memory_sink import MemorySink
from morphogen.config.groups import DataSpec, HostSpec
from morphogen.config.policy_spec import PpoSpec
from morphogen.device.transfers import flatten_names
from morphogen.env.setup import build_setup
from morphogen.errors import RankError
from morphogen.extras.ranks.rank_exchange import COLLECTIVES, Exchanged
from morphogen.ppo.exchange import ALONE
from morphogen.state.tree_ops import replace
from morphogen.train.loop import Hooks, Parts, Scheduler
from tests.extras.ranks.thread_ranks import run_ranks

ADAMW = HostSpec(optimizer="adamw", schedule="warmup_cosine", lr=0.01)
RUNS = {
    "heuristic, adamw": {"policy_name": "heuristic", "host": ADAMW},
    **rows_of_extra(
        "streaming",
        lambda: {
            "streamed": {
                "data": DataSpec(placement="streamed", batch=8, minibatches=2, val_samples=32)
            }
        },
    ),
    "groups of ppo": {"ppo": PpoSpec(epochs=2, minibatches=2, world_envs=4, imitation_rounds=1)},
}


class BrokenEnv(Scheduler):
    """A run in which the host of env 5 of all envs becomes NaN."""

    def run_epoch(self, carry, t):
        own = self.exchange.own(self.setup.spec.envs)
        if (self.round, t) == (0, 2) and 5 in own:
            host = carry.state.host
            params = host.params.clone()
            params[5 - own.start] = torch.nan
            state = replace(carry.state, host=replace(host, params=params))
            carry = carry._replace(state=state)
        return super().run_epoch(carry, t)


def on_ranks(ranks, action):
    """The results of an action of every rank; raises the first error."""

    def act(exchange):
        with torch.no_grad():
            return action(exchange)

    results = run_ranks(ranks, act)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def finished(spec, exchange=ALONE, kind=Scheduler):
    """A scheduler at the end of its run, and its events."""
    sink = MemorySink()
    scheduler = kind(build_setup(spec, exchange), Parts(sinks=(sink,)))
    with torch.no_grad():
        scheduler.run()
    scheduler.reporter.close()
    return scheduler, [
        (event.name, event.where, timeless(event.data.payload())) for event in all_events(sink)
    ]


def leaves(tree):
    return {} if tree is None else flatten_names(tree)


def state_of(schedulers):
    """The state of the envs of all ranks."""
    trees = [leaves(scheduler.state.to_tensordict()) for scheduler in schedulers]
    return {name: torch.cat([tree[name] for tree in trees]) for name in trees[0]}


def rows_of(schedulers):
    trees = [leaves(scheduler.rollout.rows) for scheduler in schedulers]
    return {name: torch.cat([tree[name] for tree in trees], dim=1) for name in trees[0]}


def differing(one, other):
    assert one.keys() == other.keys()
    return sorted(name for name in one if not same(one[name], other[name]))


def assert_equal_runs(spec, ranks, kind=Scheduler):
    alone, events = finished(spec, kind=kind)
    schedulers, logs = zip(*on_ranks(ranks, lambda part: finished(spec, part, kind)), strict=True)
    for scheduler in schedulers:
        assert differing(leaves(alone.params), leaves(scheduler.params)) == []
        assert differing(leaves(alone.learned), leaves(scheduler.learned)) == []
    assert differing(state_of([alone]), state_of(schedulers)) == []
    assert differing(rows_of([alone]), rows_of(schedulers)) == []
    for log in logs:
        assert [pair for pair in zip(log, events, strict=True) if pair[0] != pair[1]] == []
    return events


@pytest.mark.slow
@pytest.mark.parametrize("kind", RUNS)
def test_ranks_end_with_the_bits_of_one_process(kind):
    ranks = 4 if kind == "groups of ppo" else 2
    assert_equal_runs(tiny(envs=16, rounds=2, episode_length=3, **RUNS[kind]), ranks)


@pytest.mark.slow
@needs_extra("modules")
@needs_extra("targets")
def test_own_modules_on_targets_that_are_numbers_agree_up_to_rounding():
    targets = import_module("tests.extras.targets.target_tables")
    spec = mg.make(targets.task(), envs=6, rounds=1, host={"optimizer": "adamw"}).spec
    alone, _ = finished(spec)
    first, second = (scheduler for scheduler, _ in on_ranks(2, lambda part: finished(spec, part)))
    assert differing(leaves(first.params), leaves(second.params)) == []
    ours, theirs = rows_of([first, second]), rows_of([alone])
    assert same(ours["action"], theirs["action"])
    torch.testing.assert_close(ours["reward"], theirs["reward"], rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_a_host_that_is_not_finite_breaks_no_other_rank():
    events = assert_equal_runs(tiny(envs=8, episode_length=4), 2, BrokenEnv)
    assert {where["env"] for name, where, _ in events if name == "RolledBack"} == {5}


@pytest.mark.slow
def test_every_exchange_is_in_the_ledger():
    spec = tiny(envs=8, rounds=2, episode_length=3)
    for scheduler, _ in on_ranks(2, lambda part: finished(spec, part)):
        trees = leaves(scheduler.rollout.rows), leaves(scheduler.carry.memory)
        rollout = sum(leaf.nbytes for tree in trees for leaf in tree.values())
        record = scheduler.transfers._buffers["record", 0].layout.size * spec.episode_length
        epochs_and_checksums = 2 * spec.episode_length - 1 + 2  # no question after the last round
        expected = dict.fromkeys(COLLECTIVES, Exchanged()) | {
            "rollout": Exchanged(2, 2 * rollout),
            "record": Exchanged(2, 2 * record),
            "facts": Exchanged(epochs_and_checksums, 0),
        }
        assert scheduler.exchange.ledger == expected


@pytest.mark.parametrize(
    ("wisher", "epoch", "kind"),
    [(0, 0, "should_stop"), (1, 2, "should_stop"), (1, 1, "should_save")],
)
def test_all_ranks_stop_or_save_before_the_same_epoch(wisher, epoch, kind):
    def body(exchange):
        done, saved = [], []
        wish = lambda: exchange.rank == wisher and len(done) == epoch + 1
        hooks = Hooks(
            on_epoch=lambda *at: done.append(at),
            save=lambda: saved.append(len(done)),
            **{kind: wish},
        )
        scheduler = Scheduler(build_setup(tiny(), exchange), Parts(hooks=hooks))
        scheduler.run()
        return len(done), saved

    first, second = on_ranks(2, body)
    assert first == second
    assert first in [
        (epoch + 1, []),
        (tiny().episode_length, [epoch + 1]),
        (tiny().episode_length, []),
    ]


def test_a_rank_that_drifts_ends_the_run_by_name():
    class Drifting(Scheduler):
        def _update(self, rows, hidden):
            if self.exchange.rank == 1:
                self.learned.params["net"]["value.mid.bias"].add_(1e-7)
            return super()._update(rows, hidden)

    spec = tiny(envs=6, episode_length=2)
    with pytest.raises(
        RankError,
        match=r"checksum of the policy after round 1: expected [0-9a-f]{16} as on rank 0, got "
        r"[0-9a-f]{16} on rank 1",
    ):
        on_ranks(3, lambda part: finished(spec, part, Drifting))
