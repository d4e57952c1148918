"""Kernels of the legacy rules: credit for measured contributions, warnings, rents, the shaping of
ops and stages.

Every part of a kernel is elementwise, in the dtype of its real arguments.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from morphogen.extras.legacy_rewards.settings import LegacyRewardSpec
from morphogen.rules.stages import STAGE_ROWS, blended, clamp_stage, occupied
from morphogen.state.tree_ops import choose, constant_table
from morphogen.vocab.action import Op
from morphogen.vocab.stage import OCCUPIED, Stage

_SEED_LEVELS: dict[Stage, float] = dict(zip(OCCUPIED, (1.0, 2.0, 3.5, 5.5, 6.0), strict=True))
STAGE_LEVELS = tuple(_SEED_LEVELS.get(stage, 0.0) for stage in STAGE_ROWS)
MATURE_EPOCHS = 5.0  # epochs in a stage
YOUNG_EPOCHS = 5  # epochs of life below which pruning costs more
ONE_POINT = 1.0  # points of contribution from which a seed is worth keeping
# points: removal hurts although the uncommitted seeds together do harm
RANSOM_CONTRIBUTION = 0.1
RANSOM_HARM = -0.2
MIN_SUM = 1e-8
LEGITIMACY_BONUS = 3 * math.tanh(1 / 3)  # for keeping a seed of a full point


class OptionalValue(NamedTuple):
    """Optional value, read only where the flag is True."""

    value: Tensor
    valid: Tensor  # bool


class SlotRows(NamedTuple):
    """Inputs of a kernel: a row is one slot of one env at one step.  Fields of an env may be [E, 1]
    beside [E, S].

    All real fields have the dtype of the result.  Without a seed every optional field is
    invalid.
    """

    op: Tensor  # int64, executed on this slot, else WAIT
    epoch: Tensor  # int64, from 1
    last: Tensor  # bool, the horizon
    left: Tensor  # int64, epochs after this one
    stage: Tensor  # int64, a `Stage`
    previous_stage: Tensor  # int64
    epochs_in_stage: Tensor  # int64, epochs
    previous_epochs_in_stage: Tensor  # int64
    age: Tensor  # int64
    contribution: OptionalValue  # points, leave-one-out
    uncommitted: OptionalValue  # points, all on minus only the fossilized on
    progress: OptionalValue  # points since germination
    stage_gain: OptionalValue  # points since entry into the stage
    interaction_sum: Tensor  # points
    val_acc: Tensor  # points, at the end of the step
    val_acc_delta: Tensor  # points since the reset
    effective_seed_params: Tensor  # real
    alpha_delta_sq_sum: Tensor  # real
    host_params: Tensor  # int64
    n_active_seeds: Tensor  # int64, seeds that are not fossilized
    n_fossilized: Tensor  # int64
    n_contributing_fossilized: Tensor  # int64, fossils worth at least a point
    escrow_balance: Tensor  # real
    drip_scale: Tensor  # real, 0 without a record

    @property
    def fossil(self) -> Tensor:
        """Flag of a fossil."""
        return self.stage == int(Stage.FOSSILIZED)

    @property
    def holding(self) -> Tensor:
        """Flag of a seed in HOLDING."""
        return self.stage == int(Stage.HOLDING)

    @property
    def fossilizes(self) -> Tensor:
        """Flag of the op FOSSILIZE."""
        return self.op == int(Op.FOSSILIZE)

    @property
    def prunes(self) -> Tensor:
        """Flag of the op PRUNE."""
        return self.op == int(Op.PRUNE)

    @property
    def harm(self) -> Tensor:
        """Flag of uncommitted seeds that together do harm."""
        return self.uncommitted.valid & (self.uncommitted.value < 0)

    @property
    def worthy(self) -> Tensor:
        """Flag of a held seed with a contribution of a full point."""
        (q, measured) = self.contribution
        return self.holding & measured & (q >= ONE_POINT)


class Payment(NamedTuple):
    """Outputs of a kernel; `components` sum to its total, `ledger` holds its next ledgers and
    intermediate values.
    """

    components: dict[str, Tensor]
    ledger: dict[str, Tensor]


def stage_potential(stage: Tensor, epochs: Tensor, *, spec: LegacyRewardSpec) -> Tensor:
    """Level of a stage and progress in it.  stage int64, epochs real [...] -> [...]."""
    level = constant_table(STAGE_LEVELS, epochs.dtype, epochs.device)[clamp_stage(stage)]
    return level + (spec.stage_progress * epochs).clamp(max=spec.stage_progress_cap)


def stage_pbrs(
    stage: Tensor,
    epochs: Tensor,
    previous: Tensor,
    previous_epochs: Tensor,
    *,
    spec: LegacyRewardSpec,
    gamma: float,
) -> Tensor:
    """Weighted discounted change of the stage potential.  stages int64, epochs real [...] ->
    [...].
    """
    staying = epochs >= 1
    place = torch.where(staying, stage, previous)
    since = torch.where(staying, epochs - 1, previous_epochs)
    now = stage_potential(stage, epochs, spec=spec)
    prior = stage_potential(place, since, spec=spec)
    return spec.pbrs_weight * (gamma * now - prior)


def combine(a: Tensor, b: Tensor, *, how: str) -> Tensor:
    """A mean that needs both: 0 unless both are positive.  a, b [...], `how` "harmonic" or
    "minimum" -> [...].
    """
    mean = torch.minimum(a, b) if how == "minimum" else 2 * a * b / (a + b).clamp(min=MIN_SUM)
    return choose((a > 0) & (b > 0), mean, 0.0)


def timing_discount(epoch: Tensor, *, spec: LegacyRewardSpec) -> Tensor:
    """Worth of a germination in this epoch: a ramp from the floor to 1.  epoch real [...] ->
    [floor, 1].
    """
    if not (spec.use_timing and spec.warmup_epochs):
        return torch.ones_like(epoch)
    return spec.warmup_floor + (1 - spec.warmup_floor) * (
        epoch.clamp(min=0.0) / spec.warmup_epochs
    ).clamp(max=1.0)


def log_rent(
    effective_seed_params: Tensor, host_params: Tensor, *, spec: LegacyRewardSpec
) -> Tensor:
    """Rent by the logarithm of growth.  effective_seed_params real, host_params int64 [...] ->
    [...], <= 0.
    """
    host = host_params.clamp(min=spec.host_params_floor).to(effective_seed_params.dtype)
    return -(spec.rent_weight * torch.log1p(effective_seed_params / host)).clamp(max=spec.rent_cap)


def alpha_shock(alpha_delta_sq_sum: Tensor, *, spec: LegacyRewardSpec) -> Tensor:
    """Fine for sudden changes of alpha.  [...] -> [...], <= 0."""
    if not spec.use_anti_gaming:
        return torch.zeros_like(alpha_delta_sq_sum)
    return -(spec.shock_weight * alpha_delta_sq_sum).clamp(max=spec.shock_cap)


def synergy(interaction_sum: Tensor) -> Tensor:
    """Bonus for slots that help each other.  [...] -> [...], in [0, 0.1]."""
    return choose(interaction_sum > 0, 0.1 * torch.tanh(0.5 * interaction_sum), 0.0)


def maturity(epochs: Tensor) -> Tensor:
    """Maturity of a seed in its stage.  epochs real [...] -> [...], in [0, 1]."""
    return (epochs / MATURE_EPOCHS).clamp(max=1.0)


def drip(scale: Tensor, contribution: Tensor, *, cap: float, negative_ratio: float) -> Tensor:
    """One payment out of a drip pool.  scale >= 0, contribution [...] -> [...], with the sign of
    the contribution.
    """
    return (scale * contribution).clamp(min=-negative_ratio * cap, max=cap)


def hindsight_credit(boost: Tensor, improvement: Tensor, *, weight: float) -> Tensor:
    """Bonus of a scaffold for a fossil that it helped.  boost, improvement [...] -> [...], in [0,
    weight].
    """
    both = (boost > 0) & (improvement > 0)
    return choose(both, weight * torch.tanh(0.1 * boost * improvement), 0.0)


def fossilize_shaping(
    stage: Tensor, epochs: Tensor, contribution: OptionalValue, uncommitted: OptionalValue
) -> Tensor:
    """Bonus or penalty for fossilizing the seed.  stage int64, epochs real, others optional, all
    [...] -> [...].
    """
    (q, known_q) = contribution
    (u, known_u) = uncommitted
    harm = -0.5 - (0.2 * u.abs()).clamp(max=1.0)
    harm = torch.where(known_q & (q > RANSOM_CONTRIBUTION) & (u < RANSOM_HARM), harm - 0.3, harm)
    amount = choose(known_q & (q >= ONE_POINT), (0.5 + 0.1 * q) * maturity(epochs), -0.2)
    amount = torch.where(u < 0, harm, amount)
    return choose((stage == int(Stage.HOLDING)) & known_u, amount, -1.0)


def prune_shaping(stage: Tensor, age: Tensor, contribution: OptionalValue) -> Tensor:
    """Bonus or penalty for pruning the seed.  stage int64, age real, contribution optional, all
    [...] -> [...].
    """
    q, measured = contribution
    amount = (-0.3 - 0.05 * q).clamp(min=-0.9)
    amount = choose(q < 0, 0.1, amount)
    amount = choose(q < -0.5, 0.15, amount)
    amount = choose(measured, amount, 0.0)
    amount = torch.where(age < YOUNG_EPOCHS, -0.3 * (YOUNG_EPOCHS - age), amount)
    amount = choose(stage == int(Stage.FOSSILIZED), -1.0, amount)
    return choose(occupied(stage), amount, -0.2)


def effective_seed_params(
    stage: Tensor,
    alpha: Tensor,
    seed_params: Tensor,
    *,
    host_params: Tensor,
    slot_rent_ratio: float,
) -> Tensor:
    """Parameters of blended seeds as far as they count, and a share of the host for each.  [E, S];
    host [E] -> [E].
    """
    share = slot_rent_ratio * host_params.to(alpha.dtype).unsqueeze(-1)
    return choose(blended(stage), share + alpha * seed_params.to(alpha.dtype), 0.0).sum(-1)


def rent_and_shock_inputs(
    now: tuple[Tensor, Tensor, Tensor],
    before: tuple[Tensor, Tensor],
    *,
    host_params: Tensor,
    spec: LegacyRewardSpec,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Parameters in use, and the squared changes of alpha weighted by the seeds before the step.

    Shapes: now: stage int64, alpha real, seed parameters int64; before: alpha, parameters; all [E,
    S]; host_params int64 [E] -> parameters and changes, real [E]; alpha and parameters of seeds,
    [E, S], which are `before` of the next step.
    Promise: a removal is charged once, a first activation never.
    """
    (stage, alpha, seed_params) = now
    (prev_alpha, prev_params) = before
    seed = occupied(stage)
    alpha = choose(seed, alpha, 0.0)
    params = choose(seed, seed_params, 0)
    floored = host_params.clamp(min=spec.host_params_floor).to(alpha.dtype).unsqueeze(-1)
    moved = (alpha - prev_alpha).square() * prev_params.to(alpha.dtype) / floored
    used = effective_seed_params(
        stage, alpha, params, host_params=host_params, slot_rent_ratio=spec.slot_rent_ratio
    )
    return used, moved.sum(-1), alpha, params


