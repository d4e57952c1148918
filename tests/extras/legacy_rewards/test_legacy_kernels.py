"""Legacy kernels: payments, irrelevant inputs, balances and drips."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from legacy_rows import fields_of_a_row, rows, rows_of
from support.config_strategies import groups

from morphogen.extras.legacy_rewards.kernels import (
    SlotRows,
    basic_reward,
    escrow_reward,
    shaped_reward,
    simplified_reward,
)
from morphogen.extras.legacy_rewards.settings import LegacyRewardSpec
from morphogen.vocab.action import Op
from morphogen.vocab.stage import Stage

GAMMA = 0.995
KERNELS = {
    "shaped": shaped_reward,
    "escrow": escrow_reward,
    "simplified": simplified_reward,
    "basic": basic_reward,
}
SPEC = LegacyRewardSpec(drip_fraction=0.7)
STAGES = ("stage", "previous_stage", "epochs_in_stage", "previous_epochs_in_stage")
GROWTH = (
    "host_params",
    "effective_seed_params",
    "alpha_delta_sq_sum",
    "n_active_seeds",
    "n_fossilized",
)
SHARED = ("op", *STAGES, "contribution", "uncommitted")
READS = {  # the inputs that each rule lists
    "shaped": (
        *SHARED,
        *GROWTH,
        "epoch",
        "last",
        "val_acc",
        "age",
        "progress",
        "stage_gain",
        "interaction_sum",
    ),
    "escrow": (
        *SHARED,
        *GROWTH,
        "epoch",
        "last",
        "val_acc",
        "age",
        "progress",
        "interaction_sum",
        "escrow_balance",
    ),
    "simplified": ("op", *STAGES, "last", "val_acc", "n_contributing_fossilized"),
    "basic": (*SHARED, "last", "left", "val_acc_delta", "effective_seed_params", "drip_scale"),
}
every_kernel = pytest.mark.parametrize("name", list(KERNELS))
legacy_specs = st.just(SPEC) | groups(LegacyRewardSpec).map(
    lambda spec: replace(spec, drip_fraction=0.7)
)


def pay(name: str, row: SlotRows, spec: LegacyRewardSpec = SPEC):
    return KERNELS[name](row, spec=spec, gamma=GAMMA)


# what never matters


@every_kernel
@given(one=rows(), other=rows())
def test_inputs_that_a_rule_does_not_list_change_nothing(name, one, other):
    unread = {
        field: getattr(other, field) for field in SlotRows._fields if field not in READS[name]
    }
    for got, want in zip(pay(name, one._replace(**unread)), pay(name, one), strict=True):
        assert got.keys() == want.keys()
        assert all(torch.equal(got[key], want[key]) for key in got)


@every_kernel
@given(row=rows(), spec=legacy_specs)
def test_every_number_is_finite_whatever_the_constants(name, row, spec):
    for part in pay(name, row, spec):
        assert all(value.isfinite().all() for value in part.values())


# attribution


@given(found=fields_of_a_row())
def test_pruning_flips_the_sign_of_what_the_seed_would_have_earned(found):
    waited, pruned = (
        pay("shaped", rows_of(**{**found, "op": int(op)})) for op in (Op.WAIT, Op.PRUNE)
    )
    penalty = (
        0.0 if found["stage"] == Stage.FOSSILIZED else waited.diagnostics["ratio_penalty"].item()
    )
    earned = waited.components["attribution"].item() - penalty
    assert pruned.components["attribution"].item() - penalty == pytest.approx(-earned, abs=1e-12)


# costs and the end


# escrow


@given(row=rows(), clip=st.sampled_from((0.0, 0.25, 2.0)))
def test_the_next_balance_is_the_old_one_and_the_delta(row, clip):
    ledger = pay("escrow", row, LegacyRewardSpec(escrow_clip=clip)).ledger
    assert ledger["escrow_balance"] == row.escrow_balance + ledger["escrow_delta"]
    credited = row.contribution.valid & (row.contribution.value >= 0) & (row.op != Op.PRUNE)
    if clip and credited:
        assert ledger["escrow_delta"].abs() <= clip + 1e-12


@given(found=fields_of_a_row(), op=st.sampled_from([op for op in Op if op is not Op.PRUNE]))
def test_a_fossil_and_an_unmeasured_seed_keep_their_balance(found, op):
    fossil = {"stage": int(Stage.FOSSILIZED), "op": int(op)}
    for keeps in ({**found, **fossil}, {**found, "op": int(op), "contribution": None}):
        assert (
            pay("escrow", rows_of(**keeps)).ledger["escrow_balance"].item()
            == found["escrow_balance"]
        )


# drip


@given(found=fields_of_a_row(), fraction=st.floats(0.01, 1.0))
def test_the_pool_is_the_fraction_of_the_bonus_that_is_not_paid_at_once(found, fraction):
    keeps = {**found, "op": int(Op.FOSSILIZE)}
    whole = pay("basic", rows_of(**keeps), LegacyRewardSpec(drip_fraction=0.0))
    some = pay("basic", rows_of(**keeps), LegacyRewardSpec(drip_fraction=fraction))
    bonus, pool = some.components["fossilize_bonus"], some.ledger["new_drip_pool"]
    assert whole.ledger["new_drip_pool"] == 0
    torch.testing.assert_close(bonus + pool, whole.components["fossilize_bonus"])
    assert (pool > 0) == (whole.components["fossilize_bonus"] > 0)
    torch.testing.assert_close(some.ledger["new_drip_scale"] * max(found["left"], 5), pool)
