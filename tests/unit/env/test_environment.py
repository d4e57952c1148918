"""The functional environment: pure steps, restarts of some envs, plans, crossings, and the
scheduler's own epochs.
"""

from dataclasses import replace

import pytest
import torch
from support.small_runs import live, tiny, tiny_setup, world_of
from tensordict import TensorDict
from torch.autograd import forward_ad

import morphogen as mg
from morphogen.config.groups import GovernorSpec
from morphogen.data.dataset import open_dataset
from morphogen.data.feed import ResidentFeed
from morphogen.env import actions
from morphogen.env.environment import open_environment
from morphogen.rules.rewards.table import rule_from_function
from morphogen.state import rng
from morphogen.testing.builders.tree_equality import leaves, trees_equal
from morphogen.train.loop import Scheduler
from morphogen.vocab.action import HEADS, Head
from morphogen.vocab.stage import Stage

META = torch.device("meta")
ROWS = torch.tensor([True, False, False, True])


def episode(env, *, epochs=None, change=None):
    """States before each epoch and after the last one, actions, and steps of random actions."""
    state, seen = env.reset()
    states, acts, steps = [state], [], []
    for t in range(env.horizon if epochs is None else epochs):
        if change is not None:
            states[-1] = change(t, states[-1])
        acts.append(actions.random(env, states[-1], seen))
        state, step = env.step(states[-1], acts[-1])
        states, steps, seen = [*states, state], [*steps, step], step.inputs
    return states, acts, steps


@pytest.fixture(scope="module")
def history():
    env = world_of(tiny_setup(episode_length=8))
    return env, *episode(env)


def sick(t, state):
    """NaN in one host before epoch 4."""
    params = state.host.params.clone()
    params[2] = torch.nan
    return state.replace(host=state.host.replace(params=params)) if t == 4 else state


@pytest.mark.slow
@pytest.mark.parametrize("change", [None, sick], ids=["healthy", "rolled back"])
def test_an_episode_by_hand_is_the_one_of_the_scheduler_bit_for_bit(change):
    scheduler = Scheduler(
        tiny_setup(episode_length=8, rounds=1, governor=GovernorSpec(snapshot_every=2))
    )
    run_epoch, epochs = scheduler.run_epoch, []

    def kept(carry, t):
        if change is not None:
            state = change(t, carry.state)
            carry = carry._replace(state=state, inputs=scheduler.env.observe(state))
        carry, epoch = run_epoch(carry, t)
        epochs.append(epoch)
        return carry, epoch

    scheduler.run_epoch = kept
    with torch.no_grad():
        scheduler.run()
    env = mg.make(scheduler.setup.spec)
    state, _ = env.reset()
    for t, epoch in enumerate(epochs):
        state = state if change is None else change(t, state)
        assert trees_equal(state, epoch.before)
        state, step = env.step(state, epoch.choice.action)
        assert trees_equal(step.score, epoch.step.score)
    assert trees_equal(state, epochs[-1].after)
    assert [epoch.step.report.rolled_back.any().item() for epoch in epochs] == [
        change is not None and t == 4 for t in range(8)
    ]


def test_a_step_crosses_once_and_with_its_plan_not_at_all(history):
    env, states, acts, _ = history
    env = world_of(env.setup)
    state, _ = env.reset()
    assert not any(env.ledger.values())
    env.step(state, acts[0])
    assert {name: count for name, count in env.ledger.items() if count} == {"plan": 1}
    plan = env.plan(states[5], acts[5])
    assert env.ledger["plan"] == 2
    after, _ = env.advance(states[5], acts[5], plan=plan)
    assert env.ledger["plan"] == 2
    assert trees_equal(after, states[6])
    env.restart(after, ROWS)
    assert env.ledger["plan"] == 2


def test_restarted_rows_begin_the_next_episode_and_the_others_stay_bit_for_bit(history):
    env, states, _, steps = history
    after, seen = env.restart(states[5], ROWS)
    fresh, first = env.reset(1)
    for old, row in ((states[5], ~ROWS), (fresh, ROWS)):
        assert all(
            torch.equal(a, b)
            for a, b in zip(leaves(after[row]).values(), leaves(old[row]).values(), strict=True)
        )
    assert after.clock.episode.tolist() == [1, 0, 0, 1]
    assert after.clock.epoch.tolist() == [0, 5, 5, 0]
    for name in ("env", "instance", "slots"):
        now, old, new = (getattr(one.observation, name) for one in (seen, steps[4], first))
        assert torch.equal(now[~ROWS], old[~ROWS])
        assert torch.equal(now[ROWS], new[ROWS])


