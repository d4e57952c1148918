"""Kernels of the legacy rules: credit for measured contributions, warnings, rents, the shaping of ops and stages."""

import math

import torch
from torch import Tensor

from morphogen.config.groups import LegacyRewardSpec
from morphogen.rules.rewards.legacy import parts
from morphogen.rules.rewards.legacy.parts import OptionalValue, Payment, SlotRows
from morphogen.rules.stages import occupied
from morphogen.vocab.action import Op
from morphogen.vocab.stage import Stage

LEGITIMACY_BONUS = 3 * math.tanh(1 / 3)  # for keeping a seed of a whole point


def shaped_reward(rows: SlotRows, *, spec: LegacyRewardSpec, gamma: float) -> Payment:
    """Contribution credit, discounted by what the uncommitted seeds do together.  rows [...] -> components [...].

    Promise: a fossil earns nothing, and a seed that hurts pays its whole contribution.
    """
    (q, measured), u, op = rows.contribution, rows.uncommitted, rows.op
    helps = measured & (q >= 0)
    fossil = rows.stage == int(Stage.FOSSILIZED)
    discount = attribution_discount(rows.contribution, u, steepness=spec.discount_steepness)
    timing = torch.where(helps & ~fossil, _germination_discount(rows.epoch - rows.age, q.dtype, spec), 1.0)
    penalty = ratio_penalty(rows.contribution, u, needs_help=True, spec=spec)
    earned = contribution_credit(q, rows.progress, parts.combine(rows.progress.value, q, how=spec.combine))
    gain, known = rows.stage_gain
    blended = (rows.stage == int(Stage.BLENDING)) | (rows.stage == int(Stage.HOLDING))
    proxy = torch.where(blended & known & (gain > 0), spec.proxy_weight * gain, 0.0)
    amount = torch.where(measured, torch.where(helps, earned * discount * timing, q), proxy)
    amount = torch.where(fossil, 0.0, spec.contribution_weight * amount)
    amount = torch.where((op == int(Op.FOSSILIZE)) & u.valid & (u.value < 0), 0.0, amount)
    amount = torch.where(op == int(Op.PRUNE), -amount, amount)
    amount = torch.where(fossil, amount, amount + penalty)
    components = {"attribution": amount, **_shaping_components(rows, amount, discount >= 0.5, spec=spec, gamma=gamma)}
    diagnostics = {"ratio_penalty": penalty, "attribution_discount": discount, "timing_discount": timing}
    return Payment(components, diagnostics, {})


def escrow_reward(rows: SlotRows, *, spec: LegacyRewardSpec, gamma: float) -> Payment:
    """Contribution credit held in escrow: changes of a target are paid, and taken back.  rows [...] -> components.

    Promise: the next balance is the old one plus the delta; PRUNE pays minus the balance and leaves 0.
    """
    (q, measured), u, op, balance = rows.contribution, rows.uncommitted, rows.op, rows.escrow_balance
    fossil, pruned = rows.stage == int(Stage.FOSSILIZED), op == int(Op.PRUNE)
    penalty = ratio_penalty(rows.contribution, u, needs_help=False, spec=spec)
    both = torch.where(measured & rows.progress.valid & (rows.progress.value > 0), rows.progress.value * q, 0.0)
    earned = spec.contribution_weight * contribution_credit(q, rows.progress, both.clamp(min=0.0).sqrt())
    due_balance = torch.where(measured & (q >= 0), (earned + penalty).clamp(min=0.0), 0.0)
    target = torch.where(pruned, 0.0, torch.where(fossil, balance, due_balance))
    limit = spec.escrow_clip or math.inf
    delta = torch.where(measured, torch.where(q < 0, -balance, (due_balance - balance).clamp(-limit, limit)), 0.0)
    delta = torch.where(pruned, -balance, torch.where(fossil, 0.0, delta))
    harm = torch.where(measured & (q < 0) & ~fossil & ~pruned, spec.contribution_weight * q, 0.0)
    amount = torch.where((op == int(Op.FOSSILIZE)) & u.valid & (u.value < 0), 0.0, harm + delta)
    shaping = _shaping_components(rows, amount, torch.ones_like(fossil), spec=spec, gamma=gamma)
    ledger = {"escrow_target": target, "escrow_delta": delta, "escrow_balance": balance + delta}
    return Payment({"attribution": amount, **shaping}, {"ratio_penalty": penalty}, ledger)


def attribution_discount(contribution: OptionalValue, uncommitted: OptionalValue, *, steepness: float) -> Tensor:
    """Doubt about a contribution where the uncommitted seeds together do harm.  [...] -> [...], in (0, 1]."""
    doubtful = contribution.valid & uncommitted.valid & (uncommitted.value < 0)
    return torch.where(doubtful, torch.sigmoid(steepness * uncommitted.value), 1.0)


