"""Records of earlier versions: files of parts of the envs."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from morphogen.errors import DataError
from morphogen.extras.former_logs.former_records import derive, list_records

LOGS = Path(__file__).parents[2] / "golden/data/logs"


@pytest.fixture
def parts(tmp_path):
    """A folder with the record of a round in two parts, as runs of several processes wrote it, and
    the files.
    """
    shutil.copytree(LOGS / "two-ranks/records", tmp_path / "records")
    return tmp_path, list_records(tmp_path)[0]


def test_a_round_without_one_of_its_parts_was_not_written(parts):
    folder, paths = parts
    paths[1].unlink()
    assert list_records(folder) == {}


def test_a_part_under_the_name_of_another_is_refused(parts):
    _, paths = parts
    start: Any = None
    paths[1].write_bytes(paths[0].read_bytes())
    with pytest.raises(DataError, match=r"rank1-of-2\.npz\.xz does not fit .*rank0-of-2\.npz\.xz"):
        list(derive(paths, start, None))
