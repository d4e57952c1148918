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
from morphogen.rules.rewards.legacy.hindsight import hindsight, next_scaffold
from morphogen.rules.rewards.legacy.rent import effective_seed_params, rent_and_shock_inputs
from morphogen.rules.rewards.legacy.rows import Paid
from morphogen.rules.rewards.legacy.slot_rows import rows_of
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
GOVERNOR, FORFEIT, RESET = "governor", "escrow_forfeit", "reset_acc"
SHAPED = (
    *("attribution", "blending_warning", "holding_warning", "pbrs", "synergy", "rent", "alpha_shock"),
    *("occupancy_rent", "fossil_rent", "op_shaping", "terminal", "hindsight", GOVERNOR),
)
SIMPLIFIED = ("pbrs", "intervention", "terminal", GOVERNOR)
BASIC = ("pbrs", "rent", "fossilize_bonus", "terminal", "drip", GOVERNOR)
GROWTH = ("prev_alpha", "prev_params", "scaffold")  # ledgers of `shaped`

Leaves = dict[str, Tensor]
Step = Callable[["LegacyRule", RewardInputs, Leaves], tuple[Leaves, Leaves]]  # carried -> components, carried


@dataclass(frozen=True, slots=True)
class LegacyRule:
    """A legacy kernel, settled: a rollback pays its penalty and forfeits only, and no ledger outlives an episode."""

    step: Step  # what the family pays, and what it carries on, as if nothing ended here
    ledgers: tuple[str, ...]
    components: tuple[str, ...]
    spec: LegacyRewardSpec
    gamma: float
    episode_length: int
    governor_penalty: float
    slot_scale: float = 0.0

    def init(self, envs: int, slots: int, device: torch.device | str = "cpu") -> TensorDict:
        """The ledger after a reset: nothing carried."""
        kinds = {name: LEDGERS[name] for name in self.ledgers}
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
        carried = {name: _like(ledger[name], real) for name in self.ledgers}
        paid, carried = self.step(self, inputs, carried)
        paid = {name: paid[name] if name == FORFEIT else torch.where(back, 0.0, paid[name]) for name in paid}
        paid[GOVERNOR] = torch.where(back, torch.full_like(real, 0.0 - self.governor_penalty), 0.0)
        over = {name: inputs.horizon if name == RESET else inputs.horizon | back for name in carried}
        kept = {name: torch.where(expand_mask(over[name], leaf), 0, leaf) for name, leaf in carried.items()}
        reward = torch.stack([paid[name] for name in self.components]).sum(0)
        return reward, {name: paid[name] for name in self.components}, ledger.replace(kept)


def _like(leaf: Tensor, real: Tensor) -> Tensor:
    return leaf.to(real.dtype) if leaf.is_floating_point() else leaf


def _summed(paid: Paid) -> Leaves:
    """Components of envs: those of slots summed over them, the others once."""
    return {name: amount.sum(-1) for name, amount in paid.components.items()}


def _growth(rule: LegacyRule, inputs: RewardInputs, carried: Leaves) -> tuple[Leaves, Leaves]:
    """What `shaped` and `escrow` share: fields of rows for rent and shock, and the ledgers behind them."""
    slots = inputs.slots
    was = carried["prev_alpha"], carried["prev_params"]
    grown = rent_and_shock_inputs(
        slots.stage, slots.alpha, slots.params, *was, host_params=inputs.host_params, spec=rule.spec
    )
    fields = {name: getattr(grown, name).unsqueeze(-1) for name in ("effective_seed_params", "alpha_delta_sq_sum")}
    scaffold = next_scaffold(carried["scaffold"], inputs, gamma=rule.gamma)
    return fields, {"prev_alpha": grown.prev_alpha, "prev_params": grown.prev_params, "scaffold": scaffold}


def _shaped(rule: LegacyRule, inputs: RewardInputs, carried: Leaves) -> tuple[Leaves, Leaves]:
    fields, ledgers = _growth(rule, inputs, carried)
    rows = rows_of(inputs, inputs.val_acc, episode_length=rule.episode_length, **fields)
    paid = credits.shaped(rows, spec=rule.spec, gamma=rule.gamma)
    return {**_summed(paid), "hindsight": hindsight(carried["scaffold"], inputs.slots)}, ledgers


