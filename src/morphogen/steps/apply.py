"""The action's effect on the slots."""

import torch
from torch import Tensor

from morphogen.rules.alpha import retarget
from morphogen.rules.gates import gate, gate_of
from morphogen.rules.stages import known
from morphogen.rules.transition import clear, promote, remove, transition
from morphogen.state.decision import ActionOutcome, ActionSpec
from morphogen.state.env import EnvState, Slots
from morphogen.state.tree import made, renewed, table, write
from morphogen.vocab.action import Op, Outcome, Reason
from morphogen.vocab.spec import LifecycleSpec
from morphogen.vocab.stage import Stage

_UP = {Stage.GERMINATED: Stage.TRAINING, Stage.TRAINING: Stage.BLENDING, Stage.BLENDING: Stage.HOLDING}
_NEXT_UP = tuple(int(_UP.get(stage, Stage.UNKNOWN)) for stage in Stage)


def apply_action(state: EnvState, spec: ActionSpec, *, lifecycle: LifecycleSpec) -> tuple[EnvState, ActionOutcome]:
    """The slots after the action, and what became of it.  state, spec [E] -> state, outcome [E].

    Promise: an action that is not executed changes nothing but `signals.last_op` and `last_outcome`; slots that the
    action does not address never change.  A germinated slot gets its parameters later in the epoch (`steps.sow`).
    """
    accuracy = state.signals.val_acc
    vetoed = spec.valid & (spec.op != int(Op.WAIT)) & ~state.signals.measured
    op = torch.where(vetoed, int(Op.WAIT), spec.op)
    at = {kind: spec.target & (op == int(kind))[:, None] for kind in Op}
    asked = at[Op.ADVANCE] | at[Op.FOSSILIZE]
    upward = torch.where(at[Op.FOSSILIZE], int(Stage.FOSSILIZED), _next_up(state.slots.stage))
    passed, failed = gate(state.slots, accuracy, upward, spec=lifecycle)

    slots = promote(state.slots, asked & passed, upward, accuracy)
    slots = _germinate(slots, at[Op.GERMINATE], spec, accuracy)
    slots = _set_target(slots, at[Op.SET_ALPHA_TARGET], spec, accuracy)
    slots = _prune(slots, at[Op.PRUNE], spec, accuracy)

    outcome = _outcome(spec, op, torch.where(asked, gate_of(upward), 0).sum(-1), torch.where(asked, failed, 0).sum(-1))
    signals = renewed(state.signals, last_op=spec.requested_op, last_outcome=outcome.outcome)
    return renewed(state, slots=slots, signals=signals), outcome


def _next_up(stage: Tensor) -> Tensor:
    """The stage that ADVANCE leads to; UNKNOWN where there is none.  int64 [E, S]."""
    return table(_NEXT_UP, torch.int64, stage.device)[known(stage)]


def _germinate(slots: Slots, where: Tensor, spec: ActionSpec, accuracy: Tensor) -> Slots:
    to = torch.full_like(slots.stage, int(Stage.GERMINATED))
    return write(
        transition(clear(slots, where), where, to, accuracy),
        where,
        blueprint=spec.blueprint[:, None],
        algorithm=spec.algorithm[:, None],
        tempo=spec.tempo[:, None],
        blend_target=spec.alpha_target[:, None],
        blend_curve=spec.curve[:, None],
        accuracy_at_germination=accuracy[:, None],
    )


def _set_target(slots: Slots, where: Tensor, spec: ActionSpec, accuracy: Tensor) -> Slots:
    """A new resting place for alpha, and the algorithm of the style at once."""
    partial = where & (spec.alpha_target < 1)[:, None]
    slots = write(_resume_blending(slots, partial, accuracy), where, algorithm=spec.algorithm[:, None])
    return _ramp(slots, where, spec.alpha_target, spec)


def _prune(slots: Slots, where: Tensor, spec: ActionSpec, accuracy: Tensor) -> Slots:
    """Out at once where nothing is blended in or no time is given; else down a ramp that ends in removal."""
    at_once = where & ((spec.alpha_steps == 0)[:, None] | (slots.alpha == 0))
    fading = where & ~at_once
    slots = _resume_blending(remove(slots, at_once), fading, accuracy)
    return _ramp(slots, fading, torch.zeros_like(spec.alpha_target), spec)


def _resume_blending(slots: Slots, where: Tensor, accuracy: Tensor) -> Slots:
    """A held seed whose alpha is about to move blends again."""
    to = torch.full_like(slots.stage, int(Stage.BLENDING))
    return transition(slots, where & (slots.stage == int(Stage.HOLDING)), to, accuracy)


def _ramp(slots: Slots, where: Tensor, target: Tensor, spec: ActionSpec) -> Slots:
    steps, shape, steepness = spec.alpha_steps[:, None], spec.curve[:, None], spec.steepness[:, None]
    return retarget(slots, where, target[:, None], steps=steps, shape=shape, steepness=steepness)


def _outcome(spec: ActionSpec, op: Tensor, asked: Tensor, failed: Tensor) -> ActionOutcome:
    """First match: INVALID, VETOED, DECLINED, EXECUTED.  op: the effective one; asked: gate code; all int64 [E]."""
    vetoed = spec.valid & (op != spec.op)
    outcome = torch.where(failed != 0, int(Outcome.DECLINED), int(Outcome.EXECUTED))
    outcome = torch.where(vetoed, int(Outcome.VETOED), outcome)
    outcome = torch.where(spec.valid, outcome, int(Outcome.INVALID))
    reason = torch.where(failed != 0, asked, int(Reason.NONE))  # the reason of a gate is its code
    reason = torch.where(vetoed, int(Reason.UNMEASURED), reason)
    return made(
        ActionOutcome,
        spec,
        outcome=outcome,
        executed=outcome == int(Outcome.EXECUTED),
        effective_op=op,
        reason=torch.where(spec.valid, reason, spec.reason),
        gate=asked,
        gate_failed=failed,
        target=spec.target,
    )
