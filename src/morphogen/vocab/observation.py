"""The table of features: what the policy sees of an env and of each slot, in which order, with
which flag.

`observe`, the normaliser and telemetry are built from this one table, by place: a saved
policy reads its columns in this order.
"""

from dataclasses import dataclass

from morphogen.vocab.action import Outcome
from morphogen.vocab.stage import Stage

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


def _read_table(block: str, text: str) -> tuple[Feature, ...]:
    """Read lines `unit | names | flag`; a name in brackets is normalised."""
    features: list[Feature] = []
    for line in text.strip().splitlines():
        unit, names, flag = (cell.strip() for cell in line.split("|"))
        features += [
            Feature(name.strip("[]"), block, unit, flag or None, name.startswith("["))
            for name in names.split()
        ]
    return tuple(features)


STAGES = tuple(stage for stage in Stage if stage is not Stage.UNKNOWN)
# ENDED is never the last outcome of a state, because an env that has ended keeps its state.
OUTCOMES = tuple(outcome for outcome in Outcome if outcome is not Outcome.ENDED)
NEWEST_HISTORY_FLAG = "history_valid.4"
_HOST = """
t / T                                | progress                           |
slog nats / 7                        | [loss_history.0]                   | history_valid.0
slog nats / 7                        | [loss_history.1]                   | history_valid.1
slog nats / 7                        | [loss_history.2]                   | history_valid.2
slog nats / 7                        | [loss_history.3]                   | history_valid.3
slog nats / 7                        | [loss_history.4]                   | history_valid.4
share                                | [acc_history.0]                    | history_valid.0
share                                | [acc_history.1]                    | history_valid.1
share                                | [acc_history.2]                    | history_valid.2
share                                | [acc_history.3]                    | history_valid.3
share                                | [acc_history.4]                    | history_valid.4
flag                                 | history_valid.0 history_valid.1 history_valid.2           |
flag                                 | history_valid.3 history_valid.4                           |
share                                | [best_acc]                         |
slog nats / 7                        | [train_loss]                       | train_valid
share                                | [train_acc]                        | train_valid
flag                                 | train_valid                        |
epochs / 10                          | plateau                            |
flag                                 | stabilized                         |
count / 5                            | rollbacks                          |
share                                | [committed_acc]                    | history_valid.4
points / 10                          | [clean_improvement]                | clean_valid
flag                                 | clean_valid                        |
ln(1 + parameters / host parameters) | [growth] [fossil_growth]           |
count / S                            | seeds seeds_left                   |
flag                                 | limited                            |
share                                | stage_share.developing stage_share.blending               |
share                                | stage_share.holding stage_share.fossilized                |
share                                | stage_share.cooling                |
flag                                 | legal.germinate legal.set_alpha_target legal.prune        |
flag                                 | legal.fossilize legal.advance      |
"""
_FEEDBACK = """
one-hot                              | last_op.wait last_op.germinate last_op.set_alpha_target   |
one-hot                              | last_op.prune last_op.fossilize last_op.advance           |
one-hot                              | last_outcome.executed last_outcome.declined               |
one-hot                              | last_outcome.vetoed last_outcome.invalid                  |
flag                                 | rolled_back                        |
"""
_INSTANCE = """
share                                | [width]                            |
ln share                             | [data_share]                       |
share                                | [label_noise] [classes]            |
pixels                               | [reach]                            |
ln(price / 0.1)                      | [param_price]                      |
slog nats / 7                        | [baseline_loss]                    |
log10 / 6                            | [samples]                          |
"""
_SLOT = """
one-hot                              | stage.dormant stage.germinated stage.training             |
one-hot                              | stage.blending stage.holding stage.fossilized             |
one-hot                              | stage.pruned stage.embargoed stage.resetting              |
flag                                 | enabled                            |
alpha                                | alpha alpha_target                 |
one-hot                              | alpha_mode.hold alpha_mode.up alpha_mode.down             |
ticks / 8                            | ramp_left                          |
one-hot                              | algorithm.add algorithm.multiply algorithm.gate           |
epochs / 8                           | tempo                              |
points / 10                          | [contribution]                     | contribution_valid
flag                                 | contribution_valid                 |
epochs / 10                          | since_measured                     | contribution_valid
points per epoch / 10                | [velocity]                         | velocity_valid
flag                                 | velocity_valid                     |
points / 10                          | [interaction]                      | interaction_valid
flag                                 | interaction_valid                  |
0..1                                 | gradient_health                    | gradient_valid
flag                                 | gradient_valid                     |
flag                                 | exploding                          |
ln(1 + ratio)                        | [gradient_ratio]                   | gradient_ratio_valid
flag                                 | gradient_ratio_valid               |
points / 10                          | [stage_improvement] [age_improvement] | has_seed
epochs / 20                          | epochs_in_stage                    |
epochs / T                           | age                                |
ln(1 + parameters / host parameters) | [params]                           |
points / 10                          | [cost]                             |
flag                                 | legal.germinate legal.set_alpha_target legal.prune        |
flag                                 | legal.fossilize legal.advance      |
share                                | position                           |
log2 / 10                            | channels                           |
flag                                 | has_seed                           |
"""
ENV = _read_table("host", _HOST) + _read_table("feedback", _FEEDBACK)
INSTANCE = _read_table("instance", _INSTANCE)
SLOT = _read_table("slot", _SLOT)
# Features of the instance, and the parameters by which each is known.
INSTANCE_SOURCES: dict[str, tuple[str, ...]] = {
    **{feature.name: (feature.name,) for feature in INSTANCE},
    "baseline_loss": ("classes",),
    "samples": ("data_share", "classes"),
}
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
