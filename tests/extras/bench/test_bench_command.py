"""The command `morphogen bench`: points of a grid, numbers of a measurement, and its end."""

import json
from types import SimpleNamespace

import pytest
from support.small_runs import tiny

from morphogen.cli import main
from morphogen.config.execution_spec import EngineSpec
from morphogen.errors import ConfigError, DeviceError
from morphogen.extras.bench import probe, speed_grid

MACHINE = {"cpu", "cores", "threads", "device", "torch"}


def points(*words):
    return speed_grid.expand_grid(main.parse_args(["bench", *words], "0"))


def test_without_a_grid_there_is_one_point_of_three_rounds_with_its_phases():
    ((label, spec),) = points("--preset", "smoke").items()
    assert (label, spec.rounds, spec.envs) == ("as configured", 3, 4)
    assert spec.engine.phase_profile


def test_a_grid_holds_every_combination_the_last_key_fastest():
    found = points("--envs", "9", "--grid", "envs=1,8", "data.batch=4,16", "--grid", "seed=3")
    assert {label: (spec.envs, spec.data.batch, spec.seed) for label, spec in found.items()} == {
        f"envs={e},data.batch={b},seed=3": (e, b, 3) for e in (1, 8) for b in (4, 16)
    }


def test_values_are_json_or_words():
    words = ["engine.compile=off,reduce-overhead", 'slots=["r0c0"],["r0c0","r1c0"]']
    found = list(points("--grid", *words, "host.max_grad_norm=null,0.5").values())
    assert {spec.engine.compile for spec in found} == {"off", "reduce-overhead"}
    assert {spec.slots for spec in found} == {("r0c0",), ("r0c0", "r1c0")}
    assert {spec.host.max_grad_norm for spec in found} == {None, 0.5}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--grid", "envs=1,0"], "envs: expected"),
        (["--grid", "envs"], "--grid: expected KEY=V1,V2"),
        (["--rounds", "1"], "rounds: expected >= 2 with the warm-up, got 1"),
        (["--set", "telemetry.level=off"], "telemetry.level: expected normal or debug .* got off"),
    ],
)
def test_an_invalid_grid_is_refused(words, message):
    with pytest.raises(ConfigError, match=message):
        points(*words)


def test_a_measurement_has_rates_and_shares_of_the_rounds_after_the_first(monkeypatch):
    monkeypatch.setattr("morphogen.device.malloc.STATUS", SimpleNamespace(exists=lambda: False))
    found = probe.measure(tiny(rounds=2, envs=2, episode_length=2))
    numbers = found["numbers"]
    batch = tiny().data
    assert numbers["samples/s"] == pytest.approx(
        batch.batch * batch.minibatches * numbers["env-epochs/s"], rel=1e-5
    )
    assert (numbers["+-"], numbers["compile s"], numbers["peak MiB"]) == (0, 0, None)
    assert sum(found["shares"].values()) == pytest.approx(1)
    assert found["machine"].keys() > MACHINE


@pytest.mark.slow
def test_a_grid_measures_each_point_in_a_process_and_keeps_the_points_before_a_failure(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    words = ["--preset", "tiny", "--rounds", "2", "--envs", "2", "--episode-length", "2"]
    grid = ["--grid", "data.val_samples=8,301"]  # the digits have 300
    assert main.main(["bench", *words, *grid, "--json", "found.json"]) == 2
    shown = capsys.readouterr()
    label = "data.val_samples=8"
    assert shown.err.startswith(f"{label}: ")
    assert "record_read" in shown.out
    assert [path.name for path in tmp_path.iterdir()] == ["found.json"]
    ((name, found),) = json.loads((tmp_path / "found.json").read_text()).items()
    assert name == label
    assert found["numbers"]["peak MiB"] > 100


def test_a_device_that_is_too_small_is_an_error_of_the_device(monkeypatch):
    def full(self):
        raise probe.torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")

    monkeypatch.setattr(probe.Scheduler, "run", full)
    with pytest.raises(DeviceError, match="cpu has too little memory: CUDA out of memory"):
        probe.measure(tiny(rounds=2, engine=EngineSpec(devices=("cpu",))))
