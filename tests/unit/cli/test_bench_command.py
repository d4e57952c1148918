"""The command `morphogen bench`: what a grid holds, what is measured and kept, and how it ends."""

import json
import os
import signal
from types import SimpleNamespace

import pytest
from support.small_runs import tiny

from morphogen.cli import bench, main, probe, process
from morphogen.cli.bench import Measure, median_measure
from morphogen.config.execution_spec import EngineSpec
from morphogen.config.groups import DataSpec
from morphogen.errors import ConfigError, DeviceError, TrainingDiverged

KEYS = {"name", "value", "spread", "runs", "unit"}
PHASES = (
    "reset",
    "head",
    "plan_wait",
    "data",
    "train",
    "validate",
    "tail",
    "record_read",
    "exchange",
    "update",
)


def points(*words):
    return bench.expand_grid(main.parse_args(["bench", *words], "0"))


def test_without_a_grid_there_is_one_point_of_three_rounds_with_its_phases():
    ((label, spec),) = points("--preset", "smoke").items()
    assert (label, spec.rounds, spec.envs, spec.engine.phase_profile) == ("", 3, 4, True)


def test_a_flag_wins_over_what_a_benchmark_assumes_and_that_over_a_file(tmp_path):
    file = tmp_path / "config.json"
    file.write_text('{"rounds": 50, "envs": 3}')
    (spec,) = points("--config", str(file)).values()
    assert (spec.rounds, spec.envs) == (3, 3)
    for words in (["--rounds", "5"], ["--set", "rounds=5"]):
        (spec,) = points("--config", str(file), *words, "--no-phase-profile").values()
        assert (spec.rounds, spec.engine.phase_profile) == (5, False)


def test_a_grid_holds_every_combination_the_last_key_fastest():
    found = points("--envs", "9", "--grid", "envs=1,8", "data.batch=4,16", "--grid", "seed=3")
    assert list(found) == [f"envs={e},data.batch={b},seed=3" for e in (1, 8) for b in (4, 16)]
    assert [(spec.envs, spec.data.batch, spec.seed) for spec in found.values()] == [
        (e, b, 3) for e in (1, 8) for b in (4, 16)
    ]


def test_values_are_json_or_words():
    words = [
        "engine.compile=off,reduce-overhead",
        'slots=["r0c0"],["r0c0","r1c0"]',
        "host.max_grad_norm=null,0.5",
    ]
    found = list(points("--grid", *words).values())
    assert {spec.engine.compile for spec in found} == {"off", "reduce-overhead"}
    assert {spec.slots for spec in found} == {("r0c0",), ("r0c0", "r1c0")}
    assert {spec.host.max_grad_norm for spec in found} == {None, 0.5}


def test_a_task_of_the_grid_brings_its_own_defaults():
    found = points("--grid", "task=digits,digits_impaired")
    assert [spec.preset for spec in found.values()] == [None, None]
    assert [spec.host.width for spec in found.values()] == [
        next(iter(points("--task", task).values())).host.width
        for task in ("digits", "digits_impaired")
    ]


def test_all_faults_of_a_grid_are_told_at_once_and_each_once():
    with pytest.raises(ConfigError) as caught:
        points("--grid", "envs=0,1,2", "data.batch=0,4")
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == ["envs", "data.batch"]


def test_telemetry_without_the_rates_of_a_round_is_refused():
    with pytest.raises(
        ConfigError, match=r"telemetry: expected the level normal or debug to read .* got off"
    ):
        points("--set", "telemetry.level=off")


def found_by(spec):
    """A measurement without a run: the rate is the number of envs."""
    rows = (
        median_measure("env_epochs_per_s", [spec.envs], "env-epochs/s"),
        median_measure("compile_s", [0.0], "s"),
    )
    return probe.ProbeResult({"cpu": "none"}, 0.5, rows)


@pytest.fixture
def without_runs(monkeypatch):
    monkeypatch.setattr(bench, "run_probe", lambda function, spec: found_by(spec))


