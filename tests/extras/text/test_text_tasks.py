"""The tasks of language models, against numbers written out by hand."""

import pytest
from support.task_sizes import task_sizes

from morphogen.config.config_files import build_spec
from morphogen.config.spec import RunSpec, find_host, resolve
from morphogen.config.task import TASKS
from morphogen.errors import ConfigError

# task: host parameters, default slots, batch, episode length
ROWS = {
    "tinystories": (10_844_544, "r0c0 r0c1 r0c2", 32, 150),
    "shakespeare": (25_272, "r0c0 r0c1 r0c2", 8, 16),
    "pydoc": (24_816, "r0c0 r0c1 r0c2", 8, 16),
}


def test_every_task_of_the_table_is_there_and_no_other():
    assert {name for name in TASKS if TASKS.origin(name) == "text"} == set(ROWS)


@pytest.mark.parametrize("name", ROWS)
def test_host_slots_and_sizes_are_those_of_the_table(name):
    assert task_sizes(name) == ROWS[name]


def test_a_preset_sets_what_the_table_says():
    stories = build_spec({"preset": "tinystories"})
    assert (stories.envs, stories.engine.amp, stories.ppo.entropy_coef) == (4, "auto", 0.05)
    assert stories.ppo.entropy_anneal_rounds == 10


def test_a_language_model_has_as_many_tokens_as_its_setting_says():
    spec = resolve(RunSpec(task="tinystories", host={"vocabulary": 50_257}))
    assert find_host(spec).params() == 30_044_544
    assert spec.instance.classes == (50_257, 50_257)
    assert resolve(spec) == spec
    with pytest.raises(
        ConfigError, match=r"host.vocabulary: expected null with the host CnnSpec, got 97"
    ):
        RunSpec(task="digits", host={"vocabulary": 97})
