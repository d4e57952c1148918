"""Data sets: the packaged digits, splits by a fixed key, and what is refused."""

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.sample_bytes import sample_bytes

from morphogen.config.groups import DataSpec
from morphogen.config.task import TASKS
from morphogen.data import splits
from morphogen.data.data_files import find_folder
from morphogen.data.dataset import deal_samples, open_dataset
from morphogen.data.preparation import Normalisation
from morphogen.data.splits import Samples, fingerprint, hold_out, read_digits
from morphogen.errors import ConfigError, DataError

DIGITS = TASKS["digits"]


def test_the_digits_are_split_into_1197_300_300_and_lose_no_image():
    splits_read = read_digits()
    parts = [
        sample_bytes(part) for part in (splits_read.train, splits_read.validation, splits_read.test)
    ]
    assert [len(part) for part in parts] == [1197, 300, 300]
    with np.load(splits.DIGITS_FILE) as arrays:
        images, labels = arrays["images"], arrays["labels"]
    stored = [image.tobytes() + bytes([label]) for image, label in zip(images, labels, strict=True)]
    assert sorted(parts[0] + parts[1] + parts[2]) == sorted(stored)
    assert splits_read.train.inputs.shape == (1197, 1, 8, 8)
    assert splits_read.train.inputs.dtype == torch.uint8
    assert int(splits_read.train.inputs.max()) == 16


def test_the_splits_never_change():
    found = fingerprint(read_digits())
    assert found == fingerprint(read_digits())
    assert found == "6d5fb39103efb2a9fc70438e187524bc70d5fc29d50898a7ec905d988a987344"


def test_damaged_digits_are_refused(tmp_path):
    with np.load(splits.DIGITS_FILE) as arrays:
        images, labels = arrays["images"], arrays["labels"]
    images[5, 3, 3] ^= 1
    np.savez_compressed(tmp_path / "flipped.npz", images=images, labels=labels)
    (tmp_path / "cut.npz").write_bytes(splits.DIGITS_FILE.read_bytes()[:1000])
    for name in ("flipped", "cut", "absent"):
        with pytest.raises(DataError, match=name):
            read_digits(tmp_path / f"{name}.npz")


@given(count=st.integers(1, 300), share=st.floats(0, 1))
def test_held_out_samples_are_disjoint_from_the_rest_and_nothing_is_lost(count, share):
    whole = Samples(torch.zeros(count, 1, 1, 1, dtype=torch.uint8), torch.arange(count))
    rest, held = hold_out(whole, round(count * share))
    assert len(held) == round(count * share)
    assert sorted([*rest.labels.tolist(), *held.labels.tolist()]) == list(range(count))
    assert rest.labels.tolist() == sorted(rest.labels.tolist())


def test_normalisation_divides_shifts_and_scales_each_channel():
    normalise = Normalisation(10.0, (0.5, 0.1), (0.25, 2.0))
    pixels = torch.tensor([[[[10]], [[30]]]], dtype=torch.uint8)
    assert torch.allclose(normalise(pixels).flatten(), torch.tensor([2.0, 1.45]))


def test_normalised_digits_have_mean_0_and_deviation_1():
    dataset = open_dataset(DIGITS, DataSpec(val_samples=None), DIGITS.host, "cpu")
    inputs = dataset.preparation(dataset.train.inputs)
    assert abs(float(inputs.mean())) < 0.01
    assert abs(float(inputs.std()) - 1) < 0.01


def test_validation_uses_the_first_samples_asked_for():
    whole = open_dataset(DIGITS, DataSpec(val_samples=None), DIGITS.host, "cpu")
    part = open_dataset(DIGITS, DataSpec(val_samples=64), DIGITS.host, "cpu")
    assert whole.sizes == {"train": 1197, "validation": 300, "test": 300}
    assert part.sizes == {"train": 1197, "validation": 64, "test": 300}
    assert torch.equal(part.validation.inputs, whole.validation.inputs[:64])
    assert torch.equal(part.validation.labels, whole.validation.labels[:64])
    assert part.fingerprint == whole.fingerprint


def test_the_most_samples_that_count_are_those_of_the_largest_classes():
    whole = open_dataset(DIGITS, DataSpec(), DIGITS.host, "cpu")
    for dataset in (whole, whole.on_test_split()):
        labels = dataset.validation.labels
        sizes = [int((labels == digit).sum()) for digit in range(10)]
        for classes in (1, 3):
            assert dataset.most_counted(classes) == max(map(sum, combinations(sizes, classes)))
        assert dataset.most_counted(10) is None
    assert whole.most_counted(2) != whole.on_test_split().most_counted(2)


def test_more_validation_samples_than_there_are_is_an_error():
    with pytest.raises(ConfigError, match=r"data.val_samples: expected at most 300, .* got 301"):
        open_dataset(DIGITS, DataSpec(val_samples=301), DIGITS.host, "cpu")


PIXELS = torch.rand(12, 1, 8, 8)
MARKS = torch.arange(12) % 10
OWN_SAMPLES = {
    "train: expected Samples, got tuple": (PIXELS, MARKS),
    "train: inputs: expected a tensor, got ndarray": Samples(PIXELS.numpy(), MARKS),
    "train: labels: expected a tensor, got list": Samples(PIXELS, MARKS.tolist()),
    r"inputs: expected a dense tensor .* with a gradient": Samples(
        PIXELS.clone().requires_grad_(), MARKS
    ),
    "inputs: expected finite numbers in float32, got NaN or an infinite one in sample 5": Samples(
        PIXELS.where(torch.arange(12).view(-1, 1, 1, 1) != 5, torch.nan), MARKS
    ),
    r"expected a target for each of 12 samples, got shape \[11\]": Samples(PIXELS, MARKS[1:]),
}


@pytest.mark.parametrize("said", OWN_SAMPLES)
def test_samples_of_a_reader_from_outside_are_checked(said):
    samples = OWN_SAMPLES[said]
    with pytest.raises(DataError, match=f"^mine: .*{said}"):
        deal_samples(splits.Splits(samples, samples, samples), DIGITS.host, "mine")


def test_the_folder_is_the_flag_then_the_variable_then_data(monkeypatch):
    monkeypatch.delenv("MORPHOGEN_DATA", raising=False)
    assert str(find_folder(None)[0]) == "data"
    monkeypatch.setenv("MORPHOGEN_DATA", "/some/where")
    assert str(find_folder(None)[0]) == "/some/where"
    assert str(find_folder("/given")[0]) == "/given"
