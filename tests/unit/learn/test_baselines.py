"""Policies that do not learn: always legal, on the same path, and the gardener does its job."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.made_up_rollouts import masks, noise, observation
from support.topologies import KINDS

from morphogen.config.groups import LifecycleSpec
from morphogen.config.spec import RunSpec
from morphogen.errors import ConfigError
from morphogen.learn.baselines import HeuristicPolicy, blueprint_rotation, build_heuristic, build_random
from morphogen.nets.net import Net
from morphogen.rules.decoding import decode
from morphogen.rules.legality import action_masks
from morphogen.state import rng
from morphogen.steps.apply import apply_action
from morphogen.steps.observe_step import observe
from morphogen.steps.tick_step import tick
from morphogen.testing.builders.scenes import advance_counters, make_limits, make_slots, make_state
from morphogen.testing.strategies import limits, slot_states
from morphogen.vocab.action import Op
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.host import CnnSpec
from morphogen.vocab.limits import Limits
from morphogen.vocab.stage import Stage

HOST = CnnSpec(base=4, blocks=3, kernel=3, pools=0, channels_in=1, size=8, classes=10)
CNN = Limits((True, True, True))
LENGTH = 60
BASELINES = {"random": build_random, "heuristic": build_heuristic}


def policy_of(name: str, **spec):
    return BASELINES[name](RunSpec(lifecycle=LifecycleSpec(**spec), episode_length=LENGTH), CNN)


def look(whole, bounds=None):
    bounds = bounds or make_limits(whole.slots)
    net = Net(HOST, HOST.all_slots[: whole.slots.stage.shape[1]])
    return observe(whole, bounds, net=net, episode_length=LENGTH, param_budget=1000), action_masks(whole.slots, bounds)


def ready(whole, *, epoch: int = 9):
    """The host is stable and on a plateau."""
    envs = whole.batch_size[0]
    signals = whole.signals.replace(plateau=torch.full((envs,), 4), stabilized=torch.ones(envs, dtype=torch.bool))
    return whole.replace(signals=signals, clock=whole.clock.replace(epoch=torch.full((envs,), epoch)))


def decide(policy, whole, bounds=None, hidden=None):
    obs, legal = look(whole, bounds)
    envs, slots = whole.slots.stage.shape
    memory = policy.initial_hidden(envs) if hidden is None else hidden
    return policy.act(policy.init(torch.zeros(3)), obs, legal, memory, noise(envs, slots, 0))


def gardener(**knobs) -> HeuristicPolicy:
    return HeuristicPolicy(**{"rotation": blueprint_rotation(CNN), "episode_length": LENGTH, **knobs})


def wish(**row) -> tuple[str, int]:
    """Action of the gardener for one seed."""
    full = {"blueprint": 1, "algorithm": 1, "age": 12, **row}
    out = decide(gardener(), make_state(make_slots([[full]])))
    return Op(int(out.action[0, 0])).name, int(out.action[0, 1])


@pytest.mark.slow
@given(
    slot_states().flatmap(lambda s: st.tuples(st.just(s), limits(s))), st.sampled_from(tuple(BASELINES)), st.booleans()
)
def test_every_baseline_takes_legal_actions_only(world, name, grown):
    slots, bounds = world
    whole = ready(make_state(slots)) if grown else make_state(slots)
    policy = BASELINES[name](RunSpec(lifecycle=LifecycleSpec(), episode_length=LENGTH), Limits(bounds.enabled))
    if name == "heuristic":
        bounds = Limits(bounds.enabled, bounds.max_seeds, bounds.min_prune_age, bounds.auto_forward)
    out = decide(policy, whole, bounds)
    spec = decode(out.action, whole.slots, bounds)
    assert spec.valid.all()
    assert (out.log_prob == 0).all()
    assert (out.value == 0).all()


def test_random_covers_every_legal_op_slot_and_value_evenly_and_only_those():
    legal = masks(1, slots=3, seed=4)
    count = 10_000
    many = legal.apply(lambda x: x.expand(count, *x.shape[1:]), batch_size=[count])
    lanes = rng.gumbel(rng.stream(rng.env_keys(1, 0, count), rng.Purpose.BASELINE), 41)
    policy = policy_of("random")
    out = policy.act(policy.init(torch.zeros(3)), observation(count), many, policy.initial_hidden(count), lanes)
    found = torch.bincount(out.action[:, 0], minlength=6)
    ops = int(legal.op.sum())
    assert ((found > 0) == legal.op[0]).all()
    assert (found[legal.op[0]] / count - 1 / ops).abs().max() < 0.02
    for op in range(1, 6):
        rows = out.action[out.action[:, 0] == op]
        if len(rows):
            assert set(rows[:, 1].tolist()) == set(torch.nonzero(legal.slot[0, op]).flatten().tolist())
    grown = out.action[out.action[:, 0] == 1]
    if len(grown):
        assert set(grown[:, 2].tolist()) == set(torch.nonzero(legal.blueprint[0]).flatten().tolist())


def test_the_gardener_knows_what_to_do_in_every_stage():
    assert wish(stage=2, epochs_in_stage=1) == ("ADVANCE", 0)
    assert wish(stage=3, epochs_in_stage=9, accuracy_at_stage_start=50.0) == ("WAIT", 0)
    assert wish(stage=3, epochs_in_stage=10, accuracy_at_stage_start=50.0) == ("ADVANCE", 0)
    assert wish(stage=3, epochs_in_stage=5, accuracy_at_stage_start=52.5) == ("PRUNE", 0)
    assert wish(stage=3, epochs_in_stage=4, accuracy_at_stage_start=52.5) == ("WAIT", 0)
    assert wish(stage=3, epochs_in_stage=5, accuracy_at_stage_start=52.0) == ("WAIT", 0)
    assert wish(stage=3, epochs_in_stage=25, accuracy_at_stage_start=50.0) == ("PRUNE", 0)
    rest = {"accuracy_at_stage_start": 50.0, "alpha_target": 1.0}
    assert wish(stage=4, epochs_in_stage=6, alpha=1.0, **rest) == ("ADVANCE", 0)
    assert wish(stage=4, epochs_in_stage=6, alpha=0.5, alpha_mode=1, **rest) == ("WAIT", 0)
    assert wish(stage=4, epochs_in_stage=20, alpha=0.5, **rest) == ("PRUNE", 0)
    held = {"stage": 5, "alpha": 1.0, "accuracy_at_stage_start": 50.0, "contribution_valid": True}
    assert wish(**{**held, "contribution_valid": False}, epochs_in_stage=9) == ("WAIT", 0)
    assert wish(**held, contribution=0.5, accuracy_at_germination=40.0) == ("FOSSILIZE", 0)
    assert wish(**held, contribution=0.5, accuracy_at_germination=60.0) == ("PRUNE", 0)
    assert wish(**held, contribution=0.4, epochs_in_stage=4) == ("WAIT", 0)
    assert wish(**held, contribution=0.4, epochs_in_stage=5) == ("PRUNE", 0)
    assert wish(stage=6, alpha=1.0, epochs_in_stage=50) == ("WAIT", 0)


def test_it_takes_fossilize_before_prune_before_advance_and_then_the_lowest_slot():
    base = {"blueprint": 1, "algorithm": 1, "age": 12, "alpha": 1.0, "accuracy_at_stage_start": 50.0}
    keep = {**base, "stage": 5, "contribution": 3.0, "contribution_valid": True}
    drop = {**base, "stage": 5, "contribution": 0.0, "contribution_valid": True, "epochs_in_stage": 9}
    move = {**base, "stage": 2, "alpha": 0.0}
    for row, expected in (
        ([move, drop, keep], (4, 2)),
        ([move, drop, drop], (3, 1)),
        ([move, {}, {}], (5, 0)),
        ([keep, drop, keep], (4, 0)),
    ):
        assert tuple(decide(gardener(), make_state(make_slots([row]))).action[0, :2].tolist()) == expected


def test_it_germinates_only_in_a_stable_host_on_a_plateau_after_a_few_epochs():
    empty = make_state(make_slots([[{}, {}]]))
    assert decide(gardener(), ready(empty)).action[0].tolist() == [1, 0, 1, 2, 1, 2, 0, 0]
    assert decide(gardener(), ready(empty, epoch=5)).action[0, 0] == 1
    assert decide(gardener(), ready(empty, epoch=4)).action[0, 0] == 0
    for leaf, value in (("plateau", torch.tensor([2])), ("stabilized", torch.tensor([False]))):
        whole = ready(empty)
        assert decide(gardener(), whole.replace(signals=whole.signals.replace(**{leaf: value}))).action[0, 0] == 0


def test_blueprints_come_in_rotation_past_those_that_were_pruned():
    policy, whole = gardener(), ready(make_state(make_slots([[{}]])))
    hidden, found = policy.initial_hidden(1), []
    for _ in range(6):
        out = decide(policy, whole, hidden=hidden)
        hidden = out.hidden
        found.append(Blueprint(int(out.action[0, 2])).label)
    assert found == ["conv_light", "conv_heavy", "attention", "norm", "depthwise", "conv_light"]
    penalised = policy.initial_hidden(1)
    penalised["penalty"][0, [1, 7]] = 8.0
    assert decide(policy, whole, hidden=penalised).action[0, 2] == Blueprint.ATTENTION
    penalised["penalty"][0] = 10.0
    penalised["penalty"][0, 4] = 7.0
    assert decide(policy, whole, hidden=penalised).action[0, 2] == Blueprint.DEPTHWISE


def test_pruning_is_remembered_and_forgotten():
    row = {"stage": 3, "blueprint": 4, "algorithm": 1, "age": 12, "epochs_in_stage": 30}
    out = decide(gardener(), make_state(make_slots([[row]])))
    assert out.hidden["penalty"][0, 4] == 2.0
    hidden = out.hidden
    for expected in (1.0, 0.5, 0.25, 0.125, 0.0):
        hidden = decide(gardener(), make_state(make_slots([[{}]])), hidden=hidden).hidden
        assert hidden["penalty"][0, 4] == expected


def test_strict_gates_raise_the_bar_to_the_one_of_the_gate():
    assert policy_of("heuristic").min_contribution == 0.5
    assert policy_of("heuristic", permissive_gates=False, min_contribution=1.5).min_contribution == 1.5
    assert policy_of("heuristic", permissive_gates=False, min_contribution=0.1).min_contribution == 0.5


def test_a_rotation_that_cannot_be_used_is_refused_by_name():
    with pytest.raises(ConfigError, match="lora"):
        blueprint_rotation(CNN, ("lora",))
    narrow = Limits((True,), blueprints=("bottleneck",))
    with pytest.raises(ConfigError, match="rotation"):
        blueprint_rotation(narrow, ("norm",))
    assert blueprint_rotation(narrow) == (Blueprint.BOTTLENECK,)
    transformer = Limits((True,), kinds=KINDS["transformer"])
    names = [Blueprint(code).label for code in blueprint_rotation(transformer)]
    assert names == ["norm", "lora", "mlp_small", "attention", "lora_large"]


@pytest.mark.slow
@given(slot_states(max_envs=3), st.data())
def test_rows_of_the_gardener_do_not_depend_on_each_other(slots, data):
    whole = ready(make_state(slots))
    every = decide(gardener(), whole)
    row = data.draw(st.integers(0, slots.stage.shape[0] - 1))
    alone = decide(gardener(), whole[row : row + 1])
    assert torch.equal(alone.action[0], every.action[row])


def live(worth: list[float], epochs: int = 120):
    """Envs under the gardener: an empty host on a plateau, healthy gradients, seeds worth the given points each."""
    lifecycle, policy = LifecycleSpec(), gardener(episode_length=epochs)
    whole = ready(make_state(make_slots([[{}, {}] for _ in worth])))
    hidden, seen = policy.initial_hidden(len(worth)), []
    points = torch.tensor(worth).unsqueeze(-1).expand(-1, 2)
    for t in range(epochs):
        whole = ready(whole, epoch=t)
        out = decide(policy, whole, hidden=hidden)
        hidden = out.hidden
        spec = decode(out.action, whole.slots, make_limits(whole.slots))
        assert spec.valid.all()
        whole, _ = apply_action(whole, spec, lifecycle=lifecycle)
        whole, _ = tick(whole, lifecycle=lifecycle)
        running = (whole.slots.stage >= 3) & (whole.slots.stage <= 6)
        measured = (whole.slots.stage >= 4) & (whole.slots.stage <= 6)
        slots = whole.slots.replace(
            gradient_valid=running,
            gradient_health=running.float(),
            contribution=torch.where(measured, points, 0.0),
            contribution_valid=measured,
        )
        whole = whole.replace(slots=advance_counters(slots))
        seen.append((whole.slots.stage, whole.slots.epochs_in_stage, out.action[:, 0]))
    return tuple(torch.stack(part) for part in zip(*seen, strict=True))


@pytest.mark.slow
def test_difference_15_the_gardener_leaves_training_keeps_what_is_good_and_prunes_what_is_not():
    stage, epochs, ops = live([3.0, 0.1])
    assert (stage[:, 0] == int(Stage.FOSSILIZED)).any()
    assert (stage[-1, 0] == int(Stage.FOSSILIZED)).all()
    assert not (stage[:, 1] == int(Stage.FOSSILIZED)).any()
    assert (stage[:, 1] == int(Stage.PRUNED)).any()
    assert (ops[:, 1] == int(Op.PRUNE)).sum() >= 2
    for waiting in (Stage.TRAINING, Stage.HOLDING):
        assert epochs[stage == int(waiting)].max() <= 21


@pytest.mark.parametrize("name", BASELINES)
def test_no_baseline_asks_the_host(name):
    policy = policy_of(name)
    whole = make_state(make_slots([[{}, {}]]))
    obs, legal = look(whole)
    params = policy.init(torch.zeros(3, device="meta"))
    out = policy.act(
        params, obs.to("meta"), legal.to("meta"), policy.initial_hidden(1, device="meta"), noise(1, 2, 0).to("meta")
    )
    assert out.action.device.type == "meta"
