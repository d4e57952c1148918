"""The study of policies in worlds that they were not trained in."""

import json

import pytest
import torch

import morphogen as mg
from bench.studies import transfer
from morphogen.nets.distribution import noise_lanes

SMALL = {"data": {"batch": 8, "minibatches": 2, "val_samples": 32}, "episode_length": 4}


def act(policy, arm, env, hidden):
    _, seen = env.reset()
    return policy.act(arm.params, seen.observation, seen.masks, hidden, torch.ones(env.envs, noise_lanes(2)))


def test_a_policy_without_memory_acts_as_in_the_first_epoch_and_keeps_none():
    env = mg.make("tiny", envs=3, seed=0)
    arm = mg.build_arm("ppo", env.setup)
    fresh = arm.policy.initial_hidden(env.envs)
    later = fresh.apply(lambda leaf: leaf + 5.0)
    first = act(transfer.Greedy(arm.policy), arm, env, fresh)
    found = act(transfer.Memoryless(arm.policy), arm, env, later)
    assert torch.equal(found.log_prob, first.log_prob)
    assert not torch.equal(act(transfer.Greedy(arm.policy), arm, env, later).log_prob, first.log_prob)
    assert (found.hidden == later).all()


@pytest.mark.slow
def test_every_condition_is_played_by_all_arms_on_as_many_instances(tmp_path, monkeypatch, capsys):
    train = {"rounds": 1, "envs": 4, "final_episodes": 0, "ppo": {"epochs": 1}, "evaluation": {"every_rounds": 0}}
    mg.train_ppo_vectorized(preset="digits_regimes", out=tmp_path / "run", **SMALL, **train)
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps({"heuristic": {"max_seeds": 1}}))
    conditions = {transfer.TRAINED: SMALL, "other hosts": SMALL | {"task": transfer.IMPAIRED.name}}
    monkeypatch.setattr(transfer, "CONDITIONS", conditions)
    out = tmp_path / "found.json"
    transfer.main([str(tmp_path / "run"), "--reactive", str(rules), "--episodes", "2", "--json", str(out)])
    found = json.loads(out.read_text())
    assert list(found["conditions"]) == [transfer.TRAINED, "other hosts", transfer.CLEARED]
    said = capsys.readouterr().out.splitlines()
    assert sum("trained minus wait" in line for line in said) == 3
    assert [line.split(" | ")[0] for line in said[-3:]] == [f"| {name}" for name in found["conditions"]]
    for row in found["conditions"].values():
        means = {name: one["value"] for name, one in row["means"].items()}
        for rival, behind in row["trained_minus"].items():
            assert behind["difference"]["value"] == pytest.approx(means["trained"] - means[rival], abs=1e-6)
