"""Trajectories: consecutive epochs of the steps of the package, from drawn actions and measurements."""

from typing import Any

import torch
from hypothesis import strategies as st
from hypothesis.vendor.pretty import RepresentationPrinter, for_type_by_name

from morphogen.config.spec import LifecycleSpec
from morphogen.state.env import EnvState, Signals, Slots
from morphogen.state.measure import RewardInputs
from morphogen.testing.builders.scenes import make_slots
from morphogen.testing.builders.synthetic_epoch import (
    EpisodeSpec,
    SyntheticEpoch,
    SyntheticMeasurements,
    begin_episode,
    run_epoch,
)
from morphogen.testing.builders.tree_equality import format_tree
from morphogen.testing.strategies.slots import legal_actions, slot_states

_SAMPLED_LOSSES = (1.0, 0.5, 1.5, 0.75, 1.25, 0.25, 1.1, 0.9, 9.0, float("nan"))


@st.composite
def lifecycles(draw: Any) -> LifecycleSpec:
    """Draw quick gates, so that short episodes hold complete lifecycles; each gate may open automatically."""
    return LifecycleSpec(
        permissive_gates=draw(st.just(True) | st.booleans()),
        auto_forward=tuple(sorted(draw(st.sets(st.sampled_from(("TRAIN", "BLEND", "HOLD")))))),
        min_prune_age=draw(st.integers(0, 2)),
        embargo_epochs=draw(st.integers(1, 2)),
        min_training_epochs=draw(st.integers(0, 2)),
        min_blending_epochs=1,
        min_contribution=0.0,
    )


@st.composite
def measurements(draw: Any, envs: int, slots: int) -> SyntheticMeasurements:
    """Draw losses and accuracies of one epoch; contributions are additive except for one pair of seeds."""
    losses = draw(st.lists(st.sampled_from(_SAMPLED_LOSSES), min_size=envs, max_size=envs))
    worth = st.lists(st.integers(-8, 24).map(lambda i: i / 4), min_size=slots + 2, max_size=slots + 2)
    rows = draw(st.lists(worth, min_size=envs, max_size=envs))
    inside = torch.arange(2**slots).unsqueeze(-1) >> torch.arange(slots) & 1  # [2^S, S]
    both = inside[:, :2].all(-1) & (slots > 1)
    tables = [40 + 2 * row[0] + inside.float() @ torch.tensor(row[1:-1]) + row[-1] * both for row in rows]
    return SyntheticMeasurements(torch.tensor(losses), torch.stack(tables))


@st.composite
def trajectories(
    draw: Any,
    max_envs: int = 2,
    max_slots: int = 3,
    max_steps: int = 6,
    *,
    fresh: bool = False,
    terms: EpisodeSpec | None = None,
) -> list[SyntheticEpoch]:
    """Draw consecutive epochs of a few envs; the last epoch may be the horizon.

    `fresh`: slots start empty, else in any reachable state; `terms`: drawn by default.
    """
    envs, count = draw(st.integers(1, max_envs)), draw(st.integers(1, max_slots))
    steps = draw(st.integers(1, max_steps))
    bounds = {"max_envs": envs, "max_slots": count, "min_envs": envs, "min_slots": count}
    slots = make_slots([[{}] * count] * envs) if fresh else draw(slot_states(**bounds))
    rest = draw(st.integers(0, 1))  # further epochs of the episode
    spec = terms or EpisodeSpec(length=steps + rest, every=draw(st.integers(1, 2)), lifecycle=draw(lifecycles()))
    now, out = begin_episode(slots, spec), []
    for _ in range(steps):
        action = draw(legal_actions(now.slots, spec.build_limits(now.slots)))
        out.append(run_epoch(now, action, draw(measurements(envs, count)), spec))
        now = out[-1].after
    return out


def _print_tree(tree: Any, printer: RepresentationPrinter, cycle: bool) -> None:
    """Print a state by its non-empty leaves."""
    del cycle  # trees of tensors have none
    with printer.group(4, f"{type(tree).__name__}(", ")"):
        for line in format_tree(tree).splitlines():
            printer.break_()
            printer.text(line)


for _kind in (Slots, Signals, EnvState, RewardInputs):
    for_type_by_name(_kind.__module__, _kind.__name__, _print_tree)
for_type_by_name(
    SyntheticEpoch.__module__, SyntheticEpoch.__name__, lambda epoch, printer, _: printer.text(repr(epoch))
)
