"""Scalars: which numbers of which events, at which step, and loggers that are there or not."""

import csv
import importlib.util
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.faulty_sinks import SAVED, summary
from support.random_records import facts, live, round_record

from morphogen.config.parts import LOGGERS
from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.errors import ConfigError
from morphogen.extras.loggers.csv_tables import CsvTables
from morphogen.extras.loggers.scalars import ScalarRow, event_row
from morphogen.extras.loggers.wandb_spec import WandbSpec
from morphogen.log.events import Envelope
from morphogen.log.kinds.epoch import EpochCompleted
from morphogen.log.kinds.ppo import PpoUpdated
from morphogen.log.kinds.round import AnomalyDetected
from morphogen.log.writer import LoggerPlace

CALM = {"detectors": np.zeros((1, 3, 2), dtype=bool), "rolled_back": np.zeros(1, dtype=bool)}
RECORDS = [record | CALM for record in live(1, 1, 2)[1]]
SERVICES = ("tensorboard", "wandb", "mlflow")
ROWS = (
    "train_loss",
    "train_acc",
    "val_loss",
    "val_acc",
    "committed_acc",
    "reward",
    "host_gradient_norm",
)
EPOCH = EpochCompleted(
    **dict.fromkeys((*ROWS, "params_ratio"), (1.0, None, 3.0)),
    **dict.fromkeys(("skipped", "forwards"), (0, 0, 3)),
    op_effective=("WAIT",) * 3,
    success=(True, False, False),
    stage=(("DORMANT",),) * 3,
    alpha=((0.5,),) * 3,
    contribution=((None,),) * 3,
)


def named(event, epochs=24):
    row = event_row(event, epochs)
    return {} if row is None else {name: (value, row.step) for name, value in row.scalars()}


def test_an_epoch_gives_means_over_the_envs_that_were_measured_at_its_number_in_the_run():
    found = named(Envelope(EPOCH, round=2, epoch=5))
    assert found["epoch/val_acc"] == (2.0, 53)
    assert found["epoch/skipped"] == (1.0, 53)
    assert found["epoch/success"] == (pytest.approx(1 / 3), 53)
    assert set(found) == {
        f"epoch/{name}" for name in (*ROWS, "params_ratio", "skipped", "forwards", "success")
    }


def test_events_of_a_round_give_their_numbers_at_the_round():
    data = PpoUpdated(kl=0.25, entropy_head={"op": 0.5}, stopped_by_kl=True, nonfinite={"loss": 2})
    wanted = {
        "ppo/kl": 0.25,
        "ppo/entropy_head/op": 0.5,
        "ppo/stopped_by_kl": 1.0,
        "ppo/nonfinite/loss": 2.0,
    }
    assert named(Envelope(data, round=7)) == {name: (value, 8) for name, value in wanted.items()}
    found = named(summary(3))
    assert found["round/accuracy_mean"] == (1.0, 4)
    assert not any("env_" in name for name in found if name != "round/env_epochs_per_s")


def test_an_anomaly_is_a_point_on_an_axis_of_its_kind():
    found = AnomalyDetected(kind="kl_spike", value=0.2, limit=0.1, subject=None, streak=0)
    assert named(Envelope(found, round=4)) == {"anomaly/kl_spike": (0.2, 5)}
    assert named(Envelope(replace(found, value=None), round=4)) == {"anomaly/kl_spike": (1.0, 5)}


def test_events_about_the_run_have_no_numbers():
    assert named(Envelope(SAVED)) == {}


def tables(folder, epochs, rounds=0):
    return CsvTables(LoggerPlace(folder, folder, epochs, rounds), TelemetrySpec())


def opened(folder):
    """Tables whose resumed rows are kept."""
    own = tables(folder, 1, 9)
    own.write([])
    return own


