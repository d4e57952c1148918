"""Declared schedules: their files, their identity, and runs that follow them."""

import hashlib
import json
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.manual_gates import by_hand
from support.profiles import one_in
from support.small_runs import live, tiny, tiny_setup, world_of

from morphogen.cli import main
from morphogen.errors import ConfigError, ScheduleError
from morphogen.extras.schedules.action_schedule import (
    Schedule,
    ScheduleStep,
    build_builtin,
    dump_schedule,
    parse_schedule,
)
from morphogen.extras.schedules.schedule_control import SchedulePolicy
from morphogen.train.loop import Parts, Scheduler
from morphogen.train.train import train_ppo_vectorized
from morphogen.vocab.action import RELEVANT, Head, Op, Outcome
from morphogen.vocab.stage import Stage

SPEC = tiny(envs=3, episode_length=20)  # slots r0c0, r0c1, r1c0
GROW = {"epoch": 0, "op": "GERMINATE", "slot": "r0c0", "blueprint": "norm"}


def text_of(*steps, **top) -> str:
    return json.dumps({"version": 1, "name": "mine", "steps": list(steps), **top})


def parsed(*steps, spec=SPEC, **top) -> Schedule:
    return parse_schedule(text_of(*steps, **top), spec)


@st.composite
def schedules(draw):
    """A schedule that fits SPEC, its steps in order."""
    rows = {}
    for epoch in draw(st.sets(st.integers(0, 19), max_size=5)):
        envs = draw(
            st.one_of(
                st.just([None]), st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True)
            )
        )
        rows |= {(epoch, env): draw(entries()) for env in envs}
    steps = [
        ScheduleStep(epoch, action, env) for (epoch, env), action in sorted(rows.items(), key=str)
    ]
    steps.sort(key=lambda step: (step.epoch, -1 if step.env is None else step.env))
    return Schedule(
        draw(st.text("aZ 0_-.é中", min_size=1)),
        tuple(steps),
        draw(st.sampled_from(("error", "wait"))),
    )


@st.composite
def entries(draw):
    op = draw(st.sampled_from(Op))
    sizes, rest = (6, 3, 13, 4, 3, 3, 4, 5), (0, 0, 0, 2, 1, 2, 0, 0)
    low = {Head.BLUEPRINT: 1}
    high = {Head.BLUEPRINT: 7}
    used = {
        h: draw(st.integers(low.get(h, 0), high.get(h, sizes[h] - 1)))
        for h in Head
        if RELEVANT[op][h]
    }
    return tuple({**dict(zip(Head, rest, strict=True)), **used, Head.OP: int(op)}.values())


# files


@pytest.mark.slow
@settings(max_examples=one_in(3))
@given(schedules(), st.randoms(use_true_random=False))
def test_a_schedule_comes_back_from_its_file_in_any_order_of_its_steps(schedule, random):
    plain = json.loads(dump_schedule(schedule, SPEC))
    random.shuffle(plain["steps"])
    assert parse_schedule(json.dumps(plain), SPEC) == schedule


def test_the_identity_is_the_hash_of_the_canonical_json_and_of_nothing_else():
    canonical = '[{"action":{"alpha_curve":0,"alpha_speed":0,"alpha_target":2,"blueprint":3,"op":1,"slot":2,"style":2,"tempo":1},"env":null,"epoch":4},{"action":{"alpha_curve":1,"alpha_speed":3,"alpha_target":2,"blueprint":0,"op":3,"slot":2,"style":2,"tempo":1},"env":2,"epoch":9}]'
    prune = {
        "epoch": 9,
        "env": 2,
        "op": "PRUNE",
        "slot": "r1c0",
        "alpha_speed": "SLOW",
        "alpha_curve": "COSINE",
    }
    one = parsed(prune, {**GROW, "epoch": 4, "slot": "r1c0"})
    assert one.sha256 == hashlib.sha256(canonical.encode()).hexdigest()
    assert replace(one, name="other", on_illegal="wait").sha256 == one.sha256


ADVANCE = {"epoch": 3, "op": "ADVANCE", "slot": "r0c0"}
ADVANCE_KEYS = "expected one of epoch, env, op, slot, got an unknown name"
CLASH = "expected one step per epoch and env, got"
WRONG = [
    (
        [{**GROW, "epoch": 20}],
        {},
        "steps[0].epoch: expected a number less than or equal to 19, got 20",
    ),
    ([GROW, {"op": "WAIT"}], {}, "steps[1].epoch: expected a value, got nothing"),
    ([{**GROW, "op": "germinate"}], {}, "steps[0].op: expected one of WAIT, GERMINATE"),
    ([{**GROW, "slot": "r9c9"}], {}, 'steps[0].slot: expected one of r0c0, r0c1, r1c0, got "r9c9"'),
    ([{"epoch": 0, "op": "GERMINATE", "slot": "r0c0"}], {}, "steps[0].blueprint: expected a value"),
    ([{**ADVANCE, "blueprint": "norm"}], {}, f"steps[0].blueprint: {ADVANCE_KEYS}"),
    ([{**GROW, "env": 3}], {}, "steps[0].env: expected a number less than or equal to 2, got 3"),
    ([GROW, 3], {}, "steps[1]: expected a valid dictionary"),
    ([{**GROW, "env": 1}, GROW], {}, f"steps[1].epoch: {CLASH} 0 as steps[0]"),
    ([], {"version": 2}, "version: expected a number less than or equal to 1, got 2"),
    ([], {"speed": 1}, "speed: expected one of version, name, on_illegal, steps, got an unknown"),
]


