"""Preparation of stored samples: the inputs and the labels that networks get."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from morphogen.state.tree_ops import constant_table


class Preparation(Protocol):
    """Map from stored samples to the inputs and labels of networks."""

    def prepare(self, samples: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return inputs and labels of samples as stored, by operators of the device alone."""
        ...


@dataclass(frozen=True, slots=True)
class Normalisation:
    """Map from stored numbers to network inputs, per channel: `(number / scale - mean) / std`."""

    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]
    dims: int = 3  # axes of a sample, channels first

    def __call__(self, pixels: Tensor) -> Tensor:
        """Return the network inputs of stored samples.  uint8 or float32 [..., C, *rest] -> float32
        [..., C, *rest].
        """
        gain, offset = self.factors(pixels.device)
        return pixels.to(torch.float32) * gain + offset

    def factors(self, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
        """Return the factor and the offset of every channel, float32 [C, 1, ...]."""
        gain = tuple(1 / (self.scale * std) for std in self.std)
        offset = tuple(-mean / std for mean, std in zip(self.mean, self.std, strict=True))
        return self._channels(gain, device), self._channels(offset, device)

    def prepare(self, samples: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the network inputs of stored samples, and their labels."""
        return self(samples), labels

    def _channels(self, values: tuple[float, ...], device: torch.device | str) -> Tensor:
        table = constant_table(values, torch.float32, torch.device(device))
        return table.view(-1, *(1,) * (self.dims - 1))
