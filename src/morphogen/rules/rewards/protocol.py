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
    """A reward rule: pure, per env; its ledger, a TensorDict [E], holds its memory between
    epochs.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> rule = mg.rules.build_rule(
        ...     mg.RewardSpec(), param_budget=20_000, episode_length=75, gamma=0.995
        ... )
        >>> inputs = mg.rules.make_reward_inputs(committed_acc=66.0, horizon=True)
        >>> reward, components, ledger = rule(inputs, rule.init(envs=1, slots=3))
        >>> list(components), reward.equal(sum(components.values()))
        (['value', 'shaping', 'rent', 'op_cost', 'governor'], True)
    """

    @property
    def components(self) -> tuple[str, ...]:
        """Names of the signed parts that sum to the reward, in the order of records."""
        ...

    @property
    def slot_scale(self) -> float:
        """Potential per point of a slot's Shapley value; 0 where the potential does not split."""
        ...

    def init(self, envs: int, slots: int, device: torch.device | str = "cpu") -> TensorDict:
        """Return the ledger after a reset, [E], all leaves with E = `envs` rows; `slots`: S."""
        ...

    def potential(self, inputs: RewardInputs, ledger: TensorDict) -> tuple[Tensor, Tensor]:
        """Potential after the step, and a flag for a measured one.  inputs, ledger [E] -> (float32
        [E], bool [E]).
        """
        ...

    def __call__(
        self, inputs: RewardInputs, ledger: TensorDict
    ) -> tuple[Tensor, dict[str, Tensor], TensorDict]:
        """Pay one step.  inputs, ledger [E] -> (reward float32 [E], its components {name: [E]},
        next ledger [E]).
        """
        ...


class WithoutPotential:
    """Base of rules without a potential; the ledger is empty unless a rule makes its own.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> class Accuracy(mg.rules.WithoutPotential):
        ...     components = ("accuracy",)
        ...
        ...     def __call__(self, inputs, ledger):
        ...         return inputs.next_val_acc, {"accuracy": inputs.next_val_acc}, ledger
        >>> inputs = mg.rules.make_reward_inputs()
        >>> [part.tolist() for part in Accuracy().potential(inputs, Accuracy().init(1, 3))]
        [[0.0], [True]]
    """

    __slots__ = ()
    slot_scale = 0.0

    def init(self, envs: int, slots: int, device: torch.device | str = "cpu") -> TensorDict:
        """Return an empty ledger, [E]: nothing is carried from step to step."""
        del slots
        return TensorDict({}, batch_size=[envs], device=device)

    def potential(self, inputs: RewardInputs, ledger: TensorDict) -> tuple[Tensor, Tensor]:
        """No potential, always measured.  inputs, ledger [E] -> (zeros [E], True [E])."""
        del ledger
        return torch.zeros_like(inputs.committed_acc), torch.ones_like(inputs.horizon)


@dataclass(frozen=True, slots=True)
class Terms:
    """Facts about the run for the builder of a rule.

    Example:
        >>> import morphogen as mg
        >>> build = mg.RULES["rent"]
        >>> build(
        ...     mg.RewardSpec(rule="rent"), mg.Terms(param_budget=300, episode_length=8, gamma=0.99)
        ... ).rent_steps
        8
    """

    param_budget: int  # parameters that cost the full price
    episode_length: int  # epochs
    gamma: float  # discount of the return, per epoch


# the first line of its docstring says what the rule pays
Builder = Callable[[RewardSpec, Terms], Rule]
