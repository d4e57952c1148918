"""apply: the effect of an action on the slots."""

import torch
from torch import Tensor

from morphogen.config.groups import LifecycleSpec
from morphogen.rules.gates import check_gate, gate_before
from morphogen.rules.stages import STAGE_ROWS, clamp_stage, promote, remove, retarget
from morphogen.state.decision import ActionOutcome, ActionSpec
from morphogen.state.env import EnvState
from morphogen.state.tree_ops import (
    choose,
    constant_table,
    masked_update,
    positions,
    replace,
    unsafe_new,
)
from morphogen.vocab.action import Op, Outcome, Reason
from morphogen.vocab.stage import GATE_SOURCE, GATE_TARGET, Stage

# ADVANCE does not fossilize
_NEXT_STAGE = {GATE_SOURCE[gate]: to for gate, to in GATE_TARGET.items() if to != Stage.FOSSILIZED}
_NEXT_STAGE_CODES = tuple(int(_NEXT_STAGE.get(stage, Stage.UNKNOWN)) for stage in STAGE_ROWS)


def apply_action(
    state: EnvState, spec: ActionSpec, *, lifecycle: LifecycleSpec
) -> tuple[EnvState, ActionOutcome]:
    """Apply an action to the slots, GERMINATE and PRUNE included.

    Shapes: state, spec [E] -> EnvState [E], ActionOutcome [E].
    Promise: an action that is not executed changes nothing but `signals.last_op` and
    `last_outcome`; slots that the action does not address never change.  `steps.init_seeds` draws
    the parameters of a germinated slot later.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0)
        >>> state, _ = env.reset()
        >>> grow = torch.tensor(
        ...     [[mg.Op.GERMINATE, 0, mg.Blueprint.CONV_LIGHT] + 5 * [0], 8 * [mg.Op.WAIT]]
        ... )
        >>> spec = mg.rules.decode(grow, state.slots, env.limits)
        >>> after, outcome = mg.steps.apply_action(state, spec, lifecycle=env.spec.lifecycle)
        >>> (
        ...     [[mg.Stage(s).name for s in row] for row in after.slots.stage.tolist()],
        ...     outcome.executed.tolist(),
        ... )
        ([['GERMINATED', 'DORMANT'], ['DORMANT', 'DORMANT']], [True, True])
    """
    accuracy = state.signals.val_acc
    vetoed = spec.valid & (spec.op != int(Op.WAIT)) & ~state.signals.measured
    op = choose(vetoed, int(Op.WAIT), spec.op)
    hit = op == positions(len(Op), op.device).unsqueeze(-1)  # [6, E]
    # slots on which an op acts
    at = dict(zip(Op, (spec.target & hit.unsqueeze(-1)).unbind(), strict=True))
    asked = at[Op.ADVANCE] | at[Op.FOSSILIZE]
    table = constant_table(_NEXT_STAGE_CODES, torch.int64, accuracy.device)
    next_stage = table[clamp_stage(state.slots.stage)]  # UNKNOWN where ADVANCE is impossible
    upward = choose(at[Op.FOSSILIZE], int(Stage.FOSSILIZED), next_stage)
    passed, failed = check_gate(state.slots, accuracy, upward, spec=lifecycle)
    partial = at[Op.SET_ALPHA_TARGET] & (spec.alpha_target < 1)[:, None]
    at_once = at[Op.PRUNE] & ((spec.alpha_steps == 0)[:, None] | (state.slots.alpha == 0))
    fading = at[Op.PRUNE] & ~at_once
    # its alpha is about to move
    resumed = (partial | fading) & (state.slots.stage == int(Stage.HOLDING))
    to = upward.masked_fill(at[Op.GERMINATE], int(Stage.GERMINATED)).masked_fill(
        resumed, int(Stage.BLENDING)
    )

    # An env has one op, so the slots of all these masks are different ones.
    slots = remove(state.slots, at_once)  # a slot where a seed germinates is empty
    slots = promote(slots, (asked & passed) | at[Op.GERMINATE] | resumed, to, accuracy)
    seed = {
        "blueprint": spec.blueprint[:, None],
        "tempo": spec.tempo[:, None],
        "blend_target": spec.alpha_target[:, None],
        "blend_curve": spec.curve[:, None],
        "accuracy_at_germination": accuracy[:, None],
    }
    blend = {"algorithm": spec.algorithm[:, None]}
    slots = masked_update(
        slots, (at[Op.GERMINATE], seed), (at[Op.GERMINATE] | at[Op.SET_ALPHA_TARGET], blend)
    )
    target = spec.alpha_target[:, None].expand_as(slots.alpha).masked_fill(fading, 0.0)
    slots = retarget(
        slots,
        at[Op.SET_ALPHA_TARGET] | fading,
        target,
        steps=spec.alpha_steps[:, None],
        shape=spec.curve[:, None],
        steepness=spec.steepness[:, None],
    )

    gate, failed = (choose(asked, codes, 0).sum(-1) for codes in (gate_before(upward), failed))
    outcome = _build_outcome(spec, op, gate, failed)
    signals = replace(state.signals, last_op=spec.requested_op, last_outcome=outcome.outcome)
    return replace(state, slots=slots, signals=signals), outcome


def _build_outcome(spec: ActionSpec, op: Tensor, asked: Tensor, failed: Tensor) -> ActionOutcome:
    """First match: INVALID, VETOED, DECLINED, EXECUTED.  op: the effective one; asked: gate code;
    all int64 [E].
    """
    vetoed = spec.valid & (op != spec.op)
    outcome = choose(failed != 0, int(Outcome.DECLINED), int(Outcome.EXECUTED))
    outcome = choose(vetoed, int(Outcome.VETOED), outcome)
    outcome = choose(spec.valid, outcome, int(Outcome.INVALID))
    reason = choose(failed != 0, asked, int(Reason.NONE))  # the reason of a gate is its code
    reason = choose(vetoed, int(Reason.UNMEASURED), reason)
    return unsafe_new(
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