@pytest.mark.slow
def test_a_step_with_its_plan_runs_without_any_number(history):
    """On the device `meta` a tensor has no values, so that a read would fail."""
    env, states, acts, steps = history
    setup = env.setup
    dataset = open_dataset(setup.task, setup.spec.data, setup.net.host, META)
    feed = ResidentFeed(dataset, setup.spec)
    bare = open_environment(replace(setup, device=META, dataset=dataset, feed=feed))
    fresh, _ = bare.reset()
    assert {leaf.device for leaf in leaves(fresh).values()} == {META}
    for t in (0, 3, 6):
        after, step = bare.advance(
            states[t].to(META), acts[t].to(META), plan=env.plan(states[t], acts[t])
        )
        assert {name: leaf.shape for name, leaf in leaves(after).items()} == {
            name: leaf.shape for name, leaf in leaves(states[t + 1]).items()
        }
        assert step.reward.device == META
        assert step.observation.env.shape == steps[t].observation.env.shape


def test_illegal_actions_change_no_topology(history):
    env, states, _, steps = history
    draw = torch.Generator().manual_seed(0)
    for t, step in enumerate(steps):
        action = torch.randint(-3, 99, (env.envs, len(HEADS)), generator=draw)
        action[:, Head.OP] = torch.where(step.masks.op.all(-1), 99, step.masks.op.long().argmin(-1))
        after, wrong = env.step(states[t + 1], action)
        assert (
            not wrong.outcome.executed.any()
            or (wrong.outcome.effective_op[wrong.outcome.executed] == 0).all()
        )
        assert (wrong.outcome.reason != 0).all()
        waited, _ = env.step(states[t + 1], actions.wait(env))
        assert torch.equal(after.slots.stage, waited.slots.stage)
        assert torch.equal(after.host.params, waited.host.params)


def test_an_action_by_heads_is_the_same_action(history):
    env, states, acts, _ = history
    heads = actions.to_heads(acts[2])
    assert set(heads.keys()) == set(HEADS)
    assert torch.equal(actions.to_tensor(heads), acts[2])
    assert trees_equal(env.step(states[2], heads)[0], states[3])


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (
            torch.zeros(4, 7, dtype=torch.int64),
            r"action: expected int64 \[4, 8\], got torch.int64 \[4, 7\]",
        ),
        (
            torch.zeros(3, 8, dtype=torch.int64),
            r"action: expected int64 \[4, 8\], got torch.int64 \[3, 8\]",
        ),
        (torch.zeros(4, 8), r"action: expected int64 \[4, 8\], got torch.float32"),
        (
            TensorDict({"op": torch.zeros(4).long()}, [4]),
            "action: expected the heads op, slot, .*, got op",
        ),
        (
            actions.to_heads(torch.zeros(4, 8).long()).update({"tempo": torch.zeros(4)}),
            r"action: expected int64 \[4, 8\], got torch.float32 \[4, 8\]",
        ),
        ([[0] * 8] * 4, r"action: expected int64 \[4, 8\], got \["),
    ],
)
def test_an_action_of_another_form_is_refused(history, action, message):
    env, states, _, _ = history
    with pytest.raises(mg.ConfigError, match=message):
        env.step(states[0], action)


def test_draws_of_random_actions_differ_are_legal_and_can_be_repeated(history):
    env, states, acts, _ = history
    state, seen = states[0], env.observe(states[0])
    drawn = torch.stack([actions.random(env, state, seen, draw=draw) for draw in range(24)])
    assert torch.equal(drawn[0], acts[0])
    assert torch.equal(drawn[9], actions.random(env, state, seen, draw=9))
    assert all(len(drawn[:, e].unique(dim=0)) > 8 for e in range(env.envs))
    for action in drawn:
        _, step = env.step(state, action)
        assert (step.outcome.reason < 20).all(), "a reason from 20 on is an illegal action"


