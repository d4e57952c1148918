"""Data sets: the packaged digits, the CIFAR readers, splits by a fixed key, and what is refused."""

import contextlib
import pickle
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from morphogen.config.groups import DataSpec
from morphogen.config.task import TASKS
from morphogen.data import splits
from morphogen.extras.cifar.files import BINARY, PYTHON, TEST, TRAIN, read_binary, read_cifar, read_python
from morphogen.data.dataset import Normalisation, check_splits, data_folder, open_dataset
from morphogen.data.splits import Samples, fingerprint, hold_out, read_digits, split_order
from morphogen.errors import ConfigError, DataError

DIGITS = TASKS["digits"]
RECORDS = 20


def rows(samples):
    """Each sample as bytes, to compare as sets."""
    samples = samples.to("cpu")
    return [p.numpy().tobytes() + bytes([int(n)]) for p, n in zip(samples.inputs, samples.labels, strict=True)]


def made_up(name, count=RECORDS):
    """Pixels and labels that say which file and record they are."""
    place = (*TRAIN, TEST).index(name)
    pixels = np.arange(3072, dtype=np.int64)[None] * (place + 1) + 7 * np.arange(count)[:, None]
    return (pixels % 251).astype(np.uint8), [(3 * place + i) % 10 for i in range(count)]


def write_binary(folder, name, pixels, labels):
    records = [bytes([label]) + row.tobytes() for row, label in zip(pixels, labels, strict=True)]
    (folder / f"{name}.bin").write_bytes(b"".join(records))


def write_python(folder, name, pixels, labels, protocol=2):
    batch = {b"data": pixels, b"labels": labels, b"batch_label": b"made up"}
    (folder / name).write_bytes(pickle.dumps(batch, protocol=protocol))


@pytest.fixture
def cifar(tmp_path):
    for kind, write in ((BINARY, write_binary), (PYTHON, write_python)):
        (tmp_path / kind).mkdir()
        for name in (*TRAIN, TEST):
            write(tmp_path / kind, name, *made_up(name))
    return tmp_path


def test_the_digits_are_split_into_1197_300_300_and_lose_no_image():
    splits_read = read_digits()
    parts = [rows(part) for part in (splits_read.train, splits_read.validation, splits_read.test)]
    assert [len(part) for part in parts] == [1197, 300, 300]
    with np.load(splits.DIGITS_FILE) as arrays:
        images, labels = arrays["images"], arrays["labels"]
    stored = [image.tobytes() + bytes([label]) for image, label in zip(images, labels, strict=True)]
    assert sorted(parts[0] + parts[1] + parts[2]) == sorted(stored)
    assert splits_read.train.inputs.shape == (1197, 1, 8, 8)
    assert splits_read.train.inputs.dtype == torch.uint8
    assert int(splits_read.train.inputs.max()) == 16


def test_every_split_of_the_digits_holds_every_class():
    splits_read = read_digits()
    for part in (splits_read.train, splits_read.validation, splits_read.test):
        assert int(part.labels.bincount(minlength=10).min()) >= 20


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


@given(count=st.integers(1, 500))
def test_samples_are_dealt_by_a_permutation(count):
    assert sorted(split_order(count).tolist()) == list(range(count))


def test_binary_and_python_files_of_the_same_samples_give_the_same_tensors(cifar):
    for name in (*TRAIN, TEST):
        binary, python = read_binary(cifar / BINARY / f"{name}.bin"), read_python(cifar / PYTHON / name)
        assert torch.equal(binary.inputs, python.inputs)
        assert torch.equal(binary.labels, python.labels)


@pytest.mark.parametrize("protocol", range(6))
def test_every_pickle_protocol_is_read(tmp_path, protocol):
    pixels, labels = made_up(TEST, 4)
    write_python(tmp_path, "batch", pixels, labels, protocol)
    samples = read_python(tmp_path / "batch")
    assert samples.labels.tolist() == labels
    assert samples.inputs.flatten(1).tolist() == pixels.tolist()


def test_a_record_is_a_label_then_red_green_and_blue_planes_row_by_row(tmp_path):
    planes = np.zeros((3, 32, 32), dtype=np.uint8)
    planes[1, 4, 9] = 200
    (tmp_path / "one.bin").write_bytes(bytes([7]) + planes.tobytes())
    samples = read_binary(tmp_path / "one.bin")
    assert samples.labels.tolist() == [7]
    assert samples.inputs.nonzero().tolist() == [[0, 1, 4, 9]]


