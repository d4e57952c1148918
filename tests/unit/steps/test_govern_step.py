"""The governor: which losses are normal, what a snapshot holds, what a rollback brings back."""

import math
import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.made_up_measurements import make_train_metrics, make_validation

from morphogen.config.groups import GovernorSpec
from morphogen.state.tree_ops import zero_empty_slots
from morphogen.steps.govern_step import first_snapshot, govern
from morphogen.testing.builders.scenes import (
    SLOT_LEAVES,
    make_slot,
    make_slots,
    make_state,
)
from morphogen.testing.builders.tree_equality import differing_leaves, trees_equal
from morphogen.testing.strategies import slot_states
from morphogen.vocab.stage import Panic, Stage

S = Stage
R = 2.303
SPEC = GovernorSpec()
QUICK = GovernorSpec(min_samples=2, window=4, panics=2, snapshot_every=1)
NAN, INF = float("nan"), float("inf")
FOSSIL = {
    "stage": S.FOSSILIZED,
    "epochs_in_stage": 2,
    "age": 30,
    "blueprint": 3,
    "alpha": 1.0,
    "alpha_target": 1.0,
}
BLEND = {
    "stage": S.BLENDING,
    "epochs_in_stage": 2,
    "age": 14,
    "blueprint": 4,
    "alpha": 0.5,
    "alpha_target": 0.5,
}


def world(slots=None, baseline=R, spec=SPEC):
    """Envs right after their reset."""
    start = make_state(make_slot() if slots is None else slots, window=spec.window)
    instance = start.instance.replace(
        baseline_loss=torch.full_like(start.instance.baseline_loss, baseline)
    )
    return first_snapshot(start.replace(instance=instance))


def judge(now, loss, spec=SPEC, skipped=0, overflowed=0):
    """One epoch judged, and the clock moved on; loss: one number for all envs or one each."""
    envs = len(now)
    losses = torch.as_tensor(loss, dtype=torch.float32).expand(envs)
    validation = make_validation(losses.clone(), [0.0] * envs)
    train = make_train_metrics([skipped] * envs, [overflowed] * envs)
    after, report = govern(now, validation, train, spec=spec, minibatches=18)
    return after.replace(clock=after.clock.replace(epoch=after.clock.epoch + 1)), report


def trained(now):
    """The host after another epoch: another number in every parameter."""
    shift = 1.0 + now.clock.epoch[:, None]
    params = now.host.params * 1.5 + shift
    return now.replace(host=now.host.replace(params=params, momentum=params * 2))


def signs(losses, spec=SPEC, baseline=R):
    """Anomaly and panic code of every epoch of one env."""
    now, seen = world(baseline=baseline, spec=spec), []
    for loss in losses:
        now, report = judge(now, loss, spec)
        seen.append((Panic(report.anomaly.item()), Panic(report.panic.item())))
    return seen


# vital signs


@pytest.mark.parametrize(
    ("baseline", "level", "sd", "limit"),
    [
        (2.303, None, 0, 4.606),
        (10.825, None, 0, 21.65),
        (2.303, 0.3, 0, 2.452),
        (10.825, 0.3, 0, 11.53),
        (2.303, 0.95, 0, 3.281),
        (10.825, 0.95, 0, 15.43),
        (2.303, 0.3, 0.2, 2.303 * (0.3 + 6 * 0.2)),
    ],
)
def test_the_limit_is_the_tabled_one(baseline, level, sd, limit):
    now = world(baseline=baseline)
    if level is not None:
        losses = [(level + sd) * baseline, (level - sd) * baseline] * 5
        window = torch.tensor([losses + [999.0] * 10])
        count = torch.tensor([10])
        now = now.replace(governor=now.governor.replace(window=window, count=count))
    _, report = judge(now, 0.1)
    assert report.limit.item() == pytest.approx(limit, rel=1e-3)


def test_a_loss_at_the_limit_is_normal():
    _, report = judge(world(baseline=2.0), 4.0)
    assert (report.limit.item(), report.anomaly.item()) == (4.0, Panic.NONE)


