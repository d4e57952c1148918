"""The tasks of CIFAR-10, against numbers written out by hand."""

import hashlib

import pytest
from support.extras import needs_extra
from support.task_sizes import task_sizes

from morphogen.config.config_files import build_spec, dump_config
from morphogen.config.policy_spec import PolicySpec
from morphogen.config.spec import RunSpec, param_budget, resolve
from morphogen.config.task import TASKS
from morphogen.errors import ConfigError

# task: host parameters, default slots, batch, episode length (from the task table of the interface
# document)
ROWS = {
    "cifar_baseline": (6_418, "r0c0 r0c1 r0c2", 128, 150),
    "cifar_scale": (99_922, "r0c0 r0c1 r0c2 r0c3 r0c4", 128, 150),
    "cifar_impaired": (77, "r0c0 r0c1 r0c2", 128, 150),
    "cifar_minimal": (164, "r0c0 r0c1 r0c2", 128, 150),
    "cifar_multichannel": (6_418, "r0c0 r0c1 r0c2 r1c0 r1c1 r1c2", 128, 150),
    "cifar_postpool": (24_346, "r1c0 r1c1 r1c2", 128, 150),
    "cifar_highres": (24_346, "r0c0 r0c1 r0c2", 128, 150),
    "cifar_deep_multichannel": (
        99_922,
        "r0c0 r0c1 r0c2 r0c3 r0c4 r1c0 r1c1 r1c2 r1c3 r1c4",
        128,
        150,
    ),
    "cifar_deep_impaired": (1_140, "r0c0 r0c1 r0c2 r0c3 r0c4 r1c0 r1c1 r1c2 r1c3 r1c4", 128, 150),
}
STABLE_CONFIG = "646152c948af40a3c85e6277a8bef19379c93926cb2c15b22d3c7e70469fc1a8"


def test_every_task_of_the_table_is_there_and_no_other():
    assert {name for name in TASKS if TASKS.origin(name) == "cifar"} == set(ROWS)


@pytest.mark.parametrize("name", ROWS)
def test_host_slots_and_sizes_are_those_of_the_table(name):
    assert task_sizes(name) == ROWS[name]


@needs_extra("legacy_rewards")  # its settings are part of the text
@needs_extra("export")
def test_the_text_of_a_complete_config_of_another_task_is_the_recorded_one():
    text = dump_config(resolve(RunSpec(preset="cifar_baseline_stable")))
    assert hashlib.sha256(text.encode()).hexdigest() == STABLE_CONFIG


def test_presets_set_what_their_table_says():
    stable = build_spec({"preset": "cifar_baseline_stable"})
    assert (stable.task, stable.rounds, stable.ppo.clip) == ("cifar_baseline", 200, 0.1)
    assert (
        stable.ppo.entropy_coef,
        stable.ppo.entropy_coef_end,
        stable.ppo.entropy_anneal_rounds,
    ) == (0.06, 0.03, 50)
    for name, seeds in (("cifar_postpool", 3), ("cifar_deep_impaired", 6)):
        spec = build_spec({"preset": name})
        assert (spec.rounds, spec.max_seeds, spec.ppo.max_grad_norm) == (200, seeds, 0.5)
    scale = build_spec({"preset": "cifar_scale"})
    assert (scale.ppo.entropy_coef, scale.engine.amp) == (0.08, "auto")
    assert build_spec({"preset": "cifar_minimal"}).ppo.entropy_coef == 0.1


# Largest blueprint of each declared slot: conv_heavy 18 C^2 + 4 C, bottleneck 2 C q + 9 q^2 + 2 C,
# q = max(8, C // 4).
def test_the_budget_is_a_fully_grown_network():
    assert param_budget(RunSpec(task="cifar_baseline")) == 48_832


def test_a_floor_fits_ten_slots():
    with pytest.raises(
        ConfigError, match=r"policy.floor.slot: expected <= 0.05 with 10 slots, got 0.051"
    ):
        RunSpec(task="cifar_deep_impaired", policy=PolicySpec(floor={"slot": 0.051}))