@pytest.mark.parametrize("draw", [-1, 2**24, 1.5, "1"])
def test_a_draw_that_is_no_number_of_a_draw_is_refused(history, draw):
    env, states, _, _ = history
    with pytest.raises(
        mg.ConfigError, match=f"^draw: expected an integer in 0 .. 16777215, got .?{draw}"
    ):
        actions.random(env, states[0], env.observe(states[0]), draw=draw)


def test_an_action_is_built_from_names(history):
    env = history[0]
    built = mg.actions.build(env, "GERMINATE", slot="r0c1", blueprint="norm", tempo="FAST")
    heads = actions.to_heads(built)
    assert built.shape == (env.envs, 8)
    assert (heads["op"] == mg.Op.GERMINATE).all()
    assert (heads["slot"] == env.net.names.index("r0c1")).all()
    assert (heads["blueprint"] == mg.Blueprint.NORM).all()
    assert (heads["tempo"] == mg.Tempo.FAST).all()
    _, step = env.step(env.reset()[0], built)
    assert step.outcome.executed.all()
    assert not mg.actions.build(env, "WAIT")[:, Head.OP].any()


def test_envs_are_the_same_by_number_and_by_key():
    env = mg.make(tiny(envs=6))
    part, keyed = (
        mg.make(tiny(envs=6), envs=2, first=3),
        mg.make(tiny(), keys=rng.env_keys(0, 3, 2)),
    )
    whole, _ = env.reset()
    for other in (part, keyed):
        state, _ = other.reset()
        assert other.envs == 2
        assert torch.equal(state.host.params, whole.host.params[3:5])
        assert torch.equal(state.instance.class_of, whole.instance.class_of[3:5])


