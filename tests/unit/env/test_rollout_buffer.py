"""Rollout buffer of an env that is rolled back, from epoch to epoch and in the update."""

from typing import ClassVar

import torch
from support.small_runs import live, tiny_setup, world_of
from tensordict import TensorDict

from morphogen.config.groups import GovernorSpec, HostSpec
from morphogen.env.episodes import Rollout
from morphogen.policy.baselines import deterministic_output
from morphogen.train.loop import Scheduler
from morphogen.vocab.action import PLACEHOLDER
from morphogen.vocab.purpose import Purpose


class Counting:
    """Waits, and remembers how many epochs it remembers."""

    name = "counting"
    purpose: ClassVar[Purpose] = Purpose.BASELINE

    def __init__(self):
        self.seen = []

    def init(self, key):
        return TensorDict({}, batch_size=[])

    def initial_hidden(self, envs, *, device="cpu"):
        return TensorDict({"epochs": torch.zeros(envs)}, batch_size=[envs])

    def act(self, params, obs, masks, hidden, noise):
        self.seen.append(hidden["epochs"].tolist())
        wait = torch.tensor(PLACEHOLDER).repeat(len(masks.op), 1)
        return deterministic_output(wait, masks, hidden.replace({"epochs": hidden["epochs"] + 1}))


def test_difference_06_memory_lasts_until_a_rollback_and_no_longer():
    wild = {"host": HostSpec(lr=10.0, max_grad_norm=None), "governor": GovernorSpec(panics=1)}
    policy = Counting()
    scheduler = Scheduler(tiny_setup(envs=4, episode_length=6, policy_name=policy, **wild))
    scheduler.run()
    ends = scheduler.rollout.rows["terminated"][:-1].tolist()
    assert any(map(any, ends))
    assert not all(map(all, ends))
    expected = [0.0] * 4
    for seen, ended in zip(policy.seen, [*ends, [True] * 4], strict=True):
        assert seen == expected
        expected = [0.0 if end else epochs + 1 for epochs, end in zip(expected, ended, strict=True)]


def test_difference_06_what_was_measured_in_an_epoch_that_was_rolled_back_is_no_target():
    world = world_of(tiny_setup(envs=8, episode_length=10))
    epoch = next(one for one in live(world)[4:] if one.step.measured.contribution_valid.any())
    report = epoch.step.report.replace(rolled_back=torch.arange(8) % 2 == 0)
    rows = {}
    for name, one in (
        ("kept", epoch),
        ("back", epoch._replace(step=epoch.step._replace(report=report))),
    ):
        rollout = Rollout(1, envs=8, slots=3)
        rollout.write(0, one)
        rows[name] = rollout.rows[0]
    assert torch.equal(rows["kept"]["contribution_valid"], epoch.step.measured.contribution_valid)
    assert not rows["back"]["contribution_valid"][::2].any()
    assert not rows["back"]["contribution"][::2].any()
    for name in ("contribution", "contribution_valid"):
        assert torch.equal(rows["back"][name][1::2], rows["kept"][name][1::2])
