"""One env's life: its rows are the record of the last round, and its picture is a file of its
own.
"""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import morphogen as mg
from morphogen.cli import main
from morphogen.errors import DataError
from morphogen.extras.inspection.run_reader import read_run
from morphogen.log.record_files import list_records, read_record, write_record
from morphogen.vocab.objective import ANYTIME
from morphogen.vocab.stage import Stage

life = pytest.importorskip(
    "morphogen.extras.pictures.life", reason="needs the extra: pip install 'morphogen[report]'"
)

LOGS = Path(__file__).parents[2] / "golden/data/logs"
RUN = LOGS / "random-debug"  # env 1 fossilizes a seed, the others none
LAST = 1  # its last round, from 0


@pytest.fixture(scope="module")
def rows():
    return life.life_rows(read_run(RUN))


@pytest.fixture(scope="module")
def record():
    return read_record(list_records(RUN)[LAST])


def change(record, **columns):
    """A record with other values in the last epoch of some columns."""
    changed = {name: array.copy() for name, array in record.columns.items()}
    for name, values in columns.items():
        changed[name][-1] = values
    return replace(record, columns=changed)


def made_up_ends(record, fossils, committed, price):
    """A record whose envs end with these fossils, scores with them, and prices; alone their hosts
    reach 10 %.
    """
    stage = np.where(fossils, int(Stage.FOSSILIZED), int(Stage.DORMANT))
    ends = {"committed_acc": committed, "final_acc": committed, "param_cost": price}
    return change(record, **ends, stage=stage[:, None], host_acc=10.0, measured=True)


def test_the_rows_are_the_events_of_the_env(rows):
    found = list(mg.events(RUN, rounds={LAST}))
    epochs = [event.data for event in found if event.name == "EpochCompleted"]
    alone = [event.data.host_acc for event in found if event.name == "AblationsMeasured"]
    assert [row["epoch"] for row in rows] == list(range(1, len(epochs) + 1))
    for row, epoch, hosts in zip(rows, epochs, alone, strict=True):
        env = row["env"]
        assert (row["accuracy"], row["host_alone"]) == (epoch.val_acc[env], hosts[env])
        stages = [row[name] for name in row if name.endswith(".stage")]
        assert tuple(stages) == epoch.stage[env]
        alphas = [row[name] or 0 for name in row if name.endswith(".alpha")]
        assert tuple(alphas) == epoch.alpha[env]
    seeds = [
        (event.epoch, event.slot, event.data.blueprint)
        for event in found
        if event.name == "SeedGerminated" and event.env == rows[0]["env"]
    ]
    assert seeds
    for epoch, slot, blueprint in seeds:
        assert rows[epoch][f"{slot}.blueprint"] == blueprint


def test_the_last_row_is_the_end_of_the_episode(rows):
    (end,) = [
        event.data
        for event in mg.events(RUN, kinds={"EpisodeCompleted"}, rounds={LAST})
        if event.env == rows[0]["env"]
    ]
    assert end.fossilized == 1
    assert rows[-1]["value"] == end.network_value
    assert end.committed_accuracy / 100 - rows[-1]["price"] == pytest.approx(end.network_value)
    host = end.params / end.params_ratio
    fossils = end.params - host
    assert rows[-1]["params_added"] >= fossils / host > 0


@pytest.mark.parametrize(
    ("fossils", "committed", "price", "env"),
    [
        ([True] * 4, [50, 60, 40, 30], 0.1, 1),
        ([True] * 4, [50, 60, 40, 30], [0.1, 0.3, 0.1, 0.1], 0),  # its price eats the gain
        ([False, False, True, False], [50, 60, 9, 30], 0.1, 2),  # even at a loss
        ([True] * 4, 50, 0.1, 0),  # the first of equals
        ([False] * 4, [50, 60, 40, 70], 0.0, 3),
        ([False] * 4, [50, np.nan, 40, 50], 0.0, 0),
    ],
)
def test_the_env_is_the_one_whose_fossils_add_most(record, fossils, committed, price, env):
    ends = made_up_ends(record, np.array(fossils), committed, price)
    assert life.choose_env(ends) == env


def test_an_env_that_was_rolled_back_or_not_measured_at_the_end_counts_as_one_without_fossils(
    record,
):
    ends = made_up_ends(record, np.array([True] * 4), [90, 80, 70, 60], 0.1)
    assert life.choose_env(change(ends, measured=[False, True, True, True])) == 1
    rolled_back = [True, True, False, False]
    assert life.choose_env(change(ends, rolled_back=rolled_back)) == 2


