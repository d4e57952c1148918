"""The readers of CIFAR-10: both forms of its files, and what is refused."""

import hashlib
import pickle

import numpy as np
import pytest
import torch
from support.sample_bytes import sample_bytes

from morphogen.config.groups import DataSpec
from morphogen.config.task import TASKS
from morphogen.data.dataset import open_dataset
from morphogen.data.splits import fingerprint
from morphogen.errors import ConfigError, DataError
from morphogen.extras.cifar import files
from morphogen.extras.cifar.files import (
    BINARY,
    PYTHON,
    TEST,
    TRAIN,
    read_binary,
    read_cifar,
    read_python,
)

RECORDS = 20


def made_up(name, count=RECORDS):
    """Pixels and labels that say which file and record they are."""
    place = (*TRAIN, TEST).index(name)
    pixels = np.arange(3072, dtype=np.int64)[None] * (place + 1) + 7 * np.arange(count)[:, None]
    return (pixels % 251).astype(np.uint8), [(3 * place + i) % 10 for i in range(count)]


def write_binary(folder, name, pixels, labels):
    records = [bytes([label]) + row.tobytes() for row, label in zip(pixels, labels, strict=True)]
    (folder / f"{name}.bin").write_bytes(b"".join(records))


def write_python(folder, name, pixels, labels):
    batch = {b"data": pixels, b"labels": labels, b"batch_label": b"made up"}
    (folder / name).write_bytes(pickle.dumps(batch, protocol=3))


def make_official(monkeypatch, path):
    """Declare a file official."""
    digest = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
    monkeypatch.setitem(files.OFFICIAL, path.name, digest)


@pytest.fixture
def cifar(tmp_path, monkeypatch):
    for kind, write in ((BINARY, write_binary), (PYTHON, write_python)):
        (tmp_path / kind).mkdir()
        for name in (*TRAIN, TEST):
            write(tmp_path / kind, name, *made_up(name))
    for name in (*TRAIN, TEST):
        make_official(monkeypatch, tmp_path / PYTHON / name)
    return tmp_path


def test_binary_and_python_files_of_the_same_samples_give_the_same_tensors(cifar):
    for name in (*TRAIN, TEST):
        binary, python = (
            read_binary(cifar / BINARY / f"{name}.bin"),
            read_python(cifar / PYTHON / name),
        )
        assert torch.equal(binary.inputs, python.inputs)
        assert torch.equal(binary.labels, python.labels)


def test_a_record_is_a_label_then_red_green_and_blue_planes_row_by_row(tmp_path):
    planes = np.zeros((3, 32, 32), dtype=np.uint8)
    planes[1, 4, 9] = 200
    (tmp_path / "one.bin").write_bytes(bytes([7]) + planes.tobytes())
    samples = read_binary(tmp_path / "one.bin")
    assert samples.labels.tolist() == [7]
    assert samples.inputs.nonzero().tolist() == [[0, 1, 4, 9]]


def test_cifar_gives_a_tenth_of_its_training_files_to_validation(cifar):
    splits_read = read_cifar(cifar)
    assert [
        len(part) for part in (splits_read.train, splits_read.validation, splits_read.test)
    ] == [90, 10, 20]
    stored = [
        row for name in TRAIN for row in sample_bytes(read_binary(cifar / BINARY / f"{name}.bin"))
    ]
    assert sorted(sample_bytes(splits_read.train) + sample_bytes(splits_read.validation)) == sorted(
        stored
    )
    assert sample_bytes(splits_read.test) == sample_bytes(
        read_binary(cifar / BINARY / f"{TEST}.bin")
    )


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
        DataError,
        match=rf"{kind} is the folder of the files itself: name the one above it with --data",
    ):
        read_cifar(cifar / kind)


@pytest.mark.parametrize("size", [0, 1, 3072, 3074, 2 * 3073 - 1])
def test_binary_files_of_another_size_are_refused(tmp_path, size):
    (tmp_path / "cut.bin").write_bytes(bytes(size))
    with pytest.raises(
        DataError, match=f"expected 3073 bytes for each of 1 .. 10000 records, got {size} bytes"
    ):
        read_binary(tmp_path / "cut.bin")


def test_a_label_out_of_range_is_refused(tmp_path):
    (tmp_path / "wrong.bin").write_bytes(bytes([10]) + bytes(3072))
    with pytest.raises(DataError, match=r"wrong.bin: labels: expected 0 .. 9, got 10 in sample 0"):
        read_binary(tmp_path / "wrong.bin")


def test_another_file_than_the_official_one_is_refused_unread(cifar):
    path = cifar / PYTHON / "data_batch_2"
    (cifar / BINARY).rename(cifar / "elsewhere")
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(
        DataError, match=r"data_batch_2: expected the official file, with md5 [0-9a-f]{32}, got"
    ):
        read_cifar(cifar)


class Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_file_that_names_code_runs_nothing(tmp_path, monkeypatch, protocol):
    path = tmp_path / TEST
    victim = tmp_path / "victim"
    path.write_bytes(pickle.dumps({b"data": Malicious(victim)}, protocol=protocol))
    with pytest.raises(DataError, match="expected the official file"):
        read_python(path)
    make_official(monkeypatch, path)
    with pytest.raises(pickle.UnpicklingError, match="which no official file does"):
        read_python(path)
    assert not victim.exists()


def test_files_smaller_than_the_task_expects_are_scored_on_all_they_have(cifar):
    task = TASKS["cifar_baseline"]
    dataset = open_dataset(task, DataSpec(dir=str(cifar)), task.host, "cpu")
    assert dataset.sizes == {"train": 90, "validation": 10, "test": 20}
    with pytest.raises(ConfigError, match=r"data.val_samples: expected at most 10, .* got 1999"):
        open_dataset(task, DataSpec(dir=str(cifar), val_samples=1_999), task.host, "cpu")
