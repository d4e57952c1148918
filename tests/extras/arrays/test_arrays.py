"""Data sets from arrays and from `torch.utils.data.Dataset`: splits, normalisation, streaming,
refusals.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.extras import needs_extra
from torch.utils.data import TensorDataset

import morphogen as mg
from morphogen.config.groups import DataSpec
from morphogen.data.dataset import open_dataset
from morphogen.errors import DataError

IMAGES = np.arange(120 * 64, dtype=np.uint8).reshape(120, 1, 8, 8)
LABELS = np.arange(120) % 10


def test_every_sample_is_in_one_split():
    data = mg.from_arrays("mine", IMAGES, LABELS, validation=15, test=25)
    parts = (data.splits.train, data.splits.validation, data.splits.test)
    assert [len(part) for part in parts] == [80, 15, 25]
    rows = torch.cat([part.inputs.flatten(1) for part in parts])
    assert sorted(rows.tolist()) == sorted(torch.from_numpy(IMAGES).flatten(1).tolist())
    again = mg.from_arrays("mine", IMAGES, LABELS, validation=15, test=25)
    assert torch.equal(again.splits.train.inputs, data.splits.train.inputs)


def test_a_test_split_of_its_own_is_kept_apart():
    data = mg.from_arrays("mine", IMAGES[:90], LABELS[:90], test=(IMAGES[90:], LABELS[90:]))
    assert [len(data.splits.train), len(data.splits.validation), len(data.splits.test)] == [
        75,
        15,
        30,
    ]
    assert torch.equal(data.splits.test.labels, torch.from_numpy(LABELS[90:]))


def test_a_torch_dataset_gives_the_samples_of_its_arrays():
    pairs = TensorDataset(torch.from_numpy(IMAGES), torch.from_numpy(LABELS))
    other = mg.from_arrays("mine", IMAGES, LABELS).splits
    for one in (mg.from_torch("mine", form).splits for form in (pairs, list(pairs))):
        for name in ("train", "validation", "test"):
            assert torch.equal(getattr(one, name).inputs, getattr(other, name).inputs)
            assert torch.equal(getattr(one, name).labels, getattr(other, name).labels)
    held = mg.from_torch(
        "mine", pairs, test=TensorDataset(torch.zeros(3, 1, 8, 8), torch.arange(3))
    )
    assert len(held.splits.test) == 3


COUNTS = {
    "test: expected 1 .. 119 of 120 samples, got true": {"test": True},
    "validation: expected 1 .. 99 of 100 samples, got 100": {"validation": 100},
    "validation: expected 1 .. 0 of 1 samples, got 20": {"test": 119},
    "test: labels: expected 0 .. 9, got 10 in sample 9": {"test": (IMAGES, LABELS + 1)},
    "test: expected one label per input, got 119 inputs and 120 labels": {
        "test": (IMAGES[1:], LABELS)
    },
}


@pytest.mark.parametrize("said", COUNTS)
def test_sizes_of_splits_are_integers_within_the_data(said):
    with pytest.raises(DataError, match=f"^mine: {said}"):
        mg.from_arrays("mine", IMAGES, LABELS, **COUNTS[said])


def test_an_env_never_has_only_classes_without_samples():
    data = mg.from_arrays("mine", IMAGES, LABELS % 5)
    said = (
        r"mine: train: expected samples of more classes, as an env may have 4 of the 10 .* got "
        r"none of 5"
    )
    with pytest.raises(DataError, match=said):
        mg.make("digits", envs=2, dataset=data)
    mg.make("digits", envs=2, dataset=data, instance={"classes": (6, 10)})


def test_inputs_are_normalised_by_the_training_split_unless_the_task_says_how():
    data = mg.from_arrays("mine", np.stack((IMAGES[:, 0] * 1.0, IMAGES[:, 0] * 0.0), 1), LABELS)
    host = mg.CnnSpec(base=2, blocks=2, kernel=1, pools=0, channels_in=2, size=8, classes=10)
    task = mg.TaskSpec(name="mine", dataset=data, host=host)
    opened = open_dataset(task, DataSpec(val_samples=None), host, "cpu")
    inputs = opened.preparation(opened.train.inputs)
    assert inputs[:, 0].mean().abs() < 1e-3
    assert (inputs[:, 0].std(correction=0) - 1).abs() < 1e-3
    assert not inputs[:, 1].any(), "a constant channel is 0, not NaN"
    fixed = open_dataset(
        replace(task, mean=(1.0, 0.0), std=(2.0, 1.0)), DataSpec(val_samples=None), host, "cpu"
    )
    assert torch.equal(fixed.preparation(torch.full((1, 2, 8, 8), 3.0))[0, 0], torch.ones(8, 8))


@needs_extra("cifar")
def test_the_data_set_of_a_task_can_be_another_one():
    data = mg.from_arrays("mine", IMAGES, LABELS)
    env = mg.make("digits", envs=2, dataset=data)
    assert env.spec.data.name == "mine"
    assert env.setup.dataset.sizes == {"train": 80, "validation": 20, "test": 20}
    with pytest.raises(
        DataError,
        match=r"mine: train: expected samples of shape \(3, 32, 32\), as the host takes, got",
    ):
        mg.make("cifar_baseline", envs=2, dataset=data, data={"val_samples": None})


def own_task():
    """A task of ten lines, from two arrays."""
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(300, 1, 8, 8, generator=generator)
    labels = (images.mean((1, 2, 3)) > 0.5).long()
    host = mg.CnnSpec(base=4, blocks=2, kernel=3, pools=1, channels_in=1, size=8, classes=2)
    return mg.TaskSpec(name="bright", dataset=mg.from_arrays("bright", images, labels), host=host)


@pytest.mark.slow
def test_the_defaults_of_an_own_task_keep_seeds_within_its_episodes():
    env = mg.make(own_task(), envs=64, seed=0, data={"batch": 4, "minibatches": 1})
    kept = mg.play(env, "random").traces.fossil_blueprint
    assert (kept >= 0).any(-1).sum() > 8


@pytest.mark.filterwarnings("always:no seed can be kept")
def test_an_own_task_in_which_no_seed_can_be_kept_warns_in_one_line():
    line = "no seed can be kept in 4 epochs: raise episode_length, or lower lifecycle"
    short = {"envs": 1, "episode_length": 4, "data": {"batch": 4, "minibatches": 1}}
    with pytest.warns(UserWarning, match=line) as made:
        mg.make(own_task(), **short)
    assert made[0].filename == __file__
    with pytest.warns(UserWarning, match=line):
        mg.train_ppo_vectorized(task=own_task(), rounds=1, final_episodes=0, **short)
