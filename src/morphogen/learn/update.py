"""One PPO update of the policy from one rollout: return units, advantages, K x n minibatch steps, metrics.  Pure.

The update never reads a value on the host and draws nothing: the caller draws the noise of `minibatch_indices`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from tensordict import TensorClass, TensorDict
from torch import Tensor

from morphogen.config.policy_spec import PpoSpec
from morphogen.learn.exchange import ALONE, Exchange
from morphogen.learn.gradient_stats import global_norm, gradient_layer_health, head_norms
from morphogen.learn.loss import Coefficients, RowCounts, count_rows, minibatch_objective, relevant_heads
from morphogen.learn.metrics import (
    EXTREMES,
    STEP_NAMES,
    Metrics,
    assemble_metrics,
    merge_extremes,
    pack_metrics,
    reduce_metrics,
)
from morphogen.learn.moments import sum_ranks
from morphogen.learn.prepare import ScaledCritic, ScaleState, init_scale, prepare_rows
from morphogen.learn.rollout_stats import update_observation_stats
from morphogen.nets.controller import ControllerParams
from morphogen.nets.distribution import build_lookups
from morphogen.nets.flat_params import copy_leaves, flatten_leaves, split_leaves
from morphogen.nets.optim import adamw
from morphogen.nets.policy import NetworkPolicy, get_branch
from morphogen.state.decision import Observation
from morphogen.state.loops import Repeat, repeat
from morphogen.state.tree_ops import TensorDictField, choose, constant_table, get_leaf, get_leaves, replace, select
from morphogen.vocab.field_docs import document_fields

BETAS, EPS = (0.9, 0.999), 1e-5
KL_STOP_FACTOR = 1.5  # times the target


@document_fields
class PpoState(TensorClass["frozen", "tensor_only"]):
    """Policy, optimiser and scales of PPO between updates.  batch_size []."""

    params: TensorDictField  # of the policy: net, observation, value_offset
    optimiser: TensorDictField  # m, v float32 like net; step int64 []
    return_scale: ScaleState
    rounds: Tensor  # int64 [], updates done
    skip_streak: Tensor  # int64 [], rounds in a row without an applied step


class UpdateState(NamedTuple):
    """State between minibatch steps."""

    net: ControllerParams
    m: ControllerParams
    v: ControllerParams
    step: Tensor  # int64 []
    stopped: Tensor  # bool []


MinibatchStep = Callable[..., tuple[UpdateState, Metrics]]  # `minibatch_step`, or a compiled form of it
Compile = Callable[[str, Callable[..., Any]], Callable[..., Any]]  # (name, function) -> compiled function


def run_eager(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function as it is: nothing is compiled."""
    del name
    return function


