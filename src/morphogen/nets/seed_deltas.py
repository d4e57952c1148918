"""Deltas of all seeds of a slot, whatever their blueprints."""

from collections.abc import Iterable, Mapping

from torch import Tensor

from morphogen.nets.cnn_seeds import CnnBlueprint, cnn_deltas, reads_shared_block
from morphogen.nets.layout import Leaves
from morphogen.nets.seed_module import SeedModule
from morphogen.vocab.blueprint import Blueprint

Modules = Mapping[Blueprint, SeedModule]  # by code


def input_sizes(parts: Mapping[Blueprint, Leaves], modules: Modules) -> list[int]:
    """Return the numbers of seeds that share an input block.  parts: {name: [R_b, *shape]} in `COMPUTE_ORDER`."""
    return [sum(next(iter(parts[b].values())).shape[0] for b in codes) for codes in _input_groups(parts, modules)]


def seed_deltas(parts: Mapping[Blueprint, Leaves], inputs: list[Tensor], modules: Modules) -> list[Tensor]:
    """Return the deltas of the seeds of a slot, in blocks in the order of `parts`.

    Shapes: parts {name: [R_b, *shape]} per blueprint in `COMPUTE_ORDER`; inputs [B, ..., n, C] each, n from
    `input_sizes` -> [B, ..., m, C] each, together as many rows as the parts.
    """
    x = {codes[0]: block for codes, block in zip(_input_groups(parts, modules), inputs, strict=True)}
    known = {b: parts[b] for b in parts if isinstance(modules[b], CnnBlueprint)}
    deltas = cnn_deltas(known, {b: x[b] for b in x if b in known}) if known else {}
    deltas |= {b: modules[b].delta(parts[b], x[b]) for b in parts if b not in known}
    return [deltas[b] for b in parts if b in deltas]


def _input_groups(parts: Iterable[Blueprint], modules: Modules) -> list[list[Blueprint]]:
    """Group adjacent blueprints that read one block of inputs."""
    groups: list[list[Blueprint]] = []
    shared = {b for b in parts if isinstance(modules[b], CnnBlueprint) and reads_shared_block(b)}
    for b in parts:
        if groups and {b, groups[-1][-1]} <= shared:
            groups[-1].append(b)
        else:
            groups.append([b])
    return groups