def ratio_penalty(
    contribution: OptionalValue, uncommitted: OptionalValue, *, needs_help: bool, spec: LegacyRewardSpec
) -> Tensor:
    """Fine for a contribution far above what the uncommitted seeds gain together.  [...] -> [...], in [-0.3, 0].

    `needs_help`: no fine where they do harm.
    """
    (q, measured), (u, known) = contribution, uncommitted
    if not spec.use_anti_gaming:
        return torch.zeros_like(q)
    helped = known & (u > 0.1)
    excess = (q / torch.where(helped, u, 1.0) - spec.ratio_threshold).clamp(min=0.0)
    fine = torch.where(helped, (0.1 * excess / spec.ratio_threshold).clamp(max=0.3), 0.3 * (q / 10).clamp(max=1.0))
    due = measured & (q > 1)
    return torch.where(due & known & (u >= 0) if needs_help else due, -fine, 0.0)


def contribution_credit(contribution: Tensor, progress: OptionalValue, shared: Tensor) -> Tensor:
    """Credit of a contribution >= 0; `shared` where it exceeds the progress of the seed.  [...] -> [...]."""
    gained = torch.where(contribution >= progress.value, shared, contribution)
    return torch.where(progress.valid, torch.where(progress.value > 0, gained, 0.0), contribution / 2)


def _germination_discount(epoch: Tensor, real: torch.dtype, spec: LegacyRewardSpec) -> Tensor:
    """Discount of a germination in this epoch; 1 without timing.  int64 [...] -> [...]."""
    warmup = spec.warmup_epochs if spec.use_timing else 0
    return parts.timing_discount(epoch.to(real).clamp(min=0.0), warmup_epochs=warmup, floor=spec.warmup_floor)


def _shaping_components(
    rows: SlotRows, attribution: Tensor, trusted: Tensor, *, spec: LegacyRewardSpec, gamma: float
) -> dict[str, Tensor]:
    """Everything but attribution: components [...] by name."""
    real = attribution.dtype
    epochs, seed, rewarded = rows.epochs_in_stage.to(real), occupied(rows.stage), attribution > 0
    u, previous = rows.uncommitted, rows.previous_epochs_in_stage.to(real)
    harmful = (rows.stage == int(Stage.BLENDING)) & u.valid & (u.value < 0)
    deciding = (rows.op == int(Op.FOSSILIZE)) | (rows.op == int(Op.PRUNE))
    idle = (rows.stage == int(Stage.HOLDING)) & ~deciding & (rows.epochs_in_stage >= 2) & rewarded
    pbrs = parts.stage_pbrs(rows.stage, epochs, rows.previous_stage, previous, spec=spec, gamma=gamma)
    taken = (rows.n_active_seeds + rows.n_fossilized - spec.free_slots).clamp(min=0)
    final = rows.last if spec.use_terminal else torch.zeros_like(rows.last)
    return {
        "blending_warning": torch.where(harmful, -0.1 - (0.05 * epochs).clamp(max=0.3), 0.0),
        "holding_warning": torch.where(idle, -(0.1 + 0.05 * (epochs - 2)).clamp(max=0.3), 0.0),
        "pbrs": torch.where(seed, pbrs, 0.0) if spec.use_pbrs else torch.zeros_like(pbrs),
        "synergy": torch.where(seed & trusted & rewarded, parts.synergy(rows.interaction_sum), 0.0),
        "rent": parts.log_rent(rows.effective_seed_params, rows.host_params, spec=spec),
        "alpha_shock": parts.alpha_shock(rows.alpha_delta_sq_sum, spec=spec),
        "occupancy_rent": -0.01 * taken.to(real),
        "fossil_rent": -0.002 * rows.n_fossilized.to(real),
        "op_shaping": op_payment(rows, spec=spec, gamma=gamma),
        "terminal": torch.where(final, 0.05 * rows.val_acc, 0.0),
    }


