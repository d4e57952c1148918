"""Specs: every field's default and bounds, faults between fields, what the task fills in."""

import re
from dataclasses import FrozenInstanceError, replace
from operator import attrgetter

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from support.config_strategies import (
    FIELDS,
    GROUPS,
    inside,
    outside,
    runs,
    value_of,
)

from morphogen.config.execution_spec import EngineSpec
from morphogen.config.groups import GovernorSpec, HostSpec, LifecycleSpec, RewardSpec
from morphogen.config.host import CnnSpec
from morphogen.config.instance_spec import InstanceSpec
from morphogen.config.policy_spec import HeadFactors, HeadFloors, OpBias, PolicySpec, PpoSpec
from morphogen.config.spec import (
    RunSpec,
    find_host,
    instance_ranges,
    param_budget,
    resolve,
)
from morphogen.config.task import TASKS
from morphogen.errors import ConfigError
from morphogen.vocab.action import HEADS, Op
from morphogen.vocab.text import format_value

each_field = pytest.mark.parametrize("field", FIELDS, ids=repr)
each_number = pytest.mark.parametrize(
    "field", [field for field in FIELDS if field.kind in (int, float)], ids=repr
)
# The other field moves along where a bound is reached only together with it.
PARTNERS = {
    "lifecycle.vanishing": {"exploding": 1e300},
    "governor.chance_band": {"good_below": 1e-300, "warmup_limit": 3.0},
    "governor.good_below": {"chance_band": 1e-300},
    "governor.warmup_limit": {"chance_band": 1e-300},
    "governor.window": {"min_samples": 2},
}


def construct(field, value):
    return field.spec(**{**PARTNERS.get(field.path, {}), field.name: value})


@each_number
def test_a_number_at_its_bound_is_accepted(field):
    for bound in inside(field):
        assert getattr(construct(field, bound), field.name) == bound


@each_number
def test_a_number_outside_is_refused_with_field_range_and_value(field):
    for bad in outside(field):
        with pytest.raises(ConfigError) as caught:
            construct(field, bad)
        line = rf"^{re.escape(field.path)}: expected .+, got {re.escape(format_value(bad))}$"
        assert re.search(line, str(caught.value), re.MULTILINE)


@each_field
def test_null_is_accepted_only_where_it_has_a_meaning(field):
    if field.null:
        assert getattr(construct(field, None), field.name) is None
    else:
        with pytest.raises(ConfigError, match="expected"):
            construct(field, None)


@given(st.sampled_from(FIELDS), st.data())
def test_any_allowed_value_is_stored_unless_another_field_contradicts(field, data):
    value = data.draw(value_of(field))
    try:
        spec = field.spec(**{field.name: value})
    except ConfigError:
        event("contradicts another field")
        return
    stored = getattr(spec, field.name)
    assert stored == value or set(stored) == set(value)
    assert not isinstance(stored, list)


def test_all_faults_of_a_spec_are_reported_together():
    with pytest.raises(ConfigError) as caught:
        RunSpec(rounds=0, envs=True, seed=-1, task="didgits")
    lines = str(caught.value).splitlines()
    assert [line.split(":")[0] for line in lines] == ["task", "seed", "rounds", "envs"]
    assert f"expected one of {', '.join(TASKS)}, got" in lines[0]


