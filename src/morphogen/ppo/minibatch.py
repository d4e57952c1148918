"""Steps of a PPO update: gradient of a minibatch, clipping, Adam, and the loop over all
minibatches.  Pure.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.policy_spec import PpoSpec
from morphogen.hosts.flat_params import flatten_leaves, split_leaves
from morphogen.hosts.optim import Buffers, adamw, clip_factor, grad_and_value
from morphogen.policy.controller import ControllerParams
from morphogen.policy.policy import NetworkPolicy, get_branch
from morphogen.ppo.coefficients import Coefficients
from morphogen.ppo.exchange import ALONE, Exchange
from morphogen.ppo.gradient_stats import global_norm, gradient_layer_health, head_norms
from morphogen.ppo.metrics import EXTREMES, STEP_NAMES, Metrics, pack_metrics
from morphogen.ppo.minibatch_loss import minibatch_objective
from morphogen.state.loops import Repeat, repeat
from morphogen.state.tree_ops import choose, get_leaf, get_leaves

EPS = 1e-5
KL_STOP_FACTOR = 1.5  # times the target


class UpdateState(NamedTuple):
    """State between minibatch steps."""

    net: ControllerParams
    m: ControllerParams
    v: ControllerParams
    step: Tensor  # int64 []
    stopped: Tensor  # bool []


LossAndMetrics = tuple[Tensor, Metrics]  # not built in a graph: Dynamo cannot


def start_state(net: TensorDict, optimiser: TensorDict) -> UpdateState:
    """State before the first minibatch step."""
    step = get_leaf(optimiser, "step")
    m, v = (get_leaves(get_branch(optimiser, name)) for name in ("m", "v"))
    return UpdateState(
        get_leaves(net), m, v, step=step, stopped=torch.zeros_like(step, dtype=torch.bool)
    )


class UpdateProgress(NamedTuple):
    """State of an update between two minibatch steps, and the metrics of all steps so far."""

    state: UpdateState
    number: Tensor  # int64 [1], steps so far
    values: Tensor  # float64 [K n, M], metrics of the steps so far
    valid: Tensor  # bool [K n, M]
    counted: Tensor  # bool [K n], False after the step that trips the KL stop


def run_minibatches(
    state: UpdateState,
    rows: TensorDict,
    hidden: TensorDict,
    assignment: Tensor,
    *,
    step: Callable[..., tuple[UpdateState, Metrics]],
    repeat: Repeat = repeat,
) -> UpdateProgress:
    """Run all K x n minibatch steps.  step: takes state, rows and hidden of the minibatch."""
    envs = assignment.flatten(0, 1)
    device = assignment.device

    def next_step(progress: UpdateProgress) -> UpdateProgress:
        number = progress.number
        before = progress.state.stopped
        index = envs.index_select(0, number).squeeze(0)
        take = partial(torch.index_select, dim=1, index=index)
        batch = cast(Any, rows).apply(take, batch_size=[rows.shape[0], index.shape[0]])
        after, measured = step(progress.state, batch, hidden[index])
        new = (*pack_metrics(measured), ~before)
        columns = (
            column.index_copy(0, number, x.unsqueeze(0))
            for column, x in zip(progress[2:], new, strict=True)
        )
        return UpdateProgress(after, number + 1, *columns)

    values = torch.zeros(len(envs), len(STEP_NAMES), dtype=torch.float64, device=device)
    flags = torch.zeros_like(values, dtype=torch.bool)
    first = torch.zeros(1, dtype=torch.int64, device=device)
    start = UpdateProgress(state, first, values, flags, flags[:, 0])
    return repeat(next_step, start, len(envs))


def minibatch_step(
    state: UpdateState,
    rows: TensorDict,
    hidden: TensorDict,
    weights: Coefficients,
    *,
    policy: NetworkPolicy,
    spec: PpoSpec,
    exchange: Exchange = ALONE,
) -> tuple[UpdateState, Metrics]:
    """Take one step of Adam on one minibatch.

    Args:
        state: parameters, moments, number of steps, and the flag of the KL stop.
        rows: [T, B], some envs of the rows of `prepare.prepare_rows`.
        hidden: [B], memory of the policy before row 0.
        weights: coefficients of the round.
        policy, spec: network with its floors; settings `ppo.*`.
        exchange: with the processes that hold the other envs of the minibatch; sums gradients and
        losses.

    Returns: the state after the step, and metrics: pairs (value, valid) by name.
    Promise: a step that is not finite, or that follows the KL stop, changes nothing.
    """

    def loss_of(leaves: Buffers) -> LossAndMetrics:
        net = dict(zip(state.net, leaves, strict=True))
        return minibatch_objective(
            net, rows, hidden, policy=policy, spec=spec, weights=weights, exchange=exchange
        )

    grads, measured = grad_and_value(loss_of, tuple(state.net.values()))
    names = [name for name in measured if name not in EXTREMES]
    total = exchange.sum([*grads, *(measured[name][0] for name in names)])
    sums = dict(zip([*state.net, *names], total, strict=True))
    measured = {name: (sums.get(name, value), valid) for name, (value, valid) in measured.items()}
    grads = {name: sums[name] for name in state.net}
    return apply_gradient(state, grads, measured, weights, policy=policy, spec=spec)


def apply_gradient(
    state: UpdateState,
    grads: ControllerParams,
    measured: Metrics,
    weights: Coefficients,
    *,
    policy: NetworkPolicy,
    spec: PpoSpec,
) -> tuple[UpdateState, Metrics]:
    """Take one step of Adam; return the metrics of `STEP_REDUCTIONS`.

    grads, measured: the gradient of `minibatch_objective`, and its metrics.
    """
    measured = dict(measured)
    loss, any_row = measured.pop("loss")
    spread, _ = measured.pop("diversity_head")
    reach, _ = measured.pop("reach_head")
    has_choice = reach > 0
    entropy = choose(has_choice, spread / choose(has_choice, reach, 1.0), 0.0)
    norm = global_norm(list(grads.values()))
    new = _adam_step(state, grads, norm, lr=weights.lr, spec=spec, decayed=policy.network.decayed)
    # parameters and second moments after the step
    reached = global_norm([*new.net.values(), *new.v.values()])
    checks = {"loss": loss, "gradient": norm, "step": reached}
    ok = torch.stack([*checks.values()]).isfinite().all() & any_row
    stopped = state.stopped
    if spec.target_kl is not None:
        divergence, valid = measured["kl"]  # not valid in imitation, which has no limit
        stopped = state.stopped | (valid & (divergence > KL_STOP_FACTOR * spec.target_kl))
    limit = math.inf if spec.max_grad_norm is None else spec.max_grad_norm
    counts = {
        "steps_done": ok & ~stopped,
        "steps_skipped": ~ok,
        "stopped_by_kl": stopped,
        **{f"nonfinite.{name}": ~value.isfinite() for name, value in checks.items()},
    }
    always = torch.ones_like(ok)
    norms, has_heads = head_norms(grads)
    after = _where_applied(ok & ~stopped, new, state)._replace(stopped=stopped)
    return after, {
        **measured,
        **{name: (flag.float(), always) for name, flag in counts.items()},
        "gradient_norm": (norm, ok),
        "clipped_share": ((norm > limit).float(), ok),
        "gradient_norm_head": (norms, has_heads & ok),
        "layer_health": gradient_layer_health(grads),
        "entropy_head": (entropy, has_choice),
    }


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
    factor = choose(norm.isfinite(), clip_factor(norm, max_norm=spec.max_grad_norm), 0.0)
    flat = flatten_leaves(grads)
    grads = split_leaves(choose(flat.isfinite(), flat, 0.0) * factor, grads)
    decay = {name: spec.weight_decay if name in decayed else 0.0 for name in grads}
    step = state.step + 1
    net, (m, v) = adamw(
        state.net, grads, (state.m, state.v), step, lr=lr, eps=EPS, weight_decay=decay
    )
    return state._replace(net=net, m=m, v=v, step=step)


def _where_applied(applied: Tensor, new: UpdateState, old: UpdateState) -> UpdateState:
    """Select the new leaves if applied, else the old ones bit for bit.  applied bool []."""
    pairs = ((new.m, old.m), (new.v, old.v))
    m, v = (
        split_leaves(torch.where(applied, flatten_leaves(a), flatten_leaves(b)), b, copy=True)
        for a, b in pairs
    )
    # keeps their strides
    net = {name: torch.where(applied, leaf, old.net[name]) for name, leaf in new.net.items()}
    return old._replace(net=net, m=m, v=v, step=torch.where(applied, new.step, old.step))
