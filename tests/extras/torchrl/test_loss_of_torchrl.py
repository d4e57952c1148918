"""The PPO objective against the one of TorchRL."""

from typing import Any

import pytest
import torch
from support.made_up_rollouts import FLOOR, KEY, play, small, source, turn
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torchrl.modules import ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss

from morphogen.config.policy_spec import PpoSpec
from morphogen.extras.torchrl.policy import FactoredDistribution
from morphogen.policy import distribution as d
from morphogen.ppo.coefficients import Coefficients
from morphogen.ppo.minibatch_loss import minibatch_objective
from morphogen.ppo.ppo_state import init_ppo
from morphogen.ppo.prepare import prepare_rows

ONES = torch.ones(8)
WEIGHTS = Coefficients(lr=1e-3, entropy=0.05, value=0.5)
CPU = torch.device("cpu")


def test_joint_ratio_objective_and_value_loss_equal_those_of_torchrl():
    """A rollout without forced rows; TorchRL sees the tables as the output of its actor's
    module.
    """
    policy = small(floor=FLOOR)
    learner = init_ppo(policy, KEY)
    learned = learner.params
    rollout = play(policy, learned, steps=5, envs=4)
    rollout["log_prob"] += (
        0.1
        * torch.randn(rollout["log_prob"].shape, generator=source(1))
        * (rollout["log_prob"] != 0)
    )
    spec = PpoSpec(ratio="joint", contribution_coef=0.0)
    _, rows, _ = prepare_rows(learner, rollout, policy=policy, round=turn(spec, "fixed"))
    rows["free"] = torch.ones_like(rows["free"])
    net = dict(learned["net"].items())
    _, measured = minibatch_objective(
        net,
        rows,
        policy.initial_hidden(4),
        policy=policy,
        spec=spec,
        weights=WEIGHTS,
    )
    batch = to_torchrl(rollout)
    batch["advantage"] = rows["advantage"].T.unsqueeze(-1)
    batch["value_target"] = rows["target"].T.unsqueeze(-1)
    theirs = torchrl_loss(policy.distribution(net, rows)[0], policy.rescore(net, rows).value)(batch)
    assert measured["policy_loss"][0].item() == pytest.approx(
        theirs["loss_objective"].item(), abs=1e-5
    )
    assert measured["value_loss"][0].item() == pytest.approx(theirs["loss_critic"].item(), abs=1e-5)
    assert measured["clip_share"][0].item() == pytest.approx(
        theirs["clip_fraction"].item(), abs=1e-6
    )


def to_torchrl(rollout):
    """Rows of a rollout, [T, E], in the layout of TorchRL: [E, T], rewards [E, T, 1]."""
    swapped = rollout.transpose(0, 1)
    column = {
        name: swapped[name].unsqueeze(-1)
        for name in ("reward", "terminated", "truncated", "value", "reset_before")
    }
    ends = {"terminated": column["terminated"], "done": column["terminated"] | column["truncated"]}
    batch = {
        "observation": swapped["observation"],
        "masks": swapped["masks"],
        "is_init": column["reset_before"],
        "state_value": column["value"],
        "action_index": swapped["action"],
        "action_index_log_prob": swapped["log_prob"].sum(-1),
        "next": {"reward": column["reward"], **ends},
    }
    return TensorDict(batch, batch_size=swapped.batch_size)


NAMES = ["op_table", "slot_table", "value_table", "op_legal", "slot_legal", "value_legal"]


class Fixed(torch.nn.Module):
    """Stored outputs as a module that a TorchRL actor or critic can hold."""

    def __init__(self, *outputs: torch.Tensor):
        super().__init__()
        self.outputs: Any = outputs
        self.anchor = torch.nn.Parameter(torch.zeros(()))

    def forward(self, _):
        return self.outputs if len(self.outputs) > 1 else self.outputs[0] + self.anchor


def rebuilt(op_table, slot_table, value_table, op_legal, slot_legal, value_legal):
    legal = d.Support(op_legal, slot_legal, value_legal)
    return FactoredDistribution(op_table, slot_table, value_table, legal, FLOOR)


def torchrl_loss(dist: d.FactoredCategorical, value: torch.Tensor) -> ClipPPOLoss:
    """TorchRL's loss over the tables and values of a rollout [T, E]."""
    parts = [x.transpose(0, 1) for x in (*dist.raw, *dist.support)]
    actor = ProbabilisticActor(
        TensorDictModule(Fixed(*parts), in_keys=["is_init"], out_keys=NAMES),
        in_keys=NAMES,
        out_keys=["action_index"],
        distribution_class=rebuilt,
        return_log_prob=True,
    )
    critic = ValueOperator(
        Fixed(value.T.unsqueeze(-1)), in_keys=["is_init"], out_keys=["state_value"]
    )
    loss = ClipPPOLoss(
        actor,
        critic,
        clip_epsilon=0.2,
        entropy_bonus=False,
        entropy_coeff=0.0,
        loss_critic_type="l2",
        critic_coeff=0.5,
    )
    loss.set_keys(
        action="action_index", sample_log_prob="action_index_log_prob", value_target="value_target"
    )
    return loss
