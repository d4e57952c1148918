"""Laws of policy networks and learners: parts that keep them pass, and each law finds the fault
planted for it.
"""

import pytest
import torch
from support.own_parts import Flat, Likelier
from support.single_laws import keep_law
from tensordict import TensorDict

import morphogen as mg
from morphogen.testing import laws
from morphogen.testing.laws.learning_laws import LEARNER_LAWS, NETWORK_LAWS


@pytest.mark.slow
def test_networks_and_learners_of_the_package_and_of_users_keep_the_laws():
    laws.check_network(mg.LstmNetwork(hidden=16))
    laws.check_network(mg.ModuleNetwork(Flat()))
    laws.check_learner(mg.PpoLearner())
    laws.check_learner(Likelier(), mg.ModuleNetwork(Flat()))


class Wrapped(mg.ModuleNetwork):
    """The network of a module, as a class whose methods can be overridden."""

    def __init__(self):
        super().__init__(Flat())


class Renamed(Wrapped):
    value_layer = "head"

    def __init__(self):
        object.__setattr__(self, "module", Flat())


class Halves(Wrapped):
    def init(self, key):
        return {name: leaf.double() for name, leaf in super().init(key).items()}


class OnlyThree(Flat):
    """Knows three slots and no more."""

    def forward(self, env, instance, slots, blueprints):
        return super().forward(
            env, instance, slots[..., :3, :] + 0.0 * torch.zeros(3, 1), blueprints
        )


class Forgetful(mg.LstmNetwork):
    """Keeps its memory over the end of a segment in an unroll."""

    def unroll(self, net, inputs, keep, hidden):
        return super().unroll(net, inputs, torch.ones_like(keep), hidden)


class Crowd(Flat):
    def forward(self, env, instance, slots, blueprints):
        op, outputs, value = super().forward(env, instance, slots, blueprints)
        return op, outputs, value + value.sum(-1, keepdim=True)


class Reader(Flat):
    def forward(self, env, instance, slots, blueprints):
        if env.isnan().any():
            env = env.nan_to_num()
        return super().forward(env, instance, slots, blueprints)


class Noisy(Flat):
    def forward(self, env, instance, slots, blueprints):
        return super().forward(env + torch.rand(()), instance, slots, blueprints)


class Scribbler(mg.LstmNetwork):
    def step(self, net, inputs, hidden):
        out = super().step(net, inputs, hidden)
        net["value.out.bias"].add_(1.0)
        return out


class Broken(Flat):
    def forward(self, env, instance, slots, blueprints):
        torch._dynamo.graph_break()
        return super().forward(env, instance, slots, blueprints)


NETWORKS = {
    "has_value_layer": (Renamed, "expected head.bias, head.weight among the parameters"),
    "takes_any_slots": (lambda: mg.ModuleNetwork(OnlyThree()), "raises "),
    "unrolls_like_steps": (
        lambda: Forgetful(hidden=16),
        "unroll differs from step: log_prob by up to|value by up to",
    ),
    "host": (
        lambda: mg.ModuleNetwork(Reader()),
        "asks the host: aten._local_scalar_dense at .*test_learning_laws",
    ),
    "writes": (Scribbler, "Scribbler writes to its input: "),
    "repeats": (lambda: mg.ModuleNetwork(Noisy()), "draws from a global random generator"),
    "neighbours": (lambda: mg.ModuleNetwork(Crowd()), "sees its neighbours"),
    "graph": (lambda: mg.ModuleNetwork(Broken()), "is not one graph"),
}


class Growing(Likelier):
    """Has another leaf after every update."""

    def update(self, state, rollout, *, policy, round):
        after, metrics = super().update(state, rollout, policy=policy, round=round)
        return TensorDict(
            {**after, f"step{len(list(after.keys()))}": torch.zeros(())}, batch_size=[]
        ), metrics


class Vocal(Likelier):
    def update(self, state, rollout, *, policy, round):
        return super().update(state, rollout, policy=policy, round=round)[0], {"policy_loss": 0.5}


class Writer(Likelier):
    def update(self, state, rollout, *, policy, round):
        after, metrics = super().update(state, rollout, policy=policy, round=round)
        state["params"]["net"].update_(after["params"]["net"])
        return after, metrics


class Eraser(Likelier):
    def update(self, state, rollout, *, policy, round):
        result = super().update(state, rollout, policy=policy, round=round)
        rollout["reward"].zero_()
        return result


class Random(Likelier):
    def update(self, state, rollout, *, policy, round):
        rollout = rollout.replace(reward=rollout["reward"] * torch.rand(rollout.shape))
        return super().update(state, rollout, policy=policy, round=round)


class Idle(Likelier):
    def update(self, state, rollout, *, policy, round):
        return state, super().update(state, rollout, policy=policy, round=round)[1]


class Fragile(Likelier):
    def update(self, state, rollout, *, policy, round):
        after, metrics = super().update(state, rollout, policy=policy, round=round)
        net = after["params"]["net"].apply(lambda leaf: leaf + 0.0 * rollout["reward"].sum())
        return TensorDict({"params": after["params"].replace(net=net)}, batch_size=[]), metrics


LEARNERS = {
    "keeps_tree": (Growing, "expected the same leaves after an update, got another one at step1"),
    "writes": (Writer, "likelier writes to its input: state.params.net"),
    "repeats": (Random, "draws from a global random generator"),
    "moves_policy": (Idle, "leaves the network as it is"),
    "survives_nan": (Fragile, "lets NaN in the reward of one env into the network"),
}


def test_a_fault_is_planted_for_every_law():
    assert set(NETWORKS) == set(NETWORK_LAWS)
    assert set(LEARNERS) == set(LEARNER_LAWS)


@pytest.mark.parametrize("law", list(NETWORKS))
def test_a_broken_network_is_found_by_its_law(monkeypatch, law):
    keep_law(monkeypatch, "NETWORK_LAWS", law)
    build, said = NETWORKS[law]
    with pytest.raises(laws.BrokenLaw, match=said) as caught:
        laws.check_network(build())
    assert caught.value.law == law


@pytest.mark.parametrize("law", list(LEARNERS))
def test_a_broken_learner_is_found_by_its_law(monkeypatch, law):
    keep_law(monkeypatch, "LEARNER_LAWS", law)
    kind, said = LEARNERS[law]
    with pytest.raises(laws.BrokenLaw, match=said) as caught:
        laws.check_learner(kind())
    assert caught.value.law == law


@pytest.mark.slow
def test_further_faults_are_found():
    with pytest.raises(
        laws.BrokenLaw, match=r"parameters: expected torch.float32, got torch.float64 for"
    ):
        laws.check_network(Halves())
    with pytest.raises(
        laws.BrokenLaw, match=r"metrics: expected 0-d tensors, got 0.5 for policy_loss"
    ):
        laws.check_learner(Vocal())
    with pytest.raises(laws.BrokenLaw, match=r"writes to its input: rollout.reward has changed"):
        laws.check_learner(Eraser())
