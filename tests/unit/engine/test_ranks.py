"""A run over ranks is the run of one process: policies, states, events, exchange, wishes, and ranks that drift."""

import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.faulty_sinks import all_events
from support.run_comparison import same, timeless
from support.small_runs import tiny
from support.thread_ranks import run_ranks
from torch._C._distributed_c10d import HashStore

from morphogen.config.groups import DataSpec
from morphogen.config.policy_spec import PpoSpec
from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.device.collectives import STOP, expected_exchange
from morphogen.device.process_group import ProcessGroup
from morphogen.device.transfers import flatten_names
from morphogen.engine.scheduler import Parts, Scheduler
from morphogen.engine.setup import build_setup
from morphogen.errors import RankError
from morphogen.state.tree_ops import replace
from morphogen.telemetry.writer import MemorySink

RANKS = (2, 4)
DEBUG = TelemetrySpec(level="debug")
WHITEBOX = {"task": "whitebox", "data": DataSpec()}
RUNS = {
    "resident": {},
    "streamed": {"data": DataSpec(placement="streamed", batch=8, minibatches=2, val_samples=32)},
    "whitebox": WHITEBOX,
    "heuristic": {"policy_name": "heuristic"},
    "groups": {"ppo": PpoSpec(epochs=2, minibatches=2, world_envs=4, imitation_rounds=1)},
}


class BrokenEnv(Scheduler):
    """A run in which the host of env 5 of all envs becomes NaN."""

    def run_epoch(self, state, seen, hidden, segment, t):
        own = self.collectives.shard(self.setup.spec.envs)
        if (self.round, t) == (0, 2) and 5 in own:
            params = state.host.params.clone()
            params[5 - own.start] = torch.nan
            state = replace(state, host=replace(state.host, params=params))
        return super().run_epoch(state, seen, hidden, segment, t)


def on_ranks(ranks, action):
    """The results of an action of every rank; raises the first error."""

    def act(collectives):
        with torch.no_grad():
            return action(collectives)

    results = run_ranks(ranks, act)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def on_agreeing(ranks, action):
    """The same for the agreements of processes, which share a store."""
    store = HashStore()
    options = {"device": torch.device("cpu"), "timeout_s": 60.0, "clock": time.perf_counter}
    return on_ranks(ranks, lambda part: action(ProcessGroup(store, part.rank, part.ranks, **options)))


def finished(spec, collectives=None, kind=Scheduler):
    """A scheduler at the end of its run, and its events."""
    sink = MemorySink()
    scheduler = kind(build_setup(spec), Parts(collectives=collectives, sinks=(sink,)))
    with torch.no_grad():
        scheduler.run()
    scheduler.reporter.close()
    return scheduler, [(event.name, event.where, timeless(event.data.payload())) for event in all_events(sink)]


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
@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("kind", RUNS)
def test_ranks_end_with_the_bits_of_one_process(kind, ranks):
    assert_equal_runs(tiny(envs=16, rounds=2, telemetry=DEBUG, **RUNS[kind]), ranks)


def test_a_host_that_is_not_finite_breaks_no_other_rank():
    events = assert_equal_runs(tiny(envs=8, telemetry=DEBUG), 2, BrokenEnv)
    assert {where["env"] for name, where, _ in events if name == "RolledBack"} == {5}


@pytest.mark.parametrize("ranks", [1, *RANKS])
def test_every_exchange_is_in_the_table(ranks):
    spec = tiny(envs=8, rounds=2, **WHITEBOX)
    for scheduler, _ in on_ranks(ranks, lambda part: finished(spec, part)):
        trees = leaves(scheduler.rollout.rows), leaves(scheduler.hidden)
        rollout = sum(leaf.nbytes for tree in trees for leaf in tree.values())
        record = scheduler.transfers._buffers["record", 0].layout.size * spec.episode_length
        assert scheduler.collectives.ledger == expected_exchange(rounds=2 * (ranks > 1), rollout=rollout, record=record)


@settings(max_examples=15)
@given(wisher=st.integers(0, 2), epoch=st.integers(0, 5), waits=st.lists(st.integers(0, 3), min_size=3, max_size=3))
def test_all_ranks_stop_before_the_same_epoch(wisher, epoch, waits):
    """However fast they are: not before the epoch of the wish, and not at all if a rank has closed the round."""

    def body(part):
        for now in range(6):
            time.sleep(waits[part.rank] / 1_000)
            if part.agree(STOP if (part.rank, now) == (wisher, epoch) else None, 0, now) == STOP:
                return now
        return "after" if part.close_round(0) == STOP else None

    places = on_agreeing(3, body)
    assert len(set(places)) == 1
    assert places[0] in (None, "after") or places[0] >= epoch


def test_a_wish_after_the_end_of_the_round_waits_for_the_next_one():
    def body(part):
        late = part.close_round(0)
        return late, part.agree(STOP if part.rank else None, 0, 5), [part.agree(STOP, 1, epoch) for epoch in range(2)]

    assert on_agreeing(2, body) == [(None, None, [STOP, STOP])] * 2


def test_a_rank_that_drifts_ends_the_run_by_name():
    class Drifting(Scheduler):
        def _update(self, rows, hidden):
            if self.collectives.rank == 1:
                self.learned.params["net"]["value.mid.bias"].add_(1e-7)
            return super()._update(rows, hidden)

    spec = tiny(envs=6, **WHITEBOX)
    with pytest.raises(RankError, match="rank 1 of 3: its policy differs from the others after round 1"):
        on_ranks(3, lambda part: finished(spec, part, Drifting))


def test_ranks_must_share_the_envs_evenly():
    with pytest.raises(RankError, match=r"engine\.ranks: expected a divisor of 4 envs, got 3"):
        on_ranks(3, lambda part: finished(tiny(envs=4, **WHITEBOX), part))


@pytest.mark.parametrize(("begun", "word"), [(1, "reach"), (2, "finish")])
def test_a_rank_that_hangs_before_or_inside_a_collective_is_named(begun, word):
    class Failing(ProcessGroup):
        def exchange(self, name, buffer):
            with self._exchanging(name, buffer):
                raise RuntimeError("timed out")

    store = HashStore()
    store.set("begun/1", str(begun))
    group = Failing(store, 0, 2, device=torch.device("cpu"), timeout_s=3.0, clock=time.perf_counter)
    group._count = 1  # the next one is the second
    with pytest.raises(RankError, match=f"rank 1 of 2 did not {word} the collective verdict within 3 s"):
        group.exchange("verdict", torch.zeros(8, dtype=torch.uint8))