def shaped_reward(rows: SlotRows, *, spec: LegacyRewardSpec, gamma: float) -> Payment:
    """Contribution credit, discounted by joint effects of uncommitted seeds.  rows [...] ->
    components [...].

    Promise: a fossil earns nothing, and a seed that hurts pays its full contribution.
    """
    (q, measured) = rows.contribution
    u = rows.uncommitted
    helps = measured & (q >= 0)
    fossil = rows.fossil
    doubtful = measured & rows.harm
    # The logistic function of torch has other last bits at the end of a tensor.
    discount = choose(doubtful, 1.0 / (1.0 + torch.exp(-spec.discount_steepness * u.value)), 1.0)
    timing = choose(
        helps & ~fossil, timing_discount((rows.epoch - rows.age).to(q.dtype), spec=spec), 1.0
    )
    penalty = ratio_penalty(rows.contribution, u, needs_help=True, spec=spec)
    earned = contribution_credit(
        q, rows.progress, combine(rows.progress.value, q, how=spec.combine)
    )
    gain, known = rows.stage_gain
    proxy = choose(blended(rows.stage) & known & (gain > 0), spec.proxy_weight * gain, 0.0)
    amount = torch.where(measured, torch.where(helps, earned * discount * timing, q), proxy)
    amount = choose(fossil, 0.0, spec.contribution_weight * amount)
    amount = choose(rows.fossilizes & rows.harm, 0.0, amount)
    amount = torch.where(rows.prunes, -amount, amount)
    amount = torch.where(fossil, amount, amount + penalty)
    components = _shaping_components(rows, amount, discount >= 0.5, spec=spec, gamma=gamma)
    values = {
        "ratio_penalty": penalty,
        "attribution_discount": discount,
        "timing_discount": timing,
    }
    return Payment(components, values)


