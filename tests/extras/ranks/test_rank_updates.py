"""Updates over ranks that each keep their own rows: equal to one process, and alike on all
ranks.
"""

import itertools
import math
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.made_up_rollouts import KEY, play, small, source, turn

from morphogen.config.policy_spec import PpoSpec
from morphogen.config.spec import RunSpec, resolve
from morphogen.errors import ConfigError
from morphogen.ppo.coefficients import Coefficients
from morphogen.ppo.exchange import ALONE
from morphogen.ppo.learner import Learner, Round
from morphogen.ppo.moments import masked_moments, merge_moments
from morphogen.ppo.ppo_state import init_ppo
from morphogen.ppo.update import PpoLearner, draw_minibatches, minibatch_indices, update_ppo
from tests.extras.ranks import thread_ranks
from tests.extras.ranks.thread_ranks import Board, ThreadRank

ENVS, STEPS = 8, 6
POLICY = small(contribution=True)
LEARNER = init_ppo(POLICY, KEY)
SPEC = PpoSpec(target_kl=None, contribution_coef=0.5)
WEIGHTS = Coefficients(lr=1e-2, entropy=0.05, value=0.5)
NOISE = torch.rand(2, ENVS // 2, 2, generator=source(7))  # 2 PPO epochs of 2 minibatches
CPU = torch.device("cpu")


def ends_of(seed: int) -> torch.Tensor:
    return torch.rand(STEPS, ENVS, generator=source(seed)) < 0.1


def rollout_of(learner=LEARNER, seed: int = 0):
    return play(POLICY, learner.params, steps=STEPS, envs=ENVS, seed=seed, ends=ends_of(seed))


ROLLOUT = rollout_of()


def double(tree: Any) -> Any:
    """Convert a tree to double precision."""
    return tree.apply(lambda leaf: leaf.double() if leaf.is_floating_point() else leaf)


def run_ranks(ranks, action):
    """Call an action with the exchange of every rank; return the results in the order of ranks."""
    results = thread_ranks.run_ranks(ranks, action)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def part_of(exchange, tree, dim: int):
    """The part of a rank along an axis."""
    own = exchange.own(tree.shape[dim])
    return tree[(slice(None),) * dim + (slice(own.start, own.stop),)]


def learn(exchange, rollout, learner, *, spec=SPEC, noise=NOISE):
    """Update with the part of a rank of rows and minibatches."""
    assignment = minibatch_indices(part_of(exchange, noise, 1))
    own = part_of(exchange, rollout, 1)
    return update_ppo(
        learner,
        own,
        assignment,
        WEIGHTS,
        policy=POLICY,
        round=turn(spec, exchange=exchange),
    )


def compare(ranks: int, rollout, learner=LEARNER, **fixed):
    """Update in one process and over ranks; check that all ranks agree bit for bit; return both,
    and the distance.
    """
    alone, measured = learn(ALONE, rollout, learner, **fixed)
    results = run_ranks(ranks, lambda exchange: learn(exchange, rollout, learner, **fixed))
    first, found = results[0]
    for other, numbers in results[1:]:
        assert all(torch.equal(first.get(key), other.get(key)) for key in ("rounds", "skip_streak"))
        for name in ("params", "optimiser", "return_scale"):
            a, b = first.get(name), other.get(name)
            assert all(torch.equal(a.get(key), b.get(key)) for key in a.keys(True, True))
        assert all(torch.equal(found[name], numbers[name]) for name in set(found.keys()))
    parts = [
        (state.params["net"], state.params["observation"], state.optimiser)
        for state in (alone, first)
    ]
    return (alone, measured), (first, found), max(map(distance, *parts))


def distance(a, b) -> float:
    """Relative distance of two trees."""
    pairs = [(a.get(key).double(), b.get(key).double()) for key in a.keys(True, True)]
    return math.sqrt(
        sum((x - y).square().sum() for x, y in pairs) / sum(x.square().sum() for x, _ in pairs)
    )


def assert_same_metrics(a, b, tolerance: float) -> None:
    for name in set(a.keys()):
        assert a[name].item() == pytest.approx(b[name].item(), rel=tolerance, abs=tolerance), name


FIRST = learn(ALONE, ROLLOUT, LEARNER)[0]


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("ratio", ["head", "joint"])
def test_ranks_that_share_a_rollout_learn_what_one_process_learns(ranks, ratio):
    spec = PpoSpec(target_kl=None, contribution_coef=0.5, ratio=ratio)
    one, many, gap = compare(ranks, double(ROLLOUT), double(LEARNER), spec=spec)
    assert gap < 1e-10
    assert distance(one[0].params["net"], LEARNER.params["net"]) > 1e-3
    assert_same_metrics(one[1], many[1], 1e-6)


def test_a_second_round_starts_from_the_merged_scales_and_statistics():
    one, many, gap = compare(2, double(rollout_of(FIRST, seed=1)), double(FIRST))
    assert gap < 1e-10
    assert distance(one[0].return_scale, many[0].return_scale) < 1e-12


@pytest.mark.parametrize(
    ("field", "env", "t"), [("reward", 0, 0), ("value", 6, 3), ("log_prob", 7, 5)]
)
def test_an_invalid_env_of_one_rank_counts_for_nothing_on_any(field, env, t):
    rollout = double(ROLLOUT).clone()
    rollout[field][t, env] = math.nan
    one, many, gap = compare(2, rollout, double(LEARNER))
    assert gap < 1e-10
    assert many[1]["nonfinite.rollout"] == 1
    assert all(leaf.isfinite().all() for leaf in many[0].params.values(True, True))
    assert_same_metrics(one[1], many[1], 1e-6)


def test_a_rank_without_a_valid_env_takes_the_steps_of_the_others():
    rollout = double(ROLLOUT).clone()
    rollout["reward"][:, : ENVS // 2] = math.nan
    one, many, gap = compare(2, rollout, double(LEARNER))
    assert gap < 1e-10
    assert many[1]["steps_done"] == 4
    assert_same_metrics(one[1], many[1], 1e-6)


def test_the_divergence_that_stops_one_rank_stops_all():
    rollout = double(ROLLOUT).clone()
    rollout["log_prob"][:, :2, 0] -= 1.0  # of envs of rank 0 alone: rank 1 by itself would go on
    spec = PpoSpec(target_kl=0.01, contribution_coef=0.5)
    one, many, gap = compare(2, rollout, double(LEARNER), spec=spec)
    assert many[1]["stopped_by_kl"] == 1
    assert many[1]["steps_done"] == one[1]["steps_done"] < 4
    assert gap < 1e-10


def test_rounds_without_a_step_are_counted_alike_on_all_ranks():
    net = LEARNER.params["net"].clone()
    net["mix.in.bias"][0] = math.nan
    learner = LEARNER.replace(params=LEARNER.params.replace(net=net))
    for streak in (1, 2):
        learner = run_ranks(2, partial(learn, rollout=ROLLOUT, learner=learner))[1][0]
        assert learner.skip_streak == streak


@given(st.integers(0, 1000), st.integers(1, 4))
def test_merged_moments_are_those_of_all_entries_in_any_order_of_ranks(seed, ranks):
    draw = source(seed)
    x = 5.0 + 3.0 * torch.randn(40, generator=draw, dtype=torch.float64)
    where, owner = torch.rand(40, generator=draw) < 0.7, torch.randint(ranks, (40,), generator=draw)
    whole = masked_moments(x, where)
    # some of no entry
    parts = [masked_moments(x, where & (owner == rank)) for rank in range(ranks)]
    for order in itertools.permutations(parts):
        merged = order[0]
        for part in order[1:]:
            merged = merge_moments(merged, part)
        assert merged.count == whole.count
        assert merged.mean.item() == pytest.approx(whole.mean.item(), rel=1e-12, abs=1e-12)
        assert merged.m2.item() == pytest.approx(whole.m2.item(), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_ranks_deal_the_minibatches_of_one_process(ranks):
    spec = resolve(RunSpec(preset="tiny", envs=16, seed=5, ppo={"epochs": 3, "minibatches": 2}))
    whole = draw_minibatches(Round(spec, 4), CPU, passes=3)
    # each env once per PPO epoch
    assert torch.equal(whole.flatten(1).sort().values, torch.arange(16).expand(3, 16))
    parts = run_ranks(
        ranks,
        lambda exchange: (
            draw_minibatches(Round(spec, 4, exchange), CPU, passes=3) + 16 // ranks * exchange.rank
        ),
    )
    assert torch.equal(torch.cat(parts, dim=-1), whole)


class Shrink(Learner):
    """A learner that needs all rows."""

    name = "shrink"

    def init(self, policy, key, *, spec): ...

    def update(self, state, rollout, *, policy, round): ...


def test_a_learner_that_needs_all_rows_is_refused():
    spec = resolve(RunSpec(preset="tiny", envs=8, engine={"reduce": "allreduce"}))
    with pytest.raises(
        ConfigError,
        match=r"engine\.reduce: expected gather with the learner 'shrink'.*got allreduce",
    ):
        ThreadRank(0, Board(2)).of_updates(spec, Shrink())


@pytest.mark.parametrize(
    ("ppo", "ranks", "line"),
    [
        ({"minibatches": 4}, 4, r"ppo\.minibatches: expected a divisor of the 2 envs of a rank"),
        ({"world_envs": 3}, 2, r"ppo\.world_envs: expected a divisor of the 4 envs of a rank"),
    ],
)
def test_a_rank_without_an_equal_part_of_minibatches_or_groups_is_refused(ppo, ranks, line):
    sizes = {"minibatches": 2, **ppo}
    spec = resolve(RunSpec(preset="tiny", envs=8, ppo=sizes, engine={"reduce": "allreduce"}))
    with pytest.raises(ConfigError, match=line):
        ThreadRank(0, Board(ranks)).of_updates(spec, PpoLearner())


def test_an_update_exchanges_only_under_allreduce():
    rank = ThreadRank(0, Board(2))
    for reduce, exchange in (("allreduce", rank), ("gather", ALONE)):
        spec = resolve(RunSpec(preset="tiny", envs=8, engine={"reduce": reduce}))
        assert rank.of_updates(spec, PpoLearner()) is exchange