@pytest.mark.parametrize(("steps", "top", "message"), WRONG, ids=[row[2][:45] for row in WRONG])
def test_a_wrong_schedule_is_refused_by_step_and_field(steps, top, message):
    with pytest.raises(ConfigError) as caught:
        parsed(*steps, **top)
    assert str(caught.value).startswith(message)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "schedule: expected a valid dictionary"),
        ("{", "not JSON"),
        ('{"version": 1, "name": "x"}', "steps: expected a value, got nothing"),
    ],
)
def test_a_file_of_another_form_is_refused(text, message):
    with pytest.raises(ConfigError) as caught:
        parse_schedule(text, SPEC)
    assert str(caught.value).startswith(message)


def test_all_faults_of_a_schedule_are_reported_at_once():
    with pytest.raises(ConfigError) as caught:
        parsed(
            {**GROW, "epoch": 99, "tempo": "QUICK"}, {"epoch": 1, "op": "FLY"}, on_illegal="skip"
        )
    named = [line.split(":")[0] for line in str(caught.value).splitlines()]
    assert named == ["on_illegal", "steps[0].epoch", "steps[0].tempo", "steps[1].op"]


def test_only_the_blueprints_of_the_run_can_be_declared():
    few = tiny(blueprints=("norm", "attention"))
    assert parsed(GROW, spec=few).steps[0].action[Head.BLUEPRINT] == 3
    with pytest.raises(ConfigError, match=r"expected one of attention, norm, got"):
        parsed({**GROW, "blueprint": "conv_light"}, spec=few)


# built in


