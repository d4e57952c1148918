"""Printing of drawn examples: a state by its leaves that are not empty, an epoch by its actions."""

from typing import Any

from hypothesis.vendor.pretty import RepresentationPrinter, for_type_by_name

from morphogen.state.env import EnvState, Signals, Slots
from morphogen.state.measure import RewardInputs
from morphogen.testing.builders.synthetic_epoch import SyntheticEpoch
from morphogen.testing.builders.tree_equality import format_tree

PRINTED_TYPES = (Slots, Signals, EnvState, RewardInputs)


def _print_tree(tree: Any, printer: RepresentationPrinter, cycle: bool) -> None:
    del cycle  # trees of tensors have none
    with printer.group(4, f"{type(tree).__name__}(", ")"):
        for line in format_tree(tree).splitlines():
            printer.break_()
            printer.text(line)


def _print_epoch(moment: SyntheticEpoch, printer: RepresentationPrinter, cycle: bool) -> None:
    del cycle
    printer.text(repr(moment))


for kind in PRINTED_TYPES:
    for_type_by_name(kind.__module__, kind.__name__, _print_tree)
for_type_by_name(SyntheticEpoch.__module__, SyntheticEpoch.__name__, _print_epoch)
