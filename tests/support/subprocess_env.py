"""The environment of processes that tests start: they see the source that is tested, and use one
thread.
"""

import os
from pathlib import Path

import morphogen

OURS = {
    **os.environ,
    "PYTHONPATH": str(Path(morphogen.__file__).parents[1]),
    "OMP_NUM_THREADS": "1",
}