def test_cifar_gives_a_tenth_of_its_training_files_to_validation(cifar):
    splits_read = read_cifar(cifar)
    assert [len(part) for part in (splits_read.train, splits_read.validation, splits_read.test)] == [90, 10, 20]
    stored = [row for name in TRAIN for row in rows(read_binary(cifar / BINARY / f"{name}.bin"))]
    assert sorted(rows(splits_read.train) + rows(splits_read.validation)) == sorted(stored)
    assert rows(splits_read.test) == rows(read_binary(cifar / BINARY / f"{TEST}.bin"))


def test_binary_files_are_preferred_and_python_files_serve_as_well(cifar):
    binary = fingerprint(read_cifar(cifar))
    (cifar / BINARY).rename(cifar / "elsewhere")
    assert fingerprint(read_cifar(cifar)) == binary


def test_a_missing_file_is_named_with_what_to_unpack(cifar, tmp_path):
    (cifar / BINARY / "data_batch_3.bin").unlink()
    with pytest.raises(DataError, match=r"data_batch_3.bin is missing.*--data-dir"):
        read_cifar(cifar)
    with pytest.raises(DataError, match=r"data_batch_1 is missing.*unpack"):
        read_cifar(tmp_path / "nowhere")


@pytest.mark.parametrize("kind", [BINARY, PYTHON])
def test_the_folder_of_the_files_in_place_of_the_one_above_it_is_named(cifar, kind):
    with pytest.raises(
        DataError, match=rf"{kind} is the folder of the files itself: name the one above it with --data"
    ):
        read_cifar(cifar / kind)


@pytest.mark.parametrize("size", [0, 1, 3072, 3074, 2 * 3073 - 1])
def test_binary_files_of_another_size_are_refused(tmp_path, size):
    (tmp_path / "cut.bin").write_bytes(bytes(size))
    with pytest.raises(DataError, match=f"expected 3073 bytes for each of 1 .. 10000 records, got {size} bytes"):
        read_binary(tmp_path / "cut.bin")


def test_a_label_out_of_range_is_refused(tmp_path):
    (tmp_path / "wrong.bin").write_bytes(bytes([10]) + bytes(3072))
    with pytest.raises(DataError, match=r"wrong.bin: labels: expected 0 .. 9, got 10 in sample 0"):
        read_binary(tmp_path / "wrong.bin")


BATCHES = {
    "list": [1, 2],
    "no_labels": {b"data": np.zeros((2, 3072), np.uint8)},
    "floats": {b"data": np.zeros((2, 3072), np.float32), b"labels": [0, 1]},
    "narrow": {b"data": np.zeros((2, 3071), np.uint8), b"labels": [0, 1]},
    "empty": {b"data": np.zeros((0, 3072), np.uint8), b"labels": []},
    "one_label": {b"data": np.zeros((2, 3072), np.uint8), b"labels": [0]},
    "text_label": {b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, b"1"]},
    "bool_label": {b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, True]},
    "negative": {b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, -1]},
}


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES.keys())
def test_python_batches_of_another_form_are_refused(tmp_path, batch):
    (tmp_path / "batch").write_bytes(pickle.dumps(batch, protocol=2))
    with pytest.raises(DataError, match="batch"):
        read_python(tmp_path / "batch")


class Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_names_code_is_refused_and_nothing_runs(tmp_path, protocol):
    victim = tmp_path / "victim"
    (tmp_path / "batch").write_bytes(pickle.dumps({b"data": Malicious(victim)}, protocol=protocol))
    with pytest.raises(DataError, match=r"names \w*io\.open"):
        read_python(tmp_path / "batch")
    assert not victim.exists()


@given(at=st.integers(0, 10**6), change=st.integers(1, 255), cut=st.booleans())
def test_a_damaged_pickle_is_read_or_refused_and_never_anything_else(tmp_path_factory, at, change, cut):
    pixels, labels = made_up(TEST, 1)
    folder = tmp_path_factory.getbasetemp() / "damaged"
    folder.mkdir(exist_ok=True)
    write_python(folder, "batch", pixels, labels)
    raw = bytearray((folder / "batch").read_bytes())
    at %= 250  # where the structure is
    raw[at] ^= change
    (folder / "batch").write_bytes(raw[:at] if cut else raw)
    with contextlib.suppress(DataError):
        assert read_python(folder / "batch").inputs.shape[1:] == (3, 32, 32)


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
    assert torch.equal(part.validation().inputs, whole.validation().inputs[:64])
    assert torch.equal(part.validation().labels, whole.validation().labels[:64])
    assert part.fingerprint == whole.fingerprint


