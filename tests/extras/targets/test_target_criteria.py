"""Losses and scores of other targets: their names, their data, and envs that train on them."""

from math import log

import pytest
import torch
import torch.nn.functional as F
from support import small_states
from support.extras import needs_extra
from support.module_nets import Dense
from target_tables import (
    CASES,
    CLASSES,
    COUNT,
    INPUTS,
    MARKS,
    NUMBERS,
    closeness,
    name_of,
    soft_labels,
    task,
)

import morphogen as mg
from morphogen.config.parts import LOSSES, SCORES
from morphogen.steps.validate_step import validate
from morphogen.testing.builders.tree_equality import trees_equal

# tables; blueprints for dense features
pytestmark = [needs_extra(name) for name in ("arrays", "modules", "text")]


def test_names_of_losses_and_their_usual_scores():
    usual = {name: task(name).score_name for name in LOSSES.builtin()}
    assert usual == {
        "cross_entropy": "accuracy",
        "mse": "explained",
        "huber": "explained",
        "bce_with_logits": "label_accuracy",
    }
    assert set(usual.values()) == set(SCORES.builtin())


def blank(env, value):
    """The fresh state of an env whose outputs are one number."""
    state, _ = env.reset()
    params = torch.zeros_like(state.host.params)
    leaves = {leaf.name: leaf.size for leaf in env.net.host_layout.leaves}
    params[:, -leaves["head.bias"] :] = value
    return state.replace(host=state.host.replace(params=params))


def measure(env, state, split=None):
    asked = small_states.every(state, env.net)
    plan = small_states.plan(state, env.net)
    split = env.setup.dataset.validation if split is None else split
    return validate(state, split, *asked, plan, net=env.net)


def test_a_score_below_0_counts_as_0_and_guessing_is_the_baseline():
    env = mg.make(task(), envs=2)
    state = blank(env, env.setup.dataset.labels.mean(0))
    measured = measure(env, state)
    assert measured.accuracy[:, 0].tolist() == pytest.approx([0.0, 0.0], abs=0.5)
    assert measured.loss.tolist() == pytest.approx(state.instance.baseline_loss.tolist(), rel=0.3)
    variance = env.setup.dataset.labels.var(0, correction=0).mean()
    assert state.instance.baseline_loss.tolist() == pytest.approx([float(variance)] * 2)
    far = measure(env, blank(env, 100.0))
    assert far.accuracy[:, 0].tolist() == [0.0, 0.0]
    assert far.loss.min() > 1000
    marks = mg.make(task("bce_with_logits", MARKS), envs=2)
    state, _ = marks.reset()
    rate = marks.setup.dataset.labels.mean(0)
    entropy = F.binary_cross_entropy(rate, rate)
    assert state.instance.baseline_loss.tolist() == pytest.approx([float(entropy)] * 2, rel=1e-5)


def test_outputs_that_are_not_finite_score_0_and_stop_no_other_env():
    for loss, targets in (("mse", NUMBERS), ("bce_with_logits", torch.zeros_like(MARKS))):
        env = mg.make(task(loss, targets + 0 * MARKS, score=closeness), envs=3)
        state, _ = env.reset()
        healthy = measure(env, state)
        params = state.host.params.clone()
        params[1] = torch.nan
        broken = measure(env, state.replace(host=state.host.replace(params=params)))
        assert broken.accuracy[1, 0] == 0
        assert not broken.loss[1].isfinite()
        for e in (0, 2):
            assert broken.loss[e] == healthy.loss[e]
            assert broken.accuracy[e, 0] == healthy.accuracy[e, 0]


def test_an_env_whose_loss_is_not_finite_is_rolled_back_alone():
    env = mg.make(task(), envs=3, seed=1)
    state, _ = env.reset()
    params = state.host.params.clone()
    params[2] = torch.inf
    state = state.replace(host=state.host.replace(params=params))
    state, step = env.step(state, mg.actions.wait(env))
    assert step.report.rolled_back.tolist() == [False, False, True]
    assert step.reward.isfinite().all()
    assert step.validation.accuracy.isfinite().all()