def by_hand(losses, baseline=R, spec=SPEC):
    """lifecycle.md 8.1 in plain Python: (sign, panic) of every epoch; a loss None is a starved
    epoch at loss 1.
    """
    window, streak, seen = [], 0, []
    for given_loss in losses:
        loss = 1.0 if given_loss is None else given_loss
        n, most = len(window), spec.warmup_limit * baseline
        mean = statistics.fmean(window) if window else 0.0
        if n >= spec.min_samples:
            sd = statistics.pstdev(window)
            most = max(
                (1 + spec.chance_band) * baseline,
                mean + spec.sensitivity * sd,
                spec.multiplier * mean,
            )
        band = spec.chance_band * baseline
        if not math.isfinite(loss):
            sign = Panic.NONFINITE
        elif (
            n >= spec.min_samples
            and mean < spec.good_below * baseline
            and abs(loss - baseline) < band
        ):
            sign = Panic.CHANCE
        elif loss > most:
            sign, streak = Panic.DIVERGENCE, streak + 1
        elif given_loss is None:
            sign, streak = Panic.STARVED, streak + 1
        else:
            sign, streak, window = Panic.NONE, 0, [*window, loss][-spec.window :]
        sudden = sign in (Panic.NONFINITE, Panic.CHANCE)
        panic = sign if sudden or (sign is not Panic.NONE and streak >= spec.panics) else Panic.NONE
        if panic is not Panic.NONE:
            window, streak = [], 0
        seen.append((sign, panic))
    return seen


loss_values = st.sampled_from([0.25, 0.5, 1.0, 1.5, 2.25, 2.5, 4.5, 5.0, 9.0, NAN, INF, -INF, None])


@pytest.mark.slow
@given(st.lists(loss_values, max_size=16), st.sampled_from([SPEC, QUICK]))
def test_signs_are_those_of_the_rules_written_out(losses, spec):
    now, seen = world(spec=spec), []
    for loss in losses:
        now, report = judge(
            now, 1.0 if loss is None else loss, spec, skipped=18 if loss is None else 17
        )
        seen.append((Panic(report.anomaly.item()), Panic(report.panic.item())))
        assert report.rolled_back.item() == (seen[-1][1] is not Panic.NONE)
    assert seen == by_hand(losses, spec=spec)


@pytest.mark.parametrize("panics", [1, 2, 3, 5])
def test_exactly_so_many_anomalies_in_a_row_are_needed(panics):
    spec = GovernorSpec(panics=panics)
    found = [panic for _, panic in signs([5.0] * panics, spec)]
    assert found == [Panic.NONE] * (panics - 1) + [Panic.DIVERGENCE]
    interrupted = [*[5.0] * (panics - 1), 1.0] * 3
    assert all(panic is Panic.NONE for _, panic in signs(interrupted, spec))


def test_an_abnormal_loss_enters_no_window():
    now = world(spec=QUICK)
    for loss in (1.0, 1.0, 1.0, 1.0, 9.0):
        now, report = judge(now, loss, QUICK)
    assert report.anomaly.item() == Panic.DIVERGENCE
    assert (now.governor.window == 1.0).all()


@pytest.mark.parametrize("overflowed", [1, 18])
def test_an_epoch_whose_steps_overflowed_is_no_anomaly(overflowed):
    _, report = judge(world(), 1.0, skipped=18, overflowed=overflowed)
    assert (report.anomaly.item(), report.panic.item(), report.streak.item()) == (
        Panic.NONE,
        Panic.NONE,
        0,
    )


def test_a_rollback_does_not_restore_the_loss_scale():
    start = world()
    scaling = start.scaling.replace(
        loss_scale=torch.full((1,), 32.0), good_minibatches=torch.full((1,), 7)
    )
    after, report = judge(start.replace(scaling=scaling), NAN)
    assert report.rolled_back.item()
    assert (after.scaling.loss_scale.item(), after.scaling.good_minibatches.item()) == (32.0, 7)


# snapshots


@pytest.mark.slow
@given(
    st.lists(loss_values.filter(lambda loss: loss is not None), max_size=12),
    st.sampled_from([SPEC, QUICK]),
)
def test_difference_06_only_states_judged_normal_are_snapshotted(losses, spec):
    """After any rollback the host is, bit for bit, the host of the reset or of an epoch whose loss was
    normal.
    """
    now = world(spec=spec)
    hosts = {-1: now.host.params.clone()}
    for epoch, loss in enumerate(losses):
        now = trained(now)
        host = now.host.params.clone()
        now, report = judge(now, loss, spec)
        if report.anomaly.item() == Panic.NONE:
            assert loss <= report.limit.item()
            hosts[epoch] = host
        taken = report.snapshot_epoch.item()
        assert torch.equal(now.governor.host.params, hosts[taken])
        if report.rolled_back.item():
            assert torch.equal(now.host.params, hosts[taken])


