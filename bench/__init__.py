"""What the package costs: `python -m bench.speed.summary` prints the table, the other modules one subject each.

Threads are pinned here, before torch is imported: `OMP_NUM_THREADS`, one per core unless set, as many as a run takes.
A process that has imported torch already has made its own choice; `--threads` sets another one.
"""

import os
import sys

if "torch" not in sys.modules:
    os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count() or 1))
