"""The table of features: what the policy sees of an env and of each slot, in which order, with which flag.

`observe`, the normaliser and telemetry are built from this one table; its hash identifies a trained policy's input.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from morphogen.vocab.action import Op, Outcome
from morphogen.vocab.stage import Algorithm, AlphaMode, Stage

SCHEMA_VERSION = 2
HISTORY = 5
LARGEST = 1e3  # no feature of a sound env comes near; what is beyond is a fault like a number that is none


@dataclass(frozen=True, slots=True)
class Feature:
    """One column.  `flag`: the feature that says whether it is valid; `normalised`: it has running statistics."""

    name: str
    block: str
    unit: str
    flag: str | None = None
    normalised: bool = False


def _row(block: str, names: Iterable[str], unit: str, *, flag: str | None = None, normalised: bool = False):
    return tuple(Feature(name, block, unit, flag, normalised) for name in names)


def _each(name: str, values: Iterable) -> tuple[str, ...]:
    return tuple(f"{name}.{value.name.lower() if hasattr(value, 'name') else value}" for value in values)


def _history(name: str, unit: str) -> tuple[Feature, ...]:
    flags = _each("history_valid", range(HISTORY))
    return tuple(
        Feature(f"{name}.{i}", "host", unit, flag, normalised=True)
        for i, flag in zip(range(HISTORY), flags, strict=True)
    )


ACTING_OPS = (Op.GERMINATE, Op.SET_ALPHA_TARGET, Op.PRUNE, Op.FOSSILIZE, Op.ADVANCE)
STAGES = tuple(stage for stage in Stage if stage is not Stage.UNKNOWN)
NEWEST = f"history_valid.{HISTORY - 1}"

ENV: tuple[Feature, ...] = (
    *_row("host", ["progress"], "t / T"),
    *_history("loss_history", "slog nats / 7"),
    *_history("acc_history", "share"),
    *_row("host", _each("history_valid", range(HISTORY)), "flag"),
    *_row("host", ["best_acc"], "share", normalised=True),
    *_row("host", ["train_loss"], "slog nats / 7", flag="train_valid", normalised=True),
    *_row("host", ["train_acc"], "share", flag="train_valid", normalised=True),
    *_row("host", ["train_valid"], "flag"),
    *_row("host", ["plateau"], "epochs / 10"),
    *_row("host", ["stabilized"], "flag"),
    *_row("host", ["rollbacks"], "count / 5"),
    *_row("host", ["committed_acc"], "share", flag=NEWEST, normalised=True),
    *_row("host", ["clean_improvement"], "points / 10", flag="clean_valid", normalised=True),
    *_row("host", ["clean_valid"], "flag"),
    *_row("host", ["growth", "fossil_growth"], "ln(1 + parameters / host parameters)", normalised=True),
    *_row("host", ["seeds", "seeds_left"], "count / S"),
    *_row("host", ["limited"], "flag"),
    *_row("host", _each("stage_share", ("developing", "blending", "holding", "fossilized", "cooling")), "share"),
    *_row("host", _each("legal", ACTING_OPS), "flag"),
    *_row("feedback", _each("last_op", Op), "one-hot"),
    *_row("feedback", _each("last_outcome", Outcome), "one-hot"),
    *_row("feedback", ["rolled_back"], "flag"),
)
INSTANCE: tuple[Feature, ...] = (
    *_row("instance", ["width"], "share", normalised=True),
    *_row("instance", ["data_share"], "ln share", normalised=True),
    *_row("instance", ["label_noise", "classes"], "share", normalised=True),
    *_row("instance", ["reach"], "pixels", normalised=True),
    *_row("instance", ["param_price"], "ln(price / 0.1)", normalised=True),
    *_row("instance", ["baseline_loss"], "slog nats / 7", normalised=True),
    *_row("instance", ["samples"], "log10 / 6", normalised=True),
)
SLOT: tuple[Feature, ...] = (
    *_row("slot", _each("stage", STAGES), "one-hot"),
    *_row("slot", ["enabled"], "flag"),
    *_row("slot", ["alpha", "alpha_target"], "alpha"),
    *_row("slot", _each("alpha_mode", AlphaMode), "one-hot"),
    *_row("slot", ["ramp_left"], "ticks / 8"),
    *_row("slot", _each("algorithm", (Algorithm.ADD, Algorithm.MULTIPLY, Algorithm.GATE)), "one-hot"),
    *_row("slot", ["tempo"], "epochs / 8"),
    *_row("slot", ["contribution"], "points / 10", flag="contribution_valid", normalised=True),
    *_row("slot", ["contribution_valid"], "flag"),
    *_row("slot", ["since_measured"], "epochs / 10", flag="contribution_valid"),
    *_row("slot", ["velocity"], "points per epoch / 10", flag="velocity_valid", normalised=True),
    *_row("slot", ["velocity_valid"], "flag"),
    *_row("slot", ["interaction"], "points / 10", flag="interaction_valid", normalised=True),
    *_row("slot", ["interaction_valid"], "flag"),
    *_row("slot", ["gradient_health"], "0..1", flag="gradient_valid"),
    *_row("slot", ["gradient_valid"], "flag"),
    *_row("slot", ["exploding"], "flag"),
    *_row("slot", ["gradient_ratio"], "ln(1 + ratio)", flag="gradient_ratio_valid", normalised=True),
    *_row("slot", ["gradient_ratio_valid"], "flag"),
    *_row("slot", ["stage_improvement", "age_improvement"], "points / 10", flag="has_seed", normalised=True),
    *_row("slot", ["epochs_in_stage"], "epochs / 20"),
    *_row("slot", ["age"], "epochs / T"),
    *_row("slot", ["params"], "ln(1 + parameters / host parameters)", normalised=True),
    *_row("slot", ["cost"], "points / 10", normalised=True),
    *_row("slot", _each("legal", ACTING_OPS), "flag"),
    *_row("slot", ["position"], "share"),
    *_row("slot", ["channels"], "log2 / 10"),
    *_row("slot", ["has_seed"], "flag"),
)
VECTORS: dict[str, tuple[Feature, ...]] = {"env": ENV, "instance": INSTANCE, "slots": SLOT}


def columns(features: tuple[Feature, ...]) -> dict[str, int]:
    """Name -> index."""
    return {feature.name: i for i, feature in enumerate(features)}


def flags(features: tuple[Feature, ...]) -> tuple[int, ...]:
    """Index of each feature's flag; `len(features)` where it has none."""
    where = columns(features)
    return tuple(where[feature.flag] if feature.flag else len(features) for feature in features)


def schema_hash() -> str:
    """sha256 of the table: version, vectors, names, order, flags, units."""
    lines = [f"version {SCHEMA_VERSION}"]
    for name, features in VECTORS.items():
        lines += [f"{name} {f.name} {f.block} {f.unit} {f.flag} {f.normalised}" for f in features]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
