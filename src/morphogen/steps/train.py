"""train: one epoch of all hosts and seeds, one minibatch at a time.

`start_epoch` gathers what runs, `train_minibatch` touches only that, `finish_epoch` puts it back
into the state. Losses of different envs are independent, so one backward pass of their sum gives
each env its own gradient; everything after it is masked arithmetic per env (host) or per env and
slot (seed with its gate).
"""

import math
from functools import partial
from typing import Any, NamedTuple

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.groups import HostSpec, LifecycleSpec
from morphogen.hosts import blocks, sites
from morphogen.hosts.forward_pass import SlotSeeds, forward, used_classes
from morphogen.hosts.host_networks import HostRows
from morphogen.hosts.net import Net
from morphogen.hosts.optim import (
    Buffers,
    Live,
    Rates,
    clip_by_norm,
    clip_factor,
    grad_and_value,
)
from morphogen.hosts.plan import Plan
from morphogen.hosts.schedule import RateSchedule
from morphogen.hosts.sites import SlotIndex
from morphogen.rules import loss_scale
from morphogen.rules.counts import seed_params
from morphogen.rules.health import gradient_ratio, moving_average
from morphogen.rules.stages import active, blended
from morphogen.state import rng
from morphogen.state.env import EnvState, Slots
from morphogen.state.measure import InputBatch, TrainMetrics
from morphogen.state.tree_ops import (
    choose,
    get_leaf,
    get_leaves,
    l2_norm,
    refuse_transforms,
    replace,
    unsafe_new,
    unsafe_tensordict,
)
from morphogen.steps import minibatch_tally
from morphogen.steps.minibatch_tally import EnvTally, MinibatchStats, SeedTally
from morphogen.vocab.purpose import Purpose
from morphogen.vocab.stage import AlphaMode, Stage

# parts of the state that an epoch of training replaces
TRAINED = ("host", "seeds", "slots", "signals", "scaling")


class TrainedParams(NamedTuple):
    """Trained parameters."""

    host: Tensor  # [E, P]
    seeds: Tensor  # [N], everything that runs alongside the hosts (`hosts.blocks`)


class OptimizerState(NamedTuple):
    """State of the optimiser: its moments, like the parameters, and then its counts."""

    host: Buffers  # counts [E, 1]
    seeds: Buffers  # counts [E, S]


class ActiveSeeds(NamedTuple):
    """Seeds that run in this epoch."""

    params: blocks.ParamIndex
    blended: Tensor  # bool [E, S]
    training: Tensor  # bool [E, S]
    measured: Tensor  # bool [E, S], runs and is not frozen
    finite: Tensor  # bool [E, S], parameters of the seed


class EpochContext(NamedTuple):
    """Constants of an epoch."""

    masks: Any  # of the hosts, by their instances
    used: Tensor  # bool [E, classes], class in use
    indices: tuple[SlotIndex | None, ...]
    active: ActiveSeeds | None
    epoch: Tensor  # int64 [E], epochs completed
    trains: Tensor | None  # bool [P], parameters of hosts that train; None: all
    # key [E, 3] and episode [E]; None: nothing is dropped
    dropout: tuple[Tensor, Tensor] | None


class LossScales(NamedTuple):
    """Loss scales within an epoch."""

    scale: Tensor  # float32 [E]
    good: Tensor  # int64 [E], minibatches since the last change of the scale
    overflowed: Tensor  # int64 [E], steps of this epoch that a lower scale may mend


class TrainState(NamedTuple):
    """State of training within an epoch; `start_epoch` builds it."""

    weights: TrainedParams
    optimizer: OptimizerState
    streak: Tensor
    """int64 [E, S]."""
    tally: EnvTally
    seed_tally: SeedTally
    context: EpochContext
    scaling: LossScales


