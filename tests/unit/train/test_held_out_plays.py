"""The learning curve on held-out instances: when it is played, what it costs, and that it changes
nothing of a run.
"""

import re

import pytest

import morphogen as mg
from morphogen.log.console import Console
from morphogen.train.held_out_plays import has_curve, plays_greedily

pytestmark = pytest.mark.slow  # whole runs

FIELDS = {
    "preset": "tiny",
    "episode_length": 4,
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
    result = mg.train_ppo_vectorized(**FIELDS, rounds=3, evaluation={"every_rounds": 2}, out=folder)
    return folder, result


def test_the_policy_plays_before_the_first_round_and_every_so_often_its_rivals_once(run):
    found = plays_of(run[0])
    assert [(play.policy, play.rounds) for play in found] == [
        ("wait", 0), ("heuristic", 0), ("ppo", 0), ("ppo", 2)
    ]  # fmt: skip
    assert {len(play.network_value) for play in found} == {2}  # envs / 4
    env = mg.make(mg.RunSpec(**FIELDS), instances="held-out")
    alone = mg.play(env, "wait", episodes=2)
    assert found[0].network_value == pytest.approx(alone.network_value.tolist())
    assert found[0].score == pytest.approx(alone.committed_accuracy.tolist())
    assert found[0].params == tuple(alone.params)


def test_the_last_play_is_that_of_the_policy_as_it_was_then(run):
    folder, _ = run
    env = mg.make(mg.RunSpec(**FIELDS), instances="held-out")
    shorter = mg.train_ppo_vectorized(**FIELDS, rounds=2)
    values = mg.play(env, shorter.arm, episodes=2).network_value
    assert plays_of(folder)[-1].network_value == pytest.approx(values.tolist(), abs=1e-6)


def test_a_greedy_policy_draws_nothing_in_its_plays_and_at_the_end(tmp_path, capsys):
    evaluation = {"every_rounds": 2, "greedy": True}
    # long enough to keep a seed, by which both ways of acting differ
    fields = {name: FIELDS[name] for name in ("preset", "envs", "telemetry", "ppo")}
    run = mg.train_ppo_vectorized(
        **fields,
        final_episodes=4,
        rounds=2,
        evaluation=evaluation,
        out=tmp_path / "run",
        console=Console(),
    )
    env = mg.make(mg.RunSpec(**fields), instances="held-out")
    drawn, greedy = (
        mg.play(env, run.arm, episodes=4, greedy=greedy).network_value for greedy in (False, True)
    )
    final = run.results[-1].network_value
    assert final.tolist() == pytest.approx(greedy.tolist(), abs=1e-6)
    assert final.tolist() != pytest.approx(drawn.tolist(), abs=1e-6)
    last = plays_of(tmp_path / "run")[-1].network_value
    assert last == pytest.approx(greedy[:2].tolist(), abs=1e-6)
    shown = capsys.readouterr()
    assert "the same for every policy; ppo takes its likeliest actions" in shown.out
    wait = "held-out after round 0, wait: accuracy 5.0 %, parameters 150, value 0.050\n"
    assert wait in shown.err
    ppo = r"held-out after round 2, ppo: .*, value .* \(wait: 5.0 %, 150, 0.050\)\n"
    assert re.search(ppo, shown.err)


def resolved(**fields):
    return mg.resolve(mg.RunSpec(**{**FIELDS, "rounds": 5, **fields}))


def test_only_a_policy_that_learns_is_greedy_and_has_a_curve_if_the_run_is_long_enough():
    assert has_curve(resolved(evaluation={"every_rounds": 5}))
    assert plays_greedily(resolved(evaluation={"greedy": True}))
    assert not has_curve(resolved(evaluation={"every_rounds": 0}))
    assert not has_curve(resolved(evaluation={"every_rounds": 6}))
    baseline = resolved(evaluation={"every_rounds": 2, "greedy": True}, policy_name="random")
    assert not has_curve(baseline)
    assert not plays_greedily(baseline)


def test_plays_change_nothing_of_a_run(run):
    plain = mg.train_ppo_vectorized(**FIELDS, rounds=3, evaluation={"every_rounds": 0})
    assert [one.network_value_mean for one in plain.history] == [
        one.network_value_mean for one in run[1].history
    ]
    assert [one.return_mean for one in plain.history] == [one.return_mean for one in run[1].history]


def test_a_resumed_run_goes_on_with_its_curve(tmp_path):
    hooks = mg.Hooks(on_round=lambda *_: False)
    settings = {**FIELDS, "rounds": 2, "evaluation": {"every_rounds": 1}}
    mg.train_ppo_vectorized(**settings, out=tmp_path / "run", parts=mg.Parts(hooks=hooks))
    assert [play.rounds for play in plays_of(tmp_path / "run") if play.policy == "ppo"] == [0, 1]
    mg.resume(tmp_path / "run")
    assert [play.rounds for play in plays_of(tmp_path / "run") if play.policy == "ppo"] == [0, 1, 2]
