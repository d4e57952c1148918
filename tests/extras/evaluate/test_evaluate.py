"""The command `evaluate`, and the file that it writes."""

import json
import shutil

import numpy as np
import pytest
from support.extras import rows_of_extra
from support.small_runs import tiny, tiny_setup

from morphogen.cli import main
from morphogen.config.policy_spec import PolicySpec
from morphogen.data.splits import read_digits
from morphogen.evaluation.play import PLAY_METRICS
from morphogen.extras.evaluate.evaluation import select_split
from morphogen.train.train import train_ppo_vectorized

PER_EPISODE = (*PLAY_METRICS, "params", "rollbacks", "param_epochs", "minibatches")


EAGER = PolicySpec(
    hidden=16, op_bias={"ADVANCE": 3.0, "FOSSILIZE": 5.0, "PRUNE": -5.0, "SET_ALPHA_TARGET": -5.0}
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A trained run, which played five held-out episodes at its end."""
    place = tmp_path_factory.mktemp("runs") / "run"
    train_ppo_vectorized(tiny(final_episodes=5, episode_length=9, policy=EAGER), out=place)
    return place


def evaluated(run, folder, words):
    """The file that the command writes to a copy of the run."""
    place = folder / "run"
    shutil.copytree(run, place)
    assert main.main(["evaluate", str(place), *words.split()]) == 0
    return json.loads((place / "evaluation.json").read_bytes())


@pytest.mark.slow
def test_a_saved_policy_plays_as_it_did_when_its_run_ended(run, tmp_path, capsys):
    extra = tmp_path / "numbers.json"
    found = evaluated(run, tmp_path, f"--episodes 5 --arms random,wait --json {extra}")
    ended = json.loads((run / "result.json").read_bytes())["policies"]
    assert list(found["arms"]) == ["trained", "random", "wait"]
    for name, of_the_run in {"trained": "ppo", "random": "random", "wait": "wait"}.items():
        for metric, values in ended[of_the_run].items():
            assert found["arms"][name][metric] == values, (name, metric)
    assert any(slot >= 0 for kept in found["arms"]["trained"]["kept"] for slot in kept), (
        "something was kept at all"
    )
    assert json.loads(extra.read_bytes()) == found
    shown = capsys.readouterr()
    assert "trained minus arm" in shown.out
    assert "random: 5 episodes in" in shown.err


@pytest.mark.slow
def test_the_file_holds_every_episode_and_what_follows_from_them(run, tmp_path):
    found = evaluated(run, tmp_path, f"--episodes 6 --arms wait,trained:{run} --seed 9")
    arms, reported = found["arms"], found["statistics"]
    assert (found["seed"], found["episodes"]) == (9, 6)
    assert all(len(arm[name]) == 6 for arm in arms.values() for name in PER_EPISODE)
    own, wait = (np.array(arms[name]["network_value"]) for name in ("trained", "wait"))
    assert reported["wait"]["difference"]["value"] == pytest.approx((own - wait).mean())
    assert reported["trained"]["difference"] is None
    again = reported[f"trained:{run}"]
    assert set(again["difference"].values()) == {0.0}
    assert again["improvement"]["value"] == 0.5


@pytest.mark.slow
def test_the_test_split_judges_the_same_lives_by_other_samples(run, tmp_path):
    found = evaluated(run, tmp_path, "--episodes 5 --arms wait --split test")
    assert found["split"] == "test"
    unseen = found["arms"]["wait"]
    # at its end, the run played the same episodes on the validation split
    seen = json.loads((run / "result.json").read_bytes())["policies"]["wait"]
    assert seen["params"] == unseen["params"]
    assert seen["committed_accuracy"] != unseen["committed_accuracy"]
    setup = select_split("test", tiny_setup(envs=5, episode_length=9))
    assert (setup.dataset.validation.labels == read_digits().test.labels).all(), "the whole of it"


REFUSED = {
    "--split train": (2, '--split: expected one of validation, test, got "train"'),
    "--arms nobody,wait": (2, "arms: expected wait, random, heuristic"),
    **rows_of_extra(
        "schedules",
        lambda: {
            "--arms wait,schedule:{run}/config.json": (
                2,
                "config.json: steps: expected a value, got nothing",
            )
        },
    ),
    "--arms trained:none": (4, "policy file none is missing"),
    "--episodes 0": (2, "--episodes: expected an integer in 1 .. 10000, got 0"),
    "--json {run}/config.json": (2, "which exists"),
}


@pytest.mark.slow
@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_played_is_refused_and_nothing_is_written(run, words, capsys):
    before = {path.name for path in run.iterdir()}
    code, text = REFUSED[words]
    assert main.main(["evaluate", str(run), *words.format(run=run).split()]) == code
    assert text in capsys.readouterr().err
    assert {path.name for path in run.iterdir()} == before


@pytest.mark.slow
def test_a_run_without_a_policy_cannot_be_evaluated(run, tmp_path, capsys):
    place = tmp_path / "run"
    shutil.copytree(run, place)
    (place / "policy.safetensors").unlink()
    assert main.main(["evaluate", str(place)]) == 4
    assert "policy.safetensors is missing" in capsys.readouterr().err
    assert main.main(["evaluate", str(tmp_path)]) == 2
