"""PPO: the learner, and one update of the policy from one rollout.

An update scales the rewards, estimates advantages, takes K x n minibatch steps and measures itself.
`update_ppo` is pure: it never reads a value on the host and draws nothing.
"""

from functools import partial
from typing import Any, cast

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.spec import RunSpec
from morphogen.policy.policy import NetworkPolicy, get_branch
from morphogen.ppo.coefficients import Coefficients, coefficients_at
from morphogen.ppo.learner import Learner, Round
from morphogen.ppo.metrics import (
    STEP_NAMES,
    Metrics,
    always_valid,
    merge_extremes,
    reduce_metrics,
)
from morphogen.ppo.minibatch import UpdateState, minibatch_step, run_minibatches, start_state
from morphogen.ppo.moments import update_observation_stats
from morphogen.ppo.ppo_state import PpoState, init_ppo
from morphogen.ppo.prepare import ScaledCritic, prepare_rows
from morphogen.state import rng
from morphogen.state.decision import Observation
from morphogen.state.tree_ops import choose, get_leaf, get_leaves, replace, select
from morphogen.vocab.purpose import Purpose

IMITATION_PASSES = 3  # passes over a round of demonstrations, per pass over another one


class PpoLearner(Learner[PpoState]):
    """Proximal policy optimisation on complete episodes (`ppo.update`), under the settings `ppo.*`.

    Source: Schulman et al., Proximal Policy Optimization Algorithms, 2017.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0, ppo={"epochs": 1, "minibatches": 1})
        >>> learner, policy = mg.PpoLearner(), mg.NetworkPolicy(mg.LstmNetwork(hidden=8))
        >>> state, rollout = (
        ...     learner.init(policy, env.keys[0], spec=env.spec),
        ...     mg.Rollout(1, envs=2, slots=2),
        ... )
        >>> carry, epoch = mg.run_epoch(env, policy, state.params, mg.first_carry(env, policy))
        >>> rollout.write(0, epoch)
        >>> after, metrics = learner.update(
        ...     state, rollout.rows, policy=policy, round=mg.Round(env.spec, number=0)
        ... )
        >>> float(metrics["steps_done"]), int(after.rounds)
        (1.0, 1)
    """

    name = "ppo"
    reduces = True

    def init(self, policy: NetworkPolicy, key: Tensor, *, spec: RunSpec) -> PpoState:
        """Return policy, optimiser and scales.  key int64 [3]."""
        del spec
        return init_ppo(policy, key)

    def demonstrations(self, spec: RunSpec) -> int:
        """Rounds of imitation, `ppo.imitation_rounds`."""
        return spec.ppo.imitation_rounds

    def update(
        self, state: PpoState, rollout: TensorDict, *, policy: NetworkPolicy, round: Round
    ) -> tuple[PpoState, TensorDict]:
        """Run the minibatch steps of a round; of a demonstration, more of them.  rollout [T, E]."""
        weights = coefficients_at(round.spec.ppo, round.number)
        device = get_leaf(rollout, "action").device
        passes = round.spec.ppo.epochs
        if weights.imitation:
            rollout = score_demonstration(policy, state.params, rollout)
            passes *= IMITATION_PASSES
        envs = draw_minibatches(round, device, passes=passes)
        return update_ppo(state, rollout, envs, weights, policy=policy, round=round)


PPO = PpoLearner()


def score_demonstration(
    policy: NetworkPolicy, params: TensorDict, rollout: TensorDict
) -> TensorDict:
    """Return rows of another policy with the log-probabilities and the values that this one gives
    them.  [T, E].
    """
    with torch.no_grad():
        scores = policy.evaluate(params, rollout)
    rows: Any = rollout.copy()
    return rows.update({"log_prob": scores.log_prob, "value": scores.value})