def test_one_number_per_sample_is_a_column():
    class One(Dense):
        def __init__(self):
            super().__init__()
            self.head = torch.nn.Linear(8, 1)

    env = mg.make(task("mse", NUMBERS[:, 0], factory=One), envs=2)
    assert env.setup.dataset.labels.shape[1:] == (1,)
    pairs = torch.utils.data.TensorDataset(INPUTS, NUMBERS[:, 0])
    data = mg.from_torch("pairs", pairs)
    again = mg.TaskSpec(name="pairs", dataset=data, host=mg.host_from_module(One), loss="mse")
    env = mg.make(again, envs=2)
    state, _ = env.step(env.reset()[0], mg.actions.wait(env))
    assert state.instance.classes.tolist() == [1, 1]


def test_targets_of_the_test_split_have_the_form_of_the_training_ones():
    with pytest.raises(mg.DataError, match=r"test: labels: expected torch.float32 of shape \[3\]"):
        mg.from_arrays("mine", INPUTS, NUMBERS, test=(INPUTS, NUMBERS[:, :2]))
    with pytest.raises(mg.DataError, match=r"as the training targets are, got torch\.float32"):
        mg.from_arrays("mine", INPUTS, MARKS, test=(INPUTS, NUMBERS))


def test_a_user_loss_on_class_labels_keeps_classes_and_noise():
    env = mg.make(
        task(soft_labels, CLASSES, score="accuracy"),
        envs=8,
        instance={"classes": (2, 3), "label_noise": (0.0, 0.4)},
    )
    assert env.net.criterion.labelled
    state, seen = env.reset()
    assert set(state.instance.classes.tolist()) == {2, 3}
    usual = mg.make(
        task("cross_entropy", CLASSES), envs=8, instance={"classes": (2, 3)}, data={"batch": 8}
    )
    own = measure(env, state)
    other = measure(usual, state)
    assert own.accuracy.equal(other.accuracy), "samples of unused classes count for nothing"
    state, step = env.step(state, mg.actions.random(env, state, seen))
    assert step.metrics.valid.all()


def test_a_user_score_with_cross_entropy():
    def confidence(output, target):
        return output.softmax(-1).gather(-1, target.unsqueeze(-1)).squeeze(-1)

    env = mg.make(task("cross_entropy", CLASSES, score=confidence), envs=2)
    state = blank(env, 0.0)
    assert measure(env, state).accuracy[:, 0].tolist() == pytest.approx([100 / 3] * 2)
    assert measure(env, state).loss.tolist() == pytest.approx([log(3)] * 2)


def test_targets_of_a_user_loss_are_given_as_they_are():
    shapes = set()

    def far(output, target):
        shapes.add((target.dtype, tuple(target.shape[1:])))
        return (output.sum(-1) - target.sum((1, 2))).abs()

    targets = small_states.normal(COUNT, 2, 2)
    env = mg.make(task(far, targets, score=closeness_to_nothing), envs=2)
    env.step(env.reset()[0], mg.actions.wait(env))
    assert shapes == {(torch.float32, (2, 2))}


def closeness_to_nothing(output, target):
    return torch.exp(-output.square().mean(-1))


@pytest.mark.parametrize("loss", CASES, ids=name_of)
def test_streamed_data_gives_the_same_epochs(loss):
    targets, score = CASES[loss]
    states = []
    for placement in ("resident", "streamed"):
        data = {"placement": placement}
        with mg.make(task(loss, targets, score=score), envs=2, data=data) as env:
            state, seen = env.reset()
            state, _ = env.step(state, mg.actions.random(env, state, seen))
        states.append(state)
    assert trees_equal(*states)


def test_a_built_in_host_serves_numbers():
    images = small_states.normal(60, 1, 8, 8)
    targets = torch.stack([images.mean((1, 2, 3)), images[:, 0, :4].mean((1, 2))], -1)
    host = mg.CnnSpec(base=4, blocks=2, kernel=3, pools=1, channels_in=1, size=8, classes=2)
    data = mg.from_arrays("means", images, targets)
    own = mg.TaskSpec(name="means", dataset=data, host=host, loss="mse")
    env = mg.make(own, envs=3, instance={"width": (0.5, 1.0)})
    state, seen = env.reset()
    state, step = env.step(state, mg.actions.random(env, state, seen))
    assert step.metrics.loss.isfinite().all()
    assert step.metrics.loss.min() > 0
    one = {"base": 4, "blocks": 2, "kernel": 3, "pools": 1, "channels_in": 1, "size": 8}
    with pytest.raises(mg.ConfigError, match=r"host\.classes: expected a number .* equal to 2"):
        mg.CnnSpec(**one, classes=1)
