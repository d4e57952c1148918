"""Warnings mean something: a run that learns as it should has none, and each of eight planted
faults has its own.
"""

from contextlib import suppress
from dataclasses import replace

import pytest
import torch
from support.extras import needs_extra

import morphogen as mg

# a task on which a policy learns within a few rounds
pytestmark = [pytest.mark.slow, needs_extra("whitebox")]

FIELDS = {
    "preset": "whitebox",
    "rounds": 6,
    "envs": 64,
    "final_episodes": 0,
    # because these runs are short
    "telemetry": {"level": "normal", "limits": {"critic_rounds": 4, "entropy_until": 1.0}},
}


class Faulty(mg.PpoLearner):
    """PPO whose update does something else than the settings of the run and the rollout say."""

    def __init__(self, change):
        self.change = change

    def update(self, state, rollout, *, policy, round):
        rollout, ppo = self.change(rollout.clone(), round.spec.ppo)
        spec = replace(round.spec, ppo=ppo)
        turn = mg.Round(spec, round.number, round.exchange, round.repeat)
        return super().update(state, rollout, policy=policy, round=turn)


def with_settings(**settings):
    return lambda rollout, ppo: (rollout, replace(ppo, **settings))


def scale_lr(rollout, ppo):
    return rollout, replace(ppo, lr=100 * ppo.lr, lr_end=None, target_kl=None, max_grad_norm=None)


def lose_rewards(rollout, ppo):
    rollout["reward"] = rollout["reward"] * float("nan")
    return rollout, ppo


def swap_masks(rollout, ppo):
    # from the next env
    rollout["masks"] = rollout["masks"].apply(lambda leaf: leaf.roll(1, 1))
    return rollout, replace(ppo, epochs=1)


def make_stale():
    """Log-probabilities of the round before."""
    kept: list[torch.Tensor] = []

    def change(rollout, ppo):
        kept.append(rollout["log_prob"].clone())
        rollout["log_prob"] = kept[max(0, len(kept) - 2)]
        return rollout, replace(ppo, epochs=1)

    return change


# fault -> (what is planted, the alarm, rounds up to it); one pass where the fault shows in the first
FAULTS = {
    "learning rate times 100": (scale_lr, "kl_extreme", 1),
    # Beside a learning rate with which a policy without it settles within a few rounds.
    "no entropy": (
        with_settings(entropy_coef=0.0, entropy_coef_end=None, lr=0.03, lr_end=None),
        "entropy_collapse",
        6,
    ),
    "rewards that are not finite": (lose_rewards, "update_skipped", 1),
    "a policy that does not move": (
        with_settings(lr=1e-30, lr_end=None, epochs=1),
        "policy_frozen",
        3,
    ),
    "masks of the env beside it": (swap_masks, "behaviour_gap", 1),
    "stale log-probabilities": (make_stale(), "behaviour_gap", 2),
    "another discount": (with_settings(gamma=0.5, epochs=1), "return_mismatch", 5),
    "a critic that does not learn": (with_settings(value_coef=0.0, epochs=1), "critic_blind", 4),
}


def alarms(folder):
    found = mg.events(folder, kinds={"AnomalyDetected"})
    return {event.data.kind for event in found if event.severity != "info"}


def test_a_run_that_learns_as_it_should_has_no_alarm(tmp_path):
    result = mg.train_ppo_vectorized(**FIELDS, out=tmp_path / "run")
    assert alarms(tmp_path / "run") == set()
    assert not any(summary.anomalies for summary in result.history)
    values = [one.network_value_mean for one in result.history]
    assert sum(values[3:]) / 3 > sum(values[:3]) / 3 + 0.03  # it does learn


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_has_its_alarm(fault, tmp_path, monkeypatch):
    change, alarm, rounds = FAULTS[fault]
    monkeypatch.setattr("morphogen.train.loop.build_learner", lambda spec: Faulty(change))
    with suppress(mg.TrainingDiverged):  # of the faults with which no step can be taken
        mg.train_ppo_vectorized(**{**FIELDS, "rounds": rounds}, out=tmp_path / "run")
    assert alarm in alarms(tmp_path / "run")