def draw_minibatches(round: Round, device: torch.device, *, passes: int) -> Tensor:
    """Draw the envs of each minibatch of each pass, K = `passes`: int64 [K, n, E / n].

    With an exchange between W processes the same envs are drawn for any W; each gets its part of
    each minibatch, [K, n, E / (n W)], counted from its first env.  E / W has to be a multiple of n.
    """
    spec = round.spec
    n = spec.ppo.minibatches or 1
    own = round.exchange.own(spec.envs // n)
    blocks = rng.env_keys(spec.seed, own.start, len(own), device)
    epoch = torch.arange(passes, device=device).unsqueeze(-1)
    stream = rng.stream(blocks, Purpose.PPO_MINIBATCH, round=round.number, epoch=epoch)
    return minibatch_indices(rng.uniform(stream, n))


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
    round: Round,
) -> tuple[PpoState, TensorDict]:
    """Run one PPO update.

    Shapes: rollout [T, E], assignment int64 [K, n, E / n] -> (state, metrics).  With an exchange,
    rollout and assignment hold the envs of this process; state and metrics are common, equal to the
    results of one process up to rounding.  Metrics are 0-d float64, each with a flag
    `<name>_valid`.
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
        ...     state, rollout.rows, envs, weights, policy=policy, round=mg.Round(env.spec, 0)
        ... )
        >>> int(after.rounds), float(metrics["steps_done"])
        (1, 1.0)
    """
    device = assignment.device
    exchange = round.exchange
    critic, rows, of_round = prepare_rows(learner, rollout, policy=policy, round=round)
    dtype = get_leaf(rollout, "value").dtype
    initial = policy.initial_hidden(rollout.shape[1], device=device)
    memory = {name: leaf.to(dtype) for name, leaf in get_leaves(initial).items()}
    hidden = TensorDict(memory, batch_size=initial.batch_size, device=device)
    step = partial(
        minibatch_step,
        weights=weights.to_device(device),
        policy=policy,
        spec=round.spec.ppo,
        exchange=exchange,
    )
    start = start_state(critic.net, learner.optimiser)
    end = run_minibatches(start, rows, hidden, assignment, step=step, repeat=round.repeat)
    of_steps = reduce_metrics(merge_extremes(end.values, exchange), end.valid, end.counted)
    observation = update_observation_stats(
        get_branch(learner.params, "observation"),
        cast(Observation, rollout["observation"]),
        exchange,
    )
    applied = of_steps["steps_done"][0] > 0
    after = _next_learner(learner, end.state, critic, observation, applied=applied)
    coefficients = zip(("learning_rate", "entropy_coef", "value_coef"), weights[:3], strict=True)
    metrics: Metrics = {
        **of_steps,
        **of_round,
        **{
            name: always_valid(torch.full((), cast(float, x), dtype=torch.float64, device=device))
            for name, x in coefficients
        },
        "skip_streak": always_valid(after.skip_streak),
        "epochs_done": always_valid(epochs_done(end.values, len(assignment))),
    }
    values = {name: value.double() for name, (value, _) in metrics.items()}
    flags = {f"{name}_valid": valid for name, (_, valid) in metrics.items()}
    return after, TensorDict({**values, **flags}, batch_size=[])


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
    net, m, v = (
        TensorDict(tree, batch_size=[], device=learner.device)
        for tree in (state.net, state.m, state.v)
    )
    net = select(applied, net, get_branch(old, "net"))
    offset = torch.where(applied, critic.offset, get_leaf(old, "value_offset"))
    return replace(
        learner,
        params=replace(old, net=net, observation=observation, value_offset=offset),
        optimiser=replace(optimiser, m=m, v=v, step=state.step),
        return_scale=select(applied, critic.scale, learner.return_scale),
        rounds=learner.rounds + 1,
        skip_streak=choose(applied, 0, learner.skip_streak + 1),
    )


def epochs_done(values: Tensor, epochs: int) -> Tensor:
    """Count the PPO epochs with an applied step.  values [K n, M] in the order of `STEP_NAMES`."""
    applied = torch.unflatten(values[:, STEP_NAMES.index("steps_done")], 0, (epochs, -1)) > 0
    return applied.any(-1).sum()
