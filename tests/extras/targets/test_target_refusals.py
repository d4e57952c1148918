"""Targets, losses and scores that do not fit each other: each refused in one line."""

import numpy as np
import pytest
import torch
from support.extras import needs_extra
from target_tables import CLASSES, INPUTS, MARKS, NUMBERS, closeness, cubic, task
from torch import nn

import morphogen as mg
from morphogen.errors import ConfigError, DataError

# tables; blueprints for dense features
pytestmark = [needs_extra(name) for name in ("arrays", "modules", "text")]


class OneOutput(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.grow, self.head = nn.Linear(6, 8), mg.Slot(), nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.grow(self.first(x)))


class NoColumn(OneOutput):
    def forward(self, x):
        return super().forward(x).squeeze(-1)


class Pairs(OneOutput):
    def forward(self, x):
        return super().forward(x).repeat(1, 6).unflatten(1, (2, 3))


def changed(targets, place, value):
    targets = targets.clone()
    targets[place] = value
    return targets


def refuse(error, words, build):
    with pytest.raises(error, match=words) as caught:
        mg.make(build(), envs=2)
    assert "\n" not in str(caught.value)


WRONG_TARGETS = {
    "train: expected .* class labels in 0 .. 2, .* got torch.float32 .* bce_with_logits": lambda: (
        task("cross_entropy", NUMBERS)
    ),
    "train: expected .* class labels in 0 .. 2, .* got torch.int64 .* in 0 .. 3": lambda: task(
        "cross_entropy", CLASSES % 2 * 3
    ),
    r"class labels in 0 .. 2, for outputs of shape \(2, 3\), got": lambda: task(
        "cross_entropy", CLASSES, factory=Pairs
    ),
    "expected .* class labels in 0 .. 0, ": lambda: task(
        "cross_entropy", 0 * CLASSES, factory=OneOutput
    ),
    "labels: expected finite numbers .* in sample 7": lambda: task(
        "mse", changed(NUMBERS, 7, torch.nan)
    ),
    "labels: expected finite numbers .* in sample 0": lambda: task(
        "huber", changed(NUMBERS, (0, 1), -torch.inf)
    ),
    "expected labels that are 0 or 1, got 2 in sample": lambda: task(
        "bce_with_logits", changed(MARKS, 3, 2)
    ),
    "expected labels that are 0 or 1, got 0.5 in sample": lambda: task(
        "bce_with_logits", changed(MARKS.float(), (3, 1), 0.5)
    ),
    r"expected targets of shape \(3,\), as the output of the host for a sample, got \(2,\)": lambda: (
        task("mse", NUMBERS[:, :2])
    ),
    r"expected targets of shape \(3,\), .* got \(1,\)": lambda: task("mse", NUMBERS[:, 0]),
    r"expected targets of shape \(1,\), .* got \(3,\)": lambda: task(
        "bce_with_logits", MARKS, factory=OneOutput
    ),
    "expected one label per input, got 180 inputs and 179 labels": lambda: task("mse", NUMBERS[1:]),
    "train: expected targets that vary, .* got one number in all of column 1": lambda: task(
        "mse", changed(NUMBERS, (slice(None), 1), 0.1)
    ),
}


@pytest.mark.parametrize("words", WRONG_TARGETS)
def test_targets_that_do_not_fit_are_refused_in_one_line(words):
    refuse(DataError, words, WRONG_TARGETS[words])


def test_splits_of_a_reader_are_checked_too():
    samples = mg.Samples(INPUTS, changed(NUMBERS, 5, torch.inf))

    def half_broken(folder):
        good = mg.Samples(INPUTS, NUMBERS)
        return mg.Splits(good, good, samples)

    known = task("mse")
    own = mg.TaskSpec(name="half-broken", dataset=half_broken, host=known.host, loss="mse")
    refuse(DataError, "test: labels: expected finite numbers .* in sample 5", lambda: own)


def scalar(output, target):
    return (output - target).square().mean()


def each_output(output, target):
    return (output - target).square()


def among_others(output, target):
    return ((output - output.mean(0)) - target).square().mean(-1)


def fails(output, target):
    return output @ target


def as_list(output, target):
    return [0.0] * len(output)


def likelihood(output, target):
    return (output - target).square().mean(-1) - 100.0


WRONG_FUNCTIONS = {
    r"task.loss: expected one of cross_entropy, .*huber.*, got \"mae\"": lambda: task("mae"),
    r"task.score: expected one of accuracy, .*explained.*, got \"r2\"": lambda: task(score="r2"),
    "task.score: expected one of .* or a function, with the loss cubic, got null": lambda: task(
        cubic
    ),
    "task.score: expected explained, or a function, with the loss mse, got label_acc": lambda: task(
        score="label_accuracy"
    ),
    "task.score: expected explained, or a function, with the loss mse, got accuracy": lambda: task(
        targets=CLASSES, score="accuracy"
    ),
    "task.score: expected accuracy, .* with the loss cross_entropy, got explained": lambda: task(
        "cross_entropy", CLASSES, score="explained"
    ),
    r"loss: scalar of this program: expected a number for each sample, \[3\] .* got \[\]": lambda: (
        task(scalar, score=closeness)
    ),
    r"loss: each_output of this program: expected a number .* got \[3, 3\]": lambda: task(
        each_output, score=closeness
    ),
    r"score: each_output of this program: expected a number .* got \[3, 3\]": lambda: task(
        score=each_output
    ),
    "loss: as_list of this program: expected a number .* got list": lambda: task(
        as_list, score=closeness
    ),
    "loss: among_others of this program: expected a number of each sample by itself": lambda: task(
        among_others, score=closeness
    ),
    "loss: fails of this program: RuntimeError": lambda: task(fails, score=closeness),
    "loss: likelihood of this program: expected a finite loss above 0 .* got -99": lambda: task(
        likelihood, score=closeness
    ),
    r"host NoColumn: expected a tensor \[B, n\] as the output of the module, got Tensor \[3\]": lambda: (
        task(factory=NoColumn)
    ),
    "name of a loss: expected letters and digits, .* '<lambda>'": lambda: task(
        lambda output, target: output.sum(-1), score=closeness
    ),
}


@pytest.mark.parametrize("words", WRONG_FUNCTIONS)
def test_losses_and_scores_that_do_not_fit_are_refused_in_one_line(words):
    refuse(ConfigError, words, WRONG_FUNCTIONS[words])


@pytest.mark.parametrize("name", ["classes", "label_noise"])
def test_restrictions_of_class_labels_are_refused_for_other_targets(name):
    span = {"classes": (2, 3), "label_noise": (0.0, 0.5)}[name]
    only = f"instance.{name}: expected null: with the task table-mse only width and data_share"
    with pytest.raises(ConfigError, match=only):
        mg.make(task(), envs=2, instance={name: span})
    with pytest.raises(ConfigError, match=r"task\.instance: expected width and data_share and "):
        task(instance=mg.InstanceSpec(**{name: span}))


def test_regimes_with_classes_of_their_own_are_refused_for_other_targets():
    known = task("bce_with_logits", np.asarray(MARKS))
    with pytest.raises(ConfigError, match=r"regime\.classes: expected null where samples have no"):
        mg.RunSpec(task=known, regime={"classes": (2, 3), "hazard": 0.1})