def start_epoch(state: EnvState, plan: Plan, *, net: Net) -> TrainState:
    """Gather everything that trains in this epoch.

    Shapes: state [E], after `tick` and `init_seeds` -> TrainState, hosts float32 [E, P].

    Example:
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0)
        >>> state, plan = env.reset()[0], mg.hosts.empty_plan(2, env.net)  # no seed trains
        >>> train_state = mg.steps.start_epoch(state, plan, net=env.net)
        >>> train_state.weights.host.shape, train_state.weights.seeds.shape
        (torch.Size([2, 150]), torch.Size([0]))
    """
    slots = state.slots
    host = state.host
    where = sites.training_indices(slots, plan)
    weights, *moments = (
        blocks.flatten_params(
            sites.gather_params(state.seeds, leaf, plan.train, where, net=net), host.params
        )
        for leaf in ("params", *net.optimizer.moments)
    )
    counts = [
        torch.cat([get_leaf(state.seeds, (name, leaf)) for name in net.names], dim=-1)
        for leaf in net.optimizer.counts
    ]
    optimizer = OptimizerState(
        (host.momentum, *get_leaves(host.adaptive).values()), (*moments, *counts)
    )
    index = blocks.build_param_index(plan.train, where, envs=host.params.shape[0], net=net)
    running = None if index is None else _active_seeds(state, index, net=net)
    masks = net.networks.masks(state.instance, net.precision.cast(host.params))
    noise = (state.key, state.clock.episode) if net.host.dropout else None
    context = EpochContext(
        masks,
        used_classes(state.instance, net),
        where,
        running,
        state.clock.epoch,
        _trained_params(net, host.params) if net.frozen else None,
        noise,
    )
    seeds = minibatch_tally.empty_seed_tally(host.params, slots.stage)
    good = state.scaling.good_minibatches
    scaling = LossScales(state.scaling.loss_scale, good, torch.zeros_like(good))
    tally = minibatch_tally.empty_tally(host.params)
    trained = TrainedParams(host.params, weights)
    return TrainState(trained, optimizer, slots.skip_streak, tally, seeds, context, scaling)


def _trained_params(net: Net, like: Tensor) -> Tensor:
    """Mask of the parameters of hosts that train.  -> bool [P]."""
    return torch.cat(
        [
            torch.full((leaf.size,), leaf.name not in net.frozen, device=like.device)
            for leaf in net.host_layout.leaves
        ]
    )


def _active_seeds(state: EnvState, index: blocks.ParamIndex, *, net: Net) -> ActiveSeeds:
    slots = state.slots
    sums = [get_leaf(state.seeds, (name, "params")).sum(-1) for name in net.names]
    return ActiveSeeds(
        params=index,
        blended=blended(slots.stage),
        training=slots.stage == int(Stage.TRAINING),
        measured=active(slots.stage) & (slots.alpha_mode != int(AlphaMode.DOWN)),
        finite=torch.isfinite(torch.stack(sums, dim=-1)),
    )