@pytest.mark.parametrize("every", [1, 3, 5])
def test_a_snapshot_is_taken_every_so_many_epochs(every):
    now, taken = world(), []
    for epoch in range(12):
        now, report = judge(now, 1.0, GovernorSpec(snapshot_every=every))
        taken += [epoch] if report.snapshot_taken.item() else []
    assert taken == [epoch for epoch in range(12) if (epoch + 1) % every == 0]


def test_a_fossil_is_in_the_snapshot_of_the_first_normal_epoch():
    now = world(make_slot(**{**FOSSIL, "stage": S.HOLDING}))
    now = now.replace(slots=make_slot(**FOSSIL))
    now, report = judge(now, 5.0)
    assert (report.snapshot_taken.item(), report.snapshot_epoch.item()) == (False, -1)
    now, report = judge(now, 1.0)
    assert (report.snapshot_taken.item(), report.snapshot_epoch.item()) == (True, 1)
    assert now.governor.slots.stage.item() == S.FOSSILIZED
    _, report = judge(now, 1.0)
    assert not report.snapshot_taken.item()


# rollback


def nan_everywhere(now):
    """A state in which every real number of host, grown seeds and signals is lost."""
    lost = lambda leaf: leaf * NAN if leaf.is_floating_point() else leaf
    grown = (now.slots.stage >= S.GERMINATED) & (now.slots.stage <= S.FOSSILIZED)
    seeds = zero_empty_slots(now.seeds.apply(lost), grown)
    return now.replace(host=now.host.apply(lost), seeds=seeds, signals=now.signals.apply(lost))


def finite(tree):
    return all(leaf.isfinite().all() for leaf in tree.values(True, True))


@given(slot_states(max_envs=2), slot_states(max_envs=2))
def test_a_rollback_restores_host_fossils_and_signals_and_prunes_the_rest(then, now_slots):
    envs, count = min(len(then), len(now_slots)), min(then.stage.shape[1], now_slots.stage.shape[1])
    then, later = (
        then[:envs].apply(lambda x: x[:, :count]),
        now_slots[:envs].apply(lambda x: x[:, :count]),
    )
    fossil = then.stage == S.FOSSILIZED
    later = later.apply(lambda x, y: torch.where(fossil, y, x), then)  # fossils stay
    start = world(then)
    running = make_state(later)
    broken = nan_everywhere(start.replace(slots=later, seeds=running.seeds, host=running.host))
    broken = broken.replace(signals=broken.signals.replace(last_op=torch.full((envs,), 3)))
    after, report = judge(broken, NAN)
    assert report.rolled_back.all()
    assert trees_equal(after.host, start.host)
    occupied = (later.stage >= S.GERMINATED) & (later.stage <= S.FOSSILIZED)
    assert torch.equal(
        after.slots.stage[occupied & ~fossil],
        torch.full_like(after.slots.stage, 7)[occupied & ~fossil],
    )
    assert torch.equal(after.slots.stage[~occupied], later.stage[~occupied])
    assert torch.equal(report.seeds_pruned, (occupied & ~fossil).sum(-1))
    for name in SLOT_LEAVES:
        assert torch.equal(getattr(after.slots, name)[fossil], getattr(then, name)[fossil])
    for s, name in enumerate(start.seeds.keys()):
        for key in ("params", "momentum"):
            rows = torch.where(fossil[:, s, None], start.seeds[name, key], 0.0)
            assert torch.equal(after.seeds[name, key], rows)
    news = {"last_op": -1, "last_outcome": -1, "rolled_back": True, "rollbacks": 1}
    for name, leaf in after.signals.items():
        expected = (
            torch.full_like(leaf, news[name]) if name in news else getattr(start.signals, name)
        )
        assert torch.equal(leaf, expected)
    assert not after.governor.window.any()
    assert not after.governor.count.any()
    assert not after.governor.streak.any()
    assert trees_equal(after.instance, broken.instance)


def test_difference_13_the_news_of_a_rollback_lasts_one_step():
    now, _ = judge(world(make_slot(**BLEND)), NAN)
    assert (now.signals.rolled_back.item(), now.signals.rollbacks.item()) == (True, 1)
    now, _ = judge(now, 1.0)
    assert (now.signals.rolled_back.item(), now.signals.rollbacks.item()) == (False, 1)
    now, _ = judge(now, NAN)
    assert (now.signals.rolled_back.item(), now.signals.rollbacks.item()) == (True, 2)


