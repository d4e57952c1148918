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
    always_valid,
    assemble_metrics,
    merge_extremes,
    reduce_metrics,
)
from morphogen.ppo.minibatch import UpdateState, minibatch_step, run_minibatches, start_state
from morphogen.ppo.ppo_state import PpoState
from morphogen.ppo.prepare import ScaledCritic, prepare_rows
from morphogen.ppo.rollout_stats import update_observation_stats
from morphogen.state.decision import Observation
from morphogen.state.loops import Repeat, repeat
from morphogen.state.tree_ops import choose, get_leaf, get_leaves, replace, select


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
    siblings: int = 1,
    exchange: Exchange = ALONE,
    repeat: Repeat = repeat,
) -> tuple[PpoState, TensorDict]:
    """Run one PPO update.

    `repeat` loops over minibatches; `siblings` consecutive envs play the same world.
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
    device = assignment.device
    if hidden is None:
        hidden = policy.initial_hidden(rollout.shape[1], device=device)
    critic, rows, of_round = prepare_rows(
        learner,
        rollout,
        policy=policy,
        spec=spec,
        kind=return_scale,
        siblings=siblings,
        exchange=exchange,
    )
    step = partial(
        minibatch_step,
        weights=weights.to_device(device),
        policy=policy,
        spec=spec,
        exchange=exchange,
    )
    start = start_state(critic.net, learner.optimiser)
    end = run_minibatches(start, rows, hidden, assignment, step=step, repeat=repeat)
    of_steps = reduce_metrics(merge_extremes(end.values, exchange), end.valid, end.counted)
    observation = update_observation_stats(
        get_branch(learner.params, "observation"),
        cast(Observation, rollout["observation"]),
        exchange,
    )
    applied = of_steps["steps_done"][0] > 0
    after = _next_learner(learner, end.state, critic, observation, applied=applied)
    coefficients = {
        "learning_rate": weights.lr,
        "entropy_coef": weights.entropy,
        "value_coef": weights.value,
    }
    of_round |= {
        name: always_valid(torch.full((), cast(float, x), dtype=torch.float64, device=device))
        for name, x in coefficients.items()
    }
    return after, assemble_metrics(
        {
            **of_steps,
            **of_round,
            "skip_streak": always_valid(after.skip_streak),
            "epochs_done": epochs_done(end.values, len(assignment)),
        }
    )


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
    return always_valid(applied.any(-1).sum())
