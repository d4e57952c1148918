"""Base of reward rules, and of the functions that build them."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.groups import RewardSpec
from morphogen.state.measure import RewardInputs


class Rule(ABC):
    """A reward rule: pure, per env; its ledger, a TensorDict [E], holds its memory between
    epochs.  A rule without a potential or a ledger keeps the methods of this class.

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
        >>> class Accuracy(mg.rules.Rule):
        ...     components = ("accuracy",)
        ...
        ...     def __call__(self, inputs, ledger):
        ...         return inputs.next_val_acc, {"accuracy": inputs.next_val_acc}, ledger
        >>> [part.tolist() for part in Accuracy().potential(inputs, Accuracy().init(1, 3))]
        [[0.0], [True]]
    """

    __slots__ = ()
    # names of the signed parts that sum to the reward, in the order of records
    components: tuple[str, ...]
    # potential per point of a slot's Shapley value; 0 where the potential does not split
    slot_scale: float = 0.0

    def init(self, envs: int, slots: int, device: torch.device | str = "cpu") -> TensorDict:
        """Return the ledger after a reset, [E], all leaves with E = `envs` rows; `slots`: S."""
        del slots
        return TensorDict({}, batch_size=[envs], device=device)

    def potential(self, inputs: RewardInputs, ledger: TensorDict) -> tuple[Tensor, Tensor]:
        """Potential after the step, and a flag for a measured one.  inputs, ledger [E] -> (float32
        [E], bool [E]).
        """
        del ledger
        return torch.zeros_like(inputs.committed_acc), torch.ones_like(inputs.horizon)

    @abstractmethod
    def __call__(
        self, inputs: RewardInputs, ledger: TensorDict
    ) -> tuple[Tensor, dict[str, Tensor], TensorDict]:
        """Pay one step.  inputs, ledger [E] -> (reward float32 [E], its components {name: [E]},
        next ledger [E]).
        """


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