def escrow_reward(rows: SlotRows, *, spec: LegacyRewardSpec, gamma: float) -> Payment:
    """Contribution credit held in escrow: changes of a target are paid, and taken back.  rows [...]
    -> components.

    Promise: the next balance is the old one plus the delta; PRUNE pays minus the balance and leaves
    0.
    """
    (q, measured) = rows.contribution
    balance = rows.escrow_balance
    fossil = rows.fossil
    pruned = rows.prunes
    penalty = ratio_penalty(rows.contribution, rows.uncommitted, needs_help=False, spec=spec)
    both = choose(
        measured & rows.progress.valid & (rows.progress.value > 0), rows.progress.value * q, 0.0
    )
    earned = spec.contribution_weight * contribution_credit(
        q, rows.progress, both.clamp(min=0.0).sqrt()
    )
    due_balance = choose(measured & (q >= 0), (earned + penalty).clamp(min=0.0), 0.0)
    target = choose(pruned, 0.0, torch.where(fossil, balance, due_balance))
    limit = spec.escrow_clip or math.inf
    delta = choose(
        measured, torch.where(q < 0, -balance, (due_balance - balance).clamp(-limit, limit)), 0.0
    )
    delta = torch.where(pruned, -balance, choose(fossil, 0.0, delta))
    harm = choose(measured & (q < 0) & ~fossil & ~pruned, spec.contribution_weight * q, 0.0)
    amount = choose(rows.fossilizes & rows.harm, 0.0, harm + delta)
    components = _shaping_components(rows, amount, torch.ones_like(fossil), spec=spec, gamma=gamma)
    values = {"escrow_target": target, "escrow_delta": delta, "escrow_balance": balance + delta}
    return Payment(components, {**values, "ratio_penalty": penalty})


