"""Units: the functions of an epoch by name, as they are, or compiled by an extra.

A run calls each through its units: observe, act, apply and score.  Under `engine.compile` an extra
brings the units (`config.parts.COMPILERS`); without one everything runs as it is.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from morphogen.config.execution_spec import COMPILE_OFF, EngineSpec
from morphogen.config.parts import COMPILERS
from morphogen.errors import ConfigError
from morphogen.log.round_summary import NO_COMPILES

if TYPE_CHECKING:
    from morphogen.env.setup import Setup

R = TypeVar("R")
Clock = Callable[[], float]


class Units:
    """Units of one run that run as they are; the units of an extra derive from this class.

    Attributes: `totals`, graphs and seconds of compiling so far.
    """

    totals = NO_COMPILES

    def unit(self, name: str, function: Callable[..., R], part: Any = None) -> Callable[..., R]:
        """Return the function that serves as the unit of a name.

        part: bound in the function, such as a policy; another part is another unit.
        """
        return function

    def prepare(self, setup: "Setup", control: Any, console: Any, first: int) -> None:
        """Prepare every unit that the rounds of a run from `first` on call.

        Args: control: of the run; console: shows progress; None: nothing is shown.
        """


def open_units(spec: EngineSpec, device: torch.device, clock: Clock = time.perf_counter) -> Units:
    """Open the units of a run.  Raises ConfigError for a mode of `engine.compile` without an extra
    that compiles.
    """
    if spec.compile == COMPILE_OFF:
        return Units()
    for name in COMPILERS:
        return COMPILERS[name](spec, device=device, clock=clock)
    raise ConfigError(f"engine.compile: expected off without a compiler, got {spec.compile}")
