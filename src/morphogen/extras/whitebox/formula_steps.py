"""White-box task in place of training and validation: nothing is trained, accuracy is a formula."""

import torch
from torch import Tensor

from morphogen.extras.whitebox.formula import coalition_accuracy
from morphogen.extras.whitebox.growth_plan import view_accuracy
from morphogen.rules.stages import active
from morphogen.state.env import EnvState
from morphogen.state.measure import TrainMetrics, Validation
from morphogen.state.tree_ops import choose, replace, unsafe_new
from morphogen.vocab.stage import AlphaMode


def skip_training(state: EnvState) -> tuple[EnvState, TrainMetrics]:
    """Replace an epoch of training: nothing is trained, every active seed has full health.  state
    [E] after `tick`.
    """
    slots = state.slots
    signals = state.signals
    fine = active(slots.stage) & (slots.alpha_mode != int(AlphaMode.DOWN))
    none = torch.zeros_like(fine)
    healthy = fine.to(slots.gradient_health.dtype)
    slots = replace(
        slots,
        vanishing=none,
        exploding=none,
        gradient_valid=fine,
        gradient_ratio_valid=fine,
        gradient_norm=healthy,
        gradient_health=healthy,
        gradient_ratio=healthy,
    )
    trained = replace(
        signals,
        train_loss=signals.val_loss,
        train_acc=signals.val_acc,
        train_measured=signals.measured,
    )
    return replace(state, slots=slots, signals=trained), unsafe_new(
        TrainMetrics,
        state,
        loss=signals.val_loss,
        accuracy=signals.val_acc,
        valid=signals.measured,
        skipped=torch.zeros_like(state.clock.epoch),
        overflowed=torch.zeros_like(state.clock.epoch),
        host_gradient_norm=torch.zeros_like(signals.val_loss),
        seed_skipped=none.any(-1),
    )


def validate_by_formula(
    state: EnvState, coalition: Tensor, evaluated: Tensor, *, by_view: bool
) -> Validation:
    """Validation by formula, in the place of `validate`.

    Shapes: state [E]; coalition int64, evaluated bool [E, K] -> Validation [E].  The loss falls
    from the loss of guessing to 0 as the accuracy rises.  by_view: the view alone decides which
    blueprint helps.
    """
    instance = state.instance
    slots = state.slots
    if by_view:
        points = view_accuracy(instance, slots, coalition)
    else:
        points = coalition_accuracy(instance, slots, state.clock.epoch, coalition)
    return unsafe_new(
        Validation,
        state,
        loss=instance.baseline_loss * (1.0 - points[:, 0] / 100.0),
        accuracy=choose(evaluated, points, 0.0),
        coalition=coalition,
        evaluated=evaluated,
    )
