"""Coefficients that depend on the round.  No schedule reads the total of rounds, so a run can be extended."""

from typing import NamedTuple

import torch
from torch import Tensor

from morphogen.config.groups import PpoSpec

_INITIAL_VALUE_COEF = 0.1


class Coefficients(NamedTuple):
    """Coefficients of one update."""

    lr: float | Tensor
    entropy: float | Tensor
    value: float | Tensor

    def to_device(self, device: torch.device) -> "Coefficients":
        """Convert to 0-d tensors, float32: a compiled graph takes them as data."""
        return Coefficients(*(torch.full((), x, dtype=torch.float32, device=device) for x in self))


def linear_schedule(start: float, end: float, rounds: int, round_index: int) -> float:
    """`start` at round 0, `end` from round `rounds` on; the end at once if `rounds` is 0."""
    return start + (end - start) * min(1.0, round_index / rounds) if rounds else end


def coefficients_at(spec: PpoSpec, round_index: int) -> Coefficients:
    """Coefficients of round `round_index`."""
    return Coefficients(
        lr=_anneal(spec.lr, spec.lr_end, spec.lr_anneal_rounds, round_index),
        entropy=_anneal(spec.entropy_coef, spec.entropy_coef_end, spec.entropy_anneal_rounds, round_index),
        value=linear_schedule(
            _INITIAL_VALUE_COEF * spec.value_coef, spec.value_coef, spec.value_warmup_rounds, round_index
        ),
    )


def _anneal(start: float, end: float | None, rounds: int, round_index: int) -> float:
    """`linear_schedule`, or the constant start if `end` is None."""
    return start if end is None else linear_schedule(start, end, rounds, round_index)
