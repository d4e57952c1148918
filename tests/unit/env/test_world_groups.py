"""Envs in groups that play the same world, and rounds in which the heuristic acts."""

from dataclasses import replace

import pytest
import torch
from support.extras import rows_of_extra
from support.small_runs import tiny

from morphogen.config.groups import DataSpec
from morphogen.config.policy_spec import PpoSpec
from morphogen.env.policies import build_arm
from morphogen.env.setup import build_setup
from morphogen.ppo.update import PpoLearner
from morphogen.state.tree_ops import get_leaf
from morphogen.testing.builders.tree_equality import trees_equal
from morphogen.train.loop import Parts, Scheduler

PPO = PpoSpec(epochs=2, minibatches=2, world_envs=3)


def scheduled(**fields) -> Scheduler:
    worlds = rows_of_extra("regimes", lambda: {"regime": {"hazard": 0.3}})
    given = {"envs": 8, "ppo": PPO, **worlds}
    return Scheduler(build_setup(tiny(**{**given, **fields})))


def rows_of(scheduler):
    """Rows of the next round."""
    with torch.no_grad():
        scheduler.run_round()
    return scheduler.rollout.rows


def test_envs_of_a_group_start_in_the_same_world_and_act_by_themselves():
    scheduler = scheduled()
    state, seen = scheduler.env.reset(0)
    for leaf in (
        state.host.params,
        state.instance.param_price,
        state.instance.regime,
        seen.observation.env,
    ):
        for first, size in ((0, 3), (3, 3), (6, 2)):  # the last group is what is left
            assert all(torch.equal(leaf[first], leaf[first + i]) for i in range(size))
    assert not torch.equal(state.host.params[0], state.host.params[3])
    rows = rows_of(scheduler)
    actions = get_leaf(rows, "action")
    assert not torch.equal(actions[:, 0], actions[:, 1])
    assert len({tuple(map(tuple, actions[:, env].tolist())) for env in range(8)}) > 4


def test_without_groups_every_env_has_its_own_world():
    scheduler = scheduled(ppo=replace(PPO, world_envs=1))
    assert torch.equal(scheduler.env.keys, scheduler.env.action_keys)
    assert len(scheduler.env.keys.unique(dim=0)) == 8


@pytest.mark.slow
def test_the_heuristic_acts_in_rounds_of_imitation_and_the_policy_after_them():
    ppo = replace(PPO, imitation_rounds=1)
    imitating, rule = scheduled(ppo=ppo, rounds=2), scheduled(ppo=ppo, policy_name="heuristic")
    with torch.no_grad():
        _state, seen = imitating.env.reset(0)
        rows_of(imitating)
        shown = get_leaf(imitating.rollout.rows, "action").clone()
        arm = build_arm("heuristic", imitating.setup)
        memory = arm.policy.initial_hidden(8)
        out = arm.policy.act(arm.params, seen.observation, seen.masks, memory, torch.zeros(8, 41))
        assert torch.equal(shown[0], out.action)
        rows_of(imitating)
    assert imitating.actor.policy is imitating.policy
    assert [own.demonstrated for own in (imitating, rule)] == [1, 0]
    assert get_leaf(imitating.rollout.rows, "log_prob").ne(0).any()
    assert rule.actor.policy is rule.policy


def distinct_episodes(rows):
    """Number of episodes that differ in an observation, an action or a reward."""
    leaves = [
        leaf.flatten(2) if leaf.ndim > 2 else leaf.unsqueeze(-1) for leaf in rows.values(True, True)
    ]
    episodes = torch.cat([leaf.double() for leaf in leaves], dim=-1).transpose(0, 1).flatten(1)
    return len(episodes.unique(dim=0))


@pytest.mark.slow
def test_siblings_play_worlds_of_their_own_in_imitation_and_share_one_after_it():
    """The heuristic draws nothing: in one world its episodes would be copies."""
    data = DataSpec(batch=8, minibatches=2, val_samples=32, placement="auto")
    scheduler = scheduled(ppo=replace(PPO, imitation_rounds=1), rounds=3, data=data)
    plain = scheduled(rounds=3, data=data)
    assert len(scheduler.env.keys.unique(dim=0)) == 8
    assert distinct_episodes(rows_of(scheduler)) == 8
    assert torch.equal(scheduler.env.keys, plain.env.keys)
    assert len(scheduler.env.keys.unique(dim=0)) == 3
    state, _ = scheduler.env.reset(1)
    assert trees_equal(state, plain.env.reset(1)[0])
    rows_of(scheduler)
    scheduler.env.close()
    assert scheduler.state is not None
    for first, size in ((0, 3), (3, 3), (6, 2)):
        prices = scheduler.state.instance.param_price[first : first + size]
        assert (prices == prices[0]).all()


@pytest.mark.slow
def test_a_learner_gets_the_siblings_of_its_round(monkeypatch):
    groups, update = [], PpoLearner.update

    def kept(self, state, rollout, *, policy, round):
        groups.append(round.siblings)
        return update(self, state, rollout, policy=policy, round=round)

    monkeypatch.setattr(PpoLearner, "update", kept)
    scheduler = scheduled(ppo=replace(PPO, imitation_rounds=1), rounds=2)
    with torch.no_grad():
        scheduler.run()
    assert groups == [1, 3]


@pytest.mark.slow
def test_imitation_makes_what_was_shown_likelier():
    scheduler = scheduled(ppo=replace(PPO, imitation_rounds=9, lr=3e-3), rounds=9)
    gained = []
    with torch.no_grad():
        for _ in range(2):
            before = scheduler.params
            scheduler.run_round()
            rows = scheduler.rollout.rows
            odds = [
                scheduler.policy.evaluate(p, rows).log_prob.sum(-1).mean()
                for p in (before, scheduler.params)
            ]
            gained.append(float(odds[1] - odds[0]))
    assert all(gain > 0 for gain in gained)
    assert gained[0] > 0.1


def test_a_round_of_imitation_takes_all_its_steps_and_one_of_ppo_stops_at_its_divergence():
    events = []
    ppo = replace(PPO, imitation_rounds=1, target_kl=1e-9)
    scheduler = Scheduler(
        build_setup(tiny(envs=8, rounds=2, ppo=ppo)), Parts(sinks=(events.extend,))
    )
    with torch.no_grad():
        scheduler.run()
    scheduler.reporter.close()
    first, second = (event.data for event in events if event.name == "PpoUpdated")
    # thrice as many passes
    assert (first.kl, first.clip_share, first.steps_done) == (None, None, 3 * 2 * 2)
    # a demonstration has the log-probs of the policy that learns from it
    assert first.behaviour_gap < 1e-4
    assert (first.entropy_coef, second.entropy_coef) == (0.0, pytest.approx(0.049))
    assert second.kl > 0
    assert second.steps_done < 2 * 2
