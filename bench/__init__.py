"""What the package costs: `python -m bench.summary` prints the table, the other modules one subject each.

Threads are pinned here, before torch is imported: `OMP_NUM_THREADS`, one unless set.  A process that has imported torch
already has made its own choice.
"""

import os
import sys

if "torch" not in sys.modules:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
