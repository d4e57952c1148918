"""The signals of MNIST-1D: made in a process of their own, which leaves this one as it is."""

import random

import numpy as np
import pytest
import torch

import morphogen as mg
from morphogen.config.spec import RunSpec, find_host, resolve
from morphogen.data.data_files import find_package
from morphogen.errors import DataError
from morphogen.extras.mnist.signals import read_mnist1d

GENERATOR = """
from types import SimpleNamespace

import numpy as np


def get_dataset_args():
    return SimpleNamespace(num_samples=20, train_split=0.8, seed=42)


def make_dataset(args):
    np.random.seed(args.seed)
    x, y = np.random.randn(args.num_samples, 40), np.arange(args.num_samples) % 10
    first = int(args.train_split * args.num_samples)
    return {"x": x[:first], "y": y[:first], "x_test": x[first:], "y_test": y[first:]}
"""


def install(folder, monkeypatch, text):
    package = folder / "site" / "mnist1d"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "data.py").write_text(text)
    monkeypatch.syspath_prepend(folder / "site")


def test_signals_are_those_of_the_generator_whose_draws_change_nothing_here(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, GENERATOR)
    before = random.getstate(), np.random.get_state()[1].tolist()
    splits = read_mnist1d(tmp_path)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before
    assert splits.sizes() == {"train": 16, "validation": 1_000, "test": 4}
    draws = np.random.RandomState(42).randn(20, 1, 40).astype(np.float32)
    assert np.array_equal(splits.train.inputs.numpy(), draws[:16])
    assert np.array_equal(splits.test.inputs.numpy(), draws[16:])
    assert splits.test.labels.tolist() == [6, 7, 8, 9]
    assert splits.validation.labels.dtype is torch.int64


def test_a_generator_that_fails_is_named_in_one_line(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, "import nowhere")
    with pytest.raises(
        DataError,
        match=r"^the generator of mnist1d failed: ModuleNotFoundError: No module named 'nowhere'; "
        r'try `pip install "morphogen\[data\]"`$',
    ):
        read_mnist1d(tmp_path)


def test_the_real_signals_are_standard_and_balanced(tmp_path):
    if find_package("mnist1d") is None:
        with pytest.raises(DataError, match=r'the package mnist1d is missing; run `pip install "'):
            read_mnist1d(tmp_path)
        pytest.skip("mnist1d is not installed")
    splits = read_mnist1d(tmp_path)
    assert splits.sizes() == {"train": 4_000, "validation": 1_000, "test": 1_000}
    assert splits.validation.labels.bincount().tolist() == [100] * 10
    assert splits.train.inputs.std() == pytest.approx(1.0, abs=0.02)


def test_the_task_has_the_host_that_was_calculated_by_hand_and_its_seeds_are_of_images(
    tmp_path, monkeypatch
):
    install(tmp_path, monkeypatch, GENERATOR)
    spec = resolve(RunSpec(task="mnist1d"))
    assert find_host(spec).params() == 16 + 72 + 810
    assert spec.slots == ("r0c0", "r0c1")
    env = mg.make("mnist1d", envs=2, data={"batch": 4, "minibatches": 1, "val_samples": 20})
    state, _ = env.reset()
    _, step = env.step(
        state, mg.actions.build(env, "GERMINATE", slot="r0c0", blueprint="conv_light")
    )
    assert step.outcome.executed.all()
