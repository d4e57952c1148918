"""The report: pictures drawn from their numbers, one page that needs nothing else, from any part of
a log.
"""

import base64
import csv
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from support import generated_logs
from support.subprocess_env import OURS

from morphogen.cli import main
from morphogen.errors import ConfigError
from morphogen.extras.inspection.run_reader import read_run
from morphogen.extras.pictures import plots
from morphogen.extras.pictures.page import MAX_RUNS, report
from morphogen.extras.pictures.plots import PLOTS, limit_to_learned

matplotlib = pytest.importorskip(
    "matplotlib", reason="needs the extra: pip install 'morphogen[report]'"
)

BY_NAME = {plot.name: plot for plot in PLOTS}
NAMES = ("held_out_plays", "learning_curve", "lifecycle", "contributions", "throughput")
LIFE = "life"  # is drawn from a record, which a generated log lacks
LOGS = Path(__file__).parents[2] / "golden/data/logs"
SMALL = {"rounds": 2, "envs": 3, "epochs": 12, "seed": 24}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return generated_logs.write(tmp_path_factory.mktemp("runs") / "first", **SMALL)


@pytest.fixture(scope="module")
def page(run):
    return report(run)


@pytest.fixture
def one_plot(monkeypatch):
    """A report of one picture, where it is not about pictures."""
    monkeypatch.setattr(plots, "PLOTS", (plots.CONTRIBUTIONS,))


@pytest.fixture
def undrawn(monkeypatch):
    """Pictures that are laid out by the plots and not painted: an empty file stands for each."""
    monkeypatch.setattr(Figure, "savefig", lambda figure, file, **_: file.write(b"\x89PNG\r\n"))


def rows_of(run, name):
    return BY_NAME[name].rows(read_run(run))


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.slow
def test_every_plot_is_a_picture_with_its_numbers_and_stands_on_the_page(run, page):
    assert page == run / "report" / "index.html"
    files = contents(page.parent)
    assert set(BY_NAME) == {*NAMES, LIFE}
    assert set(files) == {
        "index.html",
        *(f"{name}.{kind}" for name in NAMES for kind in ("png", "csv")),
    }
    inlined = re.findall(r'src="data:image/png;base64,([^"]+)"', files["index.html"].decode())
    assert {base64.b64decode(one) for one in inlined} == {files[f"{name}.png"] for name in NAMES}
    for name in NAMES:
        assert files[f"{name}.png"].startswith(b"\x89PNG\r\n")
        assert f'<h2 id="{name}">' in files["index.html"].decode()


@pytest.mark.slow
def test_the_numbers_of_a_picture_are_the_rows_that_it_is_drawn_from(run, page):
    for name in NAMES:
        found = list(csv.DictReader((page.parent / f"{name}.csv").read_text().splitlines()))
        wanted = rows_of(run, name)
        assert len(found) == len(wanted)
        for one, row in zip(found, wanted, strict=True):
            assert one.pop("run") == "first"
            assert {key: text for key, text in one.items() if text} == {
                key: str(value) for key, value in row.items() if value not in (None, "")
            }


@pytest.mark.slow
def test_the_same_log_gives_the_same_bytes(run, page, tmp_path):
    assert contents(report(run, out=tmp_path / "again").parent) == contents(page.parent)


@pytest.mark.slow
def test_nothing_on_the_page_is_fetched_or_run(page):
    text = re.sub(r"base64,[A-Za-z0-9+/=]+", "base64,", page.read_text())
    assert not re.search(r"https?:|//[a-z]|<script|<link|<iframe|@import", text)
    assert set(re.findall(r'(?:src|href)="([^"]{1,5})', text)) <= {
        "data:",
        *(f"#{name}"[:5] for name in BY_NAME),
    }
    assert "default-src 'none'" in text


@pytest.mark.usefixtures("undrawn")
def test_several_runs_stand_side_by_side(run, tmp_path):
    second = generated_logs.write(tmp_path / "second", seed=5, rounds=3, envs=2, epochs=6)
    page = report(run, second, out=tmp_path / "both")
    for name in NAMES:
        found = {
            row["run"]
            for row in csv.DictReader((page.parent / f"{name}.csv").read_text().splitlines())
        }
        assert found == {"first", "second"}
    assert "<td>first</td><td>second</td>" in page.read_text()
    assert not (second / "report").exists()


@pytest.mark.usefixtures("one_plot")
def test_runs_with_the_same_name_are_told_apart_by_letters(run, tmp_path):
    for part in ("a", "b"):
        shutil.copytree(run, tmp_path / part / "same", ignore=shutil.ignore_patterns("report"))
    page = report(tmp_path / "a" / "same", tmp_path / "b" / "same", out=tmp_path / "out")
    assert "<td>run A</td><td>run B</td>" in page.read_text()


@given(share=st.floats(0, 1))
def test_every_plot_has_its_numbers_wherever_the_log_is_cut(run, tmp_path_factory, share):
    cut = tmp_path_factory.mktemp("cut") / "run"
    shutil.copytree(run, cut, ignore=shutil.ignore_patterns("report", "result.json"))
    whole = (run / "events.jsonl").read_bytes()
    size = round(share * len(whole))
    (cut / "events.jsonl").write_bytes(whole[:size])
    log = read_run(cut)
    assert sum(map(len, log.tables.values())) <= whole[:size].count(b"\n")
    rows = {name: plot.rows(log) for name, plot in BY_NAME.items()}
    assert len(rows["learning_curve"]) == len(log.tables["rounds"])
    shutil.rmtree(cut)


