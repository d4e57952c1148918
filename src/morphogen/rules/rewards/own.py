"""The rules of the package: value of the network minus the price of its parameters.

`CoreRule`: value of the delivered network, potential-based shaping, cost of a rollback; it is
sparse, delta, value, rent and loss.  `AnytimeRule`: value of the network in every epoch; it is
anytime.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.groups import RewardSpec
from morphogen.rules.rewards.protocol import Rule, Terms
from morphogen.state.measure import RewardInputs
from morphogen.state.tree_ops import choose, constant_table, get_leaf
from morphogen.state.tree_ops import replace as replace_parts
from morphogen.vocab.action import Op
from morphogen.vocab.reward import ANYTIME_COMPONENTS, CORE_COMPONENTS

POINTS_PER_REWARD = 100.0  # accuracy points that are worth a reward of 1


def parameter_cost(inputs: RewardInputs, *, param_budget: int) -> Tensor:
    """Price of the fossilized parameters, linear, as a share of 1.

    Shapes: inputs [E] -> float32 [E], >= 0: the price of `param_budget` parameters is
    `inputs.param_price`.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> inputs = mg.rules.make_reward_inputs(2, fossil_params=[2000, 0], param_price=0.1)
        >>> [round(x, 3) for x in mg.rules.parameter_cost(inputs, param_budget=20_000).tolist()]
        [0.01, 0.0]
    """
    return inputs.param_price * inputs.fossil_params.to(inputs.param_price.dtype) / param_budget


def clamped_value(inputs: RewardInputs, cost: Tensor) -> Tensor:
    """Committed accuracy less a cost; 0 where it was not measured.  inputs, cost [E] -> [E], in
    [-1, 1].
    """
    value = (inputs.committed_acc / POINTS_PER_REWARD - cost).clamp(-1.0, 1.0)
    return choose(inputs.committed_valid, value, 0.0)


def network_value(inputs: RewardInputs, *, param_budget: int) -> Tensor:
    """Value of a delivery now: committed accuracy as a share of 1, less the price of
    its parameters.

    Shapes: inputs [E] -> float32 [E], in [-1, 1]; 0 where the accuracy was not measured.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> inputs = mg.rules.make_reward_inputs(
        ...     2, committed_acc=[66.0, 58.0], fossil_params=[2000, 0], param_price=0.1
        ... )
        >>> [round(x, 3) for x in mg.rules.network_value(inputs, param_budget=20_000).tolist()]
        [0.65, 0.58]
    """
    return clamped_value(inputs, parameter_cost(inputs, param_budget=param_budget))


def grown_rent(inputs: RewardInputs, *, param_budget: int) -> Tensor:
    """Price of all grown parameters for a complete episode, as a share of 1.  inputs [E] -> float32
    [E], >= 0.
    """
    return inputs.param_price * (inputs.live_params.to(inputs.param_price.dtype) / param_budget)


def epoch_value(inputs: RewardInputs, *, param_budget: int) -> Tensor:
    """Worth of an epoch: accuracy of the network in use as a share of 1, less the price of all
    grown parameters.

    Its mean over the epochs of an episode is the anytime value: a seed counts from its blending on
    and costs from its germination until it is pruned.

    Shapes: inputs [E] -> float32 [E], <= 1.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> inputs = mg.rules.make_reward_inputs(
        ...     2, next_val_acc=[66.0, 58.0], live_params=[2000, 0], param_price=0.1
        ... )
        >>> [round(x, 3) for x in mg.rules.epoch_value(inputs, param_budget=20_000).tolist()]
        [0.65, 0.58]
    """
    return inputs.next_val_acc / POINTS_PER_REWARD - grown_rent(inputs, param_budget=param_budget)


def zero_potential(inputs: RewardInputs) -> tuple[Tensor, Tensor]:
    """No potential, always measured.  inputs [E] -> (zeros [E], True [E])."""
    return torch.zeros_like(inputs.committed_acc), torch.ones_like(inputs.horizon)


def improvement_potential(inputs: RewardInputs) -> tuple[Tensor, Tensor]:
    """Clean improvement as a share of 100 points, and whether it was measured.  inputs [E] -> ([E],
    bool [E]).
    """
    return choose(
        inputs.clean_valid, inputs.clean_improvement, 0.0
    ) / POINTS_PER_REWARD, inputs.clean_valid


def value_potential(inputs: RewardInputs, *, param_budget: int) -> tuple[Tensor, Tensor]:
    """Value of the network that would be delivered now, and whether it was measured.  inputs [E] ->
    ([E], bool [E]).
    """
    return network_value(inputs, param_budget=param_budget), inputs.committed_valid


def loss_progress(val_loss: Tensor, *, baseline: Tensor, target: Tensor) -> Tensor:
    """Share of the way from the baseline loss down to the target.  All [...], target < baseline ->
    [...], in [0, 1].
    """
    return ((baseline - val_loss) / (baseline - target)).clamp(0.0, 1.0)


def loss_potential(inputs: RewardInputs) -> tuple[Tensor, Tensor]:
    """Progress of the validation loss, and whether it was measured.  inputs [E] -> ([E], bool
    [E]).
    """
    loss = torch.where(inputs.loss_valid, inputs.val_loss, inputs.baseline_loss)
    return loss_progress(
        loss, baseline=inputs.baseline_loss, target=inputs.target_loss
    ), inputs.loss_valid


@dataclass(frozen=True, slots=True)
class CoreRule(Rule):
    """Value at the horizon plus shaping by a potential that starts and ends every segment at 0."""

    terms: Terms
    governor_penalty: float
    # the potential before scaling, and its flag
    potential_fn: Callable[[RewardInputs], tuple[Tensor, Tensor]]
    scale: float = 0.0  # of the potential: kappa
    # potential per point of Shapley value; 0 where the potential does not split
    slot_scale: float = 0.0
    op_cost: float = 0.0
    # steps over which live parameters pay the price; 0: fossils pay it once, in the value
    rent_steps: int = 0
    components: tuple[str, ...] = CORE_COMPONENTS

    def init(self, envs: int, slots: int, device: torch.device | str = "cpu") -> TensorDict:
        """The ledger after a reset: the potential from which the next step starts."""
        del slots
        phi = torch.zeros(envs, dtype=torch.float32, device=device)
        return TensorDict({"phi": phi}, batch_size=[envs], device=device)

    def potential(self, inputs: RewardInputs, ledger: TensorDict) -> tuple[Tensor, Tensor]:
        """Potential after the step; carried where not measured.  -> ([E], measured bool [E])."""
        fresh, measured = self.potential_fn(inputs)
        return torch.where(
            measured, self.scale * fresh, get_leaf(ledger, "phi").to(fresh.dtype)
        ), measured

    def __call__(
        self, inputs: RewardInputs, ledger: TensorDict
    ) -> tuple[Tensor, dict[str, Tensor], TensorDict]:
        """One step.  inputs, ledger [E] -> (reward [E], its components {name: [E]}, ledger [E]).

        Promise: the discounted shaping of a segment sums to 0, so it moves no optimum; a rollback
        pays the penalty and gives back the potential, nothing else; an op that did not take effect
        is rewarded like WAIT.
        Source of the shaping: Ng, Harada and Russell, Policy Invariance under Reward
        Transformations, 1999.
        """
        intact = ~inputs.rolled_back
        before = get_leaf(ledger, "phi").to(inputs.committed_acc.dtype)
        reached, _ = self.potential(inputs, ledger)
        after = choose(inputs.horizon | inputs.rolled_back, 0.0, reached)
        value, rent = self._value_and_rent(inputs)
        amounts = {
            "value": choose(inputs.horizon & intact, value, 0.0),
            "shaping": self.terms.gamma * after - before,
            "rent": choose(intact, rent, 0.0),
            "op_cost": _fee_where(_acted(inputs), self.op_cost, before),
            "governor": _fee_where(inputs.rolled_back, self.governor_penalty, before),
        }
        return (
            torch.stack([amounts[name] for name in self.components]).sum(0),
            amounts,
            replace_parts(ledger, phi=after),
        )

    def _value_and_rent(self, inputs: RewardInputs) -> tuple[Tensor, Tensor]:
        """Value of a delivered network, and the rent of this step, <= 0: one of them charges the
        parameters.
        """
        free = torch.zeros_like(inputs.param_price)
        if not self.rent_steps:
            return network_value(inputs, param_budget=self.terms.param_budget), free
        rent = grown_rent(inputs, param_budget=self.terms.param_budget * self.rent_steps)
        return clamped_value(inputs, free), 0.0 - rent


@dataclass(frozen=True, slots=True)
class AnytimeRule(Rule):
    """Every step pays its share of the anytime value: what the network in use is worth in this
    epoch.
    """

    terms: Terms
    governor_penalty: float
    op_cost: float
    components: tuple[str, ...] = ANYTIME_COMPONENTS

    def __call__(
        self, inputs: RewardInputs, ledger: TensorDict
    ) -> tuple[Tensor, dict[str, Tensor], TensorDict]:
        """One step.  inputs, ledger [E] -> (reward [E], its components {name: [E]}, ledger [E]).

        Promise: the rewards of an episode without fees and rollbacks sum to the mean of
        `epoch_value`; a rollback pays the penalty and nothing else; an op that did not take effect
        costs nothing.
        """
        intact = ~inputs.rolled_back
        zero = torch.zeros_like(inputs.param_price)
        steps = self.terms.episode_length
        rent = grown_rent(inputs, param_budget=self.terms.param_budget * steps)
        amounts = {
            "accuracy": choose(intact, inputs.next_val_acc / (POINTS_PER_REWARD * steps), 0.0),
            "rent": choose(intact, 0.0 - rent, 0.0),
            "op_cost": _fee_where(_acted(inputs), self.op_cost, zero),
            "governor": _fee_where(inputs.rolled_back, self.governor_penalty, zero),
        }
        return torch.stack([amounts[name] for name in self.components]).sum(0), amounts, ledger


def _acted(inputs: RewardInputs) -> Tensor:
    """Steps in which an op took effect and was not undone.  inputs [E] -> bool [E]."""
    return (inputs.op != int(Op.WAIT)) & inputs.op_executed & ~inputs.rolled_back


def _fee_where(due: Tensor, amount: float, like: Tensor) -> Tensor:
    """Minus the amount where it is due, else 0."""
    return choose(due, constant_table(0.0 - amount, like.dtype, like.device), 0.0)


def build_sparse(spec: RewardSpec, terms: Terms) -> CoreRule:
    """Value of the delivered network at the horizon, nothing before; no shaping, no cost of ops:
    the yardstick.
    """
    return CoreRule(terms, spec.governor_penalty, zero_potential)


def build_delta(spec: RewardSpec, terms: Terms) -> CoreRule:
    """`sparse` plus exact potential-based shaping on the measured clean improvement."""
    return replace(
        build_sparse(spec, terms),
        potential_fn=improvement_potential,
        scale=spec.potential_scale,
        slot_scale=spec.potential_scale / POINTS_PER_REWARD,
        op_cost=spec.op_cost,
    )


def build_value(spec: RewardSpec, terms: Terms) -> CoreRule:
    """`delta` with the value of the network that would be delivered now as potential: keeping a
    seed is rewarded.
    """
    potential = partial(value_potential, param_budget=terms.param_budget)
    return replace(build_delta(spec, terms), potential_fn=potential, slot_scale=0.0)


def build_rent(spec: RewardSpec, terms: Terms) -> CoreRule:
    """`delta`, but parameters are charged per step while they live, at the same price, and not at
    the end.
    """
    return replace(build_delta(spec, terms), rent_steps=terms.episode_length)


def build_loss(spec: RewardSpec, terms: Terms) -> CoreRule:
    """`delta` with the validation loss instead of the clean improvement in the potential."""
    return replace(build_delta(spec, terms), potential_fn=loss_potential, slot_scale=0.0)


def build_anytime(spec: RewardSpec, terms: Terms) -> AnytimeRule:
    """Value of the network in use, epoch by epoch: accuracy less the price of all that is grown; no
    shaping.
    """
    return AnytimeRule(terms, spec.governor_penalty, spec.op_cost)
