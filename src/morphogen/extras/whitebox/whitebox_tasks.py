"""The white-box tasks, and the defaults of their runs."""

from morphogen.config import task
from morphogen.config.host import CnnSpec

# whitebox: slots move up by themselves, so that what is left to learn is whether, when and which.
# A fresh policy germinates at any time, so that some of its seeds pay; an epoch costs about the
# same for many hosts as for few, but for its events.  whitebox_regimes: the view of a regime
# decides which blueprint helps, and is never observed.  All ops are enabled, and a new regime is no
# panic.
TASKS = task.read_tasks(__file__, CnnSpec, task.TASKS)
