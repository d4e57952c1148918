"""Instances: ranges, the single instance, and usable samples."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.small_runs import plain

from morphogen.config.groups import DataSpec
from morphogen.config.instance_spec import InstanceSpec
from morphogen.config.policy_spec import PpoSpec
from morphogen.config.spec import resolve
from morphogen.config.task import TASKS
from morphogen.data.instances import draw_instances
from morphogen.state import rng
from morphogen.vocab.purpose import Purpose

TASK = TASKS["digits"]
LABELS = rng.bounded_ints(
    rng.random_bits(rng.stream(rng.env_keys(9, 0, 1), Purpose.SPLIT), 300)[0], 10
)
WIDE = plain(data=DataSpec(batch=8))
LEAVES = (
    "width",
    "data_share",
    "label_noise",
    "classes",
    "reach",
    "param_price",
    "samples",
    "baseline_loss",
    "class_of",
    "usable",
)


def draw(spec=WIDE, *, envs=16, seed=0, first=0, episode=0, purpose=Purpose.INSTANCE):
    key = rng.env_keys(seed, first, envs)
    when = torch.full((envs,), episode)
    return draw_instances(
        key, when, torch.zeros_like(when), spec=resolve(spec), labels=LABELS, purpose=purpose
    )


def only(**ranges):
    """A spec with a single instance but for some ranges."""
    return replace(WIDE, instances="task", instance=InstanceSpec(**{**SINGLE, **ranges}))


SINGLE = {
    "width": (1.0, 1.0),
    "data_share": (1.0, 1.0),
    "label_noise": (0.0, 0.0),
    "classes": (10, 10),
    "reach": (1, 1),
    "param_price": (0.1, 0.1),
}


@given(
    seed=st.integers(0, 2**63 - 1),
    episode=st.integers(0, 10**6),
    purpose=st.sampled_from(list(Purpose)[1:3]),
)
def test_every_parameter_lies_in_its_range(seed, episode, purpose):
    found = draw(seed=seed, episode=episode, purpose=purpose)
    assert set(found.width.tolist()) <= {0.25, 0.5, 0.75, 1.0}
    assert bool(((found.data_share >= 0.2 - 1e-6) & (found.data_share <= 1)).all())
    assert bool(((found.label_noise >= 0) & (found.label_noise <= 0.2 + 1e-6)).all())
    assert bool(((found.classes >= 4) & (found.classes <= 10)).all())
    assert bool(((found.reach == 0) | (found.reach == 1)).all())
    assert bool(((found.param_price >= 0.005 - 1e-6) & (found.param_price <= 0.5 + 1e-6)).all())
    assert torch.allclose(found.baseline_loss, found.classes.float().log())


def test_the_single_instance_is_the_reference():
    found = draw(replace(WIDE, instances="single"), envs=3)
    assert found.width.tolist() == found.data_share.tolist() == [1.0] * 3
    assert found.label_noise.tolist() == [0.0] * 3
    assert found.classes.tolist() == [10] * 3
    assert found.param_price.tolist() == pytest.approx([0.1] * 3)
    assert found.samples.tolist() == [300] * 3
    assert found.baseline_loss.tolist() == pytest.approx([math.log(10)] * 3)
    assert found.class_of.tolist() == [list(range(10))] * 3
    assert found.usable.shape == (3, 0)


def test_episodes_seeds_and_purposes_draw_different_worlds():
    base = draw(envs=64)
    for other in (
        draw(envs=64, episode=1),
        draw(envs=64, seed=1),
        draw(envs=64, purpose=Purpose.INSTANCE_HELD_OUT),
    ):
        same = (other.param_price == base.param_price).float().mean()
        assert float(same) < 0.1


def test_setting_one_range_changes_no_other_parameter():
    base, other = draw(), draw(replace(WIDE, instance=InstanceSpec(param_price=(0.2, 0.2))))
    assert other.param_price.tolist() == pytest.approx([0.2] * 16)
    for leaf in LEAVES:
        assert leaf == "param_price" or torch.equal(getattr(other, leaf), getattr(base, leaf)), leaf


def test_every_class_is_left_out_about_equally_often():
    found = draw(only(classes=(6, 6)), envs=2000)
    share = (found.class_of >= 0).float().mean(0)
    assert float((share - 0.6).abs().max()) < 5 * math.sqrt(0.6 * 0.4 / 2000)


@given(seed=st.integers(0, 1000))
def test_usable_samples_are_a_share_of_those_with_a_class_in_use_and_come_first(seed):
    found = draw(seed=seed, envs=3)
    for env in range(3):
        numbers = found.class_of[env]
        count, table = int(found.samples[env]), found.usable[env].tolist()
        assert numbers[numbers >= 0].tolist() == list(range(int(found.classes[env])))
        assert sorted(table) == list(range(300))
        assert bool((numbers[LABELS[table[:count]]] >= 0).all())
        available = int((numbers[LABELS] >= 0).sum())
        assert count == max(8, int(available * float(found.data_share[env]) + 1e-9))


def test_a_share_never_leaves_less_than_a_batch_unless_there_is_no_more():
    few = replace(only(data_share=(0.01, 0.01)), data=DataSpec(batch=50))
    none = replace(only(data_share=(0.01, 0.01)), data=DataSpec(batch=5000))
    assert draw(few, envs=2).samples.tolist() == [50, 50]
    assert draw(none, envs=2).samples.tolist() == [300, 300]


def test_data_share_is_log_uniform_over_64_levels():
    found = draw(only(data_share=(0.25, 1.0)), envs=4000).data_share
    below = (found < 0.5).float().mean()
    assert abs(float(below) - 0.5) < 5 * 0.5 / math.sqrt(4000)
    assert len(set(found.tolist())) == 64
    assert float(found.min()) == 0.25
    assert float(found.max()) == 1.0


def test_prices_are_log_uniform():
    found = draw(only(param_price=(0.03, 0.3)), envs=4000).param_price.log()
    middle = (math.log(0.03) + math.log(0.3)) / 2
    assert abs(float(found.mean()) - middle) < 5 * math.log(10) / math.sqrt(12 * 4000)


@given(share=st.sampled_from([0.001, 0.3, 0.5, 1.0]), noise=st.sampled_from([0.0, 0.25, 0.5, 1.0]))
def test_a_range_without_extent_is_its_value(share, noise):
    found = draw(
        only(data_share=(share, share), label_noise=(noise, noise), width=(0.3, 0.3)), envs=2
    )
    assert found.data_share.tolist() == pytest.approx([share] * 2, abs=1e-6)
    assert found.label_noise.tolist() == [noise] * 2
    assert found.width.tolist() == pytest.approx([0.3] * 2)


def test_large_data_sets_are_sorted_in_parts_with_the_same_result(monkeypatch):
    whole = draw(envs=7)
    monkeypatch.setattr("morphogen.data.instances.CHUNK", 700)
    assert torch.equal(draw(envs=7).usable, whole.usable)


def test_prices_of_training_rise_over_the_first_rounds_and_nothing_else_changes():
    low, high = TASK.instance.param_price
    slow = replace(WIDE, ppo=PpoSpec(price_warmup_rounds=4))
    for episode, share in ((0, 0.25), (1, 0.5), (3, 1.0), (9, 1.0)):
        plain, found = draw(episode=episode), draw(slow, episode=episode)
        wanted = [low * (price / low) ** share for price in plain.param_price.tolist()]
        assert found.param_price.tolist() == pytest.approx(wanted, rel=1e-5)
        assert float(found.param_price.max()) <= low * (high / low) ** share * (1 + 1e-6)
        assert all(
            torch.equal(getattr(found, leaf), getattr(plain, leaf))
            for leaf in LEAVES
            if leaf != "param_price"
        )
    held_out = [draw(spec, purpose=Purpose.INSTANCE_HELD_OUT).param_price for spec in (WIDE, slow)]
    assert torch.equal(*held_out)
