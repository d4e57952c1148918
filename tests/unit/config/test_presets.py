"""The tables of tasks and presets, against numbers written out by hand."""

import hashlib
import math

import pytest
from support.extras import needs_extra
from support.task_sizes import task_sizes

from morphogen.config.config_files import build_spec, dump_config
from morphogen.config.registry import BUILT_IN
from morphogen.config.spec import RunSpec, resolve
from morphogen.config.task import DEFAULT_PRESET, PRESETS, TASKS
from morphogen.errors import ConfigError
from morphogen.log.run_log import events
from morphogen.train.train import train_ppo_vectorized

# task: host parameters, default slots, batch, episode length (from the task table of the interface
# document)
ROWS = {
    "digits": (438, "r0c0 r0c1 r1c0", 32, 16),
    "digits_impaired": (72, "r0c0 r0c1 r1c0", 32, 16),
    "tiny": (150, "r0c0 r1c0", 4, 8),
}
# sha256 of the complete text of a config: a run directory keeps this text.
DEFAULT_CONFIG = "b713c5e8895b3d123138ddd5446afbcb2e267e92ee0789bc486536f9eb925543"
each_task = pytest.mark.parametrize("name", TASKS.builtin())
each_preset = pytest.mark.parametrize("name", PRESETS)


def test_every_task_of_the_table_is_there_and_no_other():
    assert [name for name in TASKS.builtin() if TASKS.origin(name) == BUILT_IN] == list(ROWS)


@pytest.mark.parametrize("name", ROWS)
def test_host_slots_and_sizes_are_those_of_the_table(name):
    assert task_sizes(name) == ROWS[name]


@each_task
def test_a_task_is_complete_and_agrees_with_itself(name):
    task = TASKS[name]
    assert task.name == name
    assert task.question.endswith("?")
    if not task.host.labelled:
        assert task.host.vocabulary == task.host.classes
        assert (task.shift, task.flip) == (0, False)
    else:
        assert len(task.mean) == len(task.std) == task.host.input_shape[0]
    assert all(span is not None for span in vars(task.instance).values())
    assert task.instance.classes[1] <= task.host.classes
    assert 0 < task.success <= 100
    assert task.target_loss < math.log(task.host.classes)  # the loss of guessing


@each_task
def test_a_task_runs_on_its_single_instance_too(name):
    assert (
        resolve(RunSpec(task=name, instances="single")).instance.classes
        == (TASKS[name].host.classes,) * 2
    )


def test_an_unknown_task_lists_the_known_ones():
    with pytest.raises(
        ConfigError, match=r'task: expected one of digits, digits_impaired.* got "mnist"'
    ):
        RunSpec(task="mnist")


@each_preset
def test_a_preset_gives_a_valid_run_that_carries_its_name(name):
    spec = resolve(build_spec({"preset": name}))
    assert spec.preset == name
    assert spec.task == PRESETS[name]["task"]


@needs_extra("legacy_rewards")  # their settings are part of the text
@needs_extra("regimes")
@needs_extra("loggers")
@needs_extra("alarms")
@needs_extra("export")
def test_the_text_of_the_default_config_is_the_recorded_one():
    text = dump_config(resolve(RunSpec(preset=DEFAULT_PRESET)))
    assert hashlib.sha256(text.encode()).hexdigest() == DEFAULT_CONFIG


@pytest.mark.slow
def test_a_smoke_run_takes_a_seed_from_germination_to_fossil(tmp_path):
    spec = build_spec({"preset": "smoke", "final_episodes": 0})
    train_ppo_vectorized(spec, out=tmp_path / "run")
    assert {"SeedGerminated", "SeedFossilized"} <= {
        event.name for event in events(tmp_path / "run")
    }
