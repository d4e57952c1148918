"""The command of the original program, word for word after `morphogen`, on files of the official
binary format.
"""

import json
import re
from collections import Counter

import pytest
from support.forked_commands import run_command
from support.small_runs import cifar_files

import morphogen as mg
from morphogen.log.run_log import iterate_events

COMMAND = (
    "train ppo --preset cifar_baseline --task cifar_baseline --rounds 1 --envs 1 "
    "--episode-length 5 --telemetry-dir DIR"
)
EPOCHS, ARMS = 5, {"wait", "random", "heuristic", "ppo"}


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """The command, the folder in which it ran, and its run directory."""
    files, folder = tmp_path_factory.mktemp("files"), tmp_path_factory.mktemp("fresh")
    cifar_files(files)
    done = run_command(folder, *COMMAND.split(), MORPHOGEN_DATA=str(files))
    assert done.returncode == 0, done.stderr
    return done, folder, next((folder / "runs").iterdir())


@pytest.mark.slow
def test_it_trains_five_epochs_of_one_env_and_sums_up(ended):
    done, folder, run = ended
    assert {path.name for path in folder.iterdir()} == {"DIR", "runs"}
    progress, summary = done.stderr, done.stdout
    assert "180 train, 20 validation, 40 test samples" in progress
    assert "1 round of 5 epochs with 1 env\n" in progress
    assert progress.index("round 1/1") < progress.index(
        "final evaluation: each policy plays 1 held-out instance\n"
    )
    assert "Traceback" not in progress
    assert summary.startswith("1 held-out instance, the same for every policy")
    assert re.search(r"1 round in \d+:\d\d", summary)
    assert f"files: runs/{run.name}" in summary
    config, manifest = (
        json.loads((run / f"{name}.json").read_text()) for name in ("config", "manifest")
    )
    sizes = (config["task"], config["envs"], config["episode_length"])
    assert sizes == ("cifar_baseline", 1, EPOCHS)
    assert manifest["status"] == "completed"
    (start,) = iterate_events(folder / "DIR", {"RunStarted"})
    assert start.data.host_params == 6_418
    assert set(json.loads((run / "result.json").read_text())["policies"]) == ARMS


@pytest.mark.slow
def test_its_events_are_in_the_folder_that_it_names_and_read_back_as_those_of_the_run(ended):
    _, folder, run = ended
    assert (folder / "DIR" / "events.jsonl").stat().st_size > 0
    assert not (run / "events.jsonl").exists()
    reported = list(mg.events(run))
    kinds = Counter(type(event.data).__name__ for event in reported)
    assert (
        kinds["RunStarted"]
        == kinds["BatchSummary"]
        == kinds["PpoUpdated"]
        == kinds["RunCompleted"]
        == 1
    )
    assert kinds["EpisodeCompleted"] == 1
    assert [
        event.epoch for event in reported if type(event.data).__name__ == "EpochCompleted"
    ] == list(range(EPOCHS))
    assert {event.env for event in reported} == {None, 0}
    assert reported == list(iterate_events(folder / "DIR"))
    with pytest.raises(
        mg.ConfigError, match=r"DIR is not a run directory.*name the run directory of these events"
    ):
        mg.events(folder / "DIR")
