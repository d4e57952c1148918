"""Instance process: how the world of an env changes within an episode."""

from pkgutil import resolve_name
from typing import NamedTuple

import torch
from torch import Tensor

from morphogen.config.extra_settings import extra_groups
from morphogen.config.spec import RunSpec, find_host
from morphogen.errors import ConfigError

Range = tuple[int, int]  # both ends included


class Regime(NamedTuple):
    """Regime of the world of each env at an epoch: a span of epochs in which it stays as it is."""

    number: Tensor  # int64 [E], from 0
    view: Tensor  # int64 [E], code of how samples are shown
    classes: Tensor | None = None  # int64 [E], number of classes; None: as drawn for the episode
    order: Tensor | None = None  # int64 [E, C], random words that order the classes; None: as drawn


class InstanceProcess:
    """World that stays as it is, the default; the processes of extras derive from it."""

    changes: bool = False  # within an episode: instances are drawn anew before every epoch

    def __init__(self, spec: RunSpec, classes: int) -> None:
        """Read the settings of a resolved spec.  classes: C, all classes of the host."""
        self.spec = spec
        self.classes = classes

    def class_ranges(self, drawn: Range) -> tuple[Range, ...]:
        """Return the ranges of the number of classes that an env can have.

        Args: drawn: the range that an episode draws from.
        """
        return (drawn,)

    def regime(self, key: Tensor, episode: Tensor, epoch: Tensor) -> Regime:
        """Return the regime of each env.

        Shapes: key int64 [E, 3]; episode, epoch int64 [E] -> Regime [E].
        Promise: a row depends on its own key, episode and epoch.
        """
        first = torch.zeros_like(epoch)
        return Regime(first, first)

    def show(self, inputs: Tensor, view: Tensor, sample: Tensor) -> Tensor:
        """Return samples as each env sees them.

        Shapes: inputs float [E, B, *shape], or [B, *shape] shared by all envs; view int64 [E];
        sample int64 [E, B] or [B], numbers in the split -> float [E, B, *shape], or the inputs.
        """
        return inputs


def find_process(spec: RunSpec) -> InstanceProcess:
    """Return the process that the setting groups of a resolved spec name (`config.extra_settings`).

    Raises: ConfigError if two groups name one.
    """
    groups = extra_groups(spec)
    names = [name for name, group in groups.items() if group.PROCESS and group != type(group)()]
    if len(names) > 1:
        raise ConfigError(f"{names[1]}: expected its defaults beside other settings of {names[0]}")
    made = [resolve_name(groups[name].PROCESS) for name in names] or [InstanceProcess]
    return made[0](spec, find_host(spec).classes)