def test_the_built_in_schedules_are_the_tabled_ones_on_the_first_slot():
    spec = tiny(episode_length=18, slots=("r1c0", "r0c1"), lifecycle=by_hand())
    assert spec.slots == ("r0c1", "r1c0")
    rest = (0, 0, 2, 1, 2, 0, 0)
    grow = ScheduleStep(0, (1, 0, 3, 2, 1, 2, 0, 0))
    assert build_builtin("germinate_one", spec).steps == (grow,)
    assert build_builtin("full_cycle", spec).steps == (
        grow,
        *(ScheduleStep(t, (5, *rest)) for t in (1, 11, 16)),
        ScheduleStep(17, (4, *rest)),
    )


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        (
            "full_cycle",
            {"episode_length": 7},
            r"is full_cycle: steps\[4\].epoch: expected .* 6, got 8",
        ),
        (
            "germinate_one",
            {"blueprints": ("attention",)},
            r'germinate_one: steps\[0\].blueprint: expected one of .*, got "norm"',
        ),
        (
            "schedule:nowhere.json",
            {},
            "policy_name: expected a readable file of UTF-8 text, got schedule:nowhere.json: No such",
        ),
    ],
)
def test_a_schedule_that_does_not_fit_the_run_is_refused_before_anything_is_written(
    tmp_path, name, fields, message
):
    with pytest.raises(ConfigError, match=message):
        train_ppo_vectorized(tiny(policy_name=name, **fields), out=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


# runs


def stages(epochs):
    return [epoch.after.slots.stage.tolist() for epoch in epochs]


@pytest.mark.slow
def test_a_full_cycle_ends_fossilized_with_every_action_executed():
    setup = tiny_setup(
        envs=2, episode_length=18, slots=("r0c1",), lifecycle=by_hand(min_gradient_health=0.0)
    )
    epochs = live(world_of(setup), "full_cycle")
    life = (
        [Stage.GERMINATED]
        + [Stage.TRAINING] * 10
        + [Stage.BLENDING] * 5
        + [Stage.HOLDING, Stage.FOSSILIZED]
    )
    assert stages(epochs) == [[[stage]] * 2 for stage in life]
    assert all((epoch.step.outcome.outcome == Outcome.EXECUTED).all() for epoch in epochs)
    assert not any(epoch.inputs.missed.any() for epoch in epochs)


@pytest.mark.slow
@pytest.mark.parametrize(("automatic", "training"), [(("TRAIN", "BLEND", "HOLD"), 2), ((), 0)])
def test_a_full_cycle_is_as_fast_as_the_gates_of_the_run_allow(automatic, training):
    life = by_hand(min_gradient_health=0.0, min_training_epochs=training, auto_forward=automatic)
    setup = tiny_setup(envs=1, episode_length=18, slots=("r0c1",), lifecycle=life)
    steps = build_builtin("full_cycle", setup.spec).steps
    assert [step.action[Head.OP] for step in steps] == [
        Op.GERMINATE,
        *[Op.ADVANCE] * (3 - len(automatic)),
        Op.FOSSILIZE,
    ]
    end = steps[-1].epoch
    epochs = live(world_of(setup), "full_cycle", epochs=end + 1)
    assert all((epoch.step.outcome.outcome == Outcome.EXECUTED).all() for epoch in epochs)
    # the seed is held at the earliest at the end of the epoch before
    ends = [Stage.BLENDING, Stage.HOLDING, Stage.FOSSILIZED]
    assert stages(epochs)[end - 2 :] == [[[stage]] for stage in ends]


def write(tmp_path, *steps, **top) -> str:
    path = tmp_path / "schedule.json"
    path.write_text(text_of(*steps, **top))
    return f"schedule:{path}"


TOO_EARLY = {"epoch": 2, "op": "FOSSILIZE", "slot": "r0c0"}


def test_a_step_for_one_env_is_for_that_env_wherever_it_runs(tmp_path):
    name = write(tmp_path, {**GROW, "env": 2}, {**GROW, "epoch": 1, "env": 0, "slot": "r1c0"})
    setup = tiny_setup(policy_name=name, envs=4)
    among = live(world_of(setup), name, epochs=2)
    grown = [[[2 if stage > 1 else 0 for stage in env] for env in epoch] for epoch in stages(among)]
    nothing = [0, 0, 0]
    assert grown == [
        [nothing, nothing, [2, 0, 0], nothing],
        [[0, 0, 2], nothing, [2, 0, 0], nothing],
    ]
    alone = live(world_of(setup, first=2, envs=1), name, epochs=2)
    assert [epoch[0] for epoch in stages(alone)] == [epoch[2] for epoch in stages(among)]


@pytest.mark.parametrize("epoch", [1, 5])
def test_an_illegal_action_stops_the_run_and_is_named(tmp_path, epoch):
    name = write(tmp_path, GROW, {**TOO_EARLY, "epoch": epoch, "env": 3})
    with pytest.raises(
        ScheduleError,
        match=f"round 1, epoch {epoch}, env 3: schedule mine: expected a legal action",
    ) as caught:
        train_ppo_vectorized(tiny(policy_name=name), out=tmp_path / "run")
    assert "op FOSSILIZE slot r0c0" in str(caught.value)
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["status"] == "failed"


def test_an_illegal_action_is_waited_through_where_the_schedule_says_so(tmp_path):
    name = write(tmp_path, GROW, TOO_EARLY, on_illegal="wait")
    setup = tiny_setup(policy_name=name, envs=2)
    epochs = live(world_of(setup), name)
    assert [epoch.inputs.missed.tolist() for epoch in epochs] == [[t == 2] * 2 for t in range(6)]
    assert [epoch.choice.action[:, 0].tolist() for epoch in epochs] == [[1, 1]] + [[0, 0]] * 5
    with torch.no_grad():
        assert Scheduler(setup).run()[0].germinated == 2


def test_a_policy_in_training_can_be_held_to_a_schedule():
    setup = tiny_setup(rounds=1, episode_length=4)
    control = SchedulePolicy(parsed(GROW, spec=setup.spec), setup.spec).control(setup.device)
    scheduler = Scheduler(setup, Parts(control=control))
    with torch.no_grad():
        scheduler.run_round()
    rows = scheduler.rollout.rows
    assert rows["action"][:, :, 0].tolist() == [[1] * 4] + [[0] * 4] * 3
    assert rows["forced"].all()
    assert not rows["log_prob"].any()
    assert rows["masks"].op.sum(-1).eq(1).all()


@pytest.mark.slow
def test_a_schedule_on_the_command_line_is_a_policy_by_name_and_its_errors_are_usage_errors(
    tmp_path, capsys, monkeypatch
):
    # the handler of a run is not for the test process
    monkeypatch.setattr("signal.signal", lambda *_: None)
    words = [
        "train",
        "heuristic",
        "--preset",
        "tiny",
        "--rounds",
        "1",
        '--set=blueprints=["norm"]',
        "--final-episodes",
        "0",
        "--quiet",
        "--policy",
    ]
    good = write(tmp_path, GROW)
    assert main.main([*words, good, "--out", str(tmp_path / "a")]) == 0
    capsys.readouterr()
    write(tmp_path, GROW, TOO_EARLY)
    assert main.main([*words, good, "--out", str(tmp_path / "c")]) == 2
    assert (
        "round 1, epoch 2, env 0 (and 3 more envs): schedule mine: expected a legal action, "
        "got op FOSSILIZE" in capsys.readouterr().err
    )
    write(tmp_path, {**GROW, "slot": "r7c7"})
    assert main.main([*words, good, "--out", str(tmp_path / "d")]) == 2
    assert "steps[0].slot: expected one of r0c0, r1c0" in capsys.readouterr().err
    assert not (tmp_path / "d").exists()
