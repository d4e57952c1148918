"""Policies between this package and TorchRL, and the distribution over actions."""

import pytest
import torch
from support.made_up_rollouts import FLOOR, masks, source, tables
from support.small_runs import live, tiny_setup, world_of
from tensordict.nn import TensorDictModule
from torchrl.collectors import Collector
from torchrl.envs import (
    Compose,
    ExplorationType,
    InitTracker,
    TransformedEnv,
    check_env_specs,
    set_exploration_type,
)

import morphogen as mg
from morphogen.env.episodes import fetch_traces, run_episodes
from morphogen.env.flat_inputs import flatten_inputs
from morphogen.env.policies import build_arm
from morphogen.extras.torchrl.env import MorphogenEnv
from morphogen.extras.torchrl.policy import (
    ActorPolicy,
    FactoredDistribution,
    PolicyActor,
    restore_inputs,
)
from morphogen.policy import distribution as d
from morphogen.testing.builders.tree_equality import trees_equal
from morphogen.vocab.action import HEADS, Op

CPU = torch.device("cpu")


def test_the_distribution_has_joint_log_prob_exact_entropy_and_mode():
    logits, legal = tables(4), d.build_support(masks(4))
    ours = FactoredDistribution(*logits, legal, FLOOR)
    inner = d.normalise_tables(logits, legal, FLOOR)
    action = ours.sample_with(torch.randn(4, 41, generator=source(0)))
    assert torch.equal(ours.log_prob(action), d.head_log_prob(inner, action).sum(-1))
    assert torch.equal(ours.entropy(), d.action_entropy(inner))
    assert torch.equal(ours.mode, ours.deterministic_sample)
    assert ours.batch_shape == (4,)
    assert ours.event_shape == (8,)


def test_a_mask_may_have_any_of_its_forms():
    logits, legal = tables(4), masks(4)
    forms = (legal, legal.to_tensordict(), d.build_support(legal))
    first, *others = (FactoredDistribution(*logits, mask=form).entropy() for form in forms)
    assert all(torch.equal(first, other) for other in others)


@pytest.mark.slow
def test_samples_are_legal_have_the_asked_shape_and_the_frequencies_of_their_probabilities():
    logits, legal = tables(4), masks(4)
    ours = FactoredDistribution(*logits, legal.to_tensordict())
    torch.manual_seed(0)
    drawn = ours.sample((4000,))
    assert drawn.shape == (4000, 4, 8)
    assert ours.sample().shape == (4, 8)
    for env in range(4):
        op = drawn[:, env, 0]
        share = torch.stack([(op == code).float().mean() for code in Op])
        assert (share[~legal.op[env]] == 0).all()
        torch.testing.assert_close(share, ours.factored.floored.op[env].exp(), rtol=0, atol=0.03)


@pytest.fixture
def world():
    return world_of(tiny_setup(episode_length=5))


def test_inputs_are_flattened_and_restored_without_a_change(world):
    _, seen = world.reset()
    back = restore_inputs(flattened(world, seen))
    assert trees_equal(back.masks, seen.masks)
    for name in ("env", "instance", "slots", "blueprints", "finite", "nonfinite"):
        assert torch.equal(getattr(back.observation, name), getattr(seen.observation, name))


def flattened(world, seen):
    td = MorphogenEnv(world).fake_tensordict().empty()
    return td.update(flatten_inputs(seen))


def with_memory(world, actor):
    return TransformedEnv(
        MorphogenEnv(world), Compose(InitTracker(), actor.make_tensordict_primer())
    )


def test_our_policy_acts_in_torchrl_as_at_home(world):
    """The likeliest actions of an episode, memory included, are the ones of `run_epoch` with zero
    noise.
    """
    arm = build_arm("ppo", world.setup)
    actor = PolicyActor(arm)
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        rolled = with_memory(world, actor).rollout(5, actor)
    state, seen = world.reset()
    hidden = arm.policy.initial_hidden(world.envs)
    for t in range(5):
        noise = torch.zeros(world.envs, d.noise_lanes(len(world.net.slots)))
        choice = arm.policy.act(arm.params, seen.observation, seen.masks, hidden, noise)
        state, step = world.step(state, choice.action)
        seen, hidden = step.inputs, choice.hidden
        assert torch.equal(
            torch.stack([rolled["action", head][:, t] for head in HEADS], -1), choice.action
        )
        torch.testing.assert_close(rolled["state_value"][:, t, 0], choice.value)
        torch.testing.assert_close(rolled["action_log_prob"][:, t], choice.log_prob.sum(-1))
        assert torch.equal(rolled["next", "reward"][:, t, 0], step.reward)


def test_memory_starts_empty_in_every_episode(world):
    arm = build_arm("ppo", world.setup)
    actor = PolicyActor(arm)
    env = with_memory(world, actor)
    check_env_specs(env)
    rolled = env.rollout(10, actor, break_when_any_done=False)
    start = rolled["is_init"].squeeze(-1)
    assert start.any(0).tolist() == [True, *[False] * 4] * 2
    assert (rolled["memory", "h"][start] == 0).all()
    assert (rolled["memory", "h"][~start] != 0).any(-1).all()


def test_a_collector_adds_the_transforms_that_a_memory_needs(world):
    """Without a warning, as warnings are errors here."""
    actor = PolicyActor(build_arm("ppo", world.setup))
    sizes = {"frames_per_batch": 5 * world.envs, "total_frames": 10 * world.envs}
    collector = Collector(MorphogenEnv(world), actor, auto_register_policy_transforms=True, **sizes)
    batches = list(collector)
    collector.shutdown()
    starts = torch.cat([batch["is_init"].squeeze(-1) for batch in batches], dim=1)
    assert starts.any(0).tolist() == [True, *[False] * 4] * 2


def test_an_actor_without_memory_samples_with_the_generator_of_torch(world):
    arm = build_arm("random", world.setup)
    actor, drawn = PolicyActor(arm), []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        rolled = MorphogenEnv(world).rollout(5, actor)
        drawn.append(torch.stack([rolled["action", head] for head in HEADS]))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_an_arm_with_a_control_or_an_environment_without_its_memory_is_refused(world):
    with pytest.raises(
        mg.ConfigError, match="arm: wait has a control: make the environment with it"
    ):
        PolicyActor(build_arm("wait", world.setup))
    actor = PolicyActor(build_arm("ppo", world.setup))
    with pytest.raises(
        mg.ConfigError, match="is_init, memory: expected keys of the environment, got none"
    ):
        MorphogenEnv(world).rollout(2, actor)


class Germinate(torch.nn.Module):
    """The first legal op but WAIT in its first legal slot, else WAIT."""

    def forward(self, op, slot):
        choice = torch.where(op[:, Op.GERMINATE], int(Op.GERMINATE), int(Op.WAIT))
        place = slot[torch.arange(len(slot)), choice].long().argmax(-1)
        zero = torch.zeros_like(choice)
        return choice, place, zero + 1, zero, zero, zero + 2, zero, zero


def test_an_actor_of_torchrl_plays_as_our_policy(world):
    actor = TensorDictModule(
        Germinate(), [("mask", "op"), ("mask", "slot")], [("action", head) for head in HEADS]
    )
    traces = fetch_traces(
        world.transfers, [run_episodes(world, *world.reset(), ActorPolicy(actor))]
    )
    rolled = MorphogenEnv(world).rollout(5, actor)
    assert (rolled["action", "op"] == int(Op.GERMINATE)).any()
    assert (traces.trained_params[-1] > traces.host_params).all()
    assert [epoch.step.seed_params.sum().item() for epoch in live(world, "wait")] == [0] * 5
