"""Task of handwritten digits: host, slots and defaults of its runs."""

from morphogen.config.host import CnnSpec
from morphogen.config.task import read_tasks

TASKS = read_tasks(__file__, CnnSpec)
