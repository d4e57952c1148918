"""Metrics of an update: names, reductions over the minibatch steps, validity."""

import torch
from torch import Tensor

from morphogen.policy.controller import param_shapes
from morphogen.ppo.exchange import Exchange
from morphogen.ppo.moments import stack_parts
from morphogen.ppo.row_weights import Weights
from morphogen.state.tree_ops import choose
from morphogen.vocab.action import HEADS

# name -> (value, valid); 0-d, or a vector over its parts
Metrics = dict[str, tuple[Tensor, Tensor]]
# Parameters of the policy, whatever its size; a head that a run does without is never valid.
LAYER_NAMES = tuple(param_shapes(1, 1, contribution=True))
# Every metric of a minibatch step, and its reduction over the counted steps.
STEP_REDUCTIONS = {
    "policy_loss": "mean",
    "value_loss": "mean",
    "contribution_loss": "mean",
    "entropy": "mean",
    "entropy_head": "mean",
    "kl": "mean",
    "clip_share": "mean",
    "clip_share_head": "mean",
    "ratio_max": "max",
    "ratio_min": "min",
    "behaviour_gap": "first",
    "steps_done": "sum",
    "steps_skipped": "sum",
    "stopped_by_kl": "any",
    "gradient_norm": "mean",
    "clipped_share": "mean",
    "gradient_norm_head": "mean",
    "nonfinite.loss": "sum",
    "nonfinite.gradient": "sum",
    "nonfinite.step": "sum",
    "layer_health": "mean",
}
# Metrics with several values, and the label of each value.
METRIC_PARTS = {
    "entropy_head": HEADS,
    "clip_share_head": HEADS,
    "gradient_norm_head": (*HEADS, "value"),
    "layer_health": LAYER_NAMES,
}
# The same by label: metrics with several values have a label for each.
LABELS = {
    f"{name}.{part}" if part else name: kind
    for name, kind in STEP_REDUCTIONS.items()
    for part in METRIC_PARTS.get(name, ("",))
}
STEP_NAMES: tuple[str, ...] = tuple(LABELS)


def always_valid(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return a metric that every round has."""
    return x, torch.ones_like(x, dtype=torch.bool)


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
        "mean": total / number.clamp(min=1),
        "sum": total,
        "any": (total > 0).double(),
        "max": choose(use, values, -torch.inf).amax(0),
        "min": choose(use, values, torch.inf).amin(0),
        "first": values[0],
    }
    reduced: Metrics = {}
    for i, (name, kind) in enumerate(LABELS.items()):
        good = valid[0, i] if kind == "first" else number[i] > 0
        reduced[name] = (choose(good, by[kind][i], 0.0), good)
    return reduced