def op_payment(rows: SlotRows, *, spec: LegacyRewardSpec, gamma: float) -> Tensor:
    """Cost of an op, and its bonus or penalty.  rows [...] -> [...], 0 for WAIT."""
    stage, (q, measured), (u, known) = rows.stage, rows.contribution, rows.uncommitted
    seed, epochs = occupied(stage), rows.epochs_in_stage.to(q.dtype)
    fossilized = -0.01 + parts.fossilize_shaping(stage, epochs, rows.contribution, rows.uncommitted)
    worthy = (stage == int(Stage.HOLDING)) & known & (u >= 0) & measured & (q >= parts.ONE_POINT)
    if spec.use_terminal:
        fossilized = torch.where(worthy, fossilized + LEGITIMACY_BONUS * parts.maturity(epochs), fossilized)
    removed = -0.005 + parts.prune_shaping(stage, rows.age.to(q.dtype), rows.contribution)
    sown = torch.full_like(q, -0.15)
    if spec.use_pbrs:
        debit = spec.pbrs_weight * parts.stage_potential(stage, epochs, spec=spec)
        removed = torch.where(seed, removed - debit, removed)
        promise = spec.pbrs_weight * gamma * _germination_discount(rows.epoch, q.dtype, spec)
        sown = torch.where(rows.last, sown, sown + promise)
    amounts = {
        Op.GERMINATE: torch.where(seed, -0.45, sown),
        Op.FOSSILIZE: fossilized,
        Op.PRUNE: removed,
        Op.ADVANCE: torch.where(stage == int(Stage.TRAINING), torch.full_like(q, -0.1), 0.0),
        Op.SET_ALPHA_TARGET: torch.full_like(q, -0.005),
    }
    total = torch.zeros_like(q)
    for op, amount in amounts.items():
        total = torch.where(rows.op == int(op), amount, total)
    return total


def simplified_reward(rows: SlotRows, *, spec: LegacyRewardSpec, gamma: float) -> Payment:
    """Stage shaping, a fee for every op, accuracy and good fossils at the end.  rows [...] -> components [...]."""
    real = rows.val_acc.dtype
    good = rows.n_contributing_fossilized.to(real)
    final = rows.last if spec.use_terminal else torch.zeros_like(rows.last)
    acted = rows.op != int(Op.WAIT)
    components = {
        "pbrs": _basic_pbrs(rows, debit=False, spec=spec, gamma=gamma),
        "intervention": torch.where(acted, torch.full_like(rows.contribution.value, -0.01), 0.0),
        "terminal": torch.where(final, 3 * rows.val_acc / 100 + 2 * good, 0.0),
    }
    return Payment(components, {}, {})


def basic_reward(rows: SlotRows, *, spec: LegacyRewardSpec, gamma: float) -> Payment:
    """Stage shaping, linear rent, a bonus for a good fossil of which a fraction is dripped.  rows [...] -> components.

    Promise: a drip record is opened where `new_drip_scale` > 0, and never without a bonus.
    """
    (q, measured), (u, known) = rows.contribution, rows.uncommitted
    improved, holding = known & (u > 0), rows.stage == int(Stage.HOLDING)
    fossilized = (rows.op == int(Op.FOSSILIZE)) & occupied(rows.stage)
    good = holding & improved & measured & (q >= parts.ONE_POINT)
    both = parts.combine(torch.where(improved, u, 0.0).expand_as(q), q, how=spec.combine)
    full = (0.3 + spec.basic_bonus_scale * both) * parts.maturity(rows.epochs_in_stage.to(q.dtype))
    useless = holding & ~improved & measured & (q > parts.RANSOM_CONTRIBUTION)
    bonus = torch.where(holding, torch.where(good, full * (1 - spec.drip_fraction), -0.2), -0.5)
    bonus = torch.where(useless, -0.5, bonus)
    left = rows.left.clamp(min=spec.drip_min_epochs)
    pool = torch.where(fossilized & good, full * spec.drip_fraction, 0.0)
    payment = parts.drip(rows.drip_scale, q, cap=spec.drip_cap, negative_ratio=spec.drip_negative_ratio)
    components = {
        "pbrs": _basic_pbrs(rows, debit=True, spec=spec, gamma=gamma),
        "rent": -spec.param_price * rows.effective_seed_params / spec.param_budget,
        "fossilize_bonus": torch.where(fossilized, bonus, 0.0),
        "terminal": torch.where(rows.last, spec.basic_terminal_weight * rows.val_acc_delta / 100, 0.0),
        "drip": torch.where(measured & (rows.drip_scale > 0), payment, 0.0),
    }
    return Payment(components, {}, {"new_drip_pool": pool, "new_drip_scale": pool / left.to(pool.dtype)})


def _basic_pbrs(rows: SlotRows, *, debit: bool, spec: LegacyRewardSpec, gamma: float) -> Tensor:
    """Stage shaping of a seed; with `debit` a pruned seed gives its whole potential back.  rows [...] -> [...]."""
    real = rows.contribution.value.dtype
    epochs, previous = rows.epochs_in_stage.to(real), rows.previous_epochs_in_stage.to(real)
    if not spec.use_pbrs:
        return torch.zeros_like(epochs)
    amount = parts.stage_pbrs(rows.stage, epochs, rows.previous_stage, previous, spec=spec, gamma=gamma)
    if debit:
        owed = -spec.pbrs_weight * parts.stage_potential(rows.stage, epochs, spec=spec)
        amount = torch.where(rows.op == int(Op.PRUNE), owed, amount)
    return torch.where(occupied(rows.stage), amount, 0.0)
