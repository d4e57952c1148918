"""Observations: the table, its conventions, and what no state can do to them."""

import hashlib
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from morphogen.config.host import CnnSpec
from morphogen.hosts.net import Net
from morphogen.rules.features import signed_log
from morphogen.state import schema
from morphogen.steps.observe_step import observe
from morphogen.testing.builders.scenes import make_limits, make_slots, make_state
from morphogen.testing.strategies import env_states, limits
from morphogen.vocab.limits import Limits
from morphogen.vocab.observation import (
    ENV,
    FEATURES,
    INSTANCE,
    SLOT,
    column_index,
)
from morphogen.vocab.stage import Stage

HOST = CnnSpec(base=4, blocks=3, kernel=3, pools=0, channels_in=1, size=8, classes=10)
LENGTH = 20
BUDGET = 200
ENV_AT, SLOT_AT = column_index(ENV), column_index(SLOT)
SIGNALS = {leaf.name: leaf for leaf in schema.SIGNALS}


def net(slots: int) -> Net:
    return Net(HOST, HOST.all_slots[:slots])


def see(whole, bounds: Limits | None = None, order=None, **knobs):
    count = whole.slots.stage.shape[1]
    own = net(count)
    own = own if order is None else Net(HOST, tuple(own.slots[i] for i in order))
    sizes = {"episode_length": LENGTH, "param_budget": BUDGET}
    return observe(whole, bounds or make_limits(whole.slots), net=own, **sizes, **knobs)


def slot(found, name: str) -> list[list[float]]:
    return found.slots[..., SLOT_AT[name]].tolist()


def test_the_table_has_the_documented_places():
    """Saved policies read features by place: another order, flag or mark is another schema."""
    assert (len(ENV), len(INSTANCE), len(SLOT)) == (52, 8, 46)
    assert hashlib.sha256(repr(FEATURES).encode()).hexdigest() == (
        "61740e53940fb919f7701dda58fe45a61341b655e1c714c913b6f924ba8f8156"
    )


@given(st.data(), env_states())
def test_everything_is_finite_and_a_value_without_flag_is_zero(data, state):
    found = see(state, data.draw(limits(state.slots)))
    assert found.finite.all()
    assert not found.nonfinite.any()
    for name, features in FEATURES.items():
        leaf = getattr(found, name)
        assert leaf.dtype == torch.float32
        assert leaf.isfinite().all()
        for i, feature in enumerate(features):
            if feature.flag:
                assert (
                    leaf[..., i][leaf[..., column_index(features)[feature.flag]] == 0] == 0
                ).all()


READ_SLOTS = [leaf.name for leaf in schema.SLOTS if leaf.dtype.is_floating_point]
READ_SIGNALS = [leaf.name for leaf in schema.SIGNALS if leaf.dtype.is_floating_point]
READ_INSTANCE = ["width", "data_share", "label_noise", "param_price", "baseline_loss"]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("leaf", [*READ_SLOTS, *READ_SIGNALS, *READ_INSTANCE])
def test_a_planted_number_is_removed_and_noticed_in_its_row_only(leaf, bad):
    running = {
        "stage": 4,
        "blueprint": 1,
        "algorithm": 1,
        "age": 9,
        "epochs_in_stage": 3,
        "alpha": 0.5,
        "tempo": 5,
    }
    flags = {
        "contribution_valid": True,
        "velocity_valid": True,
        "interaction_valid": True,
        "gradient_valid": True,
    }
    whole = make_state(make_slots([[{**running, **flags, "gradient_ratio_valid": True}]] * 2))
    part = "slots" if leaf in READ_SLOTS else "signals" if leaf in READ_SIGNALS else "instance"
    always = {"history_valid": torch.ones(2, 5, dtype=torch.bool)}
    always |= {name: torch.ones(2, dtype=torch.bool) for name in ("train_measured", "clean_valid")}
    whole = whole.replace(signals=whole.signals.replace(**always))
    values = getattr(getattr(whole, part), leaf).clone()
    values[1] = bad
    clean, found = (
        see(whole),
        see(whole.replace(**{part: getattr(whole, part).replace(**{leaf: values})})),
    )
    for name in FEATURES:
        assert getattr(found, name).isfinite().all()
        assert torch.equal(getattr(found, name)[0], getattr(clean, name)[0])
    assert found.finite[0]
    assert torch.equal(found.nonfinite > 0, ~found.finite)
    changed = any(
        not torch.equal(getattr(found, name)[1], getattr(clean, name)[1]) for name in FEATURES
    )
    if changed and not (leaf == "width" and bad != bad):
        flag = {f.name: f.flag for f in (*ENV, *SLOT)}.get(leaf)
        assert not found.finite[1] or (flag and 0.0 in found.slots[1, :, SLOT_AT[flag]])


