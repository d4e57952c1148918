"""The table of features: what the policy sees of an env and of each slot, in which order, with
which flag.

`observe`, the normaliser and telemetry are built from this one table; its hash identifies a trained
policy's input.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from morphogen.vocab.action import Op, Outcome
from morphogen.vocab.stage import Algorithm, AlphaMode, Stage

SCHEMA_VERSION = 2
HISTORY = 5
FEATURE_LIMIT = 1e3  # features of a sound env stay far below; a larger value is a fault, like NaN


@dataclass(frozen=True, slots=True)
class Feature:
    """One column.  `flag`: the feature that says whether it is valid; `normalised`: it has running
    statistics.
    """

    name: str
    block: str
    unit: str
    flag: str | None = None
    normalised: bool = False


def _features(
    block: str,
    names: Iterable[str],
    unit: str,
    *,
    flag: str | None = None,
    normalised: bool = False,
):
    return tuple(Feature(name, block, unit, flag, normalised) for name in names)


def _member_names(name: str, values: Iterable) -> tuple[str, ...]:
    return tuple(
        f"{name}.{value.name.lower() if hasattr(value, 'name') else value}" for value in values
    )


def _history_features(name: str, unit: str) -> tuple[Feature, ...]:
    flags = _member_names("history_valid", range(HISTORY))
    return tuple(
        Feature(f"{name}.{i}", "host", unit, flag, normalised=True)
        for i, flag in zip(range(HISTORY), flags, strict=True)
    )


ACTING_OPS = (Op.GERMINATE, Op.SET_ALPHA_TARGET, Op.PRUNE, Op.FOSSILIZE, Op.ADVANCE)
STAGES = tuple(stage for stage in Stage if stage is not Stage.UNKNOWN)
# ENDED is never the last outcome of a state, because an env that has ended keeps its state.
OUTCOMES = tuple(outcome for outcome in Outcome if outcome is not Outcome.ENDED)
NEWEST_HISTORY_FLAG = f"history_valid.{HISTORY - 1}"

ENV: tuple[Feature, ...] = (
    *_features("host", ["progress"], "t / T"),
    *_history_features("loss_history", "slog nats / 7"),
    *_history_features("acc_history", "share"),
    *_features("host", _member_names("history_valid", range(HISTORY)), "flag"),
    *_features("host", ["best_acc"], "share", normalised=True),
    *_features("host", ["train_loss"], "slog nats / 7", flag="train_valid", normalised=True),
    *_features("host", ["train_acc"], "share", flag="train_valid", normalised=True),
    *_features("host", ["train_valid"], "flag"),
    *_features("host", ["plateau"], "epochs / 10"),
    *_features("host", ["stabilized"], "flag"),
    *_features("host", ["rollbacks"], "count / 5"),
    *_features("host", ["committed_acc"], "share", flag=NEWEST_HISTORY_FLAG, normalised=True),
    *_features("host", ["clean_improvement"], "points / 10", flag="clean_valid", normalised=True),
    *_features("host", ["clean_valid"], "flag"),
    *_features(
        "host", ["growth", "fossil_growth"], "ln(1 + parameters / host parameters)", normalised=True
    ),
    *_features("host", ["seeds", "seeds_left"], "count / S"),
    *_features("host", ["limited"], "flag"),
    *_features(
        "host",
        _member_names(
            "stage_share", ("developing", "blending", "holding", "fossilized", "cooling")
        ),
        "share",
    ),
    *_features("host", _member_names("legal", ACTING_OPS), "flag"),
    *_features("feedback", _member_names("last_op", Op), "one-hot"),
    *_features("feedback", _member_names("last_outcome", OUTCOMES), "one-hot"),
    *_features("feedback", ["rolled_back"], "flag"),
)
INSTANCE: tuple[Feature, ...] = (
    *_features("instance", ["width"], "share", normalised=True),
    *_features("instance", ["data_share"], "ln share", normalised=True),
    *_features("instance", ["label_noise", "classes"], "share", normalised=True),
    *_features("instance", ["reach"], "pixels", normalised=True),
    *_features("instance", ["param_price"], "ln(price / 0.1)", normalised=True),
    *_features("instance", ["baseline_loss"], "slog nats / 7", normalised=True),
    *_features("instance", ["samples"], "log10 / 6", normalised=True),
)
# Features of the instance, and the parameters by which each is known.
INSTANCE_SOURCES: dict[str, tuple[str, ...]] = {
    **{feature.name: (feature.name,) for feature in INSTANCE},
    "baseline_loss": ("classes",),
    "samples": ("data_share", "classes"),
}
SLOT: tuple[Feature, ...] = (
    *_features("slot", _member_names("stage", STAGES), "one-hot"),
    *_features("slot", ["enabled"], "flag"),
    *_features("slot", ["alpha", "alpha_target"], "alpha"),
    *_features("slot", _member_names("alpha_mode", AlphaMode), "one-hot"),
    *_features("slot", ["ramp_left"], "ticks / 8"),
    *_features(
        "slot",
        _member_names("algorithm", (Algorithm.ADD, Algorithm.MULTIPLY, Algorithm.GATE)),
        "one-hot",
    ),
    *_features("slot", ["tempo"], "epochs / 8"),
    *_features("slot", ["contribution"], "points / 10", flag="contribution_valid", normalised=True),
    *_features("slot", ["contribution_valid"], "flag"),
    *_features("slot", ["since_measured"], "epochs / 10", flag="contribution_valid"),
    *_features(
        "slot", ["velocity"], "points per epoch / 10", flag="velocity_valid", normalised=True
    ),
    *_features("slot", ["velocity_valid"], "flag"),
    *_features("slot", ["interaction"], "points / 10", flag="interaction_valid", normalised=True),
    *_features("slot", ["interaction_valid"], "flag"),
    *_features("slot", ["gradient_health"], "0..1", flag="gradient_valid"),
    *_features("slot", ["gradient_valid"], "flag"),
    *_features("slot", ["exploding"], "flag"),
    *_features(
        "slot", ["gradient_ratio"], "ln(1 + ratio)", flag="gradient_ratio_valid", normalised=True
    ),
    *_features("slot", ["gradient_ratio_valid"], "flag"),
    *_features(
        "slot",
        ["stage_improvement", "age_improvement"],
        "points / 10",
        flag="has_seed",
        normalised=True,
    ),
    *_features("slot", ["epochs_in_stage"], "epochs / 20"),
    *_features("slot", ["age"], "epochs / T"),
    *_features("slot", ["params"], "ln(1 + parameters / host parameters)", normalised=True),
    *_features("slot", ["cost"], "points / 10", normalised=True),
    *_features("slot", _member_names("legal", ACTING_OPS), "flag"),
    *_features("slot", ["position"], "share"),
    *_features("slot", ["channels"], "log2 / 10"),
    *_features("slot", ["has_seed"], "flag"),
)
FEATURES: dict[str, tuple[Feature, ...]] = {
    "env": ENV,
    "instance": INSTANCE,
    "slots": SLOT,
}  # leaf of `Observation` -> columns


def column_index(features: tuple[Feature, ...]) -> dict[str, int]:
    """Name -> index."""
    return {feature.name: i for i, feature in enumerate(features)}


def flag_index(features: tuple[Feature, ...]) -> tuple[int, ...]:
    """Index of each feature's flag; `len(features)` where it has none."""
    where = column_index(features)
    return tuple(where[feature.flag] if feature.flag else len(features) for feature in features)


def flat_flag_index(slots: int) -> tuple[int, ...]:
    """Index of each feature's flag in a row of env, instance, all slots, and a 1: the flag of those
    that have none.
    """
    vectors = [flag_index(columns) for columns in (ENV, INSTANCE, *(SLOT,) * slots)]
    end = sum(map(len, vectors))
    flags = []
    for vector in vectors:
        start = len(flags)
        flags += [start + flag if flag < len(vector) else end for flag in vector]
    return (*flags, end)


def schema_hash() -> str:
    """sha256 of the table: version, vectors, names, order, flags, units."""
    lines = [f"version {SCHEMA_VERSION}"]
    for name, features in FEATURES.items():
        lines += [f"{name} {f.name} {f.block} {f.unit} {f.flag} {f.normalised}" for f in features]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
