"""Action controls narrow the choices of envs: masks of a user, and tables of declared actions."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from morphogen.config.spec import RunSpec
from morphogen.env.action_tensors import check_form
from morphogen.policy.baselines import RandomPolicy
from morphogen.rules.legality import narrow_masks, restrict_masks
from morphogen.state.decision import ActionMasks
from morphogen.state.env import EnvState, Slots
from morphogen.vocab.action import HEADS
from morphogen.vocab.limits import Limits


class ActionControl(ABC):
    """Narrows the choices of every env: a mask of your own, or declared actions."""

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
        name = getattr(self.function, "__name__", type(self.function).__name__)
        check_form(f"mask {name}", allowed, torch.bool, masks.slot.shape)
        return narrow_masks(masks, allowed), torch.zeros_like(env, dtype=torch.bool)


@dataclass(frozen=True, slots=True)
class TableControl(ActionControl):
    """Actions that are declared by epoch, in a column per env, or in one of all; illegal ones
    wait.
    """

    action: Tensor  # int64 [T + 1, E or 1, 8]
    present: Tensor  # bool [T + 1, E or 1], the last row False

    def narrow(
        self, masks: ActionMasks, state: EnvState, env: Tensor
    ) -> tuple[ActionMasks, Tensor]:
        """Leave the declared actions, and WAIT where none is declared or it is illegal."""
        row = state.clock.epoch.clamp(max=len(self.present) - 1)
        column = self.columns(env)
        return restrict_masks(masks, self.action[row, column], self.present[row, column])

    def columns(self, env: Tensor) -> Tensor:
        """Return the column of each env, int64 [E]: its place among the envs here."""
        if self.present.shape[1] == 1:
            return torch.zeros_like(env)
        return torch.arange(env.shape[0], device=env.device)


class WaitPolicy(RandomPolicy):
    """Policy that never does anything: its control declares no action."""

    def control(self, device: torch.device) -> TableControl:
        """Return a table without an action."""
        action = torch.zeros(1, 1, len(HEADS), dtype=torch.int64, device=device)
        return TableControl(action, torch.zeros(1, 1, dtype=torch.bool, device=device))


def build_wait(spec: RunSpec, limits: Limits) -> WaitPolicy:
    """Build the policy that waits in every epoch."""
    return WaitPolicy()
