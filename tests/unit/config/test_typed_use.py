"""Type checkers accept what users write; pyright checks this file strictly."""

# pyright: strict

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, assert_type, get_args, get_type_hints

import pytest
import torch

import morphogen as mg
from morphogen.config.fields import fields_of
from morphogen.config.keywords import EnvFields, HeadNames, OpName, RunFields
from morphogen.config.registry import extra_parts
from morphogen.env.make import MakeFields
from morphogen.vocab.action import VALUE_NAMES


def test_a_spec_takes_dicts_for_groups_lists_for_tuples_and_none_for_what_the_task_decides() -> (
    None
):
    reward = mg.RewardSpec(rule="value")
    spec = mg.RunSpec(
        task="tiny", rounds=3, slots=["r0c0"], final_episodes=None, ppo={"clip": 0.1}, reward=reward
    )
    assert_type(spec.ppo, mg.PpoSpec)
    assert_type(spec.slots, tuple[str, ...])
    assert_type(mg.resolve(spec).episode_length, int)
    assert (spec.ppo.clip, spec.slots, mg.resolve(spec).final_episodes) == (0.1, ("r0c0",), 4)


def test_a_spec_takes_parts_for_their_names() -> None:
    host = mg.CnnSpec(base=4, blocks=2, kernel=3, pools=1, channels_in=1, size=8, classes=10)
    task = mg.TaskSpec(name="typed_use", dataset="digits", host=host, slots=("r0c0",))
    spec = mg.RunSpec(
        task=task, host={"norm": "batch"}, engine=mg.EngineSpec(devices=("cpu",), threads=None)
    )
    assert_type(spec.task, str)
    assert spec.task == "typed_use"


def test_an_epoch_of_an_environment_is_typed_to_the_leaves() -> None:
    env = mg.make("tiny", envs=2, seed=0)
    state, seen = env.reset()
    after, step = env.step(state, mg.actions.random(env, state, seen))
    assert_type(after, mg.EnvState)
    assert_type(after.clock.epoch, torch.Tensor)
    assert_type(step.reward, torch.Tensor)
    assert_type(step.masks, mg.ActionMasks)
    result = mg.play(env, mg.build_arm("wait", env.setup))
    assert_type(result, mg.ArmResult)
    assert step.reward.shape == (2,)


def test_keywords_of_entry_points_are_the_fields_of_a_spec() -> None:
    """Pyright checks that their types fit: unpacked, they are arguments of the constructor and of
    `make`.
    """
    fields: RunFields = {"task": "tiny", "rounds": 3, "slots": ["r0c0"], "ppo": {"clip": 0.1}}
    assert mg.RunSpec(**fields).ppo.clip == 0.1
    given: MakeFields = {"instances": "held-out", "ppo": {"clip": 0.1}}
    assert mg.make("tiny", envs=2, **given).spec.ppo.clip == 0.1
    of_extras = {"regime", *extra_parts("morphogen.settings")}
    assert set(RunFields.__annotations__) - of_extras == set(fields_of(mg.RunSpec)) - of_extras
    own = {
        name
        for name, one in inspect.signature(mg.make).parameters.items()
        if one.kind is one.KEYWORD_ONLY
    }
    assert set(MakeFields.__annotations__) - set(EnvFields.__annotations__) == own - {
        "envs",
        "seed",
    }


def test_names_of_actions_are_those_of_the_tables() -> None:
    heads: dict[str, Any] = get_type_hints(HeadNames)
    assert get_args(OpName) == VALUE_NAMES[mg.Head.OP]
    assert set(heads) == {head.label for head in mg.Head if head is not mg.Head.OP}
    for head, names in VALUE_NAMES.items():
        known = get_args(heads.get(head.label))
        assert known in ((), names), head


WRONG = """
import morphogen as mg

env = mg.make("digits", env=4)  # reportCallIssue
env = mg.make("digits", envs="4")  # reportArgumentType
env = mg.make("digits", instances="single")  # reportArgumentType
env = mg.make("digits", ppo=3)  # reportArgumentType
env = mg.make("digits", envs=4, instances="held-out", ppo={"clip": 0.1}, slots=["r0c0"], final_episodes=None)
mg.make_env("tiny", rond=1)  # reportCallIssue
mg.make_env("tiny", envs=2, rounds=1, device="cpu")
mg.train_ppo_vectorized(ruonds=3)  # reportCallIssue
mg.train_ppo_vectorized(rounds="3")  # reportArgumentType
mg.train_ppo_vectorized(rounds=3, task="digits", instances="single", out="runs/mine")
mg.resume("runs/mine", round=4)  # reportCallIssue
mg.resume("runs/mine", rounds=4)
mg.RunSpec(presett="smoke")  # reportCallIssue
mg.RunSpec().with_settings(enviroments=4)  # reportCallIssue
mg.actions.build(env, "GERMINAT")  # reportArgumentType
mg.actions.build(env, "GERMINATE", slott="r0c0")  # reportCallIssue
mg.actions.build(env, "GERMINATE", slot="r0c0", blueprint="norm", tempo="FASTER")  # reportArgumentType
mg.actions.build(env, "GERMINATE", slot="r0c0", blueprint="norm", tempo="FAST")
mg.actions.random(env, *env.reset(), draws=3)  # reportCallIssue
"""


@pytest.mark.slow
def test_type_checkers_refuse_wrong_keywords_and_names(tmp_path: Path) -> None:
    source = tmp_path / "wrong.py"
    source.write_text(WRONG)
    config = {"include": [source.name], "extraPaths": [str(Path(mg.__file__).parents[1])]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    command = [
        sys.executable,
        "-m",
        "pyright",
        "--outputjson",
        "--pythonpath",
        sys.executable,
        "-p",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["generalDiagnostics"]
    refused = {(one["range"]["start"]["line"], one["rule"]) for one in found}
    expected = {
        (line, rule)
        for line, text in enumerate(WRONG.splitlines())
        for rule in re.findall(r"# (report\w+)", text)
    }
    assert refused == expected
