"""Schedules as policies: declared actions as tables on the device, errors about illegal ones."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from morphogen.config.files import error_line, read_text
from morphogen.config.spec import RunSpec
from morphogen.env.action_control import TableControl
from morphogen.errors import ConfigError, ScheduleError
from morphogen.extras.schedules.action_schedule import (
    Schedule,
    ScheduleStep,
    build_builtin,
    name_heads,
    parse_schedule,
)
from morphogen.policy.baselines import RandomPolicy
from morphogen.vocab.action import HEADS
from morphogen.vocab.limits import Limits
from morphogen.vocab.paths import expand_path


@dataclass(frozen=True, slots=True)
class ScheduleControl(TableControl):
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
        [step] = [
            step for step in self.schedule.steps if step.epoch == epoch and step.env in (None, env)
        ]
        heads = name_heads(step, self.spec)
        action = " ".join(f"{head} {name}" for head, name in heads.items())
        more = f" (and {len(envs) - 1} more envs)" if len(envs) > 1 else ""
        raise ScheduleError(
            f"{where}, epoch {epoch}, env {env}{more}: schedule {self.schedule.name}: "
            "expected a legal action, got "
            f'{action}; "on_illegal": "wait" replaces illegal actions by WAIT'
        )


@dataclass(frozen=True, eq=False)
class SchedulePolicy(RandomPolicy):
    """Policy that acts as a schedule declares: its control leaves one choice."""

    schedule: Schedule
    spec: RunSpec  # resolved

    def control(self, device: torch.device) -> ScheduleControl:
        """Return the table of the schedule on a device."""
        steps = self.schedule.steps
        apart = any(step.env is not None for step in steps)
        envs = range(self.spec.envs) if apart else (None,)
        columns = [[step for step in steps if step.env in (None, env)] for env in envs]
        tables = build_tables(columns, self.spec, device)
        return ScheduleControl(*tables, schedule=self.schedule, spec=self.spec)


def load_policy(path: str, spec: RunSpec, limits: Limits) -> SchedulePolicy:
    """Load `schedule:FILE` for a resolved spec.  Raises ConfigError for a file that is no
    schedule of the run.
    """
    del limits
    name = f"schedule:{path}"
    try:
        return SchedulePolicy(parse_schedule(read_text(expand_path(path)), spec), spec)
    except (OSError, UnicodeDecodeError) as error:
        wanted = "expected a readable file of UTF-8 text"
        raise ConfigError(f"policy_name: {wanted}, got {name}: {error_line(error)}") from None
    except ConfigError as error:
        raise _name_policy(error, name) from None


def build_germinate_one(spec: RunSpec, limits: Limits) -> SchedulePolicy:
    """Build the policy with one norm seed in the first slot, left alone after that."""
    return _build_builtin("germinate_one", spec)


def build_full_cycle(spec: RunSpec, limits: Limits) -> SchedulePolicy:
    """Build the policy of the fastest full life of one norm seed."""
    return _build_builtin("full_cycle", spec)


def _build_builtin(name: str, spec: RunSpec) -> SchedulePolicy:
    try:
        return SchedulePolicy(build_builtin(name, spec), spec)
    except ConfigError as error:
        raise _name_policy(error, name) from None


def _name_policy(error: ConfigError, name: str) -> ConfigError:
    """Return the error with the name of the policy in front of every line."""
    return ConfigError("\n".join(f"policy_name is {name}: {x}" for x in str(error).splitlines()))


def build_tables(
    columns: Sequence[Sequence[ScheduleStep]], spec: RunSpec, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Build the tables of a `TableControl` on the device from the steps of each column."""
    action = np.zeros((spec.episode_length + 1, len(columns), len(HEADS)), dtype=np.int64)
    present = np.zeros(action.shape[:2], dtype=bool)
    for column, steps in enumerate(columns):
        for step in steps:
            action[step.epoch, column] = step.action
            present[step.epoch, column] = True
    return torch.from_numpy(action).to(device), torch.from_numpy(present).to(device)
