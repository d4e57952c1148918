"""A slot of a plain module with its seed, and the normalisation of its inputs."""

from typing import Any

import torch
from torch import Tensor, nn

from morphogen.hosts.weights import NORMALISATION


class GrownSlot(nn.Module):
    """A slot with a seed: `x + alpha gate(x) seed(x)`, or `x + alpha x tanh(seed(x))`.

    A seed in training leaves the features as they are, and learns as if it were added.
    """

    alpha: Tensor
    blueprint = ""  # name of the kind of seed

    def __init__(
        self, seed: nn.Module, gate: nn.Module | None, *, alpha: float, way: str, isolated: bool
    ) -> None:
        """way: add, multiply or gate; isolated: no gradient reaches the host through the seed's
        input.
        """
        super().__init__()
        self.seed = seed
        self.gate = gate
        self.way = way
        self.isolated = isolated
        self.incubates = False
        self.register_buffer("alpha", torch.tensor(alpha, device="cpu"))

    def forward(self, x: Tensor) -> Tensor:
        """Blend the seed into the features."""
        if self.incubates and not self.training:
            return x
        own = x.detach() if self.isolated or self.incubates else x
        delta = self.seed(own)
        if self.incubates:
            delta = own * torch.tanh(delta) if self.way == "multiply" else delta
            return x + (delta - delta.detach())
        if self.way == "multiply":
            return x + self.alpha * x * torch.tanh(delta)
        share = self.alpha if self.gate is None else self.alpha * self.gate(own)
        return x + share * delta


class InputScaling(nn.Module):
    """Maps stored numbers to the inputs of a network, per channel: `x * gain + offset`."""

    gain: Tensor
    offset: Tensor

    def __init__(self, gain: Tensor, offset: Tensor) -> None:
        super().__init__()
        self.register_buffer("gain", gain)
        self.register_buffer("offset", offset)

    def forward(self, x: Tensor) -> Tensor:
        """Return inputs of the network.  [B, C, *rest] of any dtype -> float [B, C, *rest]."""
        return x.to(self.gain.dtype) * self.gain + self.offset


ADDED = ("slots", NORMALISATION)  # children that a network gets


class GrownSequential(nn.Sequential):
    """Layers one after the other, next to the children that are called by hooks."""

    def forward(self, input: Any) -> Any:
        """Return the output of the layers."""
        for name, layer in self.named_children():
            input = input if name in ADDED else layer(input)
        return input


class PassThrough:
    """Hook of a submodule: the slot that follows it."""

    def __init__(self, slot: nn.Module) -> None:
        self.slot = slot

    def __call__(self, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        """Return the output after the slot."""
        return self.slot(output)


def normalise_input(module: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Hook of a whole module: its normalisation comes first."""
    return module.normalisation(args[0]), *args[1:]


class FirstClasses:
    """Hook of a whole module: the logits of the classes in use."""

    def __init__(self, classes: int) -> None:
        self.classes = classes

    def __call__(self, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        """Return the first logits."""
        return output[..., : self.classes]