PAIRS = [
    (
        LifecycleSpec,
        {"vanishing": 10.0},
        "lifecycle.exploding: expected > lifecycle.vanishing (10.0), got 10.0",
    ),
    (
        GovernorSpec,
        {"good_below": 0.935},
        "governor.good_below: expected < 1 - governor.chance_band",
    ),
    (
        GovernorSpec,
        {"warmup_limit": 1.065},
        "governor.warmup_limit: expected > 1 + governor.chance_band",
    ),
    (GovernorSpec, {"window": 9}, "governor.window: expected >= governor.min_samples (10), got 9"),
    (
        InstanceSpec,
        {"width": (0.6, 1.0)},
        "instance.width: expected multiples of 0.25, or low == high",
    ),
    (
        InstanceSpec,
        {"param_price": (0.0, 0.3)},
        "instance.param_price: expected low > 0 where low < high",
    ),
    (
        InstanceSpec,
        {"data_share": (0.9, 0.8)},
        "instance.data_share: expected [low, high] with low <= high",
    ),
    (
        EngineSpec,
        {"devices": ("gpu",)},
        'engine.devices: expected auto, cpu, cuda or cuda:0 .. cuda:99, got ["gpu"]',
    ),
    (
        RunSpec,
        {"envs": 6, "ppo": PpoSpec(minibatches=4)},
        "ppo.minibatches: expected a divisor of envs (6), got 4",
    ),
    (
        RunSpec,
        {"slots": ("r0c7",)},
        'slots: expected distinct names out of r0c0, r1c0, r0c1, got ["r0c7"]',
    ),
    (
        RunSpec,
        {"instance": InstanceSpec(classes=(2, 11))},
        "instance.classes: expected 2 .. 10 with the task digits, got [2, 11]",
    ),
    (
        RunSpec,
        {"instances": "single", "instance": InstanceSpec(data_share=(0.5, 1.0))},
        'instance.data_share: expected low == high where instances is "single", got [0.5, 1.0]',
    ),
    (
        RunSpec,
        {"policy": PolicySpec(floor={"slot": 0.17})},
        "policy.floor.slot: expected <= 0.166667 with 3 slots, got 0.17",
    ),
]


@pytest.mark.parametrize(
    ("spec", "values", "line"), PAIRS, ids=[line.split(":")[0] for _, _, line in PAIRS]
)
def test_fields_that_contradict_each_other_are_refused(spec, values, line):
    with pytest.raises(ConfigError) as caught:
        spec(**values)
    assert line in str(caught.value)


@pytest.mark.parametrize(
    "name", ["cuda:", "cuda:100", "cuda:-1", "cuda:01", "cuda: 1", "cuda:1\n", "CPU", "", "cuda:١"]
)
def test_a_device_that_cannot_exist_is_refused(name):
    with pytest.raises(ConfigError, match=r"engine\.devices"):
        EngineSpec(devices=(name,))


def test_factors_per_head_are_stored_in_head_order_and_absent_heads_keep_their_default():
    assert HEADS[0] == "op"
    assert PolicySpec(floor={"op": 0.02}).floor == (0.02,) + (0.01,) * 7
    assert PpoSpec(entropy_coef_head={"slot": 2}).entropy_coef_head == (1.0, 2.0) + (1.0,) * 6


def test_integers_are_welcome_where_a_number_is_wanted_and_give_the_same_spec():
    assert PpoSpec(gamma=1) == PpoSpec(gamma=1.0)
    assert type(PpoSpec(gamma=1).gamma) is float


def test_specs_are_frozen_and_hashable():
    assert hash(RunSpec()) == hash(RunSpec())
    with pytest.raises(FrozenInstanceError):
        RunSpec().rounds = 3


@given(runs())
def test_resolving_fills_every_task_field_and_twice_is_once(spec):
    whole = resolve(spec)
    assert resolve(whole) == whole
    assert None not in (
        whole.episode_length,
        whole.slots,
        whole.final_episodes,
        whole.host.width,
        whole.ppo.minibatches,
    )
    assert all(span is not None for span in vars(whole.instance).values())
    assert whole.envs % whole.ppo.minibatches == 0


@given(runs())
def test_resolving_keeps_what_was_set(spec):
    whole = resolve(spec)
    assert whole.slots is not None
    assert spec.slots is None or set(whole.slots) == set(spec.slots)
    for group in ("lifecycle", "governor", "signal", "attribution", "policy", "engine"):
        assert getattr(whole, group) == getattr(spec, group)
    assert whole.reward == spec.reward.fill_defaults()
    assert spec.ppo.minibatches is None or whole.ppo == spec.ppo


def test_the_penalty_for_a_rollback_is_filled_in_unless_it_was_set():
    filled = RewardSpec(rule="delta").fill_defaults()
    assert filled.governor_penalty == 1.0
    assert filled.fill_defaults() == filled
    assert RewardSpec(rule="delta", governor_penalty=0.0).fill_defaults().governor_penalty == 0.0
    assert resolve(RunSpec(reward=RewardSpec(rule="delta"))).reward == filled


