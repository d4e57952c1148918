"""Codes of the record as the names that stand in events.  numpy, no tensors."""

import numpy as np

from morphogen.storage.codec import Array
from morphogen.vocab.action import RELEVANT, VALUES, Head, Op, Outcome, Reason
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.stage import Stage

Record = dict[str, Array]  # leaves [E, ...] of one epoch

# Per head but the slot, which is named by the run.
HEAD_VALUES: dict[Head, tuple[str, ...]] = {
    head: tuple(value.label if isinstance(value, Blueprint) else value.name for value in values)
    for head, values in VALUES.items()
}
HEAD_USED = np.asarray(RELEVANT)  # bool [OPS, heads]


def enum_names(codes: Array, of: type[Stage | Op | Outcome | Reason]) -> Array:
    """The name of every code; codes are those of an enum.  int [...] -> str [...]."""
    table = np.full(max(of) + 1, "", dtype=object)
    table[[int(code) for code in of]] = [code.name for code in of]
    return table[codes]


def choice_names(values: Array, names: tuple[str, ...], used: Array) -> list[str | None]:
    """The name of the value that each env chose with a head; None where it uses none.  int [E], bool [E]."""
    known = used & (values >= 0) & (values < len(names))
    return [names[value] if good else None for value, good in zip(values.tolist(), known.tolist(), strict=True)]


def mask_invalid(values: Array, valid: Array) -> Array:
    """The values that are valid; NaN, which stands as None in an event, where one is not.  Shapes broadcast."""
    return np.where(valid, values, np.nan)
