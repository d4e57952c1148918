"""Legacy kernels: payments, irrelevant inputs, balances and drips."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from legacy_rows import POINTS, fields_of_a_row, points, rows, rows_of
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
credits = pytest.mark.parametrize("name", ["shaped", "escrow"])
legacy_specs = st.just(SPEC) | groups(LegacyRewardSpec).map(
    lambda spec: replace(spec, drip_fraction=0.7)
)


def pay(name: str, row: SlotRows, spec: LegacyRewardSpec = SPEC):
    return KERNELS[name](row, spec=spec, gamma=GAMMA)


def attribution(name: str, row: SlotRows, spec: LegacyRewardSpec = SPEC) -> float:
    return pay(name, row, spec).components["attribution"].item()


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


@credits
@given(
    found=fields_of_a_row(stage=int(Stage.HOLDING)),
    q=st.sampled_from([x for x in POINTS if x < 0]),
    data=st.data(),
)
def test_a_seed_that_hurts_pays_its_contribution(name, found, q, data):
    op = data.draw(st.sampled_from([op for op in Op if op not in (Op.PRUNE, Op.FOSSILIZE)]))
    weight = data.draw(st.sampled_from((0.5, 1.0)))
    row = rows_of(
        **{**found, "op": int(op), "contribution": q, "uncommitted": found["uncommitted"] or 0.0}
    )
    owed = found["escrow_balance"] if name == "escrow" else 0.0
    spec = LegacyRewardSpec(contribution_weight=weight)
    assert attribution(name, row, spec) == pytest.approx(weight * q - owed, abs=1e-12)


@credits
@given(
    found=fields_of_a_row(stage=int(Stage.FOSSILIZED)),
    op=st.sampled_from([op for op in Op if op is not Op.PRUNE]),
)
def test_a_fossil_earns_no_attribution(name, found, op):
    assert attribution(name, rows_of(**{**found, "op": int(op)})) == 0


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


@given(
    found=fields_of_a_row(stage=int(Stage.HOLDING)),
    harm=st.floats(-10.0, -0.01),
    q=st.floats(0.0, 20.0),
)
def test_credit_is_discounted_the_more_harm_the_uncommitted_do_together(found, harm, q):
    def paid(u: float):
        return pay(
            "shaped",
            rows_of(**{**found, "op": 0, "contribution": q, "progress": 5.0, "uncommitted": u}),
        )

    some, more, none = paid(harm), paid(harm - 1.0), paid(0.0)
    assert (
        0
        <= more.diagnostics["attribution_discount"]
        <= some.diagnostics["attribution_discount"]
        < 0.5
    )
    assert none.diagnostics["attribution_discount"] == 1
    assert more.components["attribution"] <= some.components["attribution"]
    assert some.components["synergy"] == 0


@given(found=fields_of_a_row(), data=st.data())
def test_a_stand_in_is_paid_only_where_a_blended_seed_was_not_measured(found, data):
    gained = data.draw(points)
    row = rows_of(**{**found, "op": int(Op.WAIT), "contribution": None, "stage_gain": gained})
    blended = found["stage"] in (Stage.BLENDING, Stage.HOLDING)
    assert attribution("shaped", row) == pytest.approx(0.3 * max(gained, 0.0) if blended else 0.0)
    assert attribution("escrow", row) == 0


# costs and the end


@every_kernel
@given(found=fields_of_a_row(), accuracy=st.floats(0.0, 100.0))
def test_the_terminal_part_is_paid_at_the_horizon_only(name, found, accuracy):
    end = {**found, "val_acc": accuracy, "val_acc_delta": accuracy}
    before, after = (rows_of(**{**end, "last": last}) for last in (False, True))
    assert pay(name, before).components["terminal"] == 0
    got = pay(name, after).components["terminal"].item()
    per_point = {"basic": 0.05, "simplified": 0.03}.get(name, 0.05)
    fossils = 2 * found["n_contributing_fossilized"] if name == "simplified" else 0
    assert got == pytest.approx(per_point * accuracy + fossils)
    if name != "basic":
        assert pay(name, after, LegacyRewardSpec(use_terminal=False)).components["terminal"] == 0


@every_kernel
@given(found=fields_of_a_row(stage=int(Stage.DORMANT)))
def test_an_empty_slot_has_no_stage_shaping_and_pbrs_can_be_switched_off(name, found):
    assert pay(name, rows_of(**found)).components["pbrs"] == 0
    seed = rows_of(**{**found, "stage": int(Stage.TRAINING), "epochs_in_stage": 3})
    assert pay(name, seed).components["pbrs"] != 0
    assert (
        pay(name, seed, LegacyRewardSpec(use_pbrs=False, drip_fraction=0.0)).components["pbrs"] == 0
    )


# escrow


@given(row=rows(), clip=st.sampled_from((0.0, 0.25, 2.0)))
def test_the_next_balance_is_the_old_one_and_the_delta(row, clip):
    ledger = pay("escrow", row, LegacyRewardSpec(escrow_clip=clip)).ledger
    assert ledger["escrow_balance"] == row.escrow_balance + ledger["escrow_delta"]
    credited = row.contribution.valid & (row.contribution.value >= 0) & (row.op != Op.PRUNE)
    if clip and credited:
        assert ledger["escrow_delta"].abs() <= clip + 1e-12


@given(found=fields_of_a_row(op=int(Op.PRUNE)))
def test_pruning_pays_the_balance_back_and_leaves_none(found):
    paid = pay("escrow", rows_of(**found))
    assert paid.components["attribution"].item() == -found["escrow_balance"]
    assert paid.ledger["escrow_balance"] == 0


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