def test_the_file_holds_every_point_so_far_under_its_place_in_the_grid(tmp_path, without_runs):
    path, specs = tmp_path / "new" / "numbers.json", points("--grid", "envs=4,8")
    names = []
    for label, point in bench.measure_points(specs, path):
        names.append(f"env_epochs_per_s[{label}]")
        facts = json.loads(path.read_text())
        assert [row["name"] for row in facts["measures"] if row["unit"] != "s"] == names
        assert all(set(row) == KEYS for row in facts["measures"])
        assert point["env_epochs_per_s"] == Measure(
            "env_epochs_per_s", specs[label].envs, 0.0, 1, "env-epochs/s"
        )
    assert facts["machine"] == {"cpu": "none", "checksums": {"envs=4": 0.5, "envs=8": 0.5}}


def test_the_names_of_a_single_point_stand_alone(tmp_path, without_runs):
    path = tmp_path / "numbers.json"
    ((label, _),) = bench.measure_points(points(), path)
    assert label == "as configured"
    assert [row["name"] for row in json.loads(path.read_text())["measures"]] == [
        "env_epochs_per_s",
        "compile_s",
    ]


@pytest.fixture
def reported(monkeypatch):
    """Rows of a real run of two rounds in this process."""
    monkeypatch.setattr("morphogen.device.malloc.STATUS", SimpleNamespace(exists=lambda: False))
    spec = tiny(
        rounds=3, envs=2, data=DataSpec(batch=4, minibatches=1, val_samples=8), episode_length=2
    )
    return probe.probe(spec)


def test_a_measurement_has_rates_shares_and_counts_of_the_rounds_after_the_first(reported):
    rows = {row.name: row for row in reported.rows}
    assert {
        row.runs for name, row in rows.items() if name.startswith(("env_", "samples_", "share_"))
    } == {2}
    assert rows["warm_up_env_epochs_per_s"].runs == 1
    assert {name for name in rows if name.startswith("share_")} == {
        f"share_{phase}" for phase in PHASES
    }
    assert rows["samples_per_s"].value == pytest.approx(
        4 * rows["env_epochs_per_s"].value, rel=1e-5
    )
    assert (rows["compile_s"].value, rows["graphs"].value, rows["graph_fallbacks"].value) == (
        0,
        0,
        0,
    )
    assert "peak_memory" not in rows
    assert {"cpu", "cores", "threads", "device", "torch"} <= set(reported.machine)


def rows_of(*control, device=None):
    """Rows out of rounds of ten seconds, of which so many are control and three of these head.

    On a device what is short on the host is long.
    """
    return {row.name: row for row in probe.measure_rows(list(rounds(control, device)))}


def rounds(control, device):
    names = {
        "env_epochs_per_s": 1.0,
        "samples_per_s": 1.0,
        "update_s": 1.0,
        "host_wait_time_share": None,
    }
    pace = SimpleNamespace(**names, compile_s=2.0)
    summary = SimpleNamespace(graphs=1, graph_fallbacks=0, rollbacks=1)
    for seconds in control:
        walls = {"head": 3.0, "tail": seconds - 4.0, "record_read": 1.0, "train": 10.0 - seconds}
        phases = {
            name: {"wall_s": wall, "device_s": 10 - wall if device else None}
            for name, wall in walls.items()
        }
        yield {
            "RoundCompleted": summary,
            "Throughput": pace,
            "PhaseProfile": SimpleNamespace(phases=phases),
        }


def test_control_is_head_tail_and_record_and_counts_are_sums():
    rows = rows_of(9, 4, 6)
    assert (rows["control_share"].value, rows["share_head"].value) == (
        pytest.approx(0.5),
        pytest.approx(0.3),
    )
    assert (rows["compile_s"].value, rows["graphs"].value, rows["rollbacks"].value) == (6, 3, 2)


def test_where_the_device_has_a_clock_shares_are_of_its_time():
    assert rows_of(4, 4, device=True)["share_head"].value == pytest.approx(7 / 30)


