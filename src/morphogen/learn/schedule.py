"""Coefficients that change with the round.  Rounds are counted, never a total: a run can be extended."""

from typing import NamedTuple

import torch
from torch import Tensor

from morphogen.config.groups import PpoSpec

_VALUE_START = 0.1


class Coefficients(NamedTuple):
    """What one update uses."""

    lr: float | Tensor
    entropy: float | Tensor
    value: float | Tensor

    def on(self, device: torch.device) -> "Coefficients":
        """The same as 0-d tensors, float32: a graph takes them like data."""
        return Coefficients(*(torch.full((), x, dtype=torch.float32, device=device) for x in self))


def linear(start: float, end: float, rounds: int, at: int) -> float:
    """`start` at round 0, `end` from round `rounds` on; the end at once if `rounds` is 0."""
    return start + (end - start) * min(1.0, at / rounds) if rounds else end


def coefficients(spec: PpoSpec, at: int) -> Coefficients:
    """The coefficients of round `at`."""
    return Coefficients(
        lr=_annealed(spec.lr, spec.lr_end, spec.lr_anneal_rounds, at),
        entropy=_annealed(spec.entropy_coef, spec.entropy_coef_end, spec.entropy_anneal_rounds, at),
        value=linear(_VALUE_START * spec.value_coef, spec.value_coef, spec.value_warmup_rounds, at),
    )


def _annealed(start: float, end: float | None, rounds: int, at: int) -> float:
    """`linear`, or the start for good where there is no end."""
    return start if end is None else linear(start, end, rounds, at)
