"""Tasks of Fashion-MNIST: hosts, slots and defaults of their runs."""

from morphogen.config.host import CnnSpec
from morphogen.config.task import read_tasks

TASKS = read_tasks(__file__, CnnSpec)
