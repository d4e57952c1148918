"""The open table of reward rules: how a rule is added, what holds for every rule in it, rules from
one function.
"""

from dataclasses import asdict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from morphogen.config.config_files import dump_config, parse_config
from morphogen.config.groups import RewardSpec
from morphogen.config.parts import RULES
from morphogen.config.registry import BUILT_IN
from morphogen.errors import ConfigError
from morphogen.rules.rewards.archetypes import ARCHETYPES, SLOTS, STEPS, TERMS, archetype_inputs
from morphogen.rules.rewards.protocol import Rule
from morphogen.rules.rewards.table import build_rule, describe_rule, rule_from_function
from morphogen.state.measure import RewardInputs
from morphogen.testing.builders.reward_inputs import make_reward_inputs, play_rule
from morphogen.testing.builders.tree_equality import assert_trees_equal
from morphogen.vocab.action import Op

POLICIES = list(ARCHETYPES.values())
WHOLE = {dtype: archetype_inputs(POLICIES, dtype=dtype) for dtype in (torch.float32, torch.float64)}
every_rule = pytest.mark.parametrize("name", sorted(RULES))


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


@st.composite
def lives(draw) -> RewardInputs:
    """Stretches of scripted lives, put together anew, with rollbacks and declined ops anywhere: [T,
    E].
    """
    whole = WHOLE[draw(st.sampled_from(list(WHOLE)))]
    steps = sorted(draw(st.lists(st.integers(0, STEPS - 1), min_size=1, max_size=6)))
    envs = draw(st.lists(st.integers(0, len(POLICIES) - 1), min_size=1, max_size=3))
    some = whole[steps][:, envs]
    flags = st.lists(st.booleans(), min_size=some.numel(), max_size=some.numel()).map(torch.tensor)
    lost, done = (draw(flags).view(some.shape) for _ in range(2))
    slots = some.slots.replace(op=torch.where(done.unsqueeze(-1), some.slots.op, int(Op.WAIT)))
    return some.replace(rolled_back=lost, op_executed=done, slots=slots)


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
        (
            "",
            rule_from_function(thrift),
            "name of a reward rule: expected letters and digits, with . _ - between them, got ''",
        ),
        ("two words", rule_from_function(thrift), "name of a reward rule: .* got 'two words'"),
        ("-dash", rule_from_function(thrift), "name of a reward rule: .* got '-dash'"),
        (7, rule_from_function(thrift), "name of a reward rule: .* got 7"),
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


def test_a_rule_of_this_program_can_be_replaced_as_where_a_cell_of_a_notebook_runs_again():
    first, second = rule_from_function(thrift), rule_from_function(thrift)
    RULES.register("thrift", first)
    RULES.register("thrift", second)
    assert RULES["thrift"] is second


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


# what holds for every rule


@every_rule
@given(whole=lives())
def test_components_are_those_it_names_are_finite_and_sum_to_the_reward(name, whole):
    own = rule(name)
    rewards, parts, _ = play_rule(own, [*whole])
    assert tuple(parts) == own.components
    assert rewards.isfinite().all()
    torch.testing.assert_close(sum(parts.values()), rewards)


@pytest.mark.slow
@every_rule
@given(whole=lives())
def test_other_envs_never_matter_and_the_past_is_in_the_ledger_only(name, whole):
    own = rule(name)
    together, _, after = play_rule(own, [*whole])
    for env in range(whole.shape[1]):
        alone, _, ledger = play_rule(own, [*whole[:, env : env + 1]])
        torch.testing.assert_close(alone[:, 0], together[:, env])
        for key in ledger.keys():  # noqa: SIM118  (iterating a TensorDict walks its rows)
            torch.testing.assert_close(ledger[key][0], after[key][env])


@pytest.mark.slow
@every_rule
@given(whole=lives(), order=st.permutations(range(SLOTS)))
def test_difference_07_permuting_slots_changes_no_reward(name, whole, order):
    moved = whole.replace(
        slots=whole.slots.apply(lambda leaf: leaf[..., order]),
        interaction=whole.interaction[..., order, :][..., order],
    )
    torch.testing.assert_close(
        play_rule(rule(name), [*moved])[0], play_rule(rule(name), [*whole])[0]
    )


@every_rule
@given(whole=lives())
def test_a_rule_does_not_write_to_its_arguments_and_keeps_shapes_and_dtypes(name, whole):
    own = rule(name)
    ledger, step = own.init(whole.shape[1], SLOTS), whole[0]
    copies = step.clone(), ledger.clone()
    reward, parts, after = own(step, ledger)
    potential, measured = own.potential(step, ledger)
    assert_trees_equal(step, copies[0])
    assert_trees_equal(ledger, copies[1])
    assert after.keys() == ledger.keys()
    for value in (reward, potential, *parts.values()):
        assert (value.shape, value.dtype) == ((whole.shape[1],), step.committed_acc.dtype)
    assert (measured.shape, measured.dtype) == ((whole.shape[1],), torch.bool)