@pytest.mark.parametrize("at", [0, 3, 7])
def test_a_rollback_leaves_the_other_envs_bit_equal(at):
    now = world(make_slots([[BLEND, FOSSIL], [BLEND, FOSSIL], [{}, BLEND]]))
    for epoch in range(at):
        now, _ = judge(trained(now), 1.0 + epoch / 10)
    now = trained(now)
    calm, _ = judge(now, [1.0, 1.0, 1.0])
    hurt = now.replace(
        host=now.host.apply(lambda p: torch.where(torch.tensor([[0], [1], [0]]) == 1, NAN, p))
    )
    after, report = judge(hurt, [1.0, NAN, 1.0])
    assert report.rolled_back.tolist() == [False, True, False]
    for e in (0, 2):
        assert trees_equal(after[e : e + 1], calm[e : e + 1])
    assert finite(after)


def test_a_fossil_made_in_an_epoch_that_panics_is_pruned():
    start = world(make_slot(**{**FOSSIL, "stage": S.HOLDING}))
    fresh = trained(start.replace(slots=make_slot(**FOSSIL)))
    after, report = judge(fresh, NAN)
    assert (after.slots.stage.item(), after.slots.previous_stage.item()) == (S.PRUNED, S.FOSSILIZED)
    assert (report.seeds_pruned.item(), after.slots.blueprint.item(), after.slots.alpha.item()) == (
        1,
        3,
        0.0,
    )
    assert not after.seeds["r0c0", "params"].any()
    assert torch.equal(after.host.params, start.host.params)


def spoilt(now, part, leaf, value):
    """One number of env 0 is spoilt, in a place that the loss does not show."""
    now = now.clone()
    place = now.host if part == "host" else now.seeds[part]
    place.get(leaf)[0, -1] = value
    return now


@pytest.mark.parametrize("value", [NAN, INF, 1e30])
@pytest.mark.parametrize("leaf", ["params", "momentum"])
@pytest.mark.parametrize("part", ["host", "r0c0"])
def test_a_state_with_a_spoilt_number_is_no_snapshot_however_normal_its_loss(part, leaf, value):
    healthy = trained(world(make_slots([[FOSSIL, BLEND], [FOSSIL, BLEND]]), spec=QUICK))
    now, report = judge(spoilt(healthy, part, leaf, value), 1.0, QUICK)
    assert (report.anomaly.tolist(), report.snapshot_taken.tolist()) == ([0, 0], [False, True])
    after, _ = judge(now, NAN, QUICK)
    assert finite(after.host)
    assert finite(after.seeds)
    _, again = judge(healthy, 1.0, QUICK)
    assert again.snapshot_taken.all()


def test_a_spoilt_seed_that_a_rollback_would_prune_is_no_reason_against_a_snapshot():
    start = world(make_slots([[FOSSIL, BLEND]]), spec=QUICK)
    _, report = judge(spoilt(start, "r0c1", "params", NAN), 1.0, QUICK)
    assert report.snapshot_taken.item()


@pytest.mark.parametrize("most", [1, 2, 4])
def test_an_env_that_was_rolled_back_so_often_is_judged_and_left_as_it_is(most):
    spec, now = GovernorSpec(max_rollbacks=most), world(make_slots([[BLEND], [BLEND]]))
    for t in range(6):
        before = trained(now)
        now, report = judge(before, [NAN, 1.0], spec)
        assert report.panic.tolist() == [Panic.NONFINITE, Panic.NONE]
        assert report.rolled_back.tolist() == [t < most, False]
        assert trees_equal(now.host[0], (before.governor if t < most else before).host[0])
    assert now.signals.rollbacks.tolist() == [most, 0]


def test_a_governor_that_is_off_reports_and_does_nothing():
    start = trained(world(make_slot(**BLEND)))
    after, report = judge(start, NAN, GovernorSpec(enabled=False))
    assert (report.panic.item(), report.rolled_back.item(), report.seeds_pruned.item()) == (
        Panic.NONFINITE,
        False,
        0,
    )
    assert trees_equal(after.host, start.host)
    assert differing_leaves(after.slots, start.slots) == set()
