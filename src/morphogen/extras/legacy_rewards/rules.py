"""The legacy rules in a run: rows of the kernels from the inputs of a rule, and ledgers from step
to step.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.groups import RewardSpec
from morphogen.extras.legacy_rewards import kernels
from morphogen.extras.legacy_rewards.kernels import OptionalValue, Payment, SlotRows
from morphogen.extras.legacy_rewards.settings import LegacyRewardSpec
from morphogen.rules.rewards.protocol import Rule, Terms
from morphogen.rules.stages import occupied
from morphogen.state.measure import RewardInputs, SlotInputs
from morphogen.state.tree_ops import choose, expand_mask
from morphogen.vocab.action import Op
from morphogen.vocab.stage import Stage

GOVERNOR_COMPONENT = "governor"
FORFEIT_COMPONENT = "escrow_forfeit"
RESET_LEDGER = "reset_acc"
# Number of slot axes of every ledger; all 0 after a reset, float32 but for the counts of parameters
LEDGER_AXES = {
    "escrow_balance": 1,
    "drip_scale": 1,
    "prev_alpha": 1,
    "prev_params": 1,
    "scaffold": 2,
    RESET_LEDGER: 0,
}
SHAPED_COMPONENTS = (
    "attribution",
    "blending_warning",
    "holding_warning",
    "pbrs",
    "synergy",
    "rent",
    "alpha_shock",
    "occupancy_rent",
    "fossil_rent",
    "op_shaping",
    "terminal",
    "hindsight",
    GOVERNOR_COMPONENT,
)
SIMPLIFIED_COMPONENTS = ("pbrs", "intervention", "terminal", GOVERNOR_COMPONENT)
BASIC_COMPONENTS = ("pbrs", "rent", "fossilize_bonus", "terminal", "drip", GOVERNOR_COMPONENT)
RENT_LEDGERS = ("prev_alpha", "prev_params", "scaffold")  # ledgers of `shaped`
LeafDict = dict[str, Tensor]
# Ledgers -> components, and the next ledgers if the episode does not end
LegacyStep = Callable[["LegacyRule", RewardInputs, LeafDict], tuple[LeafDict, LeafDict]]
SCAFFOLD_WEIGHT = 0.1
MAX_PAYMENT = 0.2  # of one scaffold, and of a step


def build_slot_rows(
    inputs: RewardInputs, accuracy: Tensor, fields: LeafDict, *, episode_length: int
) -> SlotRows:
    """One row for every slot.

    Shapes: inputs [E]; accuracy [E], points, from which progress counts; `fields` of `SlotRows`
    that a rule adds, [E, S] or [E, 1], 0 if missing -> fields of slots [E, S], of envs [E, 1].
    """
    slots = inputs.slots
    epoch = inputs.epoch.unsqueeze(-1)
    seed = occupied(slots.stage)
    fossil = slots.stage == int(Stage.FOSSILIZED)
    fossilized = slots.next_contribution_valid & (slots.next_stage == int(Stage.FOSSILIZED))
    known = seed & inputs.uncommitted_valid.unsqueeze(-1)
    zero = torch.zeros_like(inputs.val_acc).unsqueeze(-1)
    same = (
        "op",
        "stage",
        "previous_stage",
        "epochs_in_stage",
        "previous_epochs_in_stage",
        "age",
        "interaction_sum",
    )
    absent = (
        "val_acc_delta",
        "effective_seed_params",
        "alpha_delta_sq_sum",
        "escrow_balance",
        "drip_scale",
    )
    added = dict.fromkeys(absent, zero) | fields
    return SlotRows(
        **{name: getattr(slots, name) for name in same},
        epoch=epoch,
        last=inputs.horizon.unsqueeze(-1),
        left=episode_length - epoch,
        contribution=OptionalValue(slots.contribution, slots.contribution_valid),
        uncommitted=OptionalValue(
            inputs.uncommitted_improvement.unsqueeze(-1), inputs.uncommitted_valid.unsqueeze(-1)
        ),
        progress=OptionalValue(accuracy.unsqueeze(-1) - slots.accuracy_at_germination, known),
        stage_gain=OptionalValue(
            inputs.val_acc.unsqueeze(-1) - slots.accuracy_at_stage_start, known
        ),
        val_acc=inputs.next_val_acc.unsqueeze(-1),
        host_params=inputs.host_params.unsqueeze(-1),
        n_active_seeds=(seed & ~fossil).sum(-1, keepdim=True),
        n_fossilized=fossil.sum(-1, keepdim=True),
        n_contributing_fossilized=(fossilized & (slots.next_contribution >= kernels.ONE_POINT)).sum(
            -1, keepdim=True
        ),
        **added,
    )


def hindsight_payment(scaffold: Tensor, slots: SlotInputs) -> Tensor:
    """Hindsight credit of the seeds that helped one fossilized in this step.  scaffold [E, S, S],
    slots [E] -> [E].

    Promise: 0 unless a seed with a contribution above 0 is fossilized and something helped it
    before.
    """
    fossilizes = (slots.op == int(Op.FOSSILIZE)) & slots.contribution_valid
    gain = choose(fossilizes, slots.contribution, 0.0).unsqueeze(-2)
    return (
        kernels.hindsight_credit(scaffold, gain, weight=SCAFFOLD_WEIGHT)
        .sum((-1, -2))
        .clamp(max=MAX_PAYMENT)
    )


def next_scaffold(scaffold: Tensor, inputs: RewardInputs, *, gamma: float) -> Tensor:
    """Help of this epoch plus help of earlier ones.  scaffold [E, S, S]; inputs [E] -> [E,
    S, S], >= 0.

    Promise: an epoch that was not measured changes nothing; a seed that is kept or new starts
    without help.
    """
    op = inputs.slots.op
    measured = inputs.clean_valid[:, None, None]
    grown = torch.where(measured, gamma * scaffold + inputs.interaction.clamp(min=0.0), scaffold)
    fresh = (op == int(Op.FOSSILIZE)) | (op == int(Op.GERMINATE))
    return choose(fresh.unsqueeze(-2), 0.0, grown)


@dataclass(frozen=True, slots=True)
class LegacyRule(Rule):
    """A legacy kernel over every slot; a rollback pays only its penalty and forfeits, an end clears
    the ledgers.
    """

    step: LegacyStep
    ledger_names: tuple[str, ...]
    components: tuple[str, ...]
    settings: LegacyRewardSpec
    governor_penalty: float
    terms: Terms

    def init(self, envs: int, slots: int, device: torch.device | str = "cpu") -> TensorDict:
        """The ledger after a reset: nothing carried."""
        leaves = {
            name: torch.zeros(
                (envs, *(slots,) * LEDGER_AXES[name]),
                dtype=torch.int64 if name == "prev_params" else torch.float32,
                device=device,
            )
            for name in self.ledger_names
        }
        return TensorDict(leaves, batch_size=[envs], device=device)

    def __call__(
        self, inputs: RewardInputs, ledger: TensorDict
    ) -> tuple[Tensor, dict[str, Tensor], TensorDict]:
        """One step.  inputs, ledger [E] -> (reward [E], its components {name: [E]}, ledger [E]).

        Promise: the order of the slots changes no reward; only the accuracy of the reset survives a
        rollback.
        """
        back = inputs.rolled_back
        real = inputs.next_val_acc
        old = {
            name: leaf.to(real.dtype) if leaf.is_floating_point() else leaf
            for name, leaf in ledger.items()
        }
        amounts, carried = self.step(self, inputs, old)
        penalty = torch.full_like(real, 0.0 - self.governor_penalty)
        amounts = {
            name: amount if name == FORFEIT_COMPONENT else choose(back, 0.0, amount)
            for name, amount in amounts.items()
        } | {GOVERNOR_COMPONENT: choose(back, penalty, 0.0)}
        components = {name: amounts[name] for name in self.components}
        kept: LeafDict = {}
        for name, leaf in carried.items():
            over = inputs.horizon if name == RESET_LEDGER else inputs.horizon | back
            kept[name] = choose(expand_mask(over, leaf), 0, leaf)
        reward = torch.stack([*components.values()], dim=-1).sum(-1)
        return reward, components, ledger.replace(kept)

    def pay_slots(
        self,
        kernel: Callable[..., Payment],
        inputs: RewardInputs,
        accuracy: Tensor,
        fields: LeafDict,
    ) -> tuple[LeafDict, LeafDict]:
        """Components of a kernel, summed over slots, and its ledgers; `fields` of
        `build_slot_rows`.
        """
        rows = build_slot_rows(inputs, accuracy, fields, episode_length=self.terms.episode_length)
        amounts = kernel(rows, spec=self.settings, gamma=self.terms.gamma)
        return {name: amount.sum(-1) for name, amount in amounts.components.items()}, amounts.ledger


def _rent_step(
    rule: LegacyRule, inputs: RewardInputs, ledger: LeafDict
) -> tuple[LeafDict, LeafDict]:
    """Common part of `shaped` and `escrow`: fields of rows for rent and shock, and their
    ledgers.
    """
    slots = inputs.slots
    now = (slots.stage, slots.alpha, slots.params)
    before = (ledger["prev_alpha"], ledger["prev_params"])
    used, moved, alpha, params = kernels.rent_and_shock_inputs(
        now, before, host_params=inputs.host_params, spec=rule.settings
    )
    fields = {
        "effective_seed_params": used.unsqueeze(-1),
        "alpha_delta_sq_sum": moved.unsqueeze(-1),
    }
    scaffold = next_scaffold(ledger["scaffold"], inputs, gamma=rule.terms.gamma)
    return fields, {"prev_alpha": alpha, "prev_params": params, "scaffold": scaffold}


def _shaped_step(
    rule: LegacyRule, inputs: RewardInputs, ledger: LeafDict
) -> tuple[LeafDict, LeafDict]:
    fields, ledgers = _rent_step(rule, inputs, ledger)
    amounts, _ = rule.pay_slots(kernels.shaped_reward, inputs, inputs.val_acc, fields)
    return {**amounts, "hindsight": hindsight_payment(ledger["scaffold"], inputs.slots)}, ledgers


def _escrow_step(
    rule: LegacyRule, inputs: RewardInputs, ledger: LeafDict
) -> tuple[LeafDict, LeafDict]:
    """As `_shaped_step`, with balances, forfeited once no seed (at a termination: no fossil) holds
    them.
    """
    fields, ledgers = _rent_step(rule, inputs, ledger)
    slots = inputs.slots
    back = inputs.rolled_back.unsqueeze(-1)
    held = choose(slots.op == int(Op.GERMINATE), 0.0, ledger["escrow_balance"])
    fields["escrow_balance"] = held
    amounts, after = rule.pay_slots(kernels.escrow_reward, inputs, inputs.stable_val_acc, fields)
    balance = torch.where(back, ledger["escrow_balance"], after["escrow_balance"])
    fossil = slots.next_stage == int(Stage.FOSSILIZED)
    holder = torch.where(inputs.horizon.unsqueeze(-1) | back, fossil, occupied(slots.next_stage))
    amounts["hindsight"] = hindsight_payment(ledger["scaffold"], slots)
    components = {**amounts, FORFEIT_COMPONENT: -choose(holder, 0.0, balance).sum(-1)}
    return components, {**ledgers, "escrow_balance": choose(holder, balance, 0.0)}


def _simplified_step(
    rule: LegacyRule, inputs: RewardInputs, ledger: LeafDict
) -> tuple[LeafDict, LeafDict]:
    return rule.pay_slots(kernels.simplified_reward, inputs, inputs.val_acc, {})[0], ledger


def _basic_step(
    rule: LegacyRule, inputs: RewardInputs, ledger: LeafDict
) -> tuple[LeafDict, LeafDict]:
    """Accuracy counts from the reset; fossilizing a seed opens its drip record."""
    slots = inputs.slots
    first = (inputs.epoch == 1) & inputs.uncommitted_valid
    start = torch.where(first, inputs.val_acc, ledger[RESET_LEDGER])
    used = kernels.effective_seed_params(
        slots.stage,
        slots.alpha,
        slots.params,
        host_params=inputs.host_params,
        slot_rent_ratio=rule.settings.slot_rent_ratio,
    )
    fields = {
        "effective_seed_params": used.unsqueeze(-1),
        "val_acc_delta": (inputs.next_val_acc - start).unsqueeze(-1),
        "drip_scale": ledger["drip_scale"],
    }
    amounts, after = rule.pay_slots(kernels.basic_reward, inputs, inputs.val_acc, fields)
    opened = after["new_drip_scale"]
    return amounts, {
        "drip_scale": torch.where(opened > 0, opened, ledger["drip_scale"]),
        RESET_LEDGER: start,
    }


def _build_rule(
    step: LegacyStep, ledgers: tuple[str, ...], components: tuple[str, ...], spec: Any, terms: Terms
) -> LegacyRule:
    return LegacyRule(step, ledgers, components, spec.legacy, spec.governor_penalty, terms)


def build_shaped(spec: RewardSpec, terms: Terms) -> LegacyRule:
    """Original: credit for measured contributions, with warnings, rents and the shaping of ops."""
    return _build_rule(_shaped_step, RENT_LEDGERS, SHAPED_COMPONENTS, spec, terms)


def build_escrow(spec: RewardSpec, terms: Terms) -> LegacyRule:
    """Original: `shaped` with the credit held in escrow until the seed is kept."""
    components = (*SHAPED_COMPONENTS, FORFEIT_COMPONENT)
    return _build_rule(_escrow_step, ("escrow_balance", *RENT_LEDGERS), components, spec, terms)


def build_simplified(spec: RewardSpec, terms: Terms) -> LegacyRule:
    """Original: stage shaping and a fee per op, accuracy and good fossils at the horizon."""
    return _build_rule(_simplified_step, (), SIMPLIFIED_COMPONENTS, spec, terms)


def build_basic(spec: RewardSpec, terms: Terms) -> LegacyRule:
    """Original: stage shaping, linear rent, a bonus for a good fossil, accuracy gained at the
    horizon.
    """
    return _build_rule(_basic_step, ("drip_scale", RESET_LEDGER), BASIC_COMPONENTS, spec, terms)


def build_basic_plus(spec: RewardSpec, terms: Terms) -> LegacyRule:
    """Original: `basic` with most of the bonus paid out while the fossil still helps."""
    return build_basic(spec, terms)