def read_table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_csv_is_a_table_per_subject_with_a_row_per_step(tmp_path):
    sink = tables(tmp_path / "metrics", 24)
    anomaly = AnomalyDetected(kind="kl_spike", value=0.2, limit=0.1, subject=None, streak=0)
    sink.write(
        [summary(0), Envelope(EPOCH, round=0, epoch=3), Envelope(anomaly, round=0), Envelope(SAVED)]
    )
    sink.write([summary(1)])
    sink.flush()
    sink.close()
    folder = tmp_path / "metrics/csv"
    assert {path.name for path in folder.rglob("*")} == {"round.csv", "epoch.csv", "anomaly.csv"}
    rounds = read_table(folder / "round.csv")
    assert [(int(row["step"]), float(row["accuracy_mean"])) for row in rounds] == [
        (1, 1.0),
        (2, 1.0),
    ]
    (epoch,) = read_table(folder / "epoch.csv")
    assert (epoch["step"], epoch["val_acc"]) == ("3", "2.0")
    assert (folder / "anomaly.csv").read_text() == "step,kind,value\n1,kl_spike,0.2\n"


def test_a_number_that_is_not_measured_is_an_empty_cell_of_its_column(tmp_path):
    own = opened(tmp_path)
    own.write_row(ScalarRow("ppo", 1, {"kl": None, "loss": 2.0}))
    own.write_row(ScalarRow("ppo", 2, {"loss": 4.0, "kl": 0.5}))
    own.close()
    assert (tmp_path / "csv/ppo.csv").read_text() == "step,kl,loss\n1,,2.0\n2,0.5,4.0\n"


def test_a_table_continues_under_its_header_and_refuses_a_number_without_a_column(tmp_path):
    for step, values in enumerate(({"a": 1.0, "b": 2.0}, {"b": 4.0, "a": 3.0})):
        own = opened(tmp_path)
        own.write_row(ScalarRow("t", step, values))
        own.close()
    assert (tmp_path / "csv/t.csv").read_text() == "step,a,b\n0,1.0,2.0\n1,3.0,4.0\n"
    own = opened(tmp_path)
    with pytest.raises(ValueError, match="not in fieldnames: 'c'"):
        own.write_row(ScalarRow("t", 2, {"a": 1.0, "c": 1.0}))
    own.close()
    assert (tmp_path / "csv/t.csv").read_text() == "step,a,b\n0,1.0,2.0\n1,3.0,4.0\n"


@pytest.mark.parametrize("torn", ["", "4,7", "5"])
def test_rows_of_rounds_that_are_computed_again_are_cut(tmp_path, torn):
    folder = tmp_path / "csv"
    folder.mkdir()
    (folder / "round.csv").write_text("step,a\n1,5\n2,6\n3,7\n" + torn)
    epochs = "".join(f"{step},1\n" for step in range(9))
    (folder / "epoch.csv").write_text("step,a\n" + epochs + torn)
    tables(tmp_path, 3, 2).write([])
    assert (folder / "round.csv").read_text() == "step,a\n1,5\n2,6\n"
    assert (folder / "epoch.csv").read_text() == "step,a\n" + epochs[: 4 * 6]


def write_round(own, at):
    own.write_record(round_record(RECORDS, facts(1, 2), round=at))
    own.write([summary(at)])


@given(before=st.integers(0, 3), after=st.integers(0, 3))
def test_rows_of_a_resumed_run_continue_without_a_gap_and_none_is_there_twice(
    tmp_path_factory, before, after
):
    folder = tmp_path_factory.mktemp("run")
    for begin, end in ((0, before + after), (before, 4)):
        own = tables(folder, 2, begin)
        for at in range(begin, end):
            write_round(own, at)
        own.close()
    steps = {
        name: [int(row["step"]) for row in read_table(folder / f"csv/{name}.csv")]
        for name in ("round", "epoch")
    }
    assert steps == {"round": [1, 2, 3, 4], "epoch": [*range(8)]}


@pytest.fixture
def service(monkeypatch):
    """A package with loggers of services; its lists hold their ids and the settings they got."""
    asked, known, logged = [], [], []
    run = SimpleNamespace(
        id="3x7",
        info=SimpleNamespace(run_id="5y9"),
        config=SimpleNamespace(update=logged.append),
    )

    def logger(**knobs):
        asked.append(knobs)
        known.append((knobs.get("id"), os.environ.pop("MLFLOW_RUN_ID", None)))
        return SimpleNamespace(experiment=run, log_scalar=lambda *row, step: None)

    package = SimpleNamespace(
        WandbLogger=logger,
        MLFlowLogger=logger,
        log_params=logged.append,
        asked=asked,
        known=known,
        logged=logged,
    )
    monkeypatch.setattr(importlib, "import_module", lambda name: package)
    return package