def _escrow(rule: LegacyRule, inputs: RewardInputs, carried: Leaves) -> tuple[Leaves, Leaves]:
    """As `_shaped`, with balances; one that no seed holds any more, at a termination no fossil, is forfeited."""
    fields, ledgers = _growth(rule, inputs, carried)
    slots, back = inputs.slots, inputs.rolled_back.unsqueeze(-1)
    held = torch.where(slots.op == int(Op.GERMINATE), 0.0, carried["escrow_balance"])
    fields["escrow_balance"] = held
    rows = rows_of(inputs, inputs.stable_val_acc, episode_length=rule.episode_length, **fields)
    paid = credits.escrow(rows, spec=rule.spec, gamma=rule.gamma)
    balance = torch.where(back, carried["escrow_balance"], paid.ledger["escrow_balance"])
    fossil = slots.next_stage == int(Stage.FOSSILIZED)
    holder = torch.where(inputs.horizon.unsqueeze(-1) | back, fossil, occupied(slots.next_stage))
    components = {
        **_summed(paid),
        "hindsight": hindsight(carried["scaffold"], slots),
        FORFEIT: -torch.where(holder, 0.0, balance).sum(-1),
    }
    return components, {**ledgers, "escrow_balance": torch.where(holder, balance, 0.0)}


def _simplified(rule: LegacyRule, inputs: RewardInputs, carried: Leaves) -> tuple[Leaves, Leaves]:
    rows = rows_of(inputs, inputs.val_acc, episode_length=rule.episode_length)
    return _summed(basics.simplified(rows, spec=rule.spec, gamma=rule.gamma)), carried


def _basic(rule: LegacyRule, inputs: RewardInputs, carried: Leaves) -> tuple[Leaves, Leaves]:
    """Accuracy counts from the reset; every fossil has a drip record of its own, opened when it is made."""
    slots, spec = inputs.slots, rule.spec
    first = (inputs.epoch == 1) & inputs.uncommitted_valid
    start = torch.where(first, inputs.val_acc, carried[RESET])
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
        "drip_scale": carried["drip_scale"],
    }
    rows = rows_of(inputs, inputs.val_acc, episode_length=rule.episode_length, **fields)
    paid = basics.basic(rows, spec=spec, gamma=rule.gamma)
    opened = paid.ledger["new_drip_scale"]
    scale = torch.where(opened > 0, opened, carried["drip_scale"])
    return _summed(paid), {"drip_scale": scale, RESET: start}


def shaped(spec: RewardSpec, terms: Terms) -> LegacyRule:
    """Original: credit for measured contributions, with warnings, rents and the shaping of ops."""
    return LegacyRule(
        step=_shaped,
        ledgers=GROWTH,
        components=SHAPED,
        spec=spec.legacy,
        gamma=terms.gamma,
        episode_length=terms.episode_length,
        governor_penalty=spec.governor_penalty,
    )


def escrow(spec: RewardSpec, terms: Terms) -> LegacyRule:
    """Original: `shaped` with the credit held in escrow until the seed is kept."""
    return replace(
        shaped(spec, terms), step=_escrow, ledgers=("escrow_balance", *GROWTH), components=(*SHAPED, FORFEIT)
    )


def simplified(spec: RewardSpec, terms: Terms) -> LegacyRule:
    """Original: stage shaping and a fee per op, accuracy and good fossils at the horizon."""
    return replace(shaped(spec, terms), step=_simplified, ledgers=(), components=SIMPLIFIED)


def basic(spec: RewardSpec, terms: Terms) -> LegacyRule:
    """Original: stage shaping, linear rent, a bonus for a good fossil, accuracy gained at the horizon."""
    return replace(shaped(spec, terms), step=_basic, ledgers=("drip_scale", RESET), components=BASIC)


def basic_plus(spec: RewardSpec, terms: Terms) -> LegacyRule:
    """Original: `basic` with most of the bonus paid out while the fossil goes on helping."""
    return basic(spec, terms)
