"""A package of others with a task, a host, a blueprint, a data set, a rule, a network and a learner
trains by its task.

Broken forms of each part are refused in one line that names the part, its package, and what is
wrong.
"""

import json
import sys

import pytest
from support.offered_packages import write_package

from morphogen.cli import main
from morphogen.config.parts import DATASETS
from morphogen.log.run_log import iterate_events

SOURCE = '''"""Grown perceptrons on points in a plane of six dimensions."""

from dataclasses import dataclass

import numpy as np
import torch
from tensordict import TensorDict
from torch import nn

import morphogen as mg


@dataclass(frozen=True)
class Perceptron(mg.Host):
    """Two hidden layers with a slot behind each."""

    inputs: int
    hidden: int
    classes: int
    blueprints = ("shift",)

    @property
    def input_shape(self):
        return (self.inputs,)

    @property
    def all_slots(self):
        return tuple(mg.SlotSpec(f"r0c{i}", self.hidden, execution=i) for i in range(2))

    def layout(self):
        sizes = ((self.hidden, self.inputs), (self.hidden, self.hidden), (self.classes, self.hidden))
        return mg.ParamLayout(tuple(mg.fan_in_leaf(f"w{i}", size, size[1]) for i, size in enumerate(sizes)))

    def embed(self, x):
        return x.transpose(0, 1) if x.dim() == 3 else x.unsqueeze(1)

    def stage(self, i, x, rows):
        return torch.relu(mg.hosts.rows_linear(x, rows.pick(rows.leaves[f"w{i}"])))

    def head(self, x, rows):
        return mg.hosts.linear(x.transpose(0, 1), rows.pick(rows.leaves["w2"]))


@dataclass(frozen=True)
class Shift(mg.SeedModule):
    """A linear map of the features, 0 at birth."""

    name = "shift"

    def leaves(self, channels):
        return (mg.ParamLeaf("weight", (channels, channels)), mg.ParamLeaf("bias", (channels,)))

    def delta(self, params, x):
        return mg.hosts.rows_linear(x, params["weight"], params["bias"])


def read_points(folder):
    points = np.sin(np.arange(720 * 6, dtype=np.float32) ** 1.5).reshape(720, 6)
    return mg.from_arrays("points", points, (points[:, :3].sum(1) > 0).astype(int)).splits


@mg.rule_from_function
def frugal(inputs):
    """Accuracy that is delivered, less a little for every living parameter."""
    delivered = inputs.horizon & inputs.committed_valid
    gain = torch.where(delivered, inputs.committed_acc, 0.0) / 100
    return {"gain": gain, "size": -1e-5 * inputs.live_params}


class Flat(nn.Module):
    """A policy without memory."""

    def __init__(self, width=16):
        super().__init__()
        self.body, self.op = nn.Linear(60, width), nn.Linear(width, 6)
        self.slot, self.value = nn.Linear(46 + width, 53), nn.Linear(width, 1)
        for leaf in self.parameters():
            nn.init.constant_(leaf, 0.01)

    def forward(self, env, instance, slots, blueprints):
        z = torch.tanh(self.body(torch.cat((env, instance), -1)))
        wide = z.unsqueeze(-2).expand(*slots.shape[:-1], z.shape[-1])
        return self.op(z), self.slot(torch.cat((slots, wide), -1)), self.value(z).squeeze(-1)


def build_flat(spec):
    return mg.ModuleNetwork(Flat(spec.policy.hidden))


class Likelier(mg.Learner):
    """Makes what paid more likely: one step of the policy gradient."""

    name = "likelier"

    def init(self, policy, key, *, spec):
        return TensorDict({"params": policy.init(key)}, batch_size=[])

    def update(self, state, rollout, *, policy, round):
        params, earned = state["params"], rollout["reward"].sum(0)

        def loss(net):
            scored = policy.evaluate(params.replace(net=TensorDict(net, batch_size=[])), rollout)
            return -(scored.log_prob.sum((0, -1)) * (earned - earned.nan_to_num().mean()).nan_to_num()).mean()

        grads, value = torch.func.grad_and_value(loss)(dict(params["net"].items()))
        net = {name: leaf - 0.01 * grads[name] for name, leaf in params["net"].items()}
        after = params.replace(net=TensorDict(net, batch_size=[]))
        return TensorDict({"params": after}, batch_size=[]), {"policy_loss": value}


perceptron = Perceptron(inputs=6, hidden=8, classes=2)
shift = Shift()
likelier = Likelier()
theirs = mg.TaskSpec(
    name="theirs",
    question="do shifts help?",
    dataset="points",
    host="perceptron",
    defaults={
        "episode_length": 5,
        "data": {"batch": 8, "minibatches": 2},
        "rounds": 1,
        "envs": 4,
        "final_episodes": 4,
        "reward": {"rule": "frugal"},
        "policy": {"network": "flat", "hidden": 16},
        "lifecycle": {"auto_forward": ["TRAIN", "BLEND", "HOLD"], "min_training_epochs": 1},
    },
)
'''
POINTS = {
    "morphogen.tasks": {"theirs": "theirs"},
    "morphogen.hosts": {"perceptron": "perceptron"},
    "morphogen.blueprints": {"shift": "shift"},
    "morphogen.datasets": {"points": "read_points"},
    "morphogen.rewards": {"frugal": "frugal"},
    "morphogen.networks": {"flat": "build_flat"},
    "morphogen.learners": {"likelier": "likelier"},
}


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Return a function that installs the package in some form, and one that runs a command."""
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.delitem(sys.modules, "grown_points", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.chdir(tmp_path)

    def run(words, source=SOURCE):
        if not (tmp_path / "site").exists():
            write_package(tmp_path / "site", source, POINTS, name="grown_points")
        return main.main(words.split())

    return run


def test_a_task_of_others_trains_and_is_reported_by_its_names(command, tmp_path, capsys):
    for learner, episodes in (("ppo", 0), ("likelier", 4)):
        settings = f"--set policy_name={learner} --set final_episodes={episodes}"
        assert command(f"train --task theirs {settings} --out {learner}") == 0
        config = json.loads((tmp_path / learner / "config.json").read_text())
        named = (
            config["task"],
            config["data"]["name"],
            config["reward"]["rule"],
            config["policy_name"],
        )
        assert named == ("theirs", "points", "frugal", learner)
        first = json.loads((tmp_path / learner / "events.jsonl").read_text().splitlines()[0])
        assert first["data"]["blueprints"][1] == "shift"
    result = json.loads((tmp_path / "likelier" / "result.json").read_text())
    assert set(result["policies"]) == {"wait", "random", "heuristic", "likelier"}
    episodes = [one.data for one in iterate_events(tmp_path / "ppo", {"EpisodeCompleted"})]
    assert len(episodes) == 4
    for one in episodes:
        assert list(one.components) == ["gain", "size", "governor"]
        assert sum(one.components.values()) == pytest.approx(one.reward, abs=1e-5)
    assert command("resume likelier --extend-rounds 1") == 0
    capsys.readouterr()
    assert command("evaluate likelier --episodes 4 --arms wait,random") == 0
    assert "trained" in capsys.readouterr().out
    assert command("inspect likelier") == 0
    assert "shift" in capsys.readouterr().out


KNOWN = ["digits", *sorted([*(name for name in DATASETS if name != "digits"), "points"])]
BROKEN = {
    "a task that cannot be imported": (
        ('"do shifts help?"', '"do shifts help?", lr="fast"[3:][9]'),
        "morphogen: error: task: theirs of grown_points 0.1: cannot be imported: IndexError",
    ),
    "a task that names no data set": (
        ('dataset="points"', 'dataset="planes"'),
        f'task.dataset: expected one of {", ".join(KNOWN)}, got "planes"',
    ),
    "a host without stages": (
        ("def stage(self, i, x, rows):", "def steps(self, i, x, rows):"),
        "host Perceptron: expected the methods stage",
    ),
    "a host with other features than it declares": (
        (
            'mg.SlotSpec(f"r0c{i}", self.hidden, execution=i)',
            'mg.SlotSpec(f"r0c{i}", 7, execution=i)',
        ),
        "host of task theirs: features at r0c0: expected torch.float32 [4, 3, 7], got "
        "torch.float32 [4, 3, 8]",
    ),
    "a blueprint with a delta of another form": (
        ('return mg.hosts.rows_linear(x, params["weight"], params["bias"])', "return x[..., :1]"),
        "blueprints: shift of grown_points 0.1: delta at r0c0: expected torch.float32 [4, "
        "3, 8], got torch.float32 "
        "[4, 3, 1]",
    ),
    "a data set with labels that the host has no logits for": (
        ("> 0).astype(int)", "> 0).astype(int) * 2"),
        "expected 480 class labels in 0 .. 1, for outputs of shape (2,), got torch.int64 [480]",
    ),
    "a data set that raises": (
        ("def read_points(folder):", "def read_points(folder):\n    raise OSError('no disk')"),
        "data.name: points of grown_points 0.1: OSError: no disk",
    ),
    "a rule that pays what is not finite": (
        ("-1e-5 * inputs.live_params", "inputs.live_params / 0"),
        "reward.rule: frugal of grown_points 0.1: step 1: reward: expected finite numbers",
    ),
    "a network that cannot be built": (
        ("def build_flat(spec):", "def build_flat(spec, width):"),
        "policy.network: flat of grown_points 0.1: TypeError: build_flat() missing 1 "
        "required positional argument",
    ),
    "a network that is none": (
        ("return mg.ModuleNetwork(Flat(spec.policy.hidden))", "return Flat(spec.policy.hidden)"),
        "policy.network: flat of grown_points 0.1: expected a PolicyNetwork, got Flat(",
    ),
    "a network with values that are not finite": (
        ("nn.init.constant_(leaf, 0.01)", "nn.init.constant_(leaf, float('inf'))"),
        "policy.network: flat of grown_points 0.1: value: expected finite numbers",
    ),
    "a learner that is none": (
        ("likelier = Likelier()", "likelier = Likelier"),
        "policy_name: likelier of grown_points 0.1: expected an object of a class that "
        "derives from Learner, got",
    ),
}


@pytest.mark.parametrize("form", list(BROKEN))
def test_a_broken_part_is_refused_in_one_line(tmp_path, command, capsys, form):
    (old, new), said = BROKEN[form]
    assert SOURCE.count(old) == 1
    learner = "likelier" if "learner" in form else "ppo"
    words = f"train --task theirs --set policy_name={learner} --out run"
    code = command(words, SOURCE.replace(old, new))
    (line,) = capsys.readouterr().err.splitlines()
    assert code in (2, 3)
    assert said in line
    assert not (tmp_path / "run").exists(), "nothing is left half written"