def test_a_run_without_events_says_so_for_every_plot(tmp_path):
    run = generated_logs.write(tmp_path / "run", **SMALL)
    (run / "events.jsonl").unlink()
    text = report(run).read_text()
    assert len(re.findall(r">no data</p>", text)) == len(BY_NAME)


def test_shapley_values_of_the_best_episode_lead_from_the_host_to_the_final_network(run):
    rows = rows_of(run, "contributions")
    assert (rows[0]["step"], rows[-1]["step"]) == ("host alone", "final")
    assert len(rows) > 3
    for before, row in pairwise(rows[:-1]):
        assert row["low"] == before["high"]
    assert rows[-2]["high"] == pytest.approx(rows[-1]["high"], abs=1e-4)
    episodes = read_run(run).tables["episodes"]
    best = max(episodes, key=lambda row: row["committed_accuracy"])
    assert (rows[0]["round"], rows[0]["env"]) == (best["round"], best["env"])
    assert rows[-1]["high"] == pytest.approx(best["accuracy"], abs=1e-4)


def test_bars_of_lives_are_the_stages_that_slots_were_in(run):
    log = read_run(run)
    found = {
        (row["round"], row["env"], row["slot"], row["start"]): row
        for row in rows_of(run, "lifecycle")
    }
    spans = [row for row in found.values() if row["slot"]]
    for event in log.events({"EpochCompleted"}):
        for env, stages in enumerate(event.data.stage):
            for slot, stage in zip(generated_logs.SLOTS, stages, strict=True):
                here = [
                    row["stage"]
                    for row in spans
                    if (row["round"], row["env"], row["slot"])
                    == ((event.round or 0) + 1, env, slot)
                    and row["start"] <= event.epoch < row["end"]
                ]
                assert here == [stage]
    named = {
        ((e.round or 0) + 1, e.epoch, e.env, e.slot): e.data.blueprint
        for e in log.events({"SeedGerminated"})
    }
    assert max(row["seed"] or 0 for row in spans) > 1
    for row in spans:
        if row["stage"] == "GERMINATED":
            assert row["blueprint"] == named[row["round"], row["start"], row["env"], row["slot"]]


def test_what_is_no_run_directory_is_refused_and_nothing_is_written(tmp_path, capsys):
    assert main.main(["report", "x" * 300]) == 2
    assert main.main(["report", str(tmp_path)]) == 2
    assert "is not a run directory: config.json not found" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_too_many_runs_and_the_same_one_twice_are_refused(run):
    with pytest.raises(
        ConfigError, match=rf"expected 1 \.\. {MAX_RUNS}, one per colour, got {MAX_RUNS + 1}"
    ):
        report(*[run] * (MAX_RUNS + 1))
    with pytest.raises(ConfigError, match="expected each once, got"):
        report(run, run)


def test_without_matplotlib_the_error_names_the_extra(run, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main.main(["report", str(run), "--out", str(tmp_path / "out")]) == 2
    assert "pip install 'morphogen[report]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_the_command_says_where_the_page_is_and_loads_no_torch(run, tmp_path, capsys):
    code = "import sys\nfrom morphogen.cli import main as cli\nassert cli.main(sys.argv[1:]) == 0\n"
    code += "assert not {'torch', 'tensordict'} & set(sys.modules)"
    out = tmp_path / "out"
    done = subprocess.run(
        [sys.executable, "-c", code, "report", str(run), "--out", str(out)],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{out / 'index.html'}\n"
    assert main.main(["report", str(run), "--out", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["page"] == str(out / "index.html")
    assert str(out / "learning_curve.png") in found["pictures"]
    assert len(found["numbers"]) == len(found["pictures"]) == len(NAMES)


@pytest.mark.slow
def test_settings_of_the_user_change_no_picture(run):
    plot = BY_NAME["throughput"]
    found = {"first": plot.rows(read_run(run))}
    before = plot.render_png(found)
    with matplotlib.rc_context({"lines.linewidth": 9, "font.size": 30, "axes.facecolor": "red"}):
        assert plot.render_png(found) == before
        assert matplotlib.rcParams["font.size"] == 30


def test_an_untrained_policy_does_not_set_the_scale_of_a_learning_curve():
    axes = Figure().subplots()
    axes.plot([0, 10, 20], [-9.0, 0.4, 0.5])
    axes.plot([20], [0.3])
    axes.axhline(0.45)
    limit_to_learned(axes)
    low, high = axes.get_ylim()
    assert -1 < low < 0.3
    assert 0.5 < high < 1


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", ["ppo-debug", "two-ranks"])
def test_a_log_of_before_is_drawn(name, tmp_path):
    page = report(LOGS / name, out=tmp_path / "out")
    assert (page.parent / "learning_curve.png").exists()
    assert (page.parent / "life.png").exists()
    assert (page.parent / "life.csv").read_text().startswith("run,round,env,epoch,accuracy")
    assert (page.parent / "learning_curve.csv").read_text().startswith("run,round,rolling")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["nonsense", "module://not_installed.backend"])
def test_pictures_need_no_backend_of_the_environment_and_leave_it_to_others(backend):
    code = (
        "import os\nfrom morphogen.extras.pictures.page import import_plots\n"
        "import_plots()\nimport matplotlib\nprint(os.environ['MPLBACKEND'], "
        "matplotlib.get_backend(auto_select=False))"
    )
    done: Any = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**OURS, "MPLBACKEND": backend},
    )
    assert done.returncode == 0, done.stderr
    kept = backend if backend.startswith("module") else None
    assert done.stdout.strip("\n") == f"{backend} {kept}"
