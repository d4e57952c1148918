"""Protocol of reward rules, and of the functions that build them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.groups import RewardSpec
from morphogen.state.measure import RewardInputs


class Rule(Protocol):
    """A reward rule: pure, per env; what it carries between epochs is its ledger, a TensorDict [E]."""

    @property
    def components(self) -> tuple[str, ...]:
        """Names of the signed parts that sum to the reward, in the order of records."""
        ...

    @property
    def slot_scale(self) -> float:
        """Potential per point of a slot's Shapley value; 0 where the potential does not split."""
        ...

    def init(self, envs: int, slots: int, device: torch.device | str = "cpu") -> TensorDict:
        """The ledger after a reset."""
        ...

    def potential(self, inputs: RewardInputs, ledger: TensorDict) -> tuple[Tensor, Tensor]:
        """Potential after the step [E] and whether it was measured, bool [E]."""
        ...

    def __call__(self, inputs: RewardInputs, ledger: TensorDict) -> tuple[Tensor, dict[str, Tensor], TensorDict]:
        """Reward [E], components {name: [E]}, next ledger."""
        ...


class WithoutPotential:
    """Base of rules without a potential of the env."""

    __slots__ = ()
    slot_scale = 0.0

    def potential(self, inputs: RewardInputs, ledger: TensorDict) -> tuple[Tensor, Tensor]:
        """No potential, always measured.  -> (zeros [E], True [E])."""
        del ledger
        return torch.zeros_like(inputs.committed_acc), torch.ones_like(inputs.horizon)


@dataclass(frozen=True, slots=True)
class Terms:
    """Facts about the run for the builder of a rule."""

    param_budget: int  # parameters that cost the whole price
    episode_length: int  # epochs
    gamma: float


Builder = Callable[[RewardSpec, Terms], Rule]  # the first line of its docstring says what the rule pays