def copy_run(record, folder):
    """A copy of the run with another record of its last round."""
    shutil.copytree(RUN, folder)
    write_record(folder, record)
    return folder


def test_anytime_value_and_price_are_means_so_far(record, tmp_path):
    facts = replace(record.facts, objective=ANYTIME)
    score = record.columns["final_acc"] / 100
    alive = (record.columns["live_params"] > 0) * np.float32(0.25)
    columns = {**record.columns, "network_value": score - alive}
    run = copy_run(replace(record, facts=facts, columns=columns), tmp_path / "run")
    rows = life.life_rows(read_run(run))
    env = rows[0]["env"]
    epochs = np.arange(1, len(rows) + 1)
    prices = np.cumsum(alive[:, env]) / epochs
    values = np.cumsum(score[:, env]) / epochs - prices
    assert [row["price"] for row in rows] == pytest.approx(prices.tolist())
    assert [row["value"] for row in rows] == pytest.approx(values.tolist())
    assert ">value so far</text>" in life.draw_alone(rows, "svg").decode()


@pytest.mark.parametrize(
    ("name", "mark", "event"),
    [("ppo-debug", "regime", "RegimeBegan"), ("random-broken", "rollback", "RolledBack")],
)
def test_regimes_and_rollbacks_are_marked(name, mark, event):
    rows = life.life_rows(read_run(LOGS / name))
    events = mg.events(LOGS / name, kinds={event}, rounds={rows[0]["round"] - 1})
    epochs = [event.epoch for event in events if event.env == rows[0]["env"]]
    assert epochs
    assert [row["epoch"] - 1 for row in rows if row["mark"] == mark] == epochs


def test_a_log_that_lacks_columns_has_no_rows():
    assert life.life_rows(read_run(LOGS / "stopped")) == []


def test_a_record_with_foreign_codes_is_damaged(record, tmp_path):
    run = copy_run(record, tmp_path / "run")
    log = read_run(run)
    write_record(run, change(record, blueprint=99, stage=int(Stage.FOSSILIZED)))
    with pytest.raises(DataError, match="damaged record of its last round"):
        life.life_rows(log)


@pytest.mark.slow
@pytest.mark.parametrize(("suffix", "start"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_the_command_writes_one_picture_with_the_same_bytes_again(suffix, start, tmp_path, capsys):
    file = tmp_path / f"life.{suffix}"
    command = ["report", str(RUN), "--life", str(file)]
    assert main.main(command) == 0
    assert capsys.readouterr().out == f"{file}\n"
    first = file.read_bytes()
    assert first.startswith(start)
    assert main.main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"picture": str(file)}
    assert file.read_bytes() == first
    assert list(tmp_path.iterdir()) == [file]


def test_the_picture_names_seeds_stages_and_lines(rows):
    text = life.draw_alone(rows, "svg").decode()
    shown = set(re.findall(r">([^<>\n]+)</text>", text))
    seeds = {row[name] for row in rows for name in row if name.endswith(".blueprint")}
    stages = {row[name] for row in rows for name in row if name.endswith(".stage")}
    names = {stage.lower() for stage in stages - {"DORMANT"}}
    lines = {"network in use", "same host, seeds off", "added parameters", "value", "price"}
    assert seeds - {None} | names | lines <= shown
    assert 'width="576pt"' in text  # 8 inches
    assert "date" not in text.lower()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--life", "{}/a.jpg"], r"--life: expected a name that ends in .svg or .png, got .*a.jpg"),
        (["--life", "{}/life"], "--life: expected a name that ends in .svg or .png, got"),
        (["--life", "{}/none/a.svg"], "a.svg cannot be written: No such file"),
        (["--life", "{}/a.svg", "--out", "{}/b"], "--life: expected without --out"),
        ([str(LOGS / "stopped"), "--life", "{}/a.svg"], "expected one run directory, got 2"),
    ],
)
def test_wrong_requests_are_refused_in_one_line_and_write_nothing(words, message, tmp_path, capsys):
    command = [word.format(tmp_path) for word in words]
    assert main.main(["report", str(RUN), *command]) == 2
    error = capsys.readouterr().err
    assert re.search(message, error)
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_the_record_of_a_round_is_refused(tmp_path, capsys):
    file = tmp_path / "life.svg"
    assert main.main(["report", str(LOGS / "stopped"), "--life", str(file)]) == 2
    assert "--life: expected a run with the record of a round, got" in capsys.readouterr().err
    assert not file.exists()