def test_slots_are_in_the_hosts_order_whatever_the_input_order():
    assert resolve(RunSpec(slots=("r1c0", "r0c1", "r0c0"))).slots == ("r0c0", "r0c1", "r1c0")


def test_a_single_instance_is_the_reference_and_may_be_set_to_another_one():
    ranges = instance_ranges(RunSpec(instances="single", instance=InstanceSpec(width=(0.5, 0.5))))
    assert vars(ranges) == {
        "width": (0.5, 0.5),
        "data_share": (1.0, 1.0),
        "label_noise": (0.0, 0.0),
        "classes": (10, 10),
        "reach": (1, 1),
        "param_price": (0.1, 0.1),
    }


def test_ranges_in_the_config_replace_those_of_the_task():
    ranges = instance_ranges(RunSpec(instance=InstanceSpec(classes=(3, 4))))
    assert ranges.classes == (3, 4)
    assert ranges.data_share == TASKS["digits"].instance.data_share


def test_width_and_norm_of_the_config_shape_the_host():
    spec = RunSpec(host=HostSpec(width=8, norm="batch"))
    assert find_host(spec) == CnnSpec(
        base=8, blocks=2, kernel=3, pools=1, channels_in=1, size=8, classes=10, norm="batch"
    )


# Largest blueprint of each declared slot: conv_heavy 18 C^2 + 4 C, bottleneck 2 C q + 9 q^2 + 2 C,
# q = max(8, C // 4).
def test_the_budget_is_a_fully_grown_network():
    narrow = RunSpec(task="digits_impaired", host=HostSpec(width=4))
    assert param_budget(replace(narrow, blueprints=())) == 648 + 648 + 1184
    assert param_budget(replace(narrow, blueprints=("conv_light",))) == 152 + 152 + 592


def test_a_task_may_set_its_own_budget():
    assert param_budget(RunSpec()) == param_budget(RunSpec(blueprints=("norm",))) == 100


@given(runs())
def test_the_budget_depends_on_no_slot_choice_and_no_instance(spec):
    bare = RunSpec(task=spec.task, host=spec.host, blueprints=spec.blueprints)
    assert param_budget(spec) == param_budget(bare) >= 1


def test_every_group_is_a_field_of_the_run_and_named_like_it():
    for group in GROUPS:
        assert isinstance(attrgetter(group.PATH)(RunSpec()), group)


def test_what_is_given_wins_over_the_preset_and_that_over_the_task():
    spec = RunSpec(
        preset="smoke", envs=8, ppo=PpoSpec(clip=0.1), data={"batch": 4}, lifecycle=LifecycleSpec()
    )
    assert (spec.preset, spec.rounds, spec.envs, spec.data.batch, spec.data.minibatches) == (
        "smoke",
        2,
        8,
        4,
        2,
    )
    assert (spec.ppo.clip, spec.ppo.minibatches, spec.ppo.epochs) == (0.1, 2, 8)
    assert spec.lifecycle == RunSpec().lifecycle
    explicit = RunSpec(
        task="tiny", lifecycle=LifecycleSpec(auto_forward=("TRAIN", "HOLD")), max_seeds=0
    )
    assert (explicit.lifecycle, explicit.max_seeds) == (LifecycleSpec(), 0)
    assert replace(explicit, rounds=3) == RunSpec(**{**vars(explicit), "rounds": 3})


def test_the_heads_and_ops_of_tuples_are_in_their_order():
    assert HeadFloors._fields == HeadFactors._fields == HEADS
    assert OpBias._fields == tuple(op.name for op in Op)


def test_settings_of_a_spec_are_replaced_one_by_one():
    spec = RunSpec(preset="tiny", ppo={"clip": 0.1}, seed=3)
    other = spec.with_settings(ppo={"epochs": 2}, envs=8)
    assert (other.ppo.clip, other.ppo.epochs, other.envs, other.seed, other.task) == (
        0.1,
        2,
        8,
        3,
        spec.task,
    )
    assert other.ppo.lr == spec.ppo.lr
    assert spec.with_settings() == spec
    assert resolve(spec).with_settings(seed=4) == replace(resolve(spec), seed=4)
    with pytest.raises(
        ConfigError, match=r"ppo.clip: expected a number less than or equal to 1, got 3"
    ):
        spec.with_settings(ppo={"clip": 3})