def test_episodes_may_differ_by_env():
    env = mg.make(tiny())
    state, _ = env.reset(torch.tensor([0, 5, 2, 0]))
    alone, _ = env.reset(5)
    assert state.clock.episode.tolist() == [0, 5, 2, 0]
    assert torch.equal(state.host.params[1], alone.host.params[1])


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: mg.make("digits", instances="valid"), mg.ConfigError, "^instances: expected one of train, held-out, test, a stream of tasks, got .*; whether tasks vary"),
        (lambda: mg.make("digit"), mg.ConfigError, "task: expected"),
        (lambda: mg.make("digits", envs=0), mg.ConfigError, "envs: expected"),
        (lambda: mg.make("digits", envs="4"), mg.ConfigError, 'envs: expected a valid integer, got "4"'),
        (lambda: mg.make("digits", num_envs=4), mg.ConfigError, r"num_envs: .*\(did you mean envs\?\)"),
        (lambda: mg.make(tiny()).reset(-1), mg.ConfigError, "episode: expected >= 0, got -1"),
        (lambda: mg.make("digits", device="cuda:77"), mg.DeviceError, "engine.devices: expected"),
        (lambda: mg.make("digits", keys=torch.zeros(4, 2).long()), mg.ConfigError, r"keys: expected int64 \[E, 3\]"),
        (lambda: mg.make("digits", keys=torch.zeros(4, 3).long(), envs=4), TypeError, "keys: expected no envs"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_states_and_rows_of_another_number_of_envs_are_refused(history):
    env, states, acts, _ = history
    with pytest.raises(mg.ConfigError, match=r"state: expected 4 envs, got 2"):
        env.step(states[0][:2], acts[0])
    with pytest.raises(mg.ConfigError, match=r"rows: expected bool \[4\], got torch.bool \[1\]"):
        env.restart(states[0], torch.tensor([True]))


def test_any_number_of_envs_can_be_made_whatever_the_update_would_like():
    assert mg.make("tiny", envs=7).reset()[0].batch_size == (7,)


def test_settings_beside_a_spec_override_it():
    env = mg.make(
        mg.RunSpec(preset="tiny", seed=5), envs=8, lifecycle={"min_training_epochs": 2}, max_seeds=2
    )
    assert (env.envs, env.spec.seed, env.spec.max_seeds) == (8, 5, 2)
    assert env.spec.lifecycle.min_training_epochs == 2
    assert env.spec.lifecycle.auto_forward == ("TRAIN", "BLEND", "HOLD")


@pytest.mark.parametrize("group", [{"width": 8}, mg.HostSpec(width=8)])
def test_the_host_may_be_its_group_of_settings(group):
    assert mg.make("digits", envs=2, host=group).net.host.width == 8


def test_the_rule_of_the_reward_can_be_handed_in():
    def flat(inputs):
        return {"flat": torch.full_like(inputs.val_acc, 0.25)}

    env = mg.make(tiny(), rule=rule_from_function(flat))
    state, _ = env.reset()
    _, step = env.step(state, actions.wait(env))
    assert env.rule.components == ("flat", "governor")
    assert step.components.tolist() == [[0.25, 0.0]] * 4
    assert step.reward.tolist() == [0.25] * 4


def test_a_control_holds_beyond_the_horizon():
    setup = tiny_setup(policy_name="wait")
    epochs = live(world_of(setup), "wait")
    assert not epochs[-1].step.inputs.missed.any()
    assert not (epochs[-1].after.slots.stage != int(Stage.DORMANT)).any()


def sterile(slots):
    """No GERMINATE but in the second slot, and nothing at all where it holds a seed; FOSSILIZE
    whatever is legal.
    """
    allowed = torch.zeros(len(slots), len(mg.Op), slots.stage.shape[1], dtype=torch.bool)
    allowed[:, mg.Op.GERMINATE, 1] = slots.stage[:, 1] == int(Stage.DORMANT)
    allowed[:, mg.Op.FOSSILIZE] = True
    return allowed


def test_an_environment_obeys_a_mask_of_ones_own_within_what_is_legal():
    env = mg.make(tiny(episode_length=8), control=mg.MaskControl(sterile))
    states, acts, steps = episode(env)
    free = [env.observe(state) for state in states]
    assert torch.equal(
        free[0].masks.op.int().argmax(-1), torch.full((env.envs,), int(mg.Op.GERMINATE))
    )
    assert (acts[0][:, [Head.OP, Head.SLOT]] == torch.tensor([mg.Op.GERMINATE, 1])).all(), (
        "the only choice left"
    )
    for state, seen in zip(states, free, strict=True):
        legal = mg.rules.legal(state.slots, env.limits)
        assert not (seen.masks.slot & ~legal).any()
        assert seen.masks.op.any(-1).all()
    assert all((step.outcome.reason < 20).all() for step in steps), (
        "a reason from 20 on is an illegal action"
    )
    ops = torch.stack(acts)[..., Head.OP]
    assert not ((ops != mg.Op.WAIT) & (ops != mg.Op.GERMINATE) & (ops != mg.Op.FOSSILIZE)).any()
    other, _ = env.with_seed(3).reset()
    assert torch.equal(env.with_seed(3).observe(other).masks.op, free[0].masks.op), (
        "a seed keeps the mask"
    )


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (
            lambda slots: slots.stage > 0,
            r"^mask <lambda>: expected bool \[4, 6, 3\], got torch.bool \[4, 3\]",
        ),
        (
            lambda slots: torch.ones(4, 6, 3),
            r"^mask <lambda>: expected bool \[4, 6, 3\], got torch.float32 \[4, 6, 3\]",
        ),
        (lambda slots: None, r"^mask <lambda>: expected bool \[4, 6, 3\], got null"),
    ],
)
def test_a_mask_of_another_form_is_refused(mask, message):
    with pytest.raises(mg.ConfigError, match=message):
        mg.make(tiny(), control=mg.MaskControl(mask)).reset()


def test_a_function_is_no_control():
    with pytest.raises(
        mg.ConfigError,
        match=r"^control: expected a control, such as morphogen.MaskControl\(mask\), got <f",
    ):
        mg.make("tiny", control=sterile)


def with_host(state, params):
    return state.replace(host=state.host.replace(params=params))


def differentiate(call, at):
    """Derivative by the attribute of a tensor."""
    at = at.clone().requires_grad_()
    return torch.autograd.grad(call(at), at)


def push_tangent(call, at):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(call(forward_ad.make_dual(at, torch.ones_like(at)))).tangent


# of torch, in forward mode
OWN_WARNING = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
TRANSFORMS = {
    "requires_grad": differentiate,
    "dual": push_tangent,
    "grad": lambda call, at: torch.func.grad(call)(at),
    "vjp": lambda call, at: torch.func.vjp(call, at),
    "jacrev": lambda call, at: torch.func.jacrev(call)(at),
    "jvp": lambda call, at: torch.func.jvp(call, (at,), (torch.ones_like(at),)),
    "linearize": lambda call, at: torch.func.linearize(call, at),
    "hessian": lambda call, at: torch.func.hessian(call)(at),
    "vmap": lambda call, at: torch.func.vmap(call)(torch.stack((at, at))),
}


