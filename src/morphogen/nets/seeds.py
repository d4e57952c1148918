"""Deltas of all seeds of a slot, whatever their blueprints."""

from collections.abc import Iterable, Mapping

from torch import Tensor

from morphogen.nets.cnn_seeds import CnnBlueprint, cnn_deltas, input_groups
from morphogen.nets.layout import Leaves
from morphogen.nets.seed_module import SeedModule
from morphogen.vocab.blueprint import Blueprint

Modules = tuple[SeedModule | None, ...]  # per blueprint code


def input_sizes(parts: Mapping[Blueprint, Leaves], modules: Modules) -> list[int]:
    """Return the numbers of seeds that share an input block.  parts: {name: [R_b, *shape]} in `COMPUTE_ORDER`."""
    return [
        sum(next(iter(parts[b].values())).shape[0] for b in kinds)
        for kinds in (*input_groups(_shared(parts, modules)), *([b] for b in _others(parts, modules)))
    ]


def seed_deltas(parts: Mapping[Blueprint, Leaves], inputs: list[Tensor], modules: Modules) -> list[Tensor]:
    """Return the deltas of the seeds of a slot, in blocks in the order of `parts`.

    Shapes: parts {name: [R_b, *shape]} per blueprint in `COMPUTE_ORDER`; inputs [B, ..., n, C] each, n from
    `input_sizes` -> like inputs.
    """
    shared = _shared(parts, modules)
    count = len(input_groups(shared))
    deltas = dict(zip(shared, cnn_deltas({b: parts[b] for b in shared}, inputs[:count]), strict=True)) if shared else {}
    for b, x in zip(_others(parts, modules), inputs[count:], strict=True):
        module = modules[b]
        assert module is not None  # a plan holds blueprints of the run only
        deltas[b] = module.delta(parts[b], x)
    return [deltas[b] for b in parts]


def _shared(parts: Iterable[Blueprint], modules: Modules) -> list[Blueprint]:
    """Blueprints of the package, which share calls."""
    return [b for b in parts if isinstance(modules[b], CnnBlueprint)]


def _others(parts: Iterable[Blueprint], modules: Modules) -> list[Blueprint]:
    return [b for b in parts if not isinstance(modules[b], CnnBlueprint)]
