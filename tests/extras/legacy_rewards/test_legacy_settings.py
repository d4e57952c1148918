"""Settings of the legacy rules: a group within the rewards, and what the rules decide."""

from dataclasses import replace

import pytest

from morphogen.config.config_files import build_spec, dump_config, parse_assignment, parse_config
from morphogen.config.groups import RewardSpec
from morphogen.config.parts import RULES
from morphogen.config.spec import RunSpec, resolve
from morphogen.errors import ConfigError
from morphogen.extras.legacy_rewards.settings import RULES as OWN_RULES
from morphogen.extras.legacy_rewards.settings import LegacyRewardSpec

DEFAULTS = {
    "contribution_weight": 1,
    "proxy_weight": 0.3,
    "pbrs_weight": 0.3,
    "stage_progress": 0.3,
    "stage_progress_cap": 2,
    "combine": "harmonic",
    "ratio_threshold": 5,
    "discount_steepness": 3,
    "escrow_clip": 2,
    "rent_weight": 0.5,
    "rent_cap": 1.5,
    "host_params_floor": 200,
    "slot_rent_ratio": 0.0039,
    "shock_weight": 0.1958,
    "shock_cap": 1,
    "free_slots": 1,
    "warmup_epochs": 10,
    "warmup_floor": 0.4,
    "basic_terminal_weight": 5,
    "basic_bonus_scale": 0.5,
    "param_budget": 500_000,
    "param_price": 0.1,
    "drip_fraction": None,
    "drip_cap": 0.1,
    "drip_negative_ratio": 0.5,
    "drip_min_epochs": 5,
    **dict.fromkeys(("use_pbrs", "use_terminal", "use_anti_gaming", "use_timing"), True),
}


def config_faults(text):
    with pytest.raises(ConfigError) as caught:
        parse_config(text)
    return str(caught.value).splitlines()


def test_defaults_are_those_of_the_documents():
    assert vars(LegacyRewardSpec()).keys() - {"_settings"} == DEFAULTS.keys()
    assert {name: getattr(LegacyRewardSpec(), name) for name in DEFAULTS} == DEFAULTS


def test_the_extra_registers_the_rules_that_it_sets_defaults_for():
    assert {name for name in RULES if RULES.origin(name) == "legacy_rewards"} == set(OWN_RULES)


def test_constants_of_the_legacy_rules_are_a_group_within_the_rewards():
    spec = build_spec(parse_assignment("reward.legacy.rent_weight=0.25"))
    assert spec.reward.legacy.rent_weight == 0.25
    assert spec.reward == replace(
        RunSpec().reward, legacy=replace(RunSpec().reward.legacy, rent_weight=0.25)
    )
    assert parse_config(dump_config(spec)) == spec
    assert config_faults(
        '{"reward": {"legacy": {"combine": "mean", "rent": 1, "drip_fraction": 2}}}'
    ) == [
        "reward.legacy.combine: expected 'harmonic' or 'minimum', got \"mean\"",
        "reward.legacy.drip_fraction: expected a number less than or equal to 1, got 2",
        f"reward.legacy.rent: expected one of {', '.join(vars(LegacyRewardSpec()))}, got an "
        "unknown name (did you mean rent_cap?)",
    ]
    assert config_faults('{"reward": {"legacy": 3}}') == [
        "reward.legacy: expected a dictionary or an instance of LegacyRewardSpec, got 3"
    ]


@pytest.mark.parametrize(
    ("rule", "penalty", "fraction"),
    [("sparse", 1.0, 0.0), ("shaped", 10.0, 0.0), ("basic", 10.0, 0.0), ("basic_plus", 10.0, 0.7)],
)
def test_what_the_reward_rule_decides_is_filled_in_unless_it_was_set(rule, penalty, fraction):
    filled = RewardSpec(rule=rule).fill_defaults()
    assert (filled.governor_penalty, filled.legacy.drip_fraction) == (penalty, fraction)
    given = RewardSpec(rule=rule, governor_penalty=0.0, legacy=LegacyRewardSpec(drip_fraction=0.2))
    assert given.fill_defaults() == given
    assert resolve(RunSpec(reward=RewardSpec(rule=rule))).reward == filled
