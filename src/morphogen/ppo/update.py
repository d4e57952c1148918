"""One PPO update of the policy from one rollout: return units, advantages, K x n minibatch steps,
metrics.  Pure.

The update never reads a value on the host and draws nothing: the caller draws the noise of
`minibatch_indices`.
"""

from functools import partial
from typing import cast

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.policy_spec import PpoSpec
from morphogen.policy.policy import NetworkPolicy, get_branch
from morphogen.ppo.coefficients import Coefficients
from morphogen.ppo.exchange import ALONE, Exchange
from morphogen.ppo.metrics import (
    STEP_NAMES,
    Metrics,
    assemble_metrics,
    merge_extremes,
    reduce_metrics,
)
from morphogen.ppo.minibatch import UpdateState, minibatch_step, run_minibatches, start_state
from morphogen.ppo.prepare import ScaledCritic, ScaleState, init_scale, prepare_rows
from morphogen.ppo.rollout_stats import update_observation_stats
from morphogen.state.decision import Observation
from morphogen.state.loops import Repeat, repeat
from morphogen.state.tree_ops import (
    FrozenTree,
    TensorDictField,
    choose,
    get_leaf,
    get_leaves,
    replace,
    select,
)


class PpoState(FrozenTree):
    """Policy, optimiser and scales of PPO between updates.  batch_size []."""

    params: TensorDictField
    """Of the policy: net, observation, value_offset."""
    optimiser: TensorDictField
    """M, v float32 like net; step int64 []."""
    return_scale: ScaleState
    rounds: Tensor
    """int64 [], updates done."""
    skip_streak: Tensor
    """int64 [], consecutive rounds without an applied step."""


def init_ppo(policy: NetworkPolicy, key: Tensor) -> PpoState:
    """Initialise a policy, its optimiser and the scale of its returns.

    Shapes: key int64 [3], of the run -> state without batch size.

    Example:
        >>> import morphogen as mg
        >>> policy = mg.NetworkPolicy(mg.LstmNetwork(hidden=16))
        >>> state = mg.ppo.init_ppo(policy, mg.rng.env_keys(0, 0, 1)[0])
        >>> sorted(state.params.keys()), sorted(state.optimiser.keys())
        (['net', 'observation', 'value_offset'], ['m', 'step', 'v'])
    """
    params = policy.init(key)
    zero = torch.zeros((), dtype=torch.int64, device=key.device)
    net = get_leaves(get_branch(params, "net"))
    moments = {
        moment: TensorDict(
            {name: leaf.new_zeros(leaf.shape) for name, leaf in net.items()}, device=key.device
        )
        for moment in ("m", "v")
    }
    return PpoState(
        params=params,
        optimiser=TensorDict({**moments, "step": zero}, batch_size=[], device=key.device),
        return_scale=init_scale(key.device),
        rounds=zero.clone(),
        skip_streak=zero.clone(),
        batch_size=[],
        device=key.device,
    )


def minibatch_indices(noise: Tensor) -> Tensor:
    """Envs of the minibatches of K epochs: each holds one of every n neighbours, and each env is in
    one of them.

    Shapes: noise [K, E / n, n], uniform -> int64 [K, n, E / n].

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> noise = torch.tensor([[[0.1, 0.9], [0.8, 0.2]]])  # one epoch of 4 envs in 2 minibatches
        >>> mg.ppo.minibatch_indices(noise).tolist()
        [[[0, 3], [1, 2]]]
    """
    order = torch.argsort(noise, dim=-1, stable=True)
    first = torch.arange(noise.shape[1], device=noise.device) * noise.shape[2]
    return (order + first.unsqueeze(-1)).mT


