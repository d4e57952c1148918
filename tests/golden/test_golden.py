"""Every golden row of every file in the folder, in both precisions; `--golden-dir` names another
folder.
"""

import importlib
import json
import sys
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parent
# rows of extras, with readers in the folder above
EXTRAS = sorted(FOLDER.parent.glob("extras/*/golden"))
FILES = [
    *FOLDER.glob("readers_*.py"),
    *(path for folder in EXTRAS for path in folder.parent.glob("readers_*.py")),
]
sys.path += [str(folder.parent) for folder in EXTRAS]
READERS = {
    subject: reader
    for path in sorted(FILES)
    for subject, reader in importlib.import_module(path.stem).READERS.items()
}


def pytest_generate_tests(metafunc):
    if "subject" in metafunc.fixturenames:
        folders = [metafunc.config.getoption("--golden-dir"), *EXTRAS]
        found = sorted(row for folder in folders for row in subjects(folder).items())
        metafunc.parametrize(("subject", "rows"), found, ids=[name for name, _ in found])


def subjects(folder: Path) -> dict[str, list[dict]]:
    """Rows by subject: the name of the file, and behind a dot the kind where no reader takes the
    file as a whole.
    """
    found: dict[str, list[dict]] = {}
    for path in folder.glob("*.jsonl"):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            name = (
                path.stem
                if path.stem in READERS
                else ".".join([path.stem, *[row["kind"]] * ("kind" in row)])
            )
            found.setdefault(name, []).append(row)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_golden_rows_are_reproduced(subject, rows, dtype):
    assert subject in READERS, f"{subject} has no reader; known: {', '.join(sorted(READERS))}"
    wrong = [
        f"{row.get('id', i)}: {error}"
        for i, row in enumerate(rows)
        if (error := failure(row, subject, dtype))
    ]
    assert not wrong, f"{len(wrong)} of {len(rows)} rows differ, first:\n" + "\n".join(wrong[:5])


def failure(row: dict, subject: str, dtype: torch.dtype) -> str | None:
    """Why a row is not reproduced; None where it is."""
    try:
        READERS[subject](row, dtype)
    except AssertionError as error:
        return str(error) or "assertion failed"
    return None


def test_there_is_a_golden_folder(request):
    assert list(request.config.getoption("--golden-dir").glob("*.jsonl"))
