"""Deltas of all seeds of a slot, whatever their blueprints."""

from collections.abc import Iterable, Mapping

from torch import Tensor

from morphogen.hosts.cnn_seeds import CnnBlueprint, cnn_deltas, reads_shared_block
from morphogen.hosts.layout import Leaves
from morphogen.hosts.seed_module import SeedModule
from morphogen.vocab.blueprint import Blueprint

Modules = Mapping[Blueprint, SeedModule]  # by code


def group_inputs(codes: Iterable[Blueprint], modules: Modules) -> list[list[Blueprint]]:
    """Group adjacent blueprints that read one block of inputs.  codes: in `COMPUTE_ORDER`."""
    groups: list[list[Blueprint]] = []
    before = False
    for code in codes:
        shared = reads_shared_block(modules[code])
        if shared and before:
            groups[-1].append(code)
        else:
            groups.append([code])
        before = shared
    return groups


def seed_deltas(
    parts: Mapping[Blueprint, Leaves], x: Mapping[Blueprint, Tensor], modules: Modules
) -> list[Tensor]:
    """Return the deltas of the seeds of a slot, in blocks in the order of `parts`.

    Shapes: parts {name: [R_b, *shape]} per blueprint in `COMPUTE_ORDER`; x [B, ..., n, C] by the
    first blueprint that reads the block -> [B, ..., m, C] each, together as many rows as the parts.
    """
    known = {b: parts[b] for b in parts if isinstance(modules[b], CnnBlueprint)}
    deltas = cnn_deltas(known, {b: x[b] for b in x if b in known}) if known else {}
    deltas |= {b: modules[b].delta(parts[b], x[b]) for b in parts if b not in known}
    return [deltas[b] for b in parts if b in deltas]
