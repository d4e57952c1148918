"""Coefficients that depend on the round.  No schedule reads the total of rounds, so a run can be extended."""

from typing import NamedTuple

import torch
from torch import Tensor

from morphogen.config.groups import PpoSpec

_VALUE_START = 0.1  # share of the value coefficient in round 0


class Coefficients(NamedTuple):
    """Coefficients of one update."""

    lr: float | Tensor
    entropy: float | Tensor
    value: float | Tensor

    def to_device(self, device: torch.device) -> "Coefficients":
        """Convert to 0-d tensors, float32: a compiled graph takes them as data."""
        return Coefficients(*(torch.full((), x, dtype=torch.float32, device=device) for x in self))


def linear_schedule(start: float, end: float | None, rounds: int, round_index: int) -> float:
    """`start` at round 0, `end` from round `rounds` on; the end at once if `rounds` is 0, never if it is None."""
    if end is None:
        return start
    return start + (end - start) * min(1.0, round_index / rounds) if rounds else end


def coefficients_at(spec: PpoSpec, round_index: int) -> Coefficients:
    """Coefficients of round `round_index`."""
    return Coefficients(
        lr=linear_schedule(spec.lr, spec.lr_end, spec.lr_anneal_rounds, round_index),
        entropy=linear_schedule(spec.entropy_coef, spec.entropy_coef_end, spec.entropy_anneal_rounds, round_index),
        value=linear_schedule(_VALUE_START * spec.value_coef, spec.value_coef, spec.value_warmup_rounds, round_index),
    )
