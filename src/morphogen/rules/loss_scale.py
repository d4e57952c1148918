"""Dynamic loss scale of every env: small gradients in float16 survive, and an overflow is a skipped
step.
"""

import torch
from torch import Tensor

from morphogen.state.tree_ops import choose

SMALLEST = 1.0
LARGEST = 2.0**24
GROWTH_INTERVAL = 2_000  # minibatches without an overflow, after which the scale doubles
PATIENCE = 8  # consecutive skipped steps of an incubating seed that lower the scale


def needs_lower_scale(finite: Tensor, before: Tensor, after: Tensor) -> Tensor:
    """Mask of envs whose minibatch halves the loss scale.

    Shapes: finite bool [E], the host took its step; before, after int64 [E, S], `Slots.skip_streak`
    -> bool [E].
    Promise: a seed that stays broken in TRAINING halves it `PATIENCE` times at most, one that
    overflows in time.
    """
    return ~finite | ((after > before) & (after <= PATIENCE)).any(-1)


def next_loss_scale(scale: Tensor, good: Tensor, overflow: Tensor) -> tuple[Tensor, Tensor]:
    """Halve the loss scale after an overflow, double it after `GROWTH_INTERVAL` minibatches without
    one.

    Shapes: scale float32 [E]; good int64 [E], minibatches since the last change; overflow bool [E]
    -> scale, good.
    Promise: a scale that is a power of two stays one, in [SMALLEST, LARGEST], so that it never
    rounds a gradient.
    Source: Micikevicius et al., Mixed Precision Training, 2018, section 3.2.
    """
    due = good + 1 >= GROWTH_INTERVAL
    changed = torch.where(overflow, scale * 0.5, torch.where(due, scale * 2.0, scale))
    return changed.clamp(SMALLEST, LARGEST), choose(overflow | due, 0, good + 1)
