"""Files of data sets: where they are found, and which are refused."""

import gzip
import hashlib
import re
import sys

import pytest

from morphogen.data import data_files
from morphogen.data.data_files import FileForm, FileSource, Official
from morphogen.errors import DataError

CONTENT = bytes(range(200))
OFFICIAL = Official(len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
SOURCE = FileSource(
    "the files of a test",
    (FileForm("gzip", ("one.gz", "two.gz")),),
    command="fetch them",
    package="held_files",
    installed="inner",
)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package whose code must not run."""
    inner = tmp_path / "site" / "held_files" / "inner"
    inner.mkdir(parents=True)
    (inner.parent / "__init__.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(tmp_path / "site")
    return inner


def test_files_of_the_user_come_before_installed_ones(tmp_path, package):
    folder = tmp_path / "mine"
    folder.mkdir()
    assert SOURCE.find_files(folder) == folder  # no file is anywhere
    (package / "one.gz").touch()
    assert SOURCE.find_files(folder) == package
    (folder / "two.gz").touch()
    assert SOURCE.find_files(folder) == folder
    assert "held_files" not in sys.modules


def test_a_package_that_is_not_installed_holds_nothing(tmp_path):
    assert data_files.find_package("held_files") is None
    assert SOURCE.find_files(tmp_path) == tmp_path


def test_an_official_file_is_read_packed_or_not(tmp_path):
    (tmp_path / "one.gz").write_bytes(gzip.compress(CONTENT))
    (tmp_path / "one").write_bytes(CONTENT)
    for name in ("one.gz", "one"):
        assert SOURCE.read_official(tmp_path / name, tmp_path, OFFICIAL) == CONTENT


@pytest.mark.parametrize(
    ("stored", "got"),
    [
        (gzip.compress(CONTENT)[:-9], "got a damaged file: Compressed file ended before"),
        (gzip.compress(CONTENT)[:12] + bytes(30), "got a damaged file: "),
        (b"PK" + CONTENT, "got a damaged file: Not a gzipped file"),
        (gzip.compress(CONTENT[:-1]), "got 199 bytes with sha256 [0-9a-f]{64}"),
        (gzip.compress(CONTENT[::-1]), "got 200 bytes with sha256 [0-9a-f]{64}"),
        (gzip.compress(bytes(10**7)), "got more with sha256 [0-9a-f]{64}"),
        (b"", "got 0 bytes"),
    ],
    ids=["cut", "damaged", "of another kind", "shorter", "other", "larger", "empty"],
)
def test_another_file_is_refused_in_one_line(tmp_path, stored, got):
    path = tmp_path / "one.gz"
    path.write_bytes(stored)
    wanted = f"{path}: expected 200 bytes of the files of a test, with sha256 {OFFICIAL.sha256}"
    with pytest.raises(DataError, match=f"{re.escape(wanted)}, {got}") as caught:
        SOURCE.read_official(path, tmp_path, OFFICIAL)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named_with_the_command_that_brings_it(tmp_path):
    with pytest.raises(
        DataError, match=r"one.gz is missing; run `fetch them`, or put the files of a test into"
    ):
        SOURCE.read_official(tmp_path / "one.gz", tmp_path, OFFICIAL)
