"""Fashion-MNIST: the packaged images are the official ones at half size, and which files are
refused.
"""

import gzip
import hashlib
import json

import numpy as np
import pytest
import torch

from bench.data.fashion import halve, take_balanced
from morphogen.cli import main
from morphogen.config.files import MIB
from morphogen.data.data_files import Official, find_folder
from morphogen.data.splits import Samples, fingerprint
from morphogen.errors import DataError
from morphogen.extras.fashion import files
from morphogen.extras.fashion.files import FILES, OFFICIAL, read_fashion, read_fashion_full

IMAGES, LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"
COUNTS = {"train": 12_000, "t10k": 40}


def made_up(part):
    """Images and labels that say which sample they are."""
    count = COUNTS[part]
    pixels = np.arange(count)[:, None] * 7 + np.arange(784)[None] * (1 + len(part))
    return (pixels % 251).astype(np.uint8).reshape(-1, 28, 28), np.arange(count, dtype=np.uint8) % 7


@pytest.fixture
def fashion(tmp_path, monkeypatch):
    """Made-up files in the official form, declared official, and none that are installed."""
    monkeypatch.setattr(files, "FILES", FILES.__class__(FILES.name, FILES.forms, 0, FILES.command))
    for part in COUNTS:
        for array, name in zip(made_up(part), ("images-idx3", "labels-idx1"), strict=True):
            sizes = np.array(array.shape, dtype=">u4").tobytes()
            content = bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()
            path = tmp_path / f"{part}-{name}-ubyte.gz"
            path.write_bytes(gzip.compress(content, 1))
            official = Official(len(content), hashlib.sha256(content).hexdigest())
            monkeypatch.setitem(OFFICIAL, path.name, official)
    return tmp_path


def test_the_packaged_images_are_balanced_in_every_first_part(tmp_path):
    splits = read_fashion(tmp_path)
    assert splits.sizes() == {"train": 8_000, "validation": 2_000, "test": 2_000}
    for part in (splits.train, splits.validation, splits.test):
        assert part.inputs.shape[1:] == (1, 14, 14)
        assert torch.equal(part.labels, torch.arange(len(part)) % 10)
    assert files.PACKAGED.stat().st_size <= 2 * MIB
    assert "MIT License" in files.PACKAGED.with_name("LICENSE").read_text()


def test_a_changed_package_is_refused(tmp_path, monkeypatch):
    changed = tmp_path / "fashion.npz"
    changed.write_bytes(files.PACKAGED.read_bytes()[:-1])
    monkeypatch.setattr(files, "PACKAGED", changed)
    with pytest.raises(DataError, match=r"fashion.npz: expected sha256 .* reinstall the package"):
        read_fashion(tmp_path)


def test_samples_are_taken_by_class_and_images_are_halved():
    labels = torch.tensor([*range(10), *range(9, -1, -1)])
    samples = Samples(torch.arange(20), labels)
    assert take_balanced(samples, 20).inputs.tolist() == [*range(10), *range(19, 9, -1)]
    image = torch.tensor([[0, 1, 255, 255], [1, 0, 255, 254]], dtype=torch.uint8)
    assert halve(image.view(1, 1, 2, 4)).tolist() == [[[0, 255]]]  # of .5 and 254.75


def test_the_official_files_are_read_in_their_form(fashion):
    splits = read_fashion_full(fashion)
    assert splits.sizes() == {"train": 2_000, "validation": 10_000, "test": 40}
    images, labels = made_up("t10k")
    assert np.array_equal(splits.test.inputs[:, 0].numpy(), images)
    assert splits.test.labels.tolist() == labels.tolist()
    assert fingerprint(read_fashion_full(fashion)) == fingerprint(splits)


def test_missing_files_are_named_with_the_command_that_installs_them(fashion, capsys):
    remedy = "run `apt install dataset-fashion-mnist`, or put the official Fashion-MNIST files"
    (fashion / IMAGES).unlink()
    with pytest.raises(DataError, match=f"{IMAGES} is missing; {remedy}"):
        read_fashion_full(fashion)
    assert main.main(["data", "fashion_full", "--json", "--data-dir", str(fashion)]) == 3
    shown = capsys.readouterr()
    assert remedy in shown.err
    sizes = {row["file"]: row["bytes"] for row in json.loads(shown.out)["files"]}
    assert sizes == {
        name: None if name == IMAGES else (fashion / name).stat().st_size for name in OFFICIAL
    }


def test_a_renamed_file_is_refused(fashion):
    (fashion / LABELS).rename(fashion / IMAGES)
    with pytest.raises(DataError, match=f"{IMAGES}: expected .* got 12,008 bytes with sha256"):
        read_fashion_full(fashion)


def test_the_packaged_images_are_the_official_ones(tmp_path):
    folder = FILES.find_files(find_folder(None)[0])
    try:
        parts = {part: files.read_part(folder, part) for part in COUNTS}
    except DataError as error:
        pytest.skip(str(error))
    splits = read_fashion(tmp_path)
    train = take_balanced(parts["train"], 10_000)
    packaged = torch.cat([splits.train.inputs, splits.validation.inputs])[:, 0]
    assert torch.equal(halve(train.inputs), packaged)
    assert torch.equal(halve(take_balanced(parts["t10k"], 2_000).inputs), splits.test.inputs[:, 0])
