"""How Hypothesis prints what was drawn: a state by its leaves that are not empty, an epoch by what was done in it."""

from typing import Any

from hypothesis.vendor.pretty import RepresentationPrinter, for_type_by_name

from morphogen.state.env import EnvState, Signals, Slots
from morphogen.state.measure import RewardInputs
from morphogen.testing.builders.synthetic_epoch import Moment
from morphogen.testing.builders.tree_equality import shown

PRINTED = (Slots, Signals, EnvState, RewardInputs)


def _print(tree: Any, printer: RepresentationPrinter, cycle: bool) -> None:
    del cycle  # trees of tensors have none
    with printer.group(4, f"{type(tree).__name__}(", ")"):
        for line in shown(tree).splitlines():
            printer.break_()
            printer.text(line)


def _tell(moment: Moment, printer: RepresentationPrinter, cycle: bool) -> None:
    del cycle
    printer.text(repr(moment))


for kind in PRINTED:
    for_type_by_name(kind.__module__, kind.__name__, _print)
for_type_by_name(Moment.__module__, Moment.__name__, _tell)