@pytest.mark.parametrize("leaf", ["best_acc", "committed_acc", "train_acc", "acc_history"])
def test_an_absurd_number_is_removed_and_noticed_in_its_row_only(leaf):
    whole = make_state(make_slots([[{}], [{}]]))
    flags = {
        "train_measured": torch.ones(2, dtype=torch.bool),
        "history_valid": torch.ones(2, 5, dtype=torch.bool),
    }
    whole = whole.replace(signals=whole.signals.replace(**flags))
    values = getattr(whole.signals, leaf).clone()
    values[1] = 1e30
    clean, found = see(whole), see(whole.replace(signals=whole.signals.replace(**{leaf: values})))
    assert found.finite.tolist() == [True, False]
    assert torch.equal(found.env[0], clean.env[0])
    assert found.env.abs().max() < 20


@given(st.floats(-1e6, 1e6, width=32), st.floats(-1e6, 1e6, width=32))
def test_slog_is_odd_monotone_and_zero_at_zero(a, b):
    x, y = torch.tensor(a), torch.tensor(b)
    assert signed_log(-x) == -signed_log(x)
    assert signed_log(torch.tensor(0.0)) == 0
    if a < b and b - a > 1e-3 * max(1.0, abs(a)):
        assert signed_log(x) < signed_log(y)


def test_an_empty_slot_shows_only_that_it_is_empty():
    found = see(
        make_state(make_slots([[{}, {"stage": 3, "blueprint": 1, "algorithm": 2, "age": 3}]]))
    )
    visible = {0, 9, 38, 43, 44}
    assert set(found.slots[0, 0].nonzero().flatten().tolist()) <= visible
    assert found.blueprints.tolist() == [[-1, 1]]
    assert slot(found, "position") == [[pytest.approx(1 / 3), pytest.approx(2 / 3)]]
    assert slot(found, "channels") == [[pytest.approx(0.2), pytest.approx(0.3)]]


@pytest.mark.parametrize("stage", [Stage.PRUNED, Stage.EMBARGOED, Stage.RESETTING])
def test_what_grew_in_a_cooling_slot_is_no_longer_seen(stage):
    found = [
        see(
            make_state(
                make_slots([[{"stage": int(stage), "blueprint": kind, "algorithm": 1, "tempo": 5}]])
            )
        )
        for kind in (1, 5)
    ]
    assert found[0].blueprints.tolist() == found[1].blueprints.tolist() == [[-1]]
    assert torch.equal(found[0].slots, found[1].slots)


def test_a_running_slot_by_hand():
    row = {
        "stage": 4, "blueprint": 3, "algorithm": 2, "tempo": 8, "alpha": 0.25, "alpha_target": 0.5, "alpha_mode": 1,
        "alpha_steps": 8, "alpha_done": 3, "epochs_in_stage": 4, "age": 25, "contribution": -70.0,
        "contribution_valid": True, "since_measured": 12, "velocity": 3.0, "velocity_valid": True,
        "interaction_sum": 1.0, "interaction_valid": True, "gradient_health": 0.75, "gradient_valid": True,
        "exploding": True, "gradient_ratio": 1e6, "gradient_ratio_valid": True, "accuracy_at_stage_start": 40.0,
        "accuracy_at_germination": 55.0,
    }  # fmt: skip
    whole = make_state(make_slots([[row]]), accuracy=50.0)
    whole = whole.replace(instance=whole.instance.replace(classes=torch.tensor([10])))
    found = see(whole).slots[0, 0]
    by_hand = {
        "stage.blending": 1, "enabled": 1, "alpha": 0.25, "alpha_target": 0.5, "alpha_mode.up": 1, "ramp_left": 5 / 8,
        "algorithm.multiply": 1, "tempo": 1, "contribution": -5, "contribution_valid": 1, "since_measured": 1,
        "velocity": 0.3, "velocity_valid": 1, "interaction": 0.1, "interaction_valid": 1, "gradient_health": 0.75,
        "gradient_valid": 1, "exploding": 1, "gradient_ratio": math.log(101), "gradient_ratio_valid": 1,
        "stage_improvement": 1, "age_improvement": -0.5, "epochs_in_stage": 0.2, "age": 1,
        "params": math.log(1 + 9 / HOST.params()), "cost": 0.045,
        "legal.advance": 1, "position": 1 / 3, "channels": 0.2,
        "has_seed": 1,
    }  # fmt: skip
    for name, i in SLOT_AT.items():
        assert found[i].item() == pytest.approx(by_hand.get(name, 0.0), abs=1e-6), name


