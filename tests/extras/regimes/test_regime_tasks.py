"""The default run: digits in a world that changes."""

import hashlib

from morphogen.config.config_files import dump_config
from morphogen.config.spec import RunSpec, find_host, resolve
from morphogen.config.task import DEFAULT_PRESET

# sha256 of the complete text of a config: a run directory keeps this text.
DEFAULT_CONFIG = "76280a0bb5997940570178f1fd07800caaa9a7292bba02aa4b5d43d22e922d72"


def test_the_task_has_its_sizes():
    spec = resolve(RunSpec(task="digits_regimes"))
    assert find_host(spec).params() == 1_090
    assert (spec.slots, spec.data.batch, spec.episode_length) == (("r0c0", "r0c1", "r1c0"), 16, 90)


def test_the_text_of_the_default_config_is_the_recorded_one():
    text = dump_config(resolve(RunSpec(preset=DEFAULT_PRESET)))
    assert hashlib.sha256(text.encode()).hexdigest() == DEFAULT_CONFIG
