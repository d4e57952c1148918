"""Hindsight credit: what a seed earns for having helped another one that was kept later."""

import torch
from torch import Tensor

from morphogen.rules.rewards.legacy.parts import hindsight_credit
from morphogen.state.measure import RewardInputs, SlotInputs
from morphogen.vocab.action import Op

SCAFFOLD_WEIGHT, MAX_PAYMENT = 0.1, 0.2  # of one scaffold, and of a step


def hindsight_payment(scaffold: Tensor, slots: SlotInputs) -> Tensor:
    """Paid in the step that fossilizes.  scaffold [E, S, S], help of a for b; slots [E] -> [E], in [0, 0.2].

    Promise: 0 unless a seed with a contribution above 0 is fossilized and something helped it before.
    """
    kept = (slots.op == int(Op.FOSSILIZE)) & slots.contribution_valid
    gain = torch.where(kept, slots.contribution, 0.0).unsqueeze(-2)
    return hindsight_credit(scaffold, gain, weight=SCAFFOLD_WEIGHT).sum((-1, -2)).clamp(max=MAX_PAYMENT)


def next_scaffold(scaffold: Tensor, inputs: RewardInputs, *, gamma: float) -> Tensor:
    """The help of this epoch added to that of earlier ones.  scaffold [E, S, S]; inputs [E] -> [E, S, S], >= 0.

    Promise: an epoch that was not measured changes nothing; a seed that is kept or new starts without help.
    """
    op, measured = inputs.slots.op, inputs.clean_valid[:, None, None]
    grown = torch.where(measured, gamma * scaffold + inputs.interaction.clamp(min=0.0), scaffold)
    fresh = (op == int(Op.FOSSILIZE)) | (op == int(Op.GERMINATE))
    return torch.where(fresh.unsqueeze(-2), 0.0, grown)
