"""Actions that a test declares by names, as the control of an environment or a run."""

from collections.abc import Iterable
from typing import Any

import torch

from morphogen.config.action_names import parse_action
from morphogen.config.spec import RunSpec
from morphogen.env.action_control import TableControl


def declared(spec: RunSpec, steps: Iterable[dict[str, Any]]) -> TableControl:
    """The control of steps: an epoch, the names of heads, and an env; without one for all envs."""
    shape = spec.episode_length + 1, spec.envs
    action = torch.zeros(*shape, 8, dtype=torch.int64)
    present = torch.zeros(shape, dtype=torch.bool)
    for step in steps:
        heads = dict(step)
        place = heads.pop("epoch"), heads.pop("env", slice(None))
        action[place] = torch.tensor(parse_action(heads, spec))
        present[place] = True
    return TableControl(action, present)