def train_minibatch(
    train_state: TrainState,
    batch: InputBatch,
    plan: Plan,
    *,
    net: Net,
    spec: HostSpec,
    lifecycle: LifecycleSpec,
) -> tuple[TrainState, MinibatchStats]:
    """Take one optimiser step of every host and seed.

    Shapes: batch [E], images [E, B, C, H, W] -> TrainState, MinibatchStats with leaves [E].
    Promise: envs are independent; a step that is not finite is not taken, and counted.
    Raises: RuntimeError for a derivative with respect to parameters, and for `vmap`.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0)
        >>> state, plan = env.reset()[0], mg.hosts.empty_plan(2, env.net)  # no seed trains
        >>> noise = mg.rng.uniform(mg.rng.stream(env.keys, mg.rng.Purpose.DATA), 8 * 64).view(
        ...     2, 8, 1, 8, 8
        ... )
        >>> labels = torch.arange(8).expand(2, -1)
        >>> batch = mg.state.measure.InputBatch(inputs=noise, labels=labels, batch_size=[2])
        >>> specs = {"net": env.net, "spec": env.spec.host, "lifecycle": env.spec.lifecycle}
        >>> train_state, losses = mg.steps.start_epoch(state, plan, net=env.net), []
        >>> for _ in range(3):
        ...     train_state, stats = mg.steps.train_minibatch(train_state, batch, plan, **specs)
        ...     losses.append(stats.loss)
        >>> (losses[2] < losses[0]).tolist(), stats.finite.tolist()
        ([True, True], [True, True])
    """
    weights = train_state.weights
    refuse_transforms("train_minibatch", *weights, *train_state.optimizer.host, batch.inputs)
    scaling = train_state.scaling
    streak = train_state.streak
    context = train_state.context
    (host_grad, *seed_grad), loss, correct = _gradients(train_state, batch, plan, net=net)
    if context.trains is not None:
        host_grad = choose(context.trains, host_grad, 0.0)
    norm = l2_norm(host_grad)
    finite = torch.maximum(loss, norm) < math.inf  # a loss is never -inf; a NaN is not less
    rate = 1.0 if net.schedule is None else _rate_factor(train_state, net.schedule)
    train_state, finite = _step_seeds(
        train_state, seed_grad, finite, rate, net=net, spec=spec, lifecycle=lifecycle
    )
    if net.precision.scaled:
        lower = loss_scale.needs_lower_scale(finite, streak, train_state.streak)
        after = loss_scale.next_loss_scale(scaling.scale, scaling.good, lower)
        # a finite loss, but no step of the host, at a scale that can fall
        mendable = ~finite & torch.isfinite(loss) & (scaling.scale > loss_scale.SMALLEST)
        train_state = train_state._replace(
            scaling=LossScales(*after, scaling.overflowed + mendable)
        )
    measured = MinibatchStats(loss, correct, finite, norm)
    clipped = clip_by_norm(host_grad, norm, max_norm=spec.max_grad_norm)
    live = finite.unsqueeze(-1)
    moving = live if context.trains is None else live & context.trains
    host, state = net.optimizer.step(
        weights.host,
        clipped,
        train_state.optimizer.host,
        Live(live, moving, _as_it_is),
        Rates(spec.lr * rate, spec.momentum, spec.weight_decay),
    )
    return train_state._replace(
        weights=train_state.weights._replace(host=host),
        optimizer=train_state.optimizer._replace(host=state),
        tally=minibatch_tally.add_minibatch(train_state.tally, measured),
    ), measured


def _as_it_is(values: Tensor) -> Tensor:
    return values


def _rate_factor(train_state: TrainState, schedule: RateSchedule) -> Tensor:
    """Factor on all learning rates.  -> [E, 1]."""
    epoch = train_state.context.epoch
    factor = schedule.factor(epoch, train_state.tally.total, train_state.weights.host)
    return factor.unsqueeze(-1)


