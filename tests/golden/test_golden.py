"""Every golden row of every file in the folder, in both precisions; `--golden-dir` names another folder."""

import importlib
import json
from pathlib import Path

import pytest
import torch

# Subject -> what the rows are about; they are read as soon as a reader for them stands in `readers_*.py`.
LATER = {
    "telemetry": "gradient health, anomalies and analytics",
}
READERS = {
    subject: reader
    for path in sorted(Path(__file__).parent.glob("readers_*.py"))
    for subject, reader in importlib.import_module(path.stem).READERS.items()
}


def pytest_generate_tests(metafunc):
    if "golden" in metafunc.fixturenames:
        files = sorted(metafunc.config.getoption("--golden-dir").glob("*.jsonl"))
        metafunc.parametrize("golden", files, ids=lambda path: path.stem)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_golden_rows_are_reproduced(golden, dtype):
    if golden.stem in LATER and golden.stem not in READERS:
        pytest.skip(f"{golden.stem}: {LATER[golden.stem]}")
    assert golden.stem in READERS, f"{golden.name} has no reader; known: {', '.join(sorted({*READERS, *LATER}))}"
    rows = [json.loads(line) for line in golden.read_text().splitlines()]
    wrong = [
        f"{row.get('id', i)}: {error}" for i, row in enumerate(rows) if (error := failure(row, golden.stem, dtype))
    ]
    assert rows
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
