"""Tick, the automatic change of slots once per epoch before training: cool down, move along a ramp,
auto-forward.
"""

import torch
from torch import Tensor

from morphogen.config.groups import LifecycleSpec
from morphogen.rules.gates import check_gate, gate_before
from morphogen.rules.stages import (
    STAGE_ROWS,
    advance_ramp,
    clamp_stage,
    occupied,
    promote,
    transition,
    vacate,
)
from morphogen.state.env import EnvState, Slots
from morphogen.state.measure import TickReport
from morphogen.state.tree_ops import choose, constant_table, replace, unsafe_new, zero_empty_slots
from morphogen.vocab.stage import GATE_SOURCE, GATE_TARGET, AlphaMode, Gate, Removal, Stage


def tick(state: EnvState, *, lifecycle: LifecycleSpec) -> tuple[EnvState, TickReport]:
    """Make at most one move per slot; clear the parameters of slots without a seed.

    Shapes: state [E], after the action -> EnvState [E], TickReport [E].
    Promise: HOLDING and FOSSILIZED never move here, and without auto-forward only cooling slots and
    ramps to 0 do.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0)
        >>> state, _ = env.reset()
        >>> grow = torch.tensor(
        ...     [[mg.Op.GERMINATE, 0, mg.Blueprint.CONV_LIGHT] + 5 * [0], 8 * [mg.Op.WAIT]]
        ... )
        >>> spec = mg.rules.decode(grow, state.slots, env.limits)
        >>> acted, _ = mg.steps.apply_action(state, spec, lifecycle=env.spec.lifecycle)
        >>> ticked, report = mg.steps.tick(
        ...     acted, lifecycle=env.spec.lifecycle
        ... )  # passes the gate TRAIN by itself
        >>> (
        ...     mg.Stage(acted.slots.stage[0, 0].item()).name,
        ...     mg.Stage(ticked.slots.stage[0, 0].item()).name,
        ... )
        ('GERMINATED', 'TRAINING')
        >>> report.gate.tolist()
        [[1, 0], [0, 0]]
    """
    accuracy = state.signals.val_acc
    stage = state.slots.stage
    epochs = state.slots.epochs_in_stage  # completed in the stage
    to = torch.full_like(stage, int(Stage.UNKNOWN))
    cooled = (stage == int(Stage.EMBARGOED)) & (epochs >= lifecycle.embargo_epochs)
    to = choose((stage == int(Stage.PRUNED)) & (epochs >= 1), int(Stage.EMBARGOED), to)
    to = choose(cooled, int(Stage.RESETTING), to)
    freed = (stage == int(Stage.RESETTING)) & (epochs >= 1)
    slots = transition(state.slots, to != int(Stage.UNKNOWN), to, accuracy)
    slots, early = _auto_advance(slots, state, (Gate.TRAIN, Gate.BLEND), lifecycle)
    slots = advance_ramp(slots, slots.stage == int(Stage.BLENDING))
    faded = (
        (stage == int(Stage.BLENDING))
        & (slots.alpha_mode == int(AlphaMode.HOLD))
        & (slots.alpha_target == 0)
    )
    slots = vacate(slots, removed=faded, cleared=freed)
    slots, late = _auto_advance(slots, state, (Gate.HOLD,), lifecycle)
    removal = choose(faded, int(Removal.RAMP), int(Removal.NONE))
    report = unsafe_new(TickReport, state, gate=early + late, removal=removal)
    return replace(
        state, slots=slots, seeds=zero_empty_slots(state.seeds, occupied(slots.stage))
    ), report


def _auto_advance(
    slots: Slots, state: EnvState, gates: tuple[Gate, ...], spec: LifecycleSpec
) -> tuple[Slots, Tensor]:
    """Move slots through passing auto-forwarded gates; return slots and gate codes [E, S].

    Requires the source stage since the start of the tick, and a measured accuracy, as an action
    does.
    """
    automatic = [which for which in gates if which.name in spec.auto_forward]
    if not automatic:
        return slots, torch.zeros_like(slots.stage)
    targets = {GATE_SOURCE[which]: GATE_TARGET[which] for which in automatic}
    rows = tuple(int(targets.get(stage, Stage.UNKNOWN)) for stage in STAGE_ROWS)
    to = constant_table(rows, torch.int64, slots.stage.device)[clamp_stage(slots.stage)]
    to = choose(slots.stage != state.slots.stage, int(Stage.UNKNOWN), to)
    accuracy = state.signals.val_acc
    measured = state.signals.measured[:, None]
    passed = check_gate(slots, accuracy, to, spec=spec)[0] & measured
    return promote(slots, passed, to, accuracy), choose(passed, gate_before(to), 0)