@pytest.mark.parametrize(("name", "known"), [("wandb", ("3x7", None)), ("mlflow", (None, "5y9"))])
def test_a_service_continues_its_run_and_gets_the_settings_once(service, tmp_path, name, known):
    config = {"ppo.clip": 0.2, "data.batch": 8}
    for at in range(2):
        place = LoggerPlace(tmp_path, tmp_path, 9, at, config)
        sink = LOGGERS[name](place, TelemetrySpec())
        sink.write([summary(at)])
        sink.write([summary(at)])
    assert service.known == [(None, None), known]
    assert service.logged == [config]


@pytest.mark.parametrize("name", SERVICES)
def test_a_logger_whose_package_is_missing_is_refused_with_the_extra_that_brings_it(
    monkeypatch, name
):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(
        ConfigError, match=rf'expected .* \(pip install "morphogen\[{name}\]"\) for {name}'
    ):
        LOGGERS[name].check()
    LOGGERS["csv"].check()


@pytest.mark.parametrize("name", SERVICES)
def test_a_logger_whose_package_is_there_keeps_a_run(tmp_path, name):
    pytest.importorskip(name)
    code = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from support.faulty_sinks import summary
from morphogen.config.parts import LOGGERS
from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.log.writer import LoggerPlace
run = Path(sys.argv[1])
place = LoggerPlace(run / "metrics", run, 8, config={{"rounds": 2}})
sink = LOGGERS[{name!r}](place, TelemetrySpec(wandb={{"mode": "offline"}}))
sink.write([summary(0), summary(1)])
sink.flush()
sink.close()
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=120)
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size]


def asked_of(service, name, spec, folder):
    """The arguments of the logger of a service."""
    LOGGERS[name](LoggerPlace(folder, folder, 8), spec).write([summary(0)])
    return service.asked[-1]


WANDB_VARIABLES = {"WANDB_PROJECT": "theirs", "WANDB_NAME": "mine", "WANDB_DIR": "/scratch"}
MLFLOW_VARIABLES = {"MLFLOW_TRACKING_URI": "https://server", "MLFLOW_EXPERIMENT_NAME": "theirs"}


@pytest.mark.parametrize("value", [None, "", "set"])
def test_variables_of_wandb_count_more_than_defaults_and_less_than_settings(
    service, tmp_path, monkeypatch, value
):
    for name, text in WANDB_VARIABLES.items():
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value and text)
    asked = asked_of(service, "wandb", TelemetrySpec(), tmp_path)
    named = (asked["project"], asked["exp_name"], asked["log_dir"])
    assert named == (
        tuple(WANDB_VARIABLES.values()) if value else ("morphogen", tmp_path.name, str(tmp_path))
    )
    # wandb reads its environment
    assert all(asked[name] is None for name in ("mode", "tags", "entity", "group"))
    (tmp_path / "wandb.id").unlink()
    wandb = WandbSpec(project="p", name="n", mode="online", tags=("t",), entity="e", group="g")
    asked = asked_of(service, "wandb", TelemetrySpec(wandb=wandb), tmp_path)
    assert (asked["project"], asked["exp_name"], asked["mode"], asked["tags"]) == (
        "p",
        "n",
        "online",
        ["t"],
    )


@pytest.mark.parametrize("value", [None, "", "set"])
def test_variables_of_mlflow_count_more_than_defaults(service, tmp_path, monkeypatch, value):
    for name, text in MLFLOW_VARIABLES.items():
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value and text)
    asked = asked_of(service, "mlflow", TelemetrySpec(), tmp_path)
    if value:
        assert asked == {"exp_name": "theirs", "tracking_uri": "https://server"}
    else:
        assert (asked["exp_name"], asked["tracking_uri"]) == (
            "morphogen",
            f"sqlite:///{tmp_path}/mlflow.db",
        )
        assert asked["artifact_location"].startswith("file:")
