"""The open table of reward rules: how a rule is added, what holds for every rule in it, rules from
one function.
"""

from dataclasses import asdict

import pytest
import torch
from hypothesis import given

from morphogen.config.config_files import dump_config, parse_config
from morphogen.config.groups import RewardSpec
from morphogen.config.parts import RULES
from morphogen.config.registry import BUILT_IN
from morphogen.errors import ConfigError
from morphogen.rules.rewards.example_inputs import example_steps, make_reward_inputs
from morphogen.rules.rewards.protocol import Rule, Terms
from morphogen.rules.rewards.table import build_rule, describe_rule, rule_from_function
from morphogen.state.measure import RewardInputs
from morphogen.testing.builders.reward_inputs import play_rule
from morphogen.testing.laws.step import Subject, check_one_graph
from morphogen.testing.strategies import reward_episodes
from morphogen.vocab.action import Op

TERMS = Terms(param_budget=20_000, episode_length=75, gamma=0.995)


def rule(name: str, **spec) -> Rule:
    return build_rule(RewardSpec(rule=name, **spec), **asdict(TERMS))


def thrift(inputs: RewardInputs) -> dict[str, torch.Tensor]:
    """A point of accuracy that is delivered is paid, a living parameter costs.

    More about it.
    """
    return {
        "gain": torch.where(inputs.horizon, inputs.committed_acc, 0.0) / 100,
        "size": -inputs.live_params / 1_000_000,
        "acts": inputs.op != int(Op.WAIT),
    }


# the table


def test_every_rule_has_a_builder_an_origin_and_a_meaning_of_one_line():
    assert {"sparse", "delta", "value", "rent", "loss", "anytime"} <= RULES.keys()
    for name in RULES:
        assert name in RULES.builtin()
        assert 20 < len(describe_rule(name)) <= 120
        assert describe_rule(name).endswith(".")


def test_a_registered_rule_is_known_to_configs_and_built_like_any_other():
    with pytest.raises(
        ConfigError, match=r'reward\.rule: expected one of sparse, delta.* got "thrift"'
    ):
        RewardSpec(rule="thrift")
    RULES.register("thrift", rule_from_function(thrift))
    spec = parse_config('{"reward": {"rule": "thrift"}}')
    assert parse_config(dump_config(spec)) == spec
    own = build_rule(spec.reward, param_budget=10, episode_length=10, gamma=0.9)
    assert own.components == ("gain", "size", "acts", "governor")
    assert (
        describe_rule("thrift")
        == "A point of accuracy that is delivered is paid, a living parameter costs."
    )
    with pytest.raises(
        ConfigError, match=r'reward\.rule: expected one of sparse, delta.*, thrift, .*got "greed"'
    ):
        RewardSpec(rule="greed")


@pytest.mark.parametrize(
    ("name", "builder", "said"),
    [
        (
            "delta",
            rule_from_function(thrift),
            "reward rule delta: .* got the name of a reward rule of own",
        ),
        ("two words", rule_from_function(thrift), "name of a reward rule: .* got 'two words'"),
        (
            "thrift",
            {"gain": 1},
            r"reward rule thrift: expected a function \(spec, terms\) -> rule, got \{'gain': 1\}",
        ),
    ],
)
def test_what_cannot_be_a_rule_is_refused_and_leaves_the_table_as_it_is(name, builder, said):
    before = dict(RULES)
    with pytest.raises(ConfigError, match=said):
        RULES.register(name, builder)
    assert before == dict(RULES)


def test_a_rule_can_be_given_as_an_object_wherever_its_name_can_be():
    own = rule_from_function(thrift)
    spec = RewardSpec(rule=own)
    assert (spec.rule, RULES["thrift"], RULES.origin("thrift")) == ("thrift", own, "this program")
    with pytest.raises(ConfigError, match=r"name of a reward rule: .* got '<lambda>'"):
        RewardSpec(rule=rule_from_function(lambda inputs: {}))
    for value in (3, {"gain": 1}, None):
        with pytest.raises(ConfigError, match=r"reward\.rule: expected one of sparse"):
            RewardSpec(rule=value)


def test_numbers_that_no_run_has_are_refused():
    with pytest.raises(ConfigError, match="param_budget: expected an integer >= 1, got 0"):
        build_rule(RewardSpec(), param_budget=0, episode_length=10, gamma=0.9)
    with pytest.raises(ConfigError, match="episode_length: expected an integer >= 1, got 0"):
        build_rule(RewardSpec(), param_budget=1, episode_length=0, gamma=0.9)


@pytest.mark.slow
# from inside torch, when it loads its compiler
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_the_own_rules_compiled_pay_what_they_pay_in_eager_mode():
    own = {name: rule(name) for name in RULES if RULES.origin(name) == BUILT_IN}

    def together(step, ledgers):
        return {name: pay(step, ledgers[name]) for name, pay in own.items()}

    steps = example_steps()
    ledgers = {name: pay.init(*steps[0].slots.stage.shape) for name, pay in own.items()}
    examples = []
    for step in steps:
        examples.append((step, ledgers))
        ledgers = {name: paid[2] for name, paid in together(*examples[-1]).items()}
    check_one_graph(Subject(together, "own rules"), examples, backend="inductor")


# rules from one function


@given(steps=reward_episodes())
def test_a_plain_rule_pays_what_its_function_returns_and_for_a_rollback_the_penalty_alone(steps):
    own = rule_from_function(thrift)(RewardSpec(governor_penalty=2.5), TERMS)
    rewards, parts, ledger = play_rule(own, steps)
    wanted = torch.stack([sum(thrift(step).values()) for step in steps])
    lost = torch.stack([step.rolled_back for step in steps])
    torch.testing.assert_close(rewards, torch.where(lost, -2.5, wanted), check_dtype=False)
    assert torch.equal(parts["governor"] != 0, lost)
    assert rewards.dtype == parts["acts"].dtype == steps[0].committed_acc.dtype
    assert list(ledger.keys()) == []


def test_a_plain_rule_has_no_potential_and_says_so():
    own = rule_from_function(thrift)(RewardSpec().fill_defaults(), TERMS)
    potential, measured = own.potential(make_reward_inputs(2), own.init(2, 3))
    assert potential.tolist() == [0.0, 0.0]
    assert measured.all()
    assert own.slot_scale == 0