def ratio_penalty(
    contribution: OptionalValue,
    uncommitted: OptionalValue,
    *,
    needs_help: bool,
    spec: LegacyRewardSpec,
) -> Tensor:
    """Fine, -0.3 .. 0, of a contribution far above the joint gain of the uncommitted; `needs_help`:
    none if below 0.
    """
    (q, measured) = contribution
    (u, known) = uncommitted
    helped = known & (u > 0.1)
    excess = (q / choose(helped, u, 1.0) - spec.ratio_threshold).clamp(min=0.0)
    fine = torch.where(
        helped, (0.1 * excess / spec.ratio_threshold).clamp(max=0.3), 0.3 * (q / 10).clamp(max=1.0)
    )
    due = measured & (q > 1) & spec.use_anti_gaming
    return choose(due & known & (u >= 0) if needs_help else due, -fine, 0.0)


def contribution_credit(contribution: Tensor, progress: OptionalValue, shared: Tensor) -> Tensor:
    """Credit of a contribution >= 0; `shared` where it exceeds the progress of the seed.  [...] ->
    [...].
    """
    gained = torch.where(contribution >= progress.value, shared, contribution)
    return torch.where(progress.valid, choose(progress.value > 0, gained, 0.0), contribution / 2)


def _shaping_components(
    rows: SlotRows, attribution: Tensor, trusted: Tensor, *, spec: LegacyRewardSpec, gamma: float
) -> dict[str, Tensor]:
    """All components [...] by name, `attribution` first."""
    real = attribution.dtype
    epochs = rows.epochs_in_stage.to(real)
    seed = occupied(rows.stage)
    rewarded = attribution > 0
    harmful = (rows.stage == int(Stage.BLENDING)) & rows.harm
    deciding = rows.fossilizes | rows.prunes
    idle = rows.holding & ~deciding & (rows.epochs_in_stage >= 2) & rewarded
    final = rows.last & spec.use_terminal
    return {
        "attribution": attribution,
        "blending_warning": choose(harmful, -0.1 - (0.05 * epochs).clamp(max=0.3), 0.0),
        "holding_warning": choose(idle, -(0.1 + 0.05 * (epochs - 2)).clamp(max=0.3), 0.0),
        "pbrs": _slot_pbrs(rows, debit=False, spec=spec, gamma=gamma),
        "synergy": choose(seed & trusted & rewarded, synergy(rows.interaction_sum), 0.0),
        "rent": log_rent(rows.effective_seed_params, rows.host_params, spec=spec),
        "alpha_shock": alpha_shock(rows.alpha_delta_sq_sum, spec=spec),
        "occupancy_rent": -0.01
        * (rows.n_active_seeds + rows.n_fossilized - spec.free_slots).clamp(min=0).to(real),
        "fossil_rent": -0.002 * rows.n_fossilized.to(real),
        "op_shaping": op_payment(rows, spec=spec, gamma=gamma),
        "terminal": choose(final, 0.05 * rows.val_acc, 0.0),
    }