def test_the_most_samples_that_count_are_those_of_the_largest_classes():
    whole = open_dataset(DIGITS, DataSpec(), DIGITS.host, "cpu")
    for dataset in (whole, whole.on_test_split()):
        labels = dataset.validation().labels
        sizes = [int((labels == digit).sum()) for digit in range(10)]
        for classes in (1, 3):
            assert dataset.most_counted(classes) == max(map(sum, combinations(sizes, classes)))
        assert dataset.most_counted(10) is None
    assert whole.most_counted(2) != whole.on_test_split().most_counted(2)


def test_more_validation_samples_than_there_are_is_an_error():
    with pytest.raises(ConfigError, match=r"data.val_samples: expected at most 300, .* got 301"):
        open_dataset(DIGITS, DataSpec(val_samples=301), DIGITS.host, "cpu")


def test_the_task_says_how_many_samples_are_judged(cifar):
    small = replace(TASKS["cifar_baseline"], val_samples=6)
    dataset = open_dataset(small, DataSpec(dir=str(cifar)), small.host, "cpu")
    assert dataset.validation().inputs.shape == (6, 3, 32, 32)
    assert dataset.on_test_split().validation().inputs.shape == (20, 3, 32, 32)


def test_files_smaller_than_the_task_expects_are_scored_on_all_they_have(cifar):
    task = TASKS["cifar_baseline"]
    dataset = open_dataset(task, DataSpec(dir=str(cifar)), task.host, "cpu")
    assert dataset.sizes == {"train": 90, "validation": 10, "test": 20}
    with pytest.raises(ConfigError, match=r"data.val_samples: expected at most 10, .* got 1999"):
        open_dataset(task, DataSpec(dir=str(cifar), val_samples=1_999), task.host, "cpu")


def test_images_of_another_size_than_the_task_are_refused():
    with pytest.raises(DataError, match=r"of shape \(1, 9, 9\), as the host takes, got \d+ of shape \(1, 8, 8\)"):
        open_dataset(DIGITS, DataSpec(name="digits"), replace(DIGITS.host, size=9), "cpu")


PIXELS = torch.rand(12, 1, 8, 8)
MARKS = torch.arange(12) % 10
OWN_SAMPLES = {
    "train: expected Samples, got tuple": (PIXELS, MARKS),
    "train: inputs: expected a tensor, got ndarray: mg.from_arrays takes": Samples(PIXELS.numpy(), MARKS),
    "train: labels: expected a tensor, got list": Samples(PIXELS, MARKS.tolist()),
    r"inputs: expected a dense tensor .* with a gradient: give value.detach\(\)": Samples(
        PIXELS.clone().requires_grad_(), MARKS
    ),
    "inputs: expected a dense tensor .* got torch.strided on meta": Samples(PIXELS.to("meta"), MARKS),
    "inputs: expected a dense tensor .* got torch.sparse_coo": Samples(PIXELS.to_sparse(), MARKS),
    "inputs: expected finite numbers, got NaN or an infinite one in sample 5": Samples(
        PIXELS.where(torch.arange(12).view(-1, 1, 1, 1) != 5, torch.nan), MARKS
    ),
    r"expected 12 labels in 0 .. 9, got \[12, 1\]": Samples(PIXELS, MARKS[:, None]),
}


@pytest.mark.parametrize("said", OWN_SAMPLES)
def test_samples_of_a_reader_from_outside_are_checked(said):
    samples = OWN_SAMPLES[said]
    with pytest.raises(DataError, match=f"^mine: .*{said}"):
        check_splits(splits.Splits(samples, samples, samples), DIGITS.host, "mine")


def test_the_folder_is_the_flag_then_the_variable_then_data(monkeypatch):
    monkeypatch.delenv("MORPHOGEN_DATA", raising=False)
    assert str(data_folder(DataSpec())) == "data"
    monkeypatch.setenv("MORPHOGEN_DATA", "/some/where")
    assert str(data_folder(DataSpec())) == "/some/where"
    assert str(data_folder(DataSpec(dir="/given"))) == "/given"