@pytest.fixture(scope="module")
def env():
    return mg.make("tiny", envs=2, seed=0)


def test_vmap_of_other_inputs_of_an_environment_is_refused(env):
    state = env.reset()[0]
    two = torch.stack((actions.wait(env),) * 2)
    calls = {
        "step": lambda: torch.func.vmap(lambda action: env.step(state, action)[1].reward)(two),
        "reset": lambda: torch.func.vmap(lambda episode: env.reset(episode)[0].host.params)(
            two[..., 0]
        ),
        "start": lambda: torch.func.vmap(
            lambda params: env.start(with_host(state, params))[0].host.params
        )(torch.stack((state.host.params,) * 2)),
    }
    for name, call in calls.items():
        with pytest.raises(
            RuntimeError, match=f"^Environment.{name} has no derivative and no vmap"
        ):
            call()


@OWN_WARNING
@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_every_transform_of_a_step_and_its_parts_is_refused_in_one_sentence(env, transform):
    (state, _), plan = env.reset(), mg.hosts.empty_plan(2, env.net)
    inputs, labels = torch.zeros(20, 1, 8, 8), torch.arange(20) % 10
    split = mg.state.measure.LabelledInputs(inputs=inputs, labels=labels, batch_size=[])
    batch = mg.state.measure.InputBatch(
        inputs=inputs[:16].view(2, 8, 1, 8, 8), labels=labels[:16].view(2, 8), batch_size=[2]
    )
    requested = mg.rules.coalitions(state.slots, torch.zeros(2, 1, 2), pairs=1)
    specs = {"net": env.net, "spec": env.spec.host, "lifecycle": env.spec.lifecycle}

    def reward(params):
        return env.step(with_host(state, params), actions.wait(env))[1].reward.sum()

    def loss(params):
        return mg.steps.validate(
            with_host(state, params), split, *requested, plan, net=env.net
        ).loss.sum()

    def trained(params):
        started = mg.steps.start_epoch(with_host(state, params), plan, net=env.net)
        return mg.steps.train_minibatch(started, batch, plan, **specs)[1].loss.sum()

    calls = {"Environment.step": reward, "validate": loss, "train_minibatch": trained}
    for step, call in calls.items():
        with pytest.raises(RuntimeError, match=f"^{step} has no derivative and no vmap: call it"):
            transform(call, state.host.params)
    with torch.no_grad():  # parameters of a module, without a derivative
        reward(state.host.params.clone().requires_grad_())


def test_rules_and_policies_have_derivatives_beside_steps():
    """Parameters of a rule and of a policy may require gradients while the envs move; `torch.func`
    takes both.
    """
    price = torch.tensor(0.5, requires_grad=True)

    def priced(inputs):
        return {"gain": price * inputs.next_val_acc}

    env = mg.make("tiny", envs=2, rule=rule_from_function(priced))
    state, seen = env.reset()
    rewards = []
    for _ in range(2):
        state, step = env.step(state, actions.random(env, state, seen))
        rewards.append(step.reward)
        seen = step.inputs
    assert torch.autograd.grad(torch.stack(rewards).sum(), price)[0] != 0
    arm = mg.build_arm("ppo", env.setup)
    hidden = arm.policy.initial_hidden(2)
    noise = torch.zeros(2, 40)

    def value(params):
        return arm.policy.act(params, seen.observation, seen.masks, hidden, noise).value.sum()

    slopes = torch.func.grad(value)(arm.params)
    assert any((leaf != 0).any() for leaf in slopes["net"].values(True, True))
    population = torch.stack((arm.params, arm.params))
    assert torch.func.vmap(value)(population).shape == (2,)


def test_streams_of_instances_have_no_task_in_common():
    drawn = {
        name: mg.make(tiny(envs=16), instances=name).reset()[0]
        for name in ("train", "held-out", "test")
    }
    kinds = [state.instance.class_of for state in drawn.values()]
    assert all(not torch.equal(kinds[i], kinds[j]) for i, j in ((0, 1), (0, 2), (1, 2)))
    assert [state.clock.episode[0].item() for state in drawn.values()] == [0, 10**6, 2 * 10**6]
