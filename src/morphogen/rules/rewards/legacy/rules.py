"""The legacy rules in a run: their kernels over every slot, and what they carry from step to step."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.legacy_rewards import LegacyRewardSpec
from morphogen.config.spec import RewardSpec
from morphogen.rules.rewards.legacy import basic as basics
from morphogen.rules.rewards.legacy import shaped as credits
from morphogen.rules.rewards.legacy.hindsight import hindsight_payment, next_scaffold
from morphogen.rules.rewards.legacy.rent import effective_seed_params, rent_and_shock_inputs
from morphogen.rules.rewards.legacy.rows import Payment
from morphogen.rules.rewards.legacy.slot_rows import build_slot_rows
from morphogen.rules.rewards.protocol import Terms
from morphogen.rules.stages import occupied
from morphogen.state.measure import RewardInputs
from morphogen.state.tree_ops import expand_mask
from morphogen.vocab.action import Op
from morphogen.vocab.stage import Stage

# Ledger -> dtype, number of slot axes; all 0 after a reset
LEDGERS: dict[str, tuple[torch.dtype, int]] = {
    "escrow_balance": (torch.float32, 1),
    "drip_scale": (torch.float32, 1),
    "prev_alpha": (torch.float32, 1),
    "prev_params": (torch.int64, 1),
    "scaffold": (torch.float32, 2),
    "reset_acc": (torch.float32, 0),
}
GOVERNOR_COMPONENT, FORFEIT_COMPONENT, RESET_LEDGER = "governor", "escrow_forfeit", "reset_acc"
SHAPED_COMPONENTS = (
    *("attribution", "blending_warning", "holding_warning", "pbrs", "synergy", "rent", "alpha_shock"),
    *("occupancy_rent", "fossil_rent", "op_shaping", "terminal", "hindsight", GOVERNOR_COMPONENT),
)
SIMPLIFIED_COMPONENTS = ("pbrs", "intervention", "terminal", GOVERNOR_COMPONENT)
BASIC_COMPONENTS = ("pbrs", "rent", "fossilize_bonus", "terminal", "drip", GOVERNOR_COMPONENT)
RENT_LEDGERS = ("prev_alpha", "prev_params", "scaffold")  # ledgers of `shaped`

LeafDict = dict[str, Tensor]
LegacyStep = Callable[
    ["LegacyRule", RewardInputs, LeafDict], tuple[LeafDict, LeafDict]
]  # carried -> components, carried


@dataclass(frozen=True, slots=True)
class LegacyRule:
    """A legacy kernel, settled: a rollback pays its penalty and forfeits only, and no ledger outlives an episode."""

    step: LegacyStep  # what the family pays, and what it carries on, as if nothing ended here
    ledger_names: tuple[str, ...]
    components: tuple[str, ...]
    spec: LegacyRewardSpec
    gamma: float
    episode_length: int
    governor_penalty: float
    slot_scale: float = 0.0

    def init(self, envs: int, slots: int, device: torch.device | str = "cpu") -> TensorDict:
        """The ledger after a reset: nothing carried."""
        kinds = {name: LEDGERS[name] for name in self.ledger_names}
        leaves = {
            name: torch.zeros(envs, *(slots,) * axes, dtype=dtype, device=device)
            for name, (dtype, axes) in kinds.items()
        }
        return TensorDict(leaves, batch_size=[envs], device=device)

    def potential(self, inputs: RewardInputs, ledger: TensorDict) -> tuple[Tensor, Tensor]:
        """No potential of the env, always measured.  -> (zeros [E], True [E])."""
        del ledger
        return torch.zeros_like(inputs.next_val_acc), torch.ones_like(inputs.horizon)

    def __call__(self, inputs: RewardInputs, ledger: TensorDict) -> tuple[Tensor, dict[str, Tensor], TensorDict]:
        """One step.  inputs, ledger [E] -> (reward [E], its components {name: [E]}, ledger [E]).

        Promise: the order of the slots changes no reward; only the accuracy of the reset survives a rollback.
        """
        back, real = inputs.rolled_back, inputs.next_val_acc
        carried = {name: _cast_like(ledger[name], real) for name in self.ledger_names}
        paid, carried = self.step(self, inputs, carried)
        paid = {name: paid[name] if name == FORFEIT_COMPONENT else torch.where(back, 0.0, paid[name]) for name in paid}
        paid[GOVERNOR_COMPONENT] = torch.where(back, torch.full_like(real, 0.0 - self.governor_penalty), 0.0)
        over = {name: inputs.horizon if name == RESET_LEDGER else inputs.horizon | back for name in carried}
        kept = {name: torch.where(expand_mask(over[name], leaf), 0, leaf) for name, leaf in carried.items()}
        reward = torch.stack([paid[name] for name in self.components]).sum(0)
        return reward, {name: paid[name] for name in self.components}, ledger.replace(kept)


def _cast_like(leaf: Tensor, real: Tensor) -> Tensor:
    return leaf.to(real.dtype) if leaf.is_floating_point() else leaf


def _sum_slots(paid: Payment) -> LeafDict:
    """Components of envs: those of slots summed over them, the others once."""
    return {name: amount.sum(-1) for name, amount in paid.components.items()}


def _rent_step(rule: LegacyRule, inputs: RewardInputs, ledger: LeafDict) -> tuple[LeafDict, LeafDict]:
    """Common part of `shaped` and `escrow`: fields of rows for rent and shock, and the ledgers behind them."""
    slots = inputs.slots
    was = ledger["prev_alpha"], ledger["prev_params"]
    grown = rent_and_shock_inputs(
        slots.stage, slots.alpha, slots.params, *was, host_params=inputs.host_params, spec=rule.spec
    )
    fields = {name: getattr(grown, name).unsqueeze(-1) for name in ("effective_seed_params", "alpha_delta_sq_sum")}
    scaffold = next_scaffold(ledger["scaffold"], inputs, gamma=rule.gamma)
    return fields, {"prev_alpha": grown.prev_alpha, "prev_params": grown.prev_params, "scaffold": scaffold}


def _shaped_step(rule: LegacyRule, inputs: RewardInputs, ledger: LeafDict) -> tuple[LeafDict, LeafDict]:
    fields, ledgers = _rent_step(rule, inputs, ledger)
    rows = build_slot_rows(inputs, inputs.val_acc, episode_length=rule.episode_length, **fields)
    paid = credits.shaped_reward(rows, spec=rule.spec, gamma=rule.gamma)
    return {**_sum_slots(paid), "hindsight": hindsight_payment(ledger["scaffold"], inputs.slots)}, ledgers


def _escrow_step(rule: LegacyRule, inputs: RewardInputs, ledger: LeafDict) -> tuple[LeafDict, LeafDict]:
    """As `_shaped`, with balances; one that no seed holds any more, at a termination no fossil, is forfeited."""
    fields, ledgers = _rent_step(rule, inputs, ledger)
    slots, back = inputs.slots, inputs.rolled_back.unsqueeze(-1)
    held = torch.where(slots.op == int(Op.GERMINATE), 0.0, ledger["escrow_balance"])
    fields["escrow_balance"] = held
    rows = build_slot_rows(inputs, inputs.stable_val_acc, episode_length=rule.episode_length, **fields)
    paid = credits.escrow_reward(rows, spec=rule.spec, gamma=rule.gamma)
    balance = torch.where(back, ledger["escrow_balance"], paid.ledger["escrow_balance"])
    fossil = slots.next_stage == int(Stage.FOSSILIZED)
    holder = torch.where(inputs.horizon.unsqueeze(-1) | back, fossil, occupied(slots.next_stage))
    components = {
        **_sum_slots(paid),
        "hindsight": hindsight_payment(ledger["scaffold"], slots),
        FORFEIT_COMPONENT: -torch.where(holder, 0.0, balance).sum(-1),
    }
    return components, {**ledgers, "escrow_balance": torch.where(holder, balance, 0.0)}


def _simplified_step(rule: LegacyRule, inputs: RewardInputs, ledger: LeafDict) -> tuple[LeafDict, LeafDict]:
    rows = build_slot_rows(inputs, inputs.val_acc, episode_length=rule.episode_length)
    return _sum_slots(basics.simplified_reward(rows, spec=rule.spec, gamma=rule.gamma)), ledger


def _basic_step(rule: LegacyRule, inputs: RewardInputs, ledger: LeafDict) -> tuple[LeafDict, LeafDict]:
    """Accuracy counts from the reset; every fossil has a drip record of its own, opened when it is made."""
    slots, spec = inputs.slots, rule.spec
    first = (inputs.epoch == 1) & inputs.uncommitted_valid
    start = torch.where(first, inputs.val_acc, ledger[RESET_LEDGER])
    used = effective_seed_params(
        slots.stage,
        slots.alpha,
        slots.params,
        host_params=inputs.host_params,
        slot_rent_ratio=spec.slot_rent_ratio,
    )
    fields = {
        "effective_seed_params": used.unsqueeze(-1),
        "val_acc_delta": (inputs.next_val_acc - start).unsqueeze(-1),
        "drip_scale": ledger["drip_scale"],
    }
    rows = build_slot_rows(inputs, inputs.val_acc, episode_length=rule.episode_length, **fields)
    paid = basics.basic_reward(rows, spec=spec, gamma=rule.gamma)
    opened = paid.ledger["new_drip_scale"]
    scale = torch.where(opened > 0, opened, ledger["drip_scale"])
    return _sum_slots(paid), {"drip_scale": scale, RESET_LEDGER: start}


def build_shaped(spec: RewardSpec, terms: Terms) -> LegacyRule:
    """Original: credit for measured contributions, with warnings, rents and the shaping of ops."""
    return LegacyRule(
        step=_shaped_step,
        ledger_names=RENT_LEDGERS,
        components=SHAPED_COMPONENTS,
        spec=spec.legacy,
        gamma=terms.gamma,
        episode_length=terms.episode_length,
        governor_penalty=spec.governor_penalty,
    )


def build_escrow(spec: RewardSpec, terms: Terms) -> LegacyRule:
    """Original: `shaped` with the credit held in escrow until the seed is kept."""
    return replace(
        build_shaped(spec, terms),
        step=_escrow_step,
        ledger_names=("escrow_balance", *RENT_LEDGERS),
        components=(*SHAPED_COMPONENTS, FORFEIT_COMPONENT),
    )


def build_simplified(spec: RewardSpec, terms: Terms) -> LegacyRule:
    """Original: stage shaping and a fee per op, accuracy and good fossils at the horizon."""
    return replace(build_shaped(spec, terms), step=_simplified_step, ledger_names=(), components=SIMPLIFIED_COMPONENTS)


def build_basic(spec: RewardSpec, terms: Terms) -> LegacyRule:
    """Original: stage shaping, linear rent, a bonus for a good fossil, accuracy gained at the horizon."""
    return replace(
        build_shaped(spec, terms),
        step=_basic_step,
        ledger_names=("drip_scale", RESET_LEDGER),
        components=BASIC_COMPONENTS,
    )


def build_basic_plus(spec: RewardSpec, terms: Terms) -> LegacyRule:
    """Original: `basic` with most of the bonus paid out while the fossil goes on helping."""
    return build_basic(spec, terms)
