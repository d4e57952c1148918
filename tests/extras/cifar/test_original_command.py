"""The command of the original program, word for word after `morphogen`, on files of the official
binary format.
"""

import io
import json
import re
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout

import pytest
from support.small_runs import cifar_files

import morphogen as mg
from morphogen.cli import main
from morphogen.config.task import TASKS
from morphogen.log.run_log import iterate_events

COMMAND = (
    "train ppo --preset cifar_baseline --task cifar_baseline --rounds 1 --envs 1 "
    "--episode-length 5 --telemetry-dir DIR"
)
EPOCHS, ARMS = 5, {"wait", "random", "heuristic", "ppo"}


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """Output and progress of the command, the folder in which it ran, and its run directory."""
    files, folder = tmp_path_factory.mktemp("files"), tmp_path_factory.mktemp("fresh")
    cifar_files(files)
    output, progress = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(output),
        redirect_stderr(progress),
    ):
        patch.chdir(folder)
        # the handlers of a run are not for the test process
        patch.setattr("signal.signal", lambda *_: None)
        patch.setenv("MORPHOGEN_DATA", str(files))
        # the task trains on 32 minibatches an epoch
        patch.setitem(TASKS["cifar_baseline"].defaults["data"], "minibatches", 2)
        assert main.main(COMMAND.split()) == 0
    return output.getvalue(), progress.getvalue(), folder, next((folder / "runs").iterdir())


@pytest.mark.slow
def test_it_trains_five_epochs_of_one_env_and_sums_up(ended):
    summary, progress, folder, run = ended
    assert {path.name for path in folder.iterdir()} == {"DIR", "runs"}
    assert "180 train, 20 validation, 40 test samples" in progress
    assert "1 round of 5 epochs with 1 env\n" in progress
    assert progress.index("round 1/1") < progress.index(
        "final evaluation: each policy plays 1 held-out instance\n"
    )
    assert summary.startswith("1 held-out instance, the same for every policy")
    assert re.search(r"1 round in \d+:\d\d", summary)
    assert f"files: runs/{run.name}" in summary
    config = json.loads((run / "config.json").read_text())
    sizes = (config["task"], config["envs"], config["episode_length"])
    assert sizes == ("cifar_baseline", 1, EPOCHS)
    assert json.loads((run / "manifest.json").read_text())["status"] == "completed"
    (start,) = iterate_events(folder / "DIR", {"RunStarted"})
    assert start.data.host_params == 6_418
    assert set(json.loads((run / "result.json").read_text())["policies"]) == ARMS


@pytest.mark.slow
def test_its_events_are_in_the_folder_that_it_names_and_read_back_as_those_of_the_run(ended):
    _, _, folder, run = ended
    assert (folder / "DIR" / "events.jsonl").stat().st_size > 0
    assert not (run / "events.jsonl").exists()
    reported = list(mg.events(run))
    kinds = Counter(event.name for event in reported)
    once = ("RunStarted", "RoundCompleted", "PpoUpdated", "EpisodeCompleted", "RunCompleted")
    assert [kinds[name] for name in once] == [1] * len(once)
    epochs = [event.epoch for event in reported if event.name == "EpochCompleted"]
    assert epochs == list(range(EPOCHS))
    assert {event.env for event in reported} == {None, 0}
    assert reported == list(iterate_events(folder / "DIR"))
    with pytest.raises(
        mg.ConfigError, match=r"DIR is not a run directory.*name the run directory of these events"
    ):
        mg.events(folder / "DIR")
