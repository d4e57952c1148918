"""The kernels of `simplified`, `basic` and `basic_plus`."""

import torch
from torch import Tensor

from morphogen.config.legacy_rewards import LegacyRewardSpec
from morphogen.rules.rewards.legacy import parts
from morphogen.rules.rewards.legacy.rows import Payment, SlotRows
from morphogen.rules.stages import occupied
from morphogen.vocab.action import Op
from morphogen.vocab.stage import Stage


def simplified_reward(rows: SlotRows, *, spec: LegacyRewardSpec, gamma: float) -> Payment:
    """Stage shaping, a fee for every op, accuracy and good fossils at the end.  rows [...] -> components [...]."""
    real = rows.val_acc.dtype
    good = rows.n_contributing_fossilized.to(real)
    final = rows.last if spec.use_terminal else torch.zeros_like(rows.last)
    acted = rows.op != int(Op.WAIT)
    components = {
        "pbrs": _pbrs(rows, debit=False, spec=spec, gamma=gamma),
        "intervention": torch.where(acted, torch.full_like(rows.contribution.value, -0.01), 0.0),
        "terminal": torch.where(final, 3 * rows.val_acc / 100 + 2 * good, 0.0),
    }
    return Payment(components, {}, {})


def basic_reward(rows: SlotRows, *, spec: LegacyRewardSpec, gamma: float) -> Payment:
    """Stage shaping, linear rent, a bonus for a good fossil of which a fraction is dripped.  rows [...] -> components.

    Promise: a drip record is opened where `new_drip_scale` > 0, and never without a bonus.
    """
    (q, measured), left = rows.contribution, rows.left.clamp(min=spec.drip_min_epochs)
    kept = (rows.op == int(Op.FOSSILIZE)) & occupied(rows.stage)
    full, good = _bonus(rows, spec)
    bonus = torch.where(
        rows.stage == int(Stage.HOLDING), torch.where(good, full * (1 - spec.drip_fraction), -0.2), -0.5
    )
    useless = (rows.stage == int(Stage.HOLDING)) & ~_has_improved(rows) & measured & (q > parts.RANSOM_CONTRIBUTION)
    bonus = torch.where(useless, -0.5, bonus)
    pool = torch.where(kept & good, full * spec.drip_fraction, 0.0)
    payment = parts.drip(rows.drip_scale, q, cap=spec.drip_cap, negative_ratio=spec.drip_negative_ratio)
    components = {
        "pbrs": _pbrs(rows, debit=True, spec=spec, gamma=gamma),
        "rent": -spec.param_price * rows.effective_seed_params / spec.param_budget,
        "fossilize_bonus": torch.where(kept, bonus, 0.0),
        "terminal": torch.where(rows.last, spec.basic_terminal_weight * rows.val_acc_delta / 100, 0.0),
        "drip": torch.where(measured & (rows.drip_scale > 0), payment, 0.0),
    }
    return Payment(components, {}, {"new_drip_pool": pool, "new_drip_scale": pool / left.to(pool.dtype)})


def _has_improved(rows: SlotRows) -> Tensor:
    return rows.uncommitted.valid & (rows.uncommitted.value > 0)


def _bonus(rows: SlotRows, spec: LegacyRewardSpec) -> tuple[Tensor, Tensor]:
    """The whole bonus of a held seed and where it is due: [...], bool [...]."""
    (q, measured), improved = rows.contribution, _has_improved(rows)
    good = (rows.stage == int(Stage.HOLDING)) & improved & measured & (q >= parts.ONE_POINT)
    gained = torch.where(improved, rows.uncommitted.value, 0.0)
    both = parts.combine(gained.expand_as(q), q, how=spec.combine)
    return (0.3 + spec.basic_bonus_scale * both) * parts.maturity(rows.epochs_in_stage.to(q.dtype)), good


def _pbrs(rows: SlotRows, *, debit: bool, spec: LegacyRewardSpec, gamma: float) -> Tensor:
    """Stage shaping of a seed; with `debit` a pruned seed gives its whole potential back.  rows [...] -> [...]."""
    real = rows.contribution.value.dtype
    epochs, was = rows.epochs_in_stage.to(real), rows.previous_epochs_in_stage.to(real)
    if not spec.use_pbrs:
        return torch.zeros_like(epochs)
    amount = parts.stage_pbrs(rows.stage, epochs, rows.previous_stage, was, spec=spec, gamma=gamma)
    if debit:
        owed = -spec.pbrs_weight * parts.stage_potential(rows.stage, epochs, spec=spec)
        amount = torch.where(rows.op == int(Op.PRUNE), owed, amount)
    return torch.where(occupied(rows.stage), amount, 0.0)
