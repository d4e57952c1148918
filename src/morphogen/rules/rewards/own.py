"""The own rules: the value of the delivered network, potential-based shaping on top, and what a rollback costs."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.state.measure import RewardInputs
from morphogen.vocab.action import Op
from morphogen.vocab.reward import OWN_COMPONENTS

POINTS = 100.0  # accuracy points that are worth a reward of 1


def parameter_cost(inputs: RewardInputs, *, param_budget: int) -> Tensor:
    """Price of the fossilized parameters, linear.  inputs [E] -> [E], >= 0."""
    return inputs.param_price * inputs.fossil_params.to(inputs.param_price.dtype) / param_budget


def network_value(inputs: RewardInputs, *, param_budget: int) -> Tensor:
    """Worth of what would be delivered now: committed accuracy less its price.  inputs [E] -> [E], in [-1, 1]."""
    committed = torch.where(inputs.committed_valid, inputs.committed_acc, 0.0) / POINTS
    worth = (committed - parameter_cost(inputs, param_budget=param_budget)).clamp(-1.0, 1.0)
    return torch.where(inputs.committed_valid, worth, 0.0)


def flat_potential(inputs: RewardInputs) -> tuple[Tensor, Tensor]:
    """No potential, always measured.  inputs [E] -> (zeros [E], True [E])."""
    return torch.zeros_like(inputs.committed_acc), torch.ones_like(inputs.horizon)


def improvement_potential(inputs: RewardInputs) -> tuple[Tensor, Tensor]:
    """Clean improvement as a share of 100 points, and whether it was measured.  inputs [E] -> ([E], bool [E])."""
    return torch.where(inputs.clean_valid, inputs.clean_improvement, 0.0) / POINTS, inputs.clean_valid


@dataclass(frozen=True, slots=True)
class OwnRule:
    """Value at the horizon plus shaping by a potential that starts and ends every segment at 0."""

    source: Callable[[RewardInputs], tuple[Tensor, Tensor]]  # the potential before scaling, and its flag
    scale: float  # of the potential: kappa
    slot_scale: float  # potential per point of Shapley value; 0 where the potential does not split
    gamma: float
    governor_penalty: float
    op_cost: float
    param_budget: int
    components: tuple[str, ...] = OWN_COMPONENTS

    def init(self, envs: int, slots: int, device: torch.device | str = "cpu") -> TensorDict:
        """The ledger after a reset: the potential from which the next step starts."""
        del slots
        return TensorDict({"phi": torch.zeros(envs, device=device)}, batch_size=[envs], device=device)

    def potential(self, inputs: RewardInputs, ledger: TensorDict) -> tuple[Tensor, Tensor]:
        """Potential after the step; carried where not measured.  -> ([E], measured bool [E])."""
        fresh, measured = self.source(inputs)
        return torch.where(measured, self.scale * fresh, ledger["phi"].to(fresh.dtype)), measured

    def __call__(self, inputs: RewardInputs, ledger: TensorDict) -> tuple[Tensor, dict[str, Tensor], TensorDict]:
        """One step.  inputs, ledger [E] -> (reward [E], its components {name: [E]}, ledger [E]).

        Promise: the discounted shaping of a segment sums to 0, so it moves no optimum (Ng et al. 1999); a rollback pays
        the penalty and gives back the potential, nothing else; an op that did not take effect is paid like WAIT.
        """
        ending = inputs.horizon | inputs.rolled_back
        before = ledger["phi"].to(inputs.committed_acc.dtype)
        reached, _ = self.potential(inputs, ledger)
        after = torch.where(ending, 0.0, reached)
        acted = (inputs.op != int(Op.WAIT)) & inputs.op_executed & ~inputs.rolled_back
        worth = network_value(inputs, param_budget=self.param_budget)
        paid = {
            "value": torch.where(inputs.horizon & ~inputs.rolled_back, worth, 0.0),
            "shaping": self.gamma * after - before,
            "op_cost": _fee(acted, self.op_cost, before),
            "governor": _fee(inputs.rolled_back, self.governor_penalty, before),
        }
        reward = torch.stack([paid[name] for name in self.components]).sum(0)
        return reward, paid, ledger.replace({"phi": after})


def _fee(due: Tensor, amount: float, like: Tensor) -> Tensor:
    """Minus the amount where it is due, else 0."""
    return torch.where(due, torch.full_like(like, 0.0 - amount), 0.0)
