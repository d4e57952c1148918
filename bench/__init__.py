"""Benchmarks and studies: `python -m bench.speed.summary` prints the table, every other module
covers one subject.

Threads are pinned here, before torch is imported: `OMP_NUM_THREADS`, by default one per core as in
a run. A process that has imported torch already has made its own choice; `--threads` sets another
one.
"""

import os
import sys

if "torch" not in sys.modules:
    os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count() or 1))