def op_payment(rows: SlotRows, *, spec: LegacyRewardSpec, gamma: float) -> Tensor:
    """Cost of an op, and its bonus or penalty.  rows [...] -> [...], 0 for WAIT."""
    stage = rows.stage
    q = rows.contribution.value
    (u, known) = rows.uncommitted
    seed = occupied(stage)
    epochs = rows.epochs_in_stage.to(q.dtype)
    fossilized = -0.01 + fossilize_shaping(stage, epochs, rows.contribution, rows.uncommitted)
    legitimate = rows.worthy & known & (u >= 0)
    bonus = choose(legitimate & spec.use_terminal, LEGITIMACY_BONUS * maturity(epochs), 0.0)
    removed = -0.005 + prune_shaping(stage, rows.age.to(q.dtype), rows.contribution)
    sown = torch.full_like(q, -0.15)
    if spec.use_pbrs:
        debit = spec.pbrs_weight * stage_potential(stage, epochs, spec=spec)
        removed = torch.where(seed, removed - debit, removed)
        promise = spec.pbrs_weight * gamma * timing_discount(rows.epoch.to(q.dtype), spec=spec)
        sown = torch.where(rows.last, sown, sown + promise)
    total = torch.zeros_like(q)
    amounts = {
        Op.GERMINATE: choose(seed, -0.45, sown),
        Op.FOSSILIZE: fossilized + bonus,
        Op.PRUNE: removed,
        Op.ADVANCE: choose(stage == int(Stage.TRAINING), -0.1, total),
        Op.SET_ALPHA_TARGET: -0.005,
    }
    for op, amount in amounts.items():
        total = choose(rows.op == int(op), amount, total)
    return total


def simplified_reward(rows: SlotRows, *, spec: LegacyRewardSpec, gamma: float) -> Payment:
    """Stage shaping, a fee for every op, accuracy and good fossils at the end.  rows [...] ->
    components [...].
    """
    good = rows.n_contributing_fossilized.to(rows.val_acc.dtype)
    fee = torch.full_like(rows.contribution.value, -0.01)
    final = rows.last & spec.use_terminal
    components = {
        "pbrs": _slot_pbrs(rows, debit=False, spec=spec, gamma=gamma),
        "intervention": choose(rows.op == int(Op.WAIT), 0.0, fee),
        "terminal": choose(final, 3 * rows.val_acc / 100 + 2 * good, 0.0),
    }
    return Payment(components, {})


def basic_reward(rows: SlotRows, *, spec: LegacyRewardSpec, gamma: float) -> Payment:
    """Stage shaping, linear rent, a bonus for a good fossil of which a fraction is dripped.  rows
    [...] -> components.

    Promise: a drip record is opened where `new_drip_scale` > 0, and never without a bonus.
    """
    (q, measured) = rows.contribution
    (u, known) = rows.uncommitted
    improved = known & (u > 0)
    fossilized = rows.fossilizes & occupied(rows.stage)
    good = rows.worthy & improved
    both = combine(choose(improved, u, 0.0).expand_as(q), q, how=spec.combine)
    full = (0.3 + spec.basic_bonus_scale * both) * maturity(rows.epochs_in_stage.to(q.dtype))
    useless = ~improved & measured & (q > RANSOM_CONTRIBUTION)
    bonus = choose(
        rows.holding & ~useless, choose(good, full * (1 - spec.drip_fraction), -0.2), -0.5
    )
    left = rows.left.clamp(min=spec.drip_min_epochs)
    pool = choose(fossilized & good, full * spec.drip_fraction, 0.0)
    payment = drip(rows.drip_scale, q, cap=spec.drip_cap, negative_ratio=spec.drip_negative_ratio)
    components = {
        "pbrs": _slot_pbrs(rows, debit=True, spec=spec, gamma=gamma),
        "rent": -spec.param_price * rows.effective_seed_params / spec.param_budget,
        "fossilize_bonus": choose(fossilized, bonus, 0.0),
        "terminal": choose(rows.last, spec.basic_terminal_weight * rows.val_acc_delta / 100, 0.0),
        "drip": choose(measured & (rows.drip_scale > 0), payment, 0.0),
    }
    return Payment(
        components, {"new_drip_pool": pool, "new_drip_scale": pool / left.to(pool.dtype)}
    )


def _slot_pbrs(rows: SlotRows, *, debit: bool, spec: LegacyRewardSpec, gamma: float) -> Tensor:
    """Stage shaping of a seed; with `debit` a pruned seed gives its full potential back.  rows
    [...] -> [...].
    """
    real = rows.contribution.value.dtype
    epochs = rows.epochs_in_stage.to(real)
    previous = rows.previous_epochs_in_stage.to(real)
    amount = stage_pbrs(rows.stage, epochs, rows.previous_stage, previous, spec=spec, gamma=gamma)
    if debit:
        owed = -spec.pbrs_weight * stage_potential(rows.stage, epochs, spec=spec)
        amount = torch.where(rows.prunes, owed, amount)
    return choose(occupied(rows.stage) & spec.use_pbrs, amount, 0.0)
