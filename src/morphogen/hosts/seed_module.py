"""Blueprints as modules: parameters and delta of all seeds of one kind at once; the gate network of
any seed.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor

from morphogen.hosts import sequences
from morphogen.hosts.layout import Leaves, ParamLayout, ParamLeaf, fan_in_leaf
from morphogen.kernels.elementwise import by_vectors, silu
from morphogen.kernels.linear import place_linear
from morphogen.kernels.sums import spatial_mean
from morphogen.vocab.blueprint import Blueprint, bottleneck_width
from morphogen.vocab.slot import SlotSpec


class SeedModule(ABC):
    """A blueprint: the delta that its seeds add to the features of their slots.

    A blueprint of your own is an object of a frozen dataclass that derives from this class; it
    knows nothing about
    envs, slots and stages.  Seeds are rows: R of them are computed at once, each with its own
    parameters.

    Promises that `morphogen.testing.laws.check_blueprint` checks: the delta is exactly 0 at birth,
    every parameter gets a gradient within three steps, rows do not depend on each other, no value
    is read by the host.

    Example:
        >>> from dataclasses import dataclass
        >>> import morphogen as mg
        >>> @dataclass(frozen=True)
        ... class Bias(mg.SeedModule):
        ...     name = "bias"
        ...
        ...     def leaves(self, channels):
        ...         return (mg.ParamLeaf("bias", (channels,)),)
        ...
        ...     def delta(self, params, x):
        ...         return params["bias"].expand_as(x)
        >>> env = mg.make("digits", envs=2, blueprints=(Bias(), "norm"))
        >>> env.limits.kinds[8], env.net.counts[0][8]
        ('bias', 4)
    """

    name: str
    fits = ("dense", "images", "sequences")
    """Features of the hosts that list the blueprint among theirs."""

    @abstractmethod
    def leaves(self, channels: int) -> tuple[ParamLeaf, ...]:
        """Return the parameters of one seed at a slot with `channels` channels, in storage
        order.
        """

    @abstractmethod
    def delta(self, params: Leaves, x: Tensor) -> Tensor:
        """Return the deltas of R seeds.

        Shapes: params {name: [R, *shape]}; x [B, ..., R, C], features of the slot, without gradient
        -> like x.
        """

    def params(self, channels: int) -> int:
        """Parameters of one seed."""
        return sum(leaf.size for leaf in self.leaves(channels))

    def macs(self, slot: SlotSpec) -> int | None:
        """Multiply-accumulates of one seed for one sample; None: not known."""
        return None


Modules = Mapping[Blueprint, SeedModule]  # by code


def seed_layout(module: SeedModule, channels: int) -> ParamLayout:
    """Return the layout of a blueprint at a slot with `channels` channels."""
    return ParamLayout(tuple(module.leaves(channels)))


def gate_layout(channels: int) -> ParamLayout:
    """Return the leaves of the gate network, which is initially open at about 0.88."""
    hidden = bottleneck_width(channels)
    first = (
        fan_in_leaf("v1", (hidden, channels), channels),
        fan_in_leaf("c1", (hidden,), channels),
    )
    return ParamLayout(
        (*first, fan_in_leaf("v2", (1, hidden), hidden), ParamLeaf("c2", (1,), fill=2.0))
    )


def gate_openness(p: Leaves, features: Tensor, *, causal: bool = False) -> Tensor:
    """Openness of the gates, in (0, 1), per sample, or causal: per place of a sequence, from the
    places up to it.

    Shapes: p [R, *shape]; features [B, ..., R, C] -> [B, R]; causal, [B, n, R, C] -> [B, n, R].
    """
    mean = (
        sequences.running_mean(sequences.rows_outermost(features))
        if causal
        else spatial_mean(features).detach()
    )
    hidden = silu(place_linear(mean, p["v1"], p["c1"]))
    logit = place_linear(hidden, p["v2"], p["c2"]).squeeze(-1)
    return by_vectors(torch.sigmoid, logit.movedim(0, -1))