@every_rule
def test_a_rule_never_asks_the_host(name):
    own, step = rule(name), WHOLE[torch.float32][30].to("meta")
    ledger = own.init(len(POLICIES), SLOTS, "meta")
    reward, parts, after = own(step, ledger)
    assert {
        value.device.type
        for value in (reward, *parts.values(), *after.values(), *own.potential(step, ledger))
    } == {"meta"}


def in_one_graph(rules: dict[str, Rule], backend: str) -> None:
    """Rules compiled into one graph, over 5 calls with changing values: no new graph, and the
    numbers of eager.
    """
    torch._dynamo.reset()
    graphs = []

    def counting(graph, example):
        graphs.append(graph)
        return torch._dynamo.lookup_backend(backend)(graph, example)

    def together(step, ledgers):
        return {name: own(step, ledgers[name]) for name, own in rules.items()}

    ledgers = {name: own.init(len(POLICIES), SLOTS) for name, own in rules.items()}
    traced, apart = torch.compile(together, fullgraph=True, backend=counting), dict(ledgers)
    for step in (9, 20, 30, 49, 74):  # a birth, ramps, a fossil, a rollback, the horizon
        wanted = together(WHOLE[torch.float32][step], apart)
        got = traced(WHOLE[torch.float32][step], ledgers)
        for name in rules:
            torch.testing.assert_close(got[name][:2], wanted[name][:2], rtol=1e-6, atol=1e-6)
            torch.testing.assert_close(
                dict(got[name][2]), dict(wanted[name][2]), rtol=1e-6, atol=1e-6
            )
        ledgers, apart = (
            {name: paid[2] for name, paid in found.items()} for found in (got, wanted)
        )
    assert len(graphs) == 1


@pytest.mark.slow
# from inside torch, when it loads its compiler
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_the_own_rules_compiled_pay_what_they_pay_in_eager_mode():
    in_one_graph({name: rule(name) for name in RULES if RULES.origin(name) == BUILT_IN}, "inductor")


# rules from one function


@pytest.mark.slow
@given(whole=lives())
def test_a_plain_rule_pays_what_its_function_returns_and_for_a_rollback_the_penalty_alone(whole):
    own = rule_from_function(thrift)(RewardSpec(governor_penalty=2.5), TERMS)
    rewards, parts, ledger = play_rule(own, [*whole])
    wanted = torch.stack([sum(thrift(step).values()) for step in whole])
    torch.testing.assert_close(
        rewards, torch.where(whole.rolled_back, -2.5, wanted), check_dtype=False
    )
    assert torch.equal(parts["governor"] != 0, whole.rolled_back)
    assert rewards.dtype == parts["acts"].dtype == whole.committed_acc.dtype
    assert list(ledger.keys()) == []


def test_a_plain_rule_has_no_potential_and_says_so():
    own = rule_from_function(thrift)(RewardSpec().fill_defaults(), TERMS)
    potential, measured = own.potential(make_reward_inputs(2), own.init(2, 3))
    assert potential.tolist() == [0.0, 0.0]
    assert measured.all()
    assert own.slot_scale == 0


def test_a_plain_rule_may_not_pay_the_penalty_itself():
    with pytest.raises(
        ConfigError, match="expected components other than governor, which is added for rollbacks"
    ):
        rule_from_function(lambda inputs: {"governor": inputs.committed_acc})(
            RewardSpec().fill_defaults(), TERMS
        )


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (lambda inputs: 1.0, r"got 1\.0"),
        (lambda inputs: inputs.next_val_acc.mean(), r"got torch.float32 \[\]"),
        (lambda inputs: inputs.next_val_acc.mean(0, keepdim=True), r"got torch.float32 \[1\]"),
        (lambda inputs: inputs.slots.stage, r"got torch.int64 \[2, 3\]"),
    ],
)
def test_a_part_that_is_no_number_per_env_makes_no_rule(part, said):
    with pytest.raises(
        ConfigError,
        match=rf"^component gain: expected a tensor \[E\], a real number per env, {said}$",
    ):
        rule_from_function(lambda inputs: {"gain": part(inputs)})(
            RewardSpec().fill_defaults(), TERMS
        )


def test_a_function_that_reads_values_on_the_host_makes_no_rule():
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        rule_from_function(
            lambda inputs: {"gain": inputs.committed_acc * inputs.committed_acc.max().item()}
        )(RewardSpec().fill_defaults(), TERMS)
