"""Coefficients of an update: linear schedules over the rounds between the settings `ppo.*`."""

from typing import NamedTuple, cast

import torch
from torch import Tensor

from morphogen.config.policy_spec import PpoSpec

_VALUE_START = 0.1  # share of the value coefficient in round 0


class Coefficients(NamedTuple):
    """Coefficients of one update, numbers or 0-d: learning rate, factors of the entropy bonus and
    of the value loss.

    Where `imitation` is not 0, the policy raises the probabilities of the recorded actions;
    advantages do not count.
    """

    lr: float | Tensor
    entropy: float | Tensor
    value: float | Tensor
    imitation: float | Tensor = 0.0

    def to_device(self, device: torch.device) -> "Coefficients":
        """Convert to 0-d tensors, float32: a compiled graph takes them as data."""
        return Coefficients(
            *(torch.full((), cast(float, x), dtype=torch.float32, device=device) for x in self)
        )


def linear_schedule(start: float, end: float | None, rounds: int, round_index: int) -> float:
    """`start` at round 0, `end` from round `rounds` on; the end at once if `rounds` is 0, never if
    it is None.
    """
    if end is None:
        return start
    return start + (end - start) * min(1.0, round_index / rounds) if rounds else end


def coefficients_at(spec: PpoSpec, round_index: int) -> Coefficients:
    """Coefficients of round `round_index`, counted from 0: linear schedules between the settings
    `ppo.*`.

    Example:
        >>> import morphogen as mg
        >>> spec = mg.PpoSpec(lr=0.003, lr_end=0.001, lr_anneal_rounds=10)
        >>> [mg.ppo.coefficients_at(spec, index).lr for index in (0, 5, 20)]
        [0.003, 0.002, 0.001]
    """
    imitates = round_index < spec.imitation_rounds
    return Coefficients(
        lr=linear_schedule(spec.lr, spec.lr_end, spec.lr_anneal_rounds, round_index),
        entropy=0.0
        if imitates
        else linear_schedule(
            spec.entropy_coef, spec.entropy_coef_end, spec.entropy_anneal_rounds, round_index
        ),
        value=linear_schedule(
            _VALUE_START * spec.value_coef, spec.value_coef, spec.value_warmup_rounds, round_index
        ),
        imitation=float(imitates),
    )
