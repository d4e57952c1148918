"""Tasks of CIFAR-10, and a preset: hosts, slots and defaults of their runs."""

from morphogen.config.host import CnnSpec
from morphogen.config.task import read_table, read_tasks

TASKS = read_tasks(__file__, CnnSpec)
STABLE = read_table(__file__, "presets.json")["cifar_baseline_stable"]
