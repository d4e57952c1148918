"""The oracles against the recorded rows, and the package against the oracles."""

import ast
import inspect
import itertools
import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.topologies import KINDS

from morphogen.config.groups import LifecycleSpec, RewardSpec
from morphogen.rules.decoding import decode
from morphogen.rules.rewards.table import build_rule
from morphogen.steps.tick_step import tick
from morphogen.testing import oracles
from morphogen.testing.builders import reward_inputs as made
from morphogen.testing.builders import scenes
from morphogen.testing.strategies import actions as any_actions
from morphogen.testing.strategies import limits, reward_episodes, slot_states
from morphogen.vocab.action import Op
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.limits import Limits
from morphogen.vocab.stage import AlphaMode, Curve, Stage

BUDGET, LENGTH, GAMMA = 48_832, 9, 0.995
GATES = {"G1": "TRAIN", "G2": "BLEND", "G3": "HOLD"}  # names in the recorded rows


def rows(request, subject: str) -> list[dict]:
    path = Path(request.config.getoption("--golden-dir")) / f"{subject}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_oracle_knows_nothing_of_the_package():
    for node in ast.walk(ast.parse(inspect.getsource(oracles))):
        if isinstance(node, ast.ImportFrom | ast.Import):
            names = (
                [node.module]
                if isinstance(node, ast.ImportFrom)
                else [alias.name for alias in node.names]
            )
            assert {str(name).split(".")[0] for name in names} <= {
                "collections",
                "itertools",
                "math",
                "typing",
            }


# against the recorded rows


def test_legality_is_the_recorded_one(request):
    for row in rows(request, "masks"):
        seen, wanted = row["inputs"], row["outputs"]
        columns = zip(seen["stage"], seen["age"], seen["alpha_mode"], strict=True)
        env = [
            oracles.SlotCell(int(Stage[stage]), age, int(AlphaMode[mode]))
            for stage, age, mode in columns
        ]
        allow = Limits(
            kinds=KINDS[seen["topology"]],
            enabled=tuple(seen["enabled"]),
            max_seeds=seen["max_seeds"],
            auto_forward=tuple(GATES[name] for name in seen["auto_forward"]),
        )
        found = oracles.legality(env, allow)
        assert {op.name: [s for s, yes in enumerate(found[op]) if yes] for op in Op} == wanted[
            "legal"
        ], row["id"]


def test_ramps_are_the_recorded_ones(request):
    for row in rows(request, "alpha"):
        now = row["start"]
        for leg in row["legs"]:
            ticks = 0 if leg["target"] == now else leg["steps"]
            path = oracles.ramp(
                now, leg["target"], ticks, int(Curve[leg["curve"]]), leg["steepness"]
            )
            wanted = leg["alpha"][: len(path)]
            assert path[: len(wanted)] == pytest.approx(wanted, abs=1e-12), row
            now = ([leg["alpha_after_retarget"], *leg["alpha"]])[-1]


def test_transitions_are_the_recorded_ones(request):
    matrix = [row for row in rows(request, "transitions") if row["kind"] == "matrix"]
    assert matrix
    for row in matrix:
        found = {
            to.name for to in Stage if oracles.can_transition(int(Stage[row["stage"]]), int(to))
        }
        assert found == set(row["legal_targets"])


def test_shapley_values_and_interactions_are_the_recorded_ones(request):
    for row in rows(request, "attribution_table"):
        table, count = row["inputs"]["acc_table"], row["players"]
        shares = oracles.shapley(lambda m, table=table: table[m], range(count))
        assert list(shares.values()) == pytest.approx(row["outputs"]["shapley"], abs=1e-9)
        for i, j in itertools.combinations(range(count), 2):
            pair = oracles.interaction(lambda m, table=table: table[m], i, j)
            assert pair == pytest.approx(row["outputs"]["interaction"][i][j], abs=1e-9)


def test_advantages_are_the_recorded_ones(request):
    for row in rows(request, "gae"):
        given_rows, names = (
            row["inputs"],
            ("reward", "value", "next_value", "terminated", "truncated"),
        )
        for e in range(len(given_rows["reward"][0])):
            env = [
                {name: given_rows[name][t][e] for name in names}
                for t in range(len(given_rows["reward"]))
            ]
            found = oracles.gae(env, gamma=given_rows["gamma"], lam=given_rows["gae_lambda"])
            assert found == pytest.approx(
                [line[e] for line in row["outputs"]["advantage"]], abs=1e-9
            )