def test_the_host_block_by_hand():
    rows = [
        [
            {"stage": 6, "blueprint": 1, "alpha": 1.0, "algorithm": 3},
            {"stage": 2, "blueprint": 3},
            {"stage": 8},
        ]
    ]
    whole = make_state(make_slots(rows))
    more = {
        "best_acc": 80.0, "train_loss": math.e - 1, "train_acc": 30.0, "plateau": 12, "rollbacks": 7,
        "committed_acc": 60.0, "clean_improvement": 20.0,
    }  # fmt: skip
    flags = {"train_measured": True, "clean_valid": True, "stabilized": True, "rolled_back": True}
    codes = {"last_op": 3, "last_outcome": 2}
    leaves = {
        k: torch.tensor([v], dtype=SIGNALS[k].dtype) for k, v in {**more, **flags, **codes}.items()
    }
    leaves["history_valid"] = torch.ones(1, 5, dtype=torch.bool)
    whole = whole.replace(
        signals=whole.signals.replace(**leaves),
        instance=whole.instance.replace(classes=torch.tensor([10])),
    )
    found = see(whole, make_limits(whole.slots, max_seeds=3))
    light, gate, host = 9 * 16 + 8, 4 * 8 + 2 * 8 + 1, HOST.params()
    by_hand = {
        "best_acc": 0.8, "train_loss": 1 / 7, "train_acc": 0.3, "train_valid": 1, "plateau": 1, "stabilized": 1,
        "rollbacks": 1, "committed_acc": 0.6, "clean_improvement": 2, "clean_valid": 1,
        "growth": math.log(1 + (light + gate + 17) / host), "fossil_growth": math.log(1 + (light + gate) / host),
        "seeds": 2 / 3, "seeds_left": 1 / 3, "limited": 1, "stage_share.developing": 1 / 3,
        "stage_share.fossilized": 1 / 3, "stage_share.cooling": 1 / 3, "legal.advance": 1, "last_op.prune": 1,
        "last_outcome.vetoed": 1, "rolled_back": 1, **{f"history_valid.{i}": 1 for i in range(5)},
    }  # fmt: skip
    for name, i in ENV_AT.items():
        assert found.env[0, i].item() == pytest.approx(by_hand.get(name, 0.0), abs=1e-6), name


def test_the_instance_block_by_hand():
    whole = make_state(make_slots([[{}], [{}]]))
    leaves = {
        "width": [0.5, 1.0], "data_share": [0.25, 1.0], "label_noise": [0.1, 0.0], "param_price": [0.1, 0.0],
        "reach": [0, 1], "baseline_loss": [math.e - 1, 0.0],
    }  # fmt: skip
    given_leaves = {name: torch.tensor(value) for name, value in leaves.items()}
    whole = whole.replace(
        instance=whole.instance.replace(
            **given_leaves, classes=torch.tensor([6, 10]), samples=torch.tensor([1000, 1])
        )
    )
    found = see(whole).instance
    assert found[0].tolist() == pytest.approx(
        [0.5, math.log(0.25), 0.1, 0.6, 0.0, 0.0, 1 / 7, 0.5], abs=1e-6
    )
    assert found[1].tolist() == pytest.approx([1.0, 0.0, 0.0, 1.0, 1.0, -7.0, 0.0, 0.0], abs=1e-6)


def test_difference_10_time_is_observed():
    whole = make_state(make_slots([[{}], [{}]])).replace(
        clock=make_state(make_slots([[{}], [{}]])).clock.replace(epoch=torch.tensor([3, 4]))
    )
    found = see(whole)
    assert not torch.equal(found.env[0], found.env[1])
    assert torch.equal(found.env[0, 1:], found.env[1, 1:])


def test_difference_13_an_unmeasured_contribution_is_marked_and_a_stale_one_shows_its_age():
    seed = {"stage": 5, "blueprint": 2, "algorithm": 1, "alpha": 1.0}
    stale = {**seed, "contribution": 2.0, "contribution_valid": True, "since_measured": 4}
    found = see(make_state(make_slots([[seed, stale]])))
    assert slot(found, "contribution_valid") == [[0.0, 1.0]]
    assert slot(found, "since_measured") == [[0.0, pytest.approx(0.4)]]
