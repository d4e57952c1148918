"""Action controls: declared schedules as tables on the device, errors about illegal actions; masks
from outside.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from morphogen.config.action_schedule import (
    BUILTIN_SCHEDULES,
    Schedule,
    build_builtin,
    name_heads,
    parse_schedule,
    schedule_path,
)
from morphogen.config.files import read_text
from morphogen.config.spec import RunSpec
from morphogen.errors import ConfigError, ScheduleError
from morphogen.rules.legality import narrow_masks, restrict_masks
from morphogen.state.decision import ActionMasks
from morphogen.state.env import EnvState, Slots
from morphogen.vocab.paths import expand_path
from morphogen.vocab.text import format_value


def load_schedule(name: str, spec: RunSpec) -> Schedule | None:
    """Load the schedule behind the name of a policy, for a resolved spec; None for any other
    policy.
    """
    file = schedule_path(name)
    if file is None and name not in BUILTIN_SCHEDULES:
        return None
    try:
        if file is None:
            return build_builtin(name, spec)
        return parse_schedule(read_text(expand_path(file)), spec)
    except OSError as error:
        raise ConfigError(
            f"policy_name: expected a readable file, got {name}: {error.strerror}"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"policy_name: expected a file of UTF-8 text, got {name}") from None
    except ConfigError as error:
        lines = str(error).splitlines()
        raise ConfigError("\n".join(f"policy_name is {name}: {line}" for line in lines)) from None


class ActionControl(ABC):
    """Narrows the choices of every env: a declared schedule, or a mask of your own."""

    __slots__ = ()

    @abstractmethod
    def narrow(
        self, masks: ActionMasks, state: EnvState, env: Tensor
    ) -> tuple[ActionMasks, Tensor]:
        """Narrow the masks of the next action; called after the last epoch of an episode, too.

        Shapes: masks, state [E]; env int64 [E], global indices -> masks [E], missed bool [E]: a
        declared action is illegal.
        Promise: no False becomes True, and every env keeps at least one choice.
        """

    def check_missed(self, missed: np.ndarray, epoch: int, where: str) -> None:
        """Raise ScheduleError for a declared action that was illegal; nothing is declared here.
        missed bool [E].
        """
        del missed, epoch, where


Mask = Callable[[Slots], Tensor]  # slots [E] -> bool [E, 6, S], True = allowed


@dataclass(frozen=True, slots=True)
class MaskControl(ActionControl):
    """A mask of your own as the control of an environment, `make(control=...)`, or of a run,
    `Parts(control=...)`.

    An env chooses among the legal choices that the mask allows.  A choice that is illegal stays
    illegal; an env that the mask leaves no legal choice may WAIT.
    `morphogen.testing.laws.check_mask` finds both faults.

    Raises: ConfigError, when an env is observed, for a result of another form.

    Example:
        >>> import morphogen as mg
        >>> def sterile(slots):  # GERMINATE is legal in empty slots, and this mask forbids it
        ...     allowed = mg.rules.legal(slots, mg.Limits((True, True))).clone()
        ...     allowed[:, mg.Op.GERMINATE] = False
        ...     return allowed
        >>> env = mg.make("tiny", envs=1, seed=0, control=mg.MaskControl(sterile))
        >>> _, inputs = env.reset()
        >>> [op.name for op in mg.Op if inputs.masks.op[0, op]]
        ['WAIT']
    """

    function: Mask

    def narrow(
        self, masks: ActionMasks, state: EnvState, env: Tensor
    ) -> tuple[ActionMasks, Tensor]:
        """Narrow the masks as the function says; nothing is missed."""
        allowed: Any = self.function(state.slots)
        if not isinstance(allowed, Tensor) or (allowed.dtype, allowed.shape) != (
            torch.bool,
            masks.slot.shape,
        ):
            name = getattr(self.function, "__name__", type(self.function).__name__)
            given = (
                f"{allowed.dtype} {list(allowed.shape)}"
                if isinstance(allowed, Tensor)
                else format_value(allowed)
            )
            raise ConfigError(f"mask {name}: expected bool {list(masks.slot.shape)}, got {given}")
        return narrow_masks(masks, allowed), torch.zeros_like(env, dtype=torch.bool)


@dataclass(frozen=True, slots=True)
class PerEnvControl(ActionControl):
    """One schedule per row of a vector env, so that envs of one key may act differently; illegal
    actions wait.
    """

    action: Tensor  # int64 [T + 1, E, 8]
    present: Tensor  # bool [T + 1, E], the last row False

    def narrow(
        self, masks: ActionMasks, state: EnvState, env: Tensor
    ) -> tuple[ActionMasks, Tensor]:
        """Leave the declared actions, and WAIT where none is declared or it is illegal."""
        row = state.clock.epoch.clamp(max=len(self.present) - 1)
        column = self.columns(env)
        return restrict_masks(masks, self.action[row, column], self.present[row, column])

    def columns(self, env: Tensor) -> Tensor:
        """Return the column of each env, int64 [E]."""
        return torch.arange(env.shape[0], device=env.device)


@dataclass(frozen=True, slots=True)
class ScheduleControl(PerEnvControl):
    """A schedule and its table: one column for all envs, or one per env where a step names one."""

    schedule: Schedule
    spec: RunSpec  # resolved

    def columns(self, env: Tensor) -> Tensor:
        """Return the column of each env: its global index, or 0 for a table of one column."""
        return env if self.present.shape[1] > 1 else torch.zeros_like(env)

    def check_missed(self, missed: np.ndarray, epoch: int, where: str) -> None:
        """Raise ScheduleError for an illegal declared action, unless the schedule waits on it.
        missed bool [E].
        """
        envs = np.flatnonzero(missed)
        if self.schedule.on_illegal == "wait" or not len(envs):
            return
        env = int(envs[0])
        step = self.schedule.step_at(epoch, env)
        heads = {} if step is None else name_heads(step, self.spec)
        action = " ".join(f"{head} {name}" for head, name in heads.items())
        more = f" (and {len(envs) - 1} more envs)" if len(envs) > 1 else ""
        raise ScheduleError(
            f"{where}, epoch {epoch}, env {env}{more}: schedule {self.schedule.name}: "
            "expected a legal action, got "
            f'{action}; "on_illegal": "wait" replaces illegal actions by WAIT'
        )


def build_control(schedule: Schedule, spec: RunSpec, device: torch.device) -> ScheduleControl:
    """Build the table of a schedule on the device."""
    columns = spec.envs if any(step.env is not None for step in schedule.steps) else 1
    action = np.zeros((spec.episode_length + 1, columns, 8), dtype=np.int64)
    present = np.zeros((spec.episode_length + 1, columns), dtype=bool)
    for step in schedule.steps:
        where = (step.epoch, slice(None) if step.env is None else step.env)
        action[where] = step.action
        present[where] = True
    table = (torch.as_tensor(part, device="cpu").to(device) for part in (action, present))
    return ScheduleControl(*table, schedule=schedule, spec=spec)


def build_per_env_control(
    schedules: Sequence[Schedule], indices: Sequence[int], spec: RunSpec, device: torch.device
) -> PerEnvControl:
    """Build the control of schedule `indices[e]` for row e.  Raises ConfigError for a schedule that
    names an env.
    """
    for schedule in schedules:
        if any(step.env is not None for step in schedule.steps):
            raise ConfigError(
                f"schedule {schedule.name}: expected steps for every env, got a step that "
                "names an env"
            )
    tables = [build_control(schedule, spec, device) for schedule in schedules]
    place = torch.as_tensor(indices, dtype=torch.int64, device="cpu").to(device)
    action, present = (
        torch.cat([getattr(table, leaf) for table in tables], dim=1)
        for leaf in ("action", "present")
    )
    return PerEnvControl(action[:, place], present[:, place])