def test_tables_have_a_row_per_point_and_no_shares_where_no_time_was_kept(reported):
    with_phases = {row.name: row for row in reported.rows}
    without = {name: row for name, row in with_phases.items() if "share" not in name}
    numbers, shares = bench.point_tables({"a": with_phases, "b": without}).values()
    assert [row["point"] for row in numbers] == ["a", "b"]
    assert [row["point"] for row in shares] == ["a"]
    assert numbers[0]["peak MiB"] is None
    assert sum(value for name, value in shares[0].items() if name in PHASES) == pytest.approx(1)
    assert bench.format_point("a", with_phases).startswith("a: ")


@pytest.mark.slow
def test_the_command_measures_in_a_process_of_its_own_and_writes_nothing_but_the_file(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    words = [
        "--preset",
        "smoke",
        "--rounds",
        "2",
        "--envs",
        "2",
        "--episode-length",
        "2",
        "--set",
        "ppo.epochs=1",
    ]
    assert main.main(["bench", *words, "--threads", "1", "--json", "found.json"]) == 0
    shown = capsys.readouterr()
    assert shown.err.startswith("as configured: ")
    assert "env-epochs/s" in shown.out
    assert "record_read" in shown.out
    assert [path.name for path in tmp_path.iterdir()] == ["found.json"]
    facts = json.loads((tmp_path / "found.json").read_text())
    assert facts["machine"]["threads"] == 1
    rows = {row["name"]: row["value"] for row in facts["measures"]}
    assert rows["peak_memory"] > 100
    assert rows["env_epochs_per_s"] > 0


def test_what_was_measured_is_shown_and_kept_when_a_later_point_fails(
    tmp_path, monkeypatch, capsys
):
    def fails(spec):
        if spec.envs == 8:
            raise TrainingDiverged("3 rounds without a step")
        return found_by(spec)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(process, "run_in_process", lambda home, name, spec, threads: fails(spec))
    assert main.main(["bench", "--grid", "envs=4,8", "--json", "found.json"]) == 5
    shown = capsys.readouterr()
    assert "envs=4: 4.0 +- 0.0 env-epochs/s" in shown.err
    assert shown.err.endswith("morphogen: error: 3 rounds without a step\n")
    assert "envs=4" in shown.out
    assert "envs=8" not in (tmp_path / "found.json").read_text()


def test_a_file_that_is_there_is_left_alone(tmp_path, capsys):
    path = tmp_path / "mine.json"
    path.write_text("mine")
    assert main.main(["bench", "--json", str(path)]) == 2
    assert (
        capsys.readouterr().err
        == f"morphogen: error: --json: expected a new file, got {path}, which exists\n"
    )
    assert path.read_text() == "mine"


def test_a_call_apart_returns_raises_and_tells_of_a_process_that_was_killed(monkeypatch):
    assert process.run_in_process("os", "getpid", threads=None) != os.getpid()
    assert process.run_in_process("os", "getenv", "OMP_NUM_THREADS", threads=7) == "7"
    with pytest.raises(ZeroDivisionError) as caught:
        process.run_in_process("operator", "truediv", 1, 0, threads=None)
    assert "Traceback" in caught.value.__notes__[0]
    with pytest.raises(DeviceError, match="exited with -9"):
        process.run_in_process("signal", "raise_signal", signal.SIGKILL, threads=None)


def test_a_device_that_is_too_small_is_told_as_one(monkeypatch):
    def full(self):
        raise probe.torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")

    monkeypatch.setattr(probe.Scheduler, "run", full)
    with pytest.raises(DeviceError, match="cpu has too little memory: CUDA out of memory"):
        probe.probe(tiny(rounds=2, engine=EngineSpec(devices=("cpu",))))


def test_the_machine_is_told_with_its_versions(monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "CPU_INFO", tmp_path / "none")
    facts = bench.machine_facts(device="cpu", threads=3)
    assert facts["threads"] == 3
    assert facts["cpu"]