def init_ppo(policy: NetworkPolicy, key: Tensor) -> PpoState:
    """Initialise a policy, its optimiser and the scale of its returns.

    Shapes: key int64 [3], of the run -> state without batch size.

    Example:
        >>> import morphogen as mg
        >>> policy = mg.NetworkPolicy(mg.LstmNetwork(hidden=16))
        >>> state = mg.learn.init_ppo(policy, mg.rng.env_keys(0, 0, 1)[0])
        >>> sorted(state.params.keys()), sorted(state.optimiser.keys())
        (['net', 'observation', 'value_offset'], ['m', 'step', 'v'])
    """
    params = policy.init(key)
    zero = torch.zeros((), dtype=torch.int64, device=key.device)
    net = get_leaves(get_branch(params, "net"))
    moments = {
        moment: TensorDict({name: leaf.new_zeros(leaf.shape) for name, leaf in net.items()}, device=key.device)
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
    """Envs of the minibatches of K epochs: each holds one of every n neighbours, and each env is in one of them.

    Shapes: noise [K, E / n, n], uniform -> int64 [K, n, E / n].

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> noise = torch.tensor([[[0.1, 0.9], [0.8, 0.2]]])  # one epoch of 4 envs in 2 minibatches
        >>> mg.learn.minibatch_indices(noise).tolist()
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
    unit: Compile = run_eager,
    exchange: Exchange = ALONE,
    repeat: Repeat = repeat,
) -> tuple[PpoState, TensorDict]:
    """Run one PPO update; `unit` compiles the step of a minibatch, or its parts before and after an exchange.

    `repeat` runs the loop over the minibatches, such as from a graph.

    Shapes: rollout [T, E], assignment int64 [K, n, E / n], hidden [E] before row 0 (default 0) -> (state, metrics).
    With an `exchange` between W ranks, rollout, assignment and hidden are those of the E / W envs of this rank; state
    and metrics are those of all, equal to the results of one process up to rounding.
    Metrics are 0-d float64, each with a flag `<name>_valid`.
    Promise: a step changes nothing if its loss, gradient or result is not finite, if no row counts, or from the KL stop
    on; a round without an applied step leaves network, units and optimiser bit for bit; rows of an env outside
    `finite_envs` have no weight.
    Source: Schulman et al., Proximal Policy Optimization Algorithms, 2017, algorithm 1.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> env, policy = mg.make("whitebox", envs=2, seed=0), mg.NetworkPolicy(mg.LstmNetwork(hidden=8))
        >>> state, rollout = mg.learn.init_ppo(policy, env.keys[0]), mg.Rollout(1, envs=2, slots=2)
        >>> epoch = mg.run_epoch(env, *env.reset(), policy, params=state.params, hidden=policy.initial_hidden(2))
        >>> rollout.write(0, epoch, reset_before=torch.tensor([True, True]))
        >>> envs = mg.learn.minibatch_indices(torch.zeros(1, 2, 1))  # one PPO epoch of one minibatch
        >>> weights = mg.learn.coefficients_at(env.spec.ppo, 0)
        >>> after, metrics = mg.learn.update_ppo(state, rollout.rows, envs, weights, policy=policy, spec=env.spec.ppo)
        >>> int(after.rounds), float(metrics["steps_done"])
        (1, 1.0)
    """
    device = get_leaf(rollout, "action").device
    memory = policy.initial_hidden(rollout.shape[1], device=device) if hidden is None else hidden
    scale, params = learner.return_scale, learner.params
    units, rows, once = prepare_rows(
        params, scale, rollout, policy=policy, spec=spec, kind=return_scale, exchange=exchange
    )
    counts = count_minibatches(rows, assignment, policy=policy, exchange=exchange)
    carry = start_state(units.net, learner.optimiser)
    split = partial(minibatch_step, exchange=exchange, unit=unit)  # an exchange cannot be part of a graph
    step = unit("update", minibatch_step) if exchange.ranks == 1 else split
    move = partial(step, weights=weights.to_device(carry.step.device), policy=policy, spec=spec)
    carry, steps = run_minibatches(carry, rows, memory, assignment, counts, step=move, repeat=repeat)
    reduced = reduce_metrics(merge_extremes(steps[0], exchange), *steps[1:])
    seen = cast(Observation, rollout["observation"])
    moments = update_observation_stats(get_branch(params, "observation"), seen, exchange)
    after = _next_learner(learner, carry, units, moments, applied=reduced["steps_done"][0] > 0)
    streak, always = after.skip_streak, torch.ones_like(after.skip_streak, dtype=torch.bool)
    numbers = {"learning_rate": weights.lr, "entropy_coef": weights.entropy, "value_coef": weights.value}
    extra: Metrics = {
        name: (torch.full_like(streak, cast(float, x), dtype=torch.float64), always) for name, x in numbers.items()
    }
    extra |= {"skip_streak": (streak, always), "epochs_done": epochs_done(steps[0], assignment.shape[0])}
    return after, assemble_metrics({**reduced, **once, **extra})


def start_state(net: TensorDict, optimiser: TensorDict) -> UpdateState:
    """State before the first minibatch step."""
    step = get_leaf(optimiser, "step")
    m, v = (get_leaves(get_branch(optimiser, name)) for name in ("m", "v"))
    return UpdateState(get_leaves(net), m, v, step=step, stopped=torch.zeros_like(step, dtype=torch.bool))


def _next_learner(
    learner: PpoState, state: UpdateState, critic: ScaledCritic, observation: TensorDict, *, applied: Tensor
) -> PpoState:
    """State after a round.  applied bool []: without an applied step only counts and observations change."""
    old, optimiser = learner.params, learner.optimiser
    before = get_leaves(get_branch(old, "net"))
    new = {name: torch.where(applied, leaf, before[name]) for name, leaf in state.net.items()}
    net, m, v = (TensorDict(tree, batch_size=[], device=learner.device) for tree in (new, state.m, state.v))
    offset = torch.where(applied, critic.offset, get_leaf(old, "value_offset"))
    return replace(
        learner,
        params=replace(old, net=net, observation=observation, value_offset=offset),
        optimiser=replace(optimiser, m=m, v=v, step=state.step),
        return_scale=select(applied, critic.scale, learner.return_scale),
        rounds=learner.rounds + 1,
        skip_streak=choose(applied, 0, learner.skip_streak + 1),
    )


def count_minibatches(rows: TensorDict, assignment: Tensor, *, policy: NetworkPolicy, exchange: Exchange) -> RowCounts:
    """Count the rows of each minibatch on all ranks.  rows [T, E], assignment [K, n, E / n] -> [K n]."""
    lookups = build_lookups(policy.floor, assignment.device)
    envs = count_rows(cast(Any, rows), relevant_heads(cast(Any, rows), lookups))
    own = {name: count[assignment].sum(2).flatten(0, 1) for name, count in envs._asdict().items()}
    return RowCounts(**sum_ranks(exchange, own))


class UpdateProgress(NamedTuple):
    """State of an update between two minibatch steps."""

    state: UpdateState
    number: Tensor  # int64 [1], steps so far
    values: Tensor  # float64 [K n, M], metrics of the steps so far
    valid: Tensor  # bool [K n, M]
    counted: Tensor  # bool [K n]


def run_minibatches(
    state: UpdateState,
    rows: TensorDict,
    hidden: TensorDict,
    assignment: Tensor,
    counts: RowCounts,
    *,
    step: MinibatchStep,
    repeat: Repeat = repeat,
) -> tuple[UpdateState, tuple[Tensor, Tensor, Tensor]]:
    """Run all K x n minibatch steps -> state, (values [K n, M], valid [K n, M], counted bool [K n]).

    `step` takes state, rows, hidden and the counts of the minibatch.  Steps after the one that trips the KL stop are
    not counted.
    """
    envs, device = assignment.flatten(0, 1), assignment.device

    def next_step(progress: UpdateProgress) -> UpdateProgress:
        number, before = progress.number, progress.state.stopped
        index, *numbers = (x.index_select(0, number).squeeze(0) for x in (envs, *counts))
        take = partial(torch.index_select, dim=1, index=index)
        batch = cast(Any, rows).apply(take, batch_size=[rows.shape[0], index.shape[0]])
        after, measured = step(progress.state, batch, hidden[index], counts=RowCounts(*numbers))
        new = (*pack_metrics(measured), ~before)
        seen = (old.index_copy(0, number, x.unsqueeze(0)) for old, x in zip(progress[2:], new, strict=True))
        return UpdateProgress(after, number + 1, *seen)

    steps, width = len(envs), len(STEP_NAMES)
    values = torch.zeros(steps, width, dtype=torch.float64, device=device)
    flags = torch.zeros_like(values, dtype=torch.bool)
    start = UpdateProgress(state, torch.zeros(1, dtype=torch.int64, device=device), values, flags, flags[:, 0])
    end = repeat(next_step, start, steps)
    return end.state, end[2:]


def minibatch_step(
    state: UpdateState,
    rows: TensorDict,
    hidden: TensorDict,
    weights: Coefficients,
    *,
    policy: NetworkPolicy,
    spec: PpoSpec,
    counts: RowCounts | None = None,
    exchange: Exchange = ALONE,
    unit: Compile = run_eager,
) -> tuple[UpdateState, Metrics]:
    """Take one step of Adam on one minibatch.

    Args:
        state: parameters, moments, number of steps, and the flag of the KL stop.
        rows: [T, B], some envs of the rows of `prepare.prepare_rows`.
        hidden: [B], memory of the policy before row 0.
        weights: coefficients of the round.
        policy, spec: network with its floors; settings `ppo.*`.
        counts: 0-d and [8], rows of the minibatch on all ranks; default: these rows.
        exchange: sums gradients and losses over the ranks that hold the other envs of the minibatch.
        unit: compiles what comes before the exchange, and what comes after it.

    Returns: the state after the step, and metrics: pairs (value, valid) by name.
    Promise: a step that is not finite, or that follows the KL stop, changes nothing.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> policy, spec = mg.NetworkPolicy(mg.LstmNetwork(hidden=8)), mg.PpoSpec()
        >>> start, rollout = mg.learn.init_ppo(policy, mg.rng.env_keys(0, 0, 1)[0]), mg.Rollout(2, envs=2, slots=2)
        >>> scale, net = start.return_scale, start.params["net"]
        >>> _, rows, _ = mg.learn.prepare.prepare_rows(
        ...     start.params, scale, rollout.rows, policy=policy, spec=spec, kind="fixed"
        ... )
        >>> rows["advantage"][0, 0] = torch.nan
        >>> state = mg.learn.update.start_state(net, start.optimiser)
        >>> weights, memory = mg.learn.coefficients_at(spec, 0), policy.initial_hidden(2)
        >>> after, metrics = mg.learn.minibatch_step(state, rows, memory, weights, policy=policy, spec=spec)
        >>> int(after.step), float(metrics["steps_skipped"][0])  # the loss is not finite
        (0, 1.0)
    """
    grads, measured = unit("gradient", minibatch_gradient)(
        state.net, rows, hidden, weights, policy=policy, spec=spec, counts=counts
    )
    names = [name for name in measured if name not in EXTREMES]
    total = exchange.sum([*grads.values(), *(measured[name][0] for name in names)])
    grads = dict(zip(grads, total, strict=False))
    sums = dict(zip(names, total[len(grads) :], strict=True))
    measured = {name: (sums.get(name, value), valid) for name, (value, valid) in measured.items()}
    return unit("step", apply_gradient)(state, grads, measured, weights, policy=policy, spec=spec)


def minibatch_gradient(
    net: ControllerParams,
    rows: TensorDict,
    hidden: TensorDict,
    weights: Coefficients,
    *,
    policy: NetworkPolicy,
    spec: PpoSpec,
    counts: RowCounts | None,
) -> tuple[ControllerParams, Metrics]:
    """Gradient of the objective of one minibatch, and its loss and metrics, pairs by name.  Arguments: as above."""
    scores = get_leaf(rows, "log_prob")
    lookups = build_lookups(policy.floor, scores.device)
    factors = constant_table(spec.entropy_coef_head, scores.dtype, scores.device)
    fixed = {"policy": policy, "spec": spec, "weights": weights, "lookups": lookups, "factors": factors}
    loss_of = partial(minibatch_objective, rows=rows, hidden=hidden, counts=counts, **fixed)
    grads, (loss, measured) = torch.func.grad_and_value(loss_of, has_aux=True)(net)
    return grads, {**measured, "loss": (loss, measured["value_loss"][1])}


def apply_gradient(
    state: UpdateState,
    grads: ControllerParams,
    measured: Metrics,
    weights: Coefficients,
    *,
    policy: NetworkPolicy,
    spec: PpoSpec,
) -> tuple[UpdateState, Metrics]:
    """Take one step of Adam; return the metrics of `STEP_REDUCTIONS`.  `measured`: of `minibatch_gradient`."""
    measured = dict(measured)
    loss, some_known = measured.pop("loss")
    (spread, _), (reach, _) = measured.pop("diversity_head"), measured.pop("reach_head")
    entropy = choose(reach > 0, spread / choose(reach > 0, reach, 1.0), 0.0)
    norm = global_norm(list(grads.values()))
    new = _adam_step(state, grads, norm, lr=weights.lr, spec=spec, decayed=policy.network.decayed)
    reached = global_norm([*new.net.values(), *new.v.values()])  # parameters and second moments after the step
    checks = {"loss": loss, "gradient": norm, "step": reached}
    ok = torch.stack([*checks.values()]).isfinite().all() & some_known
    limit = spec.target_kl
    stopped = state.stopped if limit is None else state.stopped | (measured["kl"][0] > KL_STOP_FACTOR * limit)
    after = _where_applied(ok & ~stopped, new, state)._replace(stopped=stopped)
    norms, has_heads = head_norms(grads)
    parts = {"gradient_norm_head": (norms, has_heads & ok), "layer_health": gradient_layer_health(grads)}
    own = {**_step_metrics(checks, ok, stopped, spec), **parts, "entropy_head": (entropy, reach > 0)}
    return after, {**measured, **own}


def epochs_done(values: Tensor, epochs: int) -> tuple[Tensor, Tensor]:
    """PPO epochs with an applied step, as a metric.  values [K n, M] in the order of `STEP_NAMES`."""
    applied = torch.unflatten(values[:, STEP_NAMES.index("steps_done")], 0, (epochs, -1)) > 0
    count = applied.any(-1).sum()
    return count, torch.ones_like(count, dtype=torch.bool)


def _adam_step(
    state: UpdateState,
    grads: ControllerParams,
    norm: Tensor,
    *,
    lr: float | Tensor,
    spec: PpoSpec,
    decayed: tuple[str, ...],
) -> UpdateState:
    """Clip gradients to the global norm limit, non-finite elements as 0; take a step of AdamW."""
    limit = spec.max_grad_norm
    factor = torch.ones_like(norm) if limit is None else (limit / (norm + 1e-6)).clamp(max=1.0)
    factor = choose(norm.isfinite(), factor, 0.0)
    flat = flatten_leaves(grads)
    grads = split_leaves(choose(flat.isfinite(), flat, 0.0) * factor, grads)
    decay = {name: spec.weight_decay if name in decayed else 0.0 for name in grads}
    step = state.step + 1
    net, m, v = adamw(state.net, grads, state.m, state.v, step, lr=lr, betas=BETAS, eps=EPS, weight_decay=decay)
    return state._replace(net=net, m=m, v=v, step=step)


def _where_applied(applied: Tensor, new: UpdateState, old: UpdateState) -> UpdateState:
    """Select the new leaves if applied, else the old ones bit for bit.  applied bool []."""
    pairs = ((new.m, old.m), (new.v, old.v))
    m, v = (copy_leaves(torch.where(applied, flatten_leaves(a), flatten_leaves(b)), b) for a, b in pairs)
    net = {name: torch.where(applied, leaf, old.net[name]) for name, leaf in new.net.items()}  # keeps their strides
    return old._replace(net=net, m=m, v=v, step=torch.where(applied, new.step, old.step))


def _step_metrics(checks: dict[str, Tensor], ok: Tensor, stopped: Tensor, spec: PpoSpec) -> Metrics:
    """Metrics of one step.  `checks`: numbers [] that must be finite for the step to be applied."""
    always, norm = torch.ones_like(ok), checks["gradient"]
    clipped = torch.zeros_like(ok) if spec.max_grad_norm is None else norm > spec.max_grad_norm
    flags = {
        "steps_done": ok & ~stopped,
        "steps_skipped": ~ok,
        "stopped_by_kl": stopped,
        **{f"nonfinite.{name}": ~value.isfinite() for name, value in checks.items()},
    }
    counted: Metrics = {name: (flag.float(), always) for name, flag in flags.items()}
    return {**counted, "gradient_norm": (norm, ok), "clipped_share": (clipped.float(), ok)}
