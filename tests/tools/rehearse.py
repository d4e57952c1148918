"""Rehearse every kind of task, level, placement and precision on a fake device, and print a line
per case.

    PYTHONPATH=tests python tests/tools/rehearse.py [task ...]

Exit code 1 if a fault was found, or if the crossings differ from the fence table.
"""

import sys
import tempfile
import time
from pathlib import Path

import torch
from support import fake_device
from support.fake_runs import CASES, expected_counts, play_life, spec_of, strays
from support.small_runs import cifar_files


def main() -> int:
    """Rehearse all cases, or only some tasks."""
    torch.set_num_threads(1)
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        cifar_files(Path(folder))
        for case in CASES:
            if not sys.argv[1:] or case[0] in sys.argv[1:]:
                wrong += not rehearse_case(case, Path(folder))
    return min(wrong, 1)


def rehearse_case(case: tuple[str, str, str, str], folder: Path) -> bool:
    """Rehearse one case and print its line; True without a fault."""
    started, spec = time.monotonic(), spec_of(*case, folder)
    found = fake_device.rehearse(play_life, spec)
    equal = found.crossings == found.ledger == expected_counts(spec)
    lost = [] if found.result is None else strays(found.result)
    numbers = (
        f"faults {len(found.faults)} strays {len(lost)} crossings "
        f"{'equal' if equal else dict(found.crossings)}"
    )
    seconds = f"{time.monotonic() - started:.0f} s"
    print(
        *case,
        numbers,
        f"operators {sum(found.operators.values())}",
        seconds,
        *found.faults[-1:],
        flush=True,
    )
    return not found.faults and not lost and equal


if __name__ == "__main__":
    sys.exit(main())
