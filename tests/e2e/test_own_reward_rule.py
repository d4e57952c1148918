"""A rule of one's own in a run: its components in the events, its ledger in the state and the
checkpoint.
"""

from dataclasses import dataclass

import pytest
import torch
from support.random_records import events_of
from support.small_runs import complete_record, live, tiny, tiny_setup, world_of
from tensordict import TensorDict

from morphogen.config.config_files import parse_config
from morphogen.config.groups import RewardSpec
from morphogen.config.parts import RULES
from morphogen.log.run_log import iterate_events
from morphogen.policy.policy_files import load_policy
from morphogen.rules.rewards.table import rule_from_function
from morphogen.state.tensor_trees import restore_tree
from morphogen.testing.builders.tree_equality import differing_leaves
from morphogen.train.checkpoint import load_checkpoint
from morphogen.train.loop import Scheduler
from morphogen.train.reporter import build_facts
from morphogen.train.train import train_ppo_vectorized


def reported(run, event):
    return [one.data.payload() for one in iterate_events(run, {event})]


@dataclass(frozen=True)
class Streak:
    """Pays for every consecutive epoch without a loss of accuracy, more from one to the next."""

    components: tuple[str, ...] = ("streak",)
    slot_scale: float = 0.0

    def init(self, envs, slots, device="cpu"):
        return TensorDict(
            {"count": torch.zeros(envs, device=device)}, batch_size=[envs], device=device
        )

    def potential(self, inputs, ledger):
        return torch.zeros_like(inputs.committed_acc), torch.ones_like(inputs.horizon)

    def __call__(self, inputs, ledger):
        held = (inputs.next_val_acc >= inputs.val_acc) & ~inputs.rolled_back
        count = torch.where(held, ledger["count"] + 1, 0.0)
        return count / 100, {"streak": count / 100}, ledger.replace({"count": count})


def test_the_ledger_of_a_rule_lives_in_the_state_and_comes_back_from_a_checkpoint(tmp_path):
    RULES.register("streak", lambda spec, terms: Streak())
    result = train_ppo_vectorized(tiny(reward=RewardSpec(rule="streak")), out=tmp_path / "run")
    (path,) = (tmp_path / "run" / "checkpoints").iterdir()
    scheduler = Scheduler(tiny_setup(reward=RewardSpec(rule="streak")))
    with torch.no_grad():
        scheduler.run()
    assert scheduler.state is not None
    found = restore_tree(load_checkpoint(path).carry["state"], scheduler.state, "envs")
    assert not differing_leaves(found, scheduler.state)
    assert found.ledger["count"].any()
    assert parse_config(load_policy(tmp_path / "run")["config"]).reward.rule == "streak"
    for one in reported(tmp_path / "run", "EpisodeCompleted"):
        assert one["components"] == {"streak": one["reward"]}
    assert (result.history[0].reward_mean or 0) > 0


def sick(t, state):
    """NaN in the host of env 1 before epoch 2."""
    ill = (torch.arange(state.batch_size[0]) == 1).unsqueeze(-1)
    return state.replace(
        host=state.host.replace(params=state.host.params.masked_fill(ill & (t == 2), torch.nan))
    )


@pytest.mark.parametrize(("name", "penalty"), [("delta", 3.0), ("still", 3.0), ("streak", 0.0)])
def test_a_rollback_is_told_with_the_penalty_of_the_rule_if_it_has_one(name, penalty):
    RULES.register("streak", lambda spec, terms: Streak())
    RULES.register("still", rule_from_function(lambda inputs: {"gain": inputs.committed_acc / 100}))
    setup = tiny_setup(reward=RewardSpec(rule=name, governor_penalty=3.0))
    epochs = live(world_of(setup), "wait", change=sick)
    records = [complete_record(epoch) for epoch in epochs]
    reported = events_of(records, build_facts(setup))
    found = [(one.env, one.epoch, one.data.penalty) for one in reported if one.name == "RolledBack"]
    assert found == [(1, 2, penalty)]