def update_ppo(
    learner: PpoState,
    rollout: TensorDict,
    assignment: Tensor,
    weights: Coefficients,
    *,
    policy: NetworkPolicy,
    spec: PpoSpec,
    return_scale: str = "running",
    hidden: TensorDict | None = None,
    group: int = 1,
    exchange: Exchange = ALONE,
    repeat: Repeat = repeat,
) -> tuple[PpoState, TensorDict]:
    """Run one PPO update.

    `repeat` loops over minibatches; `group` consecutive envs play the same world.
    Shapes: rollout [T, E], assignment int64 [K, n, E / n], hidden [E] before row 0 (default 0) ->
    (state, metrics). With an `exchange`, rollout, assignment and hidden hold the envs of
    this process; state and metrics are common, equal to the results of one process up to
    rounding. Metrics are 0-d float64, each with a flag `<name>_valid`.
    Promise: a step changes nothing if its loss, gradient or result is not finite, if no row counts,
    or from the KL stop on; a round without an applied step leaves network, units and optimiser bit
    for bit; rows of an env outside `finite_envs` have no weight.
    Source: Schulman et al., Proximal Policy Optimization Algorithms, 2017, algorithm 1.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> env, policy = (
        ...     mg.make("tiny", envs=2, seed=0),
        ...     mg.NetworkPolicy(mg.LstmNetwork(hidden=8)),
        ... )
        >>> state, rollout = mg.ppo.init_ppo(policy, env.keys[0]), mg.Rollout(1, envs=2, slots=2)
        >>> carry, epoch = mg.run_epoch(env, policy, state.params, mg.first_carry(env, policy))
        >>> rollout.write(0, epoch)
        >>> envs = mg.ppo.minibatch_indices(torch.zeros(1, 2, 1))  # one PPO epoch of one minibatch
        >>> weights = mg.ppo.coefficients_at(env.spec.ppo, 0)
        >>> after, metrics = mg.ppo.update_ppo(
        ...     state, rollout.rows, envs, weights, policy=policy, spec=env.spec.ppo
        ... )
        >>> int(after.rounds), float(metrics["steps_done"])
        (1, 1.0)
    """
    memory = (
        policy.initial_hidden(rollout.shape[1], device=assignment.device)
        if hidden is None
        else hidden
    )
    scale = learner.return_scale
    params = learner.params
    units, rows, once = prepare_rows(
        params,
        scale,
        rollout,
        policy=policy,
        spec=spec,
        kind=return_scale,
        group=group,
        exchange=exchange,
    )
    carry = start_state(units.net, learner.optimiser)
    fixed = {
        "weights": weights.to_device(carry.step.device),
        "policy": policy,
        "spec": spec,
        "exchange": exchange,
    }
    move = partial(minibatch_step, **fixed)
    carry, steps = run_minibatches(carry, rows, memory, assignment, step=move, repeat=repeat)
    reduced = reduce_metrics(merge_extremes(steps[0], exchange), *steps[1:])
    seen = cast(Observation, rollout["observation"])
    moments = update_observation_stats(get_branch(params, "observation"), seen, exchange)
    after = _next_learner(learner, carry, units, moments, applied=reduced["steps_done"][0] > 0)
    extra = {
        **_coefficient_metrics(weights, after.skip_streak),
        "epochs_done": epochs_done(steps[0], len(assignment)),
    }
    return after, assemble_metrics({**reduced, **once, **extra})


def _coefficient_metrics(weights: Coefficients, streak: Tensor) -> Metrics:
    """Coefficients of a round, and its streak of rounds without a step, int64 []."""
    always = torch.ones_like(streak, dtype=torch.bool)
    like = torch.zeros_like(streak, dtype=torch.float64)
    numbers = {
        "learning_rate": weights.lr,
        "entropy_coef": weights.entropy,
        "value_coef": weights.value,
    }
    metrics: Metrics = {
        name: (torch.full_like(like, cast(float, x)), always) for name, x in numbers.items()
    }
    return {**metrics, "skip_streak": (streak, always)}


def _next_learner(
    learner: PpoState,
    state: UpdateState,
    critic: ScaledCritic,
    observation: TensorDict,
    *,
    applied: Tensor,
) -> PpoState:
    """State after a round.  applied bool []: without an applied step only counts and observations
    change.
    """
    old = learner.params
    optimiser = learner.optimiser
    before = get_leaves(get_branch(old, "net"))
    new = {name: torch.where(applied, leaf, before[name]) for name, leaf in state.net.items()}
    net, m, v = (
        TensorDict(tree, batch_size=[], device=learner.device) for tree in (new, state.m, state.v)
    )
    offset = torch.where(applied, critic.offset, get_leaf(old, "value_offset"))
    return replace(
        learner,
        params=replace(old, net=net, observation=observation, value_offset=offset),
        optimiser=replace(optimiser, m=m, v=v, step=state.step),
        return_scale=select(applied, critic.scale, learner.return_scale),
        rounds=learner.rounds + 1,
        skip_streak=choose(applied, 0, learner.skip_streak + 1),
    )


def epochs_done(values: Tensor, epochs: int) -> tuple[Tensor, Tensor]:
    """PPO epochs with an applied step, as a metric.  values [K n, M] in the order of
    `STEP_NAMES`.
    """
    applied = torch.unflatten(values[:, STEP_NAMES.index("steps_done")], 0, (epochs, -1)) > 0
    count = applied.any(-1).sum()
    return count, torch.ones_like(count, dtype=torch.bool)