def _gradients(
    train_state: TrainState, batch: InputBatch, plan: Plan, *, net: Net
) -> tuple[list[Tensor], Tensor, Tensor]:
    """Gradients of hosts [E, P], and of seeds [N] if any runs; losses, scores [E].

    A loss is multiplied by the scale of its env, and its gradient is divided by it again.
    """
    context = train_state.context
    running = context.active
    scale = train_state.scaling.scale
    noise = None
    if context.dropout is not None:
        key, episode = context.dropout
        minibatch = train_state.tally.total
        noise = rng.stream(
            key, Purpose.DROPOUT, round=episode, epoch=context.epoch, minibatch=minibatch
        )

    def objective(leaves: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        host, *seeds = map(net.precision.cast, leaves)
        rows = HostRows(net.host_layout.split(host), context.masks, None, noise)
        grown = (
            blocks.split_params(seeds[0], plan.train, net=net)
            if seeds
            else (None,) * len(net.slots)
        )
        growth = SlotSeeds(plan.train, context.indices, grown)
        output = forward(net.precision.cast(batch.inputs), rows, context.used, growth, net=net)
        loss, score = net.criterion.average(output.to(leaves[0].dtype), batch.labels)
        scaled = loss * scale if net.precision.scaled else loss
        return scaled.sum(), (loss.detach(), score)

    weights = train_state.weights
    grads, (loss, score) = grad_and_value(objective, weights[:1] if running is None else weights)
    grads = list(grads)
    if net.precision.scaled:
        inverse = scale.reciprocal().unsqueeze(-1)  # exact: the scale is a power of two
        grads[0] = grads[0] * inverse
        if running is not None:
            per_seed = inverse.expand(running.training.shape)
            grads[1] = grads[1] * blocks.expand_to_params(per_seed, running.params)
    return grads, loss, score


def _step_seeds(
    train_state: TrainState,
    grad: list[Tensor],
    finite: Tensor,
    rate: Tensor | float,
    *,
    net: Net,
    spec: HostSpec,
    lifecycle: LifecycleSpec,
) -> tuple[TrainState, Tensor]:
    """Take the step of all seeds, if any runs.

    Shapes: grad: [N] if a seed runs; finite bool [E], of the hosts; rate [E, 1], or 1 -> (state,
    bool [E], the env takes its step).
    """
    running = train_state.context.active
    seeds = train_state.seed_tally
    if running is None:
        return train_state, finite
    stats = blocks.grad_stats(
        grad[0],
        running.params,
        seeds.square,
        vanishing=lifecycle.vanishing,
        exploding=lifecycle.exploding,
    )
    seed_finite = (stats.norm < math.inf) & running.finite  # gradient and parameters of the seed
    finite = finite & (seed_finite | ~running.blended).all(-1)
    live = finite.unsqueeze(-1) & seed_finite & running.measured
    broken = finite.unsqueeze(-1) & ~seed_finite & running.training
    factor = clip_factor(stats.norm, max_norm=spec.max_grad_norm).masked_fill(~live, -1.0)
    spread = partial(blocks.expand_to_params, index=running.params)
    factor = spread(factor)
    grown, state = net.optimizer.step(
        train_state.weights.seeds,
        grad[0] * factor,
        train_state.optimizer.seeds,
        Live(live, factor >= 0, spread),
        Rates(spec.seed_lr * rate, spec.momentum),
    )
    after = train_state._replace(
        weights=train_state.weights._replace(seeds=grown),
        optimizer=train_state.optimizer._replace(seeds=state),
        streak=(train_state.streak + broken).masked_fill(live, 0),
        seed_tally=minibatch_tally.add_seed_stats(seeds, stats, seed_finite, broken),
    )
    return after, finite


def finish_epoch(
    state: EnvState, train_state: TrainState, plan: Plan, *, net: Net
) -> tuple[EnvState, TrainMetrics]:
    """Put trained parameters back into the state, with the statistics of the epoch.

    Shapes: state [E], from `start_epoch` -> EnvState [E], TrainMetrics [E].

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0)
        >>> state, plan = env.reset()[0], mg.hosts.empty_plan(2, env.net)  # no seed trains
        >>> noise = mg.rng.uniform(mg.rng.stream(env.keys, mg.rng.Purpose.DATA), 8 * 64).view(
        ...     2, 8, 1, 8, 8
        ... )
        >>> labels = torch.arange(8).expand(2, -1)
        >>> batch = mg.state.measure.InputBatch(inputs=noise, labels=labels, batch_size=[2])
        >>> specs = {"net": env.net, "spec": env.spec.host, "lifecycle": env.spec.lifecycle}
        >>> train_state = mg.steps.start_epoch(state, plan, net=env.net)
        >>> train_state, stats = mg.steps.train_minibatch(train_state, batch, plan, **specs)
        >>> after, metrics = mg.steps.finish_epoch(state, train_state, plan, net=env.net)
        >>> (
        ...     metrics.loss.equal(stats.loss),
        ...     after.host.params.equal(train_state.weights.host),
        ...     metrics.skipped.tolist(),
        ... )
        (True, True, [0, 0])
    """
    loss, accuracy, norm = minibatch_tally.env_averages(train_state.tally)
    valid = train_state.tally.finite > 0
    scaling = train_state.scaling
    metrics = unsafe_new(
        TrainMetrics,
        state,
        loss=loss,
        accuracy=accuracy,
        valid=valid,
        skipped=train_state.tally.total - train_state.tally.finite,
        overflowed=scaling.overflowed,
        host_gradient_norm=norm,
        seed_skipped=train_state.seed_tally.skipped.any(-1),
    )
    momentum, *adaptive = train_state.optimizer.host
    names = get_leaves(state.host.adaptive)
    after = replace(
        state,
        host=replace(
            state.host,
            params=train_state.weights.host,
            momentum=momentum,
            adaptive=unsafe_tensordict(state, dict(zip(names, adaptive, strict=True))),
        ),
        seeds=_write_back(state, train_state, plan, net=net),
        slots=_gradient_signals(state, train_state, norm, net=net),
        signals=replace(state.signals, train_loss=loss, train_acc=accuracy, train_measured=valid),
        scaling=replace(state.scaling, loss_scale=scaling.scale, good_minibatches=scaling.good),
    )
    return after, metrics


def _write_back(state: EnvState, train_state: TrainState, plan: Plan, *, net: Net) -> TensorDict:
    """Scatter the parameters of active seeds back into the storage, with their optimiser."""
    if train_state.context.active is None:
        return state.seeds
    optimizer = net.optimizer
    buffers = (train_state.weights.seeds, *train_state.optimizer.seeds)
    split = 1 + len(optimizer.moments)
    parts = {
        leaf: blocks.split_params(buffer, plan.train, net=net)
        for leaf, buffer in zip(("params", *optimizer.moments), buffers[:split], strict=True)
    }
    counts = dict(zip(optimizer.counts, buffers[split:], strict=True))
    seeds: dict[str, TensorDict] = {}
    for s, (name, index) in enumerate(zip(net.names, train_state.context.indices, strict=True)):
        layouts = sites.slot_layouts(plan.train[s], s, net=net)
        leaves = {
            leaf: sites.scatter_params(get_leaf(state.seeds, (name, leaf)), part[s], index, layouts)
            for leaf, part in parts.items()
        }
        leaves |= {leaf: count[:, s : s + 1].clone() for leaf, count in counts.items()}
        seeds[name] = unsafe_tensordict(state, leaves)
    return unsafe_tensordict(state, seeds)


def _gradient_signals(
    state: EnvState, train_state: TrainState, host_norm: Tensor, *, net: Net
) -> Slots:
    """Update the gradient leaves of slots; invalid where a seed does not run or is frozen.
    host_norm [E].
    """
    slots = state.slots
    sums = train_state.seed_tally
    running = train_state.context.active
    norm, health, all_finite = minibatch_tally.seed_averages(sums, train_state.tally.total)
    valid = torch.zeros_like(sums.skipped) if running is None else running.measured
    sizes = seed_params(slots, net.counts, net.gate_counts)
    host = net.networks.params_in_use(state.instance).unsqueeze(-1)
    if net.frozen:
        host = host * net.trained_share
    now = gradient_ratio(norm, sizes, host_norm.unsqueeze(-1), host)
    if not net.trained_share:  # no gradient to compare with
        now = torch.ones_like(now)
    steady = valid & all_finite
    average = moving_average(slots.gradient_ratio, slots.gradient_ratio_valid, now)
    return replace(
        slots,
        gradient_norm=choose(valid, norm, 0.0),
        gradient_health=choose(valid, health, 0.0),
        vanishing=valid & sums.vanishing,
        exploding=valid & sums.exploding,
        gradient_valid=valid,
        gradient_ratio=choose(steady, average, 0.0),
        gradient_ratio_valid=steady,
        skip_streak=train_state.streak,
    )