def test_rewards_of_the_own_rules_are_the_recorded_ones(request):
    defaults = {"param_price": 0.1, "baseline_loss": 2.3, "target_loss": 0.3}
    for row in rows(request, "rewards_trajectories"):
        config, steps = row["config"], []
        for place, step in enumerate(row["steps"]):
            flags = {
                "committed_acc": "committed_valid",
                "clean_improvement": "clean_valid",
                "val_loss": "loss_valid",
            }
            seen = {**step, "op": int(Op[step["op"]]), "horizon": place == len(row["steps"]) - 1}
            seen |= {flag: step[name] is not None for name, flag in flags.items()}
            steps.append(
                {**seen, **{name: config.get(name, value) for name, value in defaults.items()}}
            )
        knobs = {
            n: config[n] for n in ("potential_scale", "governor_penalty", "op_cost") if n in config
        }
        world = {"gamma": config.get("gamma", 0.995), "budget": config.get("param_budget", 500_000)}
        for rule, wanted in row["outputs"].items():
            found = oracles.core_rewards(rule, steps, length=len(steps), **world, **knobs)
            assert found == pytest.approx(wanted, abs=1e-12), (row["id"], rule)


# the package against the oracles


@given(st.data(), slot_states())
def test_decoding_is_what_the_rules_say_field_by_field(data, slots):
    allow = data.draw(limits(slots))
    drawn = data.draw(any_actions(slots, -1, 7))
    spec = decode(drawn, slots, allow)
    for e, env in enumerate(oracles.slot_cells(slots)):
        wanted = oracles.decode(drawn[e].tolist(), env, allow)
        found = {name: getattr(spec, name)[e].tolist() for name in wanted}
        assert found == {**wanted, "alpha_target": pytest.approx(wanted["alpha_target"])}


@given(slot_states(), st.integers(1, 6))
def test_a_tick_is_what_the_rules_say_slot_by_slot(slots, embargo):
    after, _ = tick(scenes.make_state(slots), lifecycle=LifecycleSpec(embargo_epochs=embargo))
    names = (
        "stage",
        "previous_stage",
        "epochs_in_stage",
        "previous_epochs_in_stage",
        "alpha",
        "alpha_mode",
    )
    names += (
        "alpha_done",
        "alpha_start",
        "alpha_target",
        "alpha_steps",
        "alpha_curve",
        "alpha_steepness",
    )
    for e, s in itertools.product(range(len(slots)), range(slots.stage.shape[1])):
        was = {name: getattr(slots, name)[e, s].item() for name in names}
        now = {name: getattr(after.slots, name)[e, s].item() for name in names}
        changes = oracles.tick(was, embargo=embargo)
        gone = changes.get("stage") in (Stage.DORMANT, Stage.PRUNED)
        wanted = changes if gone else was | changes
        assert {name: now[name] for name in wanted} == pytest.approx(wanted, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sparse", "delta", "value", "rent", "loss", "anytime"])
@given(
    steps=reward_episodes(), scale=st.sampled_from([1.0, 0.5]), cost=st.sampled_from([0.0, 0.01])
)
def test_own_rules_pay_what_is_written_out(name, steps, scale, cost):
    spec = RewardSpec(rule=name, potential_scale=scale, op_cost=cost, governor_penalty=2.5)
    rule = build_rule(spec, param_budget=BUDGET, episode_length=LENGTH, gamma=GAMMA)
    rewards, _, _ = made.play_rule(rule, steps)
    fields = [field for field in made.INPUT_DEFAULTS if field not in ("epoch", "host_params")]
    knobs = {"potential_scale": scale, "op_cost": cost, "governor_penalty": 2.5}
    for e in range(rewards.shape[1]):
        env = [{field: getattr(step, field)[e].item() for field in fields} for step in steps]
        wanted = oracles.core_rewards(name, env, gamma=GAMMA, budget=BUDGET, length=LENGTH, **knobs)
        assert rewards[:, e].tolist() == pytest.approx(wanted, abs=1e-12)


def test_shaping_carries_what_was_not_measured_and_ends_at_nothing():
    found = oracles.shaping([0.5, None, 0.25, 1.0], [False, False, False, True], 0.5)
    assert found == [0.25, -0.25, -0.375, -0.25]
    assert sum(0.5**t * part for t, part in enumerate(found)) == 0


def test_every_blueprint_has_its_name_and_place():
    assert tuple(blueprint.label for blueprint in Blueprint) == oracles.BLUEPRINTS


def test_the_actions_that_are_counted_are_those_of_the_masks():
    held = scenes.make_slot(stage=Stage.HOLDING, age=9, alpha=1.0)
    assert (
        oracles.count_actions(oracles.slot_cells(held)[0], scenes.make_limits(held))
        == 1 + 240 + 20 + 1
    )
    assert (
        torch.tensor(oracles.legality(oracles.slot_cells(held)[0], scenes.make_limits(held))).sum()
        == 4
    )
