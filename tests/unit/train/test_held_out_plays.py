"""The learning curve on held-out instances: when it is played, what it costs, and that it changes
nothing of a run.
"""

import pytest

import morphogen as mg
from morphogen.log.console import Console
from morphogen.log.kinds.run import HeldOutPlayed

FIELDS = {
    "preset": "tiny",
    "envs": 8,
    "final_episodes": 0,
    "telemetry": {"level": "normal"},
    "ppo": {"epochs": 1},
}


def plays_of(folder):
    return [event.data for event in mg.events(folder, kinds={"HeldOutPlayed"})]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "curve"
    result = mg.train_ppo_vectorized(**FIELDS, rounds=5, evaluation={"every_rounds": 2}, out=folder)
    return folder, result


def test_the_policy_plays_before_the_first_round_and_every_so_often_its_rivals_once(run):
    found = plays_of(run[0])
    assert [(play.policy, play.rounds) for play in found] == [
        ("ppo", 0), ("wait", 0), ("heuristic", 0), ("ppo", 2), ("ppo", 4)
    ]  # fmt: skip
    assert {len(play.network_value) for play in found} == {2}  # envs / 4
    env = mg.make(mg.RunSpec(**FIELDS), instances="held-out")
    alone = mg.play(env, "wait", episodes=2).network_value
    assert found[1].network_value == pytest.approx(alone.tolist())


def test_the_last_play_is_that_of_the_policy_as_it_was_then(run):
    folder, _ = run
    env = mg.make(mg.RunSpec(**FIELDS), instances="held-out")
    rounds = mg.train_ppo_vectorized(**FIELDS, rounds=4)
    values = mg.play(env, rounds.arm, episodes=2).network_value
    assert plays_of(folder)[-1].network_value == pytest.approx(values.tolist(), abs=1e-6)


def test_a_greedy_policy_draws_nothing_in_its_plays_and_at_the_end(tmp_path, capsys):
    settings = {
        **FIELDS,
        "rounds": 2,
        "final_episodes": 4,
        "evaluation": {"every_rounds": 2, "greedy": True},
    }
    run = mg.train_ppo_vectorized(**settings, out=tmp_path / "run", console=Console())
    env = mg.make(mg.RunSpec(**FIELDS), instances="held-out")
    drawn, greedy = (
        mg.play(env, run.arm, episodes=4, greedy=greedy).network_value for greedy in (False, True)
    )
    final = run.results[-1].network_value
    assert final.tolist() == pytest.approx(greedy.tolist(), abs=1e-6)
    assert final.tolist() != pytest.approx(drawn.tolist(), abs=1e-6)
    assert plays_of(tmp_path / "run")[-1].network_value == pytest.approx(
        greedy[:2].tolist(), abs=1e-6
    )
    assert "the same for every policy; ppo takes its likeliest actions" in capsys.readouterr().out


def test_a_baseline_is_never_greedy():
    settings = {**FIELDS, "policy_name": "random", "rounds": 1, "final_episodes": 4}
    runs = [
        mg.train_ppo_vectorized(**settings, evaluation={"greedy": greedy})
        for greedy in (False, True)
    ]
    first, second = (run.results[-1].network_value.tolist() for run in runs)
    assert first == second


def test_plays_change_nothing_of_a_run(run):
    plain = mg.train_ppo_vectorized(**FIELDS, rounds=5, evaluation={"every_rounds": 0})
    assert [one.network_value_mean for one in plain.history] == [
        one.network_value_mean for one in run[1].history
    ]
    assert [one.return_mean for one in plain.history] == [one.return_mean for one in run[1].history]


@pytest.mark.parametrize(
    "changed",
    [
        {"evaluation": {"every_rounds": 0}},
        {"evaluation": {"every_rounds": 6}},
        {"policy_name": "random"},
    ],
    ids=["switched off", "a short run", "nothing learns"],
)
def test_some_runs_have_no_curve(changed, tmp_path):
    settings = {**FIELDS, "rounds": 5, "evaluation": {"every_rounds": 2}, **changed}
    mg.train_ppo_vectorized(**settings, out=tmp_path / "run")
    assert not plays_of(tmp_path / "run")


def test_a_resumed_run_goes_on_with_its_curve(tmp_path):
    # stops after the third round
    hooks = mg.Hooks(on_round=lambda summary, scheduler: summary.round < 2)
    settings = {**FIELDS, "rounds": 5, "evaluation": {"every_rounds": 2}}
    mg.train_ppo_vectorized(**settings, out=tmp_path / "run", parts=mg.Parts(hooks=hooks))
    assert [play.rounds for play in plays_of(tmp_path / "run") if play.policy == "ppo"] == [0, 2]
    mg.resume(tmp_path / "run")
    assert [play.rounds for play in plays_of(tmp_path / "run") if play.policy == "ppo"] == [0, 2, 4]
    assert isinstance(plays_of(tmp_path / "run")[0], HeldOutPlayed)


def test_the_console_says_what_was_played(capsys):
    settings = {**FIELDS, "rounds": 2, "evaluation": {"every_rounds": 2}}
    mg.train_ppo_vectorized(**settings, console=Console())
    said = capsys.readouterr().err.splitlines()
    assert sum(line.startswith("held-out after round") for line in said) == 4
    assert "held-out after round 0  wait: value 0.05 on 2 held-out instances" in said
