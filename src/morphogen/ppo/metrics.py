"""Metrics of an update: names, reductions over the minibatch steps, validity."""

from collections.abc import Mapping
from enum import Enum

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.policy.controller import controller_leaves
from morphogen.ppo.exchange import Exchange
from morphogen.ppo.moments import stack_parts
from morphogen.ppo.row_weights import Weights
from morphogen.state.tree_ops import choose
from morphogen.vocab.action import HEADS

# name -> (value, valid); 0-d, or a vector over its parts
Metrics = dict[str, tuple[Tensor, Tensor]]
# Parameters of the policy, whatever its size; a head that a run does without is never valid.
LAYER_NAMES = tuple(leaf.name for leaf in controller_leaves(1, 1, contribution=True))
Reduction = Enum("Reduction", "MEAN MAX MIN SUM FIRST ANY")  # of the values of the counted steps
# Every metric of a minibatch step.  `pack_metrics` refuses another set of names.
STEP_REDUCTIONS: dict[str, Reduction] = {
    "policy_loss": Reduction.MEAN,
    "value_loss": Reduction.MEAN,
    "contribution_loss": Reduction.MEAN,
    "entropy": Reduction.MEAN,
    "entropy_head": Reduction.MEAN,
    "kl": Reduction.MEAN,
    "clip_share": Reduction.MEAN,
    "clip_share_head": Reduction.MEAN,
    "ratio_max": Reduction.MAX,
    "ratio_min": Reduction.MIN,
    "behaviour_gap": Reduction.FIRST,
    "steps_done": Reduction.SUM,
    "steps_skipped": Reduction.SUM,
    "stopped_by_kl": Reduction.ANY,
    "gradient_norm": Reduction.MEAN,
    "clipped_share": Reduction.MEAN,
    "gradient_norm_head": Reduction.MEAN,
    "nonfinite.loss": Reduction.SUM,
    "nonfinite.gradient": Reduction.SUM,
    "nonfinite.step": Reduction.SUM,
    "layer_health": Reduction.MEAN,
}
# Metrics with several values, and the label of each value.
METRIC_PARTS = {
    "entropy_head": HEADS,
    "clip_share_head": HEADS,
    "gradient_norm_head": (*HEADS, "value"),
    "layer_health": LAYER_NAMES,
}
# Metrics of the round as a whole.
ROUND_METRICS: tuple[str, ...] = (
    "epochs_done",
    "explained_variance",
    "value_mean",
    "value_std",
    "return_mean",
    "return_std",
    "td_error_abs_mean",
    "advantage_mean",
    "advantage_std",
    "free_steps",
    "forced_share",
    "rollback_rows",
    "contribution_targets",
    "learning_rate",
    "entropy_coef",
    "value_coef",
    "skip_streak",
    "return_scale",
    "value_offset",
    "nonfinite.rollout",
)


def always_valid(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return a metric that every round has."""
    return x, torch.ones_like(x, dtype=torch.bool)


def _labels(name: str) -> tuple[str, ...]:
    return (
        tuple(f"{name}.{part}" for part in METRIC_PARTS[name]) if name in METRIC_PARTS else (name,)
    )


STEP_NAMES: tuple[str, ...] = tuple(label for name in STEP_REDUCTIONS for label in _labels(name))
METRIC_NAMES: tuple[str, ...] = (*STEP_NAMES, *ROUND_METRICS)  # `<name>_valid` for each


def masked_mean(x: Tensor, over: Weights) -> Tensor:
    """Part of these rows in the mean over all rows that count; 0 without any.  Equal shapes ->
    0-d.
    """
    return (x * over.weight).sum() / over.total.clamp(min=1.0)


def masked_mean_by_head(x: Tensor, over: Weights) -> Tensor:
    """Masked mean of each head.  [..., 8] -> [8]."""
    return (x * over.weight).flatten(0, -2).sum(0) / over.total.clamp(min=1.0)


# Metrics of a step that are extremes of its rows; all others are sums.
EXTREMES = {"ratio_max": torch.amax, "ratio_min": torch.amin, "behaviour_gap": torch.amax}


def merge_extremes(values: Tensor, exchange: Exchange) -> Tensor:
    """Replace the extremes of a part of the rows by extremes of all rows.  [N, M] in the order of
    `STEP_NAMES`.
    """
    columns = {name: STEP_NAMES.index(name) for name in EXTREMES}
    parts = stack_parts(
        exchange, {name: values[:, column] for name, column in columns.items()}, "metrics"
    )
    merged = values.clone()
    for name, column in columns.items():
        merged[:, column] = EXTREMES[name](parts[name], 0)
    return merged


def pack_metrics(metrics: Metrics) -> tuple[Tensor, Tensor]:
    """Pack the metrics of one step in the order of `STEP_NAMES`.  -> value float64 [M], valid bool
    [M].
    """
    if metrics.keys() != STEP_REDUCTIONS.keys():
        raise ValueError(f"metrics: expected {sorted(STEP_REDUCTIONS)}, got {sorted(metrics)}")
    values = torch.cat([metrics[name][0].detach().reshape(-1).double() for name in STEP_REDUCTIONS])
    valid = torch.cat(
        [metrics[name][1].expand_as(metrics[name][0]).reshape(-1) for name in STEP_REDUCTIONS]
    )
    return values, valid


def reduce_metrics(values: Tensor, valid: Tensor, counted: Tensor) -> Metrics:
    """Reduce over the counted steps; invalid if no step measured it.  values, valid [N, M]; counted
    bool [N] -> 0-d.
    """
    use = valid & counted.unsqueeze(-1)
    number = use.sum(0)
    total = choose(use, values, 0.0).sum(0)
    by = {
        Reduction.MEAN: total / number.clamp(min=1),
        Reduction.SUM: total,
        Reduction.ANY: (total > 0).double(),
        Reduction.MAX: choose(use, values, -torch.inf).amax(0),
        Reduction.MIN: choose(use, values, torch.inf).amin(0),
        Reduction.FIRST: values[0],
    }
    kinds = [kind for name, kind in STEP_REDUCTIONS.items() for _ in _labels(name)]
    reduced = {}
    for i, (name, kind) in enumerate(zip(STEP_NAMES, kinds, strict=True)):
        good = valid[0, i] if kind is Reduction.FIRST else number[i] > 0
        reduced[name] = (choose(good, by[kind][i], 0.0), good)
    return reduced


def assemble_metrics(metrics: Mapping[str, tuple[Tensor, Tensor]]) -> TensorDict:
    """Build one flat TensorDict of 0-d float64 values and `<name>_valid` flags, all of
    `METRIC_NAMES`.
    """
    if set(metrics) != set(METRIC_NAMES):
        difference = sorted(set(metrics) ^ set(METRIC_NAMES))
        raise ValueError(f"metrics: expected METRIC_NAMES, got a difference of {difference}")
    flat = {name: metrics[name][0].double() for name in METRIC_NAMES}
    flags = {f"{name}_valid": metrics[name][1] for name in METRIC_NAMES}
    return TensorDict({**flat, **flags}, batch_size=[])
