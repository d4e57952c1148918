"""Detectors of seeds that look better than they are.  Reported only; no reward depends on them."""

from typing import NamedTuple

import torch
from torch import Tensor

from morphogen.state.env import Slots
from morphogen.vocab.reward import CRITICAL_CONTRIBUTION, RANSOM_CONTRIBUTION, RANSOM_HARM, RATIO_LIMIT
from morphogen.vocab.stage import Stage


class Detection(NamedTuple):
    """Verdicts of the detectors on each slot."""

    fired: Tensor  # bool [E, S, 2], in the order of `vocab.reward.DETECTORS`
    ratio: Tensor  # float32 [E, S], contribution over uncommitted improvement; 0 where the first did not fire
    critical: Tensor  # bool [E, S], the second fired for a seed of a whole point


def detect_false_credit(slots: Slots, uncommitted_improvement: Tensor) -> Detection:
    """Detect inflated credit and ransom.

    Shapes: slots [E]; uncommitted_improvement float32 [E], points, all on minus only the fossilized on.
    Promise: neither fires outside BLENDING and HOLDING or without a valid contribution, nor both for one slot.
    """
    deciding = (slots.stage == int(Stage.BLENDING)) | (slots.stage == int(Stage.HOLDING))
    judged = deciding & slots.contribution_valid
    contribution = torch.where(judged, slots.contribution, 0.0)
    improvement = uncommitted_improvement.unsqueeze(-1)
    helped = judged & (contribution > 0) & (improvement > 0)
    ratio = torch.where(helped, contribution, 0.0) / torch.where(helped, improvement, 1.0)
    inflated = helped & (ratio >= RATIO_LIMIT)
    ransom = judged & (contribution > RANSOM_CONTRIBUTION) & (improvement < RANSOM_HARM)
    return Detection(
        fired=torch.stack((inflated, ransom), dim=-1),
        ratio=torch.where(inflated, ratio, 0.0),
        critical=ransom & (contribution >= CRITICAL_CONTRIBUTION),
    )
