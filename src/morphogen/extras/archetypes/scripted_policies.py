"""Archetypes: scripted growth policies on synthetic learning curves, and the return of each under a
rule.

The host learns along one curve, a seed of some strength gains skill along another and adds its
skill times its alpha. So everything that a rule may ask is known, and rules can be compared by the
order into which they put the policies.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from morphogen.rules.rewards.example_inputs import (
    SLOT_FIELDS,
    make_reward_inputs,
    make_slot_inputs,
)
from morphogen.rules.rewards.protocol import Rule, Terms
from morphogen.state.measure import RewardInputs
from morphogen.testing.builders.reward_inputs import play_rule
from morphogen.vocab.action import Op
from morphogen.vocab.stage import BLENDED, OCCUPIED, Stage

STEPS = 75
SLOTS = 3
PRICE = 0.1
HOST_PARAMS = 20_000
SEED_PARAMS = 2_000
# the loss falls from one to the other as the accuracy rises from 0 to 100
BASELINE_LOSS = 2.3
TARGET_LOSS = 0.3
TERMS = Terms(param_budget=20_000, episode_length=STEPS, gamma=0.995)
# Age at which a seed enters each stage; a full path ends in FOSSILIZED.
FULL_PATH = tuple(zip((0, 1, 11, 16, 21), OCCUPIED, strict=True))
HELD_PATH = FULL_PATH[:4]
FOSSILIZED_PATH = FULL_PATH
PRUNED_PATH = (*FULL_PATH[:3], (16, Stage.DORMANT))


@dataclass(frozen=True, slots=True)
class ScriptedSeed:
    """A seed: its slot, the points it can gain, the step that germinates it, its way through the
    stages.
    """

    slot: int
    strength: float
    birth_step: int
    path: tuple[tuple[int, Stage], ...]

    def entries(self, step: int) -> list[tuple[int, Stage]]:
        """Stages entered up to this step, with the steps of the entries; DORMANT before
        germination.
        """
        steps = [(self.birth_step + age, stage) for age, stage in self.path]
        return [(0, Stage.DORMANT), *(entry for entry in steps if entry[0] <= step)]

    def stage(self, step: int) -> Stage:
        """Stage after a step; DORMANT before germination and after pruning."""
        return self.entries(step)[-1][1]

    def alpha(self, step: int) -> float:
        """Alpha after a step: five steps up from the start of BLENDING."""
        return min(1.0, (step - self.birth_step - 10) / 5) if self.stage(step) in BLENDED else 0.0

    def gain(self, step: int) -> float:
        """Points that the seed adds to the accuracy after a step."""
        return self.alpha(step) * self.strength * (1.0 - math.exp(-(step - self.birth_step) / 12))

    def op(self, step: int) -> Op:
        """The op that is executed on it in a step."""
        stage = self.stage(step)
        moves = {
            Stage.GERMINATED: Op.GERMINATE,
            Stage.FOSSILIZED: Op.FOSSILIZE,
            Stage.DORMANT: Op.PRUNE,
        }
        return Op.WAIT if stage is self.stage(step - 1) else moves.get(stage, Op.ADVANCE)


@dataclass(frozen=True, slots=True)
class Archetype:
    """A scripted policy: the seeds it grows, and the step in which the governor rolls it back, its
    last (0: never).
    """

    seeds: tuple[ScriptedSeed, ...]
    rollback_step: int = 0

    def committed_accuracy(self, step: int) -> float:
        """Accuracy after a step of the host with its fossils, points."""
        host = 20.0 + 40.0 * (1.0 - math.exp(-step / 25))
        return host + sum(
            seed.gain(step) for seed in self.seeds if seed.stage(step) is Stage.FOSSILIZED
        )

    def accuracy(self, step: int) -> float:
        """Accuracy after a step with all seeds, points."""
        uncommitted = sum(
            seed.gain(step) for seed in self.seeds if seed.stage(step) is not Stage.FOSSILIZED
        )
        return self.committed_accuracy(step) + uncommitted

    def params(self, step: int, *stages: Stage) -> int:
        """Parameters after a step of the seeds in these stages; of all seeds without any."""
        return SEED_PARAMS * sum(seed.stage(step) in (stages or OCCUPIED) for seed in self.seeds)


ARCHETYPES: dict[str, Archetype] = {
    "three good": Archetype(
        tuple(ScriptedSeed(2 - n, 6, 4 + 22 * n, FOSSILIZED_PATH) for n in range(3))
    ),
    "good": Archetype((ScriptedSeed(0, 8, 10, FOSSILIZED_PATH),)),
    "good, other slot": Archetype((ScriptedSeed(1, 8, 10, FOSSILIZED_PATH),)),
    "wait only": Archetype(()),
    "farm loop": Archetype(
        (ScriptedSeed(1, -6, 10, PRUNED_PATH), ScriptedSeed(1, -6, 36, PRUNED_PATH))
    ),
    "good, never fossilized": Archetype((ScriptedSeed(0, 8, 10, HELD_PATH),)),
    "useless, held": Archetype((ScriptedSeed(0, 0, 10, HELD_PATH),)),
    "harmful, held": Archetype((ScriptedSeed(1, -4, 10, HELD_PATH),)),
    "useless, fossilized": Archetype((ScriptedSeed(0, 0, 10, FOSSILIZED_PATH),)),
    "harmful, fossilized": Archetype((ScriptedSeed(1, -4, 10, FOSSILIZED_PATH),)),
    "good, rolled back": Archetype((ScriptedSeed(0, 8, 10, FOSSILIZED_PATH),), rollback_step=50),
}


def archetype_inputs(
    archetypes: Sequence[Archetype], *, dtype: torch.dtype = torch.float64
) -> RewardInputs:
    """Reward inputs of every archetype in every step: an env each, everything measured.

    Returns: RewardInputs [T, E], T = 75 steps, E = number of archetypes; floating-point leaves in
    `dtype`.
    """
    steps: Any = [_step_inputs(archetypes, step, dtype) for step in range(1, STEPS + 1)]
    return cast(RewardInputs, torch.stack(steps))


def _step_inputs(archetypes: Sequence[Archetype], step: int, dtype: torch.dtype) -> RewardInputs:
    envs = len(archetypes)
    cells = [[_slot(policy, slot, step) for slot in range(SLOTS)] for policy in archetypes]
    columns = {name: [[row.get(name, 0) for row in env] for env in cells] for name in SLOT_FIELDS}
    slots = make_slot_inputs(envs, SLOTS, dtype=dtype, **columns)
    rows = [_env(policy, step) for policy in archetypes]
    fields = {name: [row[name] for row in rows] for name in rows[0]}
    return make_reward_inputs(envs, dtype=dtype, slots=slots, **fields)


def archetype_returns(rule: Rule, archetypes: Sequence[Archetype]) -> Tensor:
    """Discounted return of each archetype; one that is rolled back ends there.

    Args:
        rule: a reward rule, built for the terms of the archetypes of the example.
        archetypes: scripted policies, E of them.

    Returns: float64 [E].
    """
    steps: Any = archetype_inputs(archetypes)
    rewards, _, _ = play_rule(rule, steps.unbind(0))
    last = torch.tensor([policy.rollback_step or STEPS for policy in archetypes], device="cpu")
    step = torch.arange(STEPS, dtype=torch.float64, device="cpu")[:, None]
    return (rewards * TERMS.gamma**step).where(step < last, 0.0).sum(0)


def return_rows(rules: Mapping[str, Rule]) -> list[dict[str, Any]]:
    """Return a row per archetype: its committed accuracy at the end, points, None if it is rolled
    back, and its return under each rule.
    """
    policies = list(ARCHETYPES.values())
    returns = {name: archetype_returns(rule, policies).tolist() for name, rule in rules.items()}
    return [
        {
            "policy": name,
            "committed": None if policy.rollback_step else policy.committed_accuracy(STEPS),
            **{rule: column[i] for rule, column in returns.items()},
        }
        for i, (name, policy) in enumerate(ARCHETYPES.items())
    ]


def _env(policy: Archetype, step: int) -> dict[str, Any]:
    accuracy = policy.accuracy(step)
    before = policy.accuracy(step - 1)
    ops = [op for seed in policy.seeds if (op := seed.op(step)) is not Op.WAIT]
    return {
        "horizon": step == STEPS,
        "rolled_back": step == policy.rollback_step,
        "op": int(ops[0]) if ops else int(Op.WAIT),
        "op_executed": True,
        "committed_acc": policy.committed_accuracy(step),
        "clean_improvement": sum((seed.gain(step) for seed in policy.seeds), 0.0),
        "val_loss": BASELINE_LOSS - (BASELINE_LOSS - TARGET_LOSS) * accuracy / 100,
        "fossil_params": policy.params(step, Stage.FOSSILIZED),
        "live_params": policy.params(step),
        "param_price": PRICE,
        "baseline_loss": BASELINE_LOSS,
        "target_loss": TARGET_LOSS,
        "epoch": step,
        "host_params": HOST_PARAMS,
        "val_acc": before,
        "stable_val_acc": min(policy.accuracy(n) for n in range(max(0, step - 3), step)),
        "uncommitted_improvement": before - policy.committed_accuracy(step - 1),
        "next_val_acc": accuracy,
    }


def _slot(policy: Archetype, slot: int, step: int) -> dict[str, Any]:
    unborn = ScriptedSeed(slot, 0.0, STEPS + 1, FULL_PATH)  # an empty slot
    born = [seed for seed in policy.seeds if seed.slot == slot and seed.birth_step <= step]
    seed = [unborn, *born][-1]
    before = step - 1
    *earlier, (entered, stage) = seed.entries(before)
    row = {
        "op": int(seed.op(step)),
        "stage": int(stage),
        "contribution": seed.gain(before),
        "contribution_valid": stage in BLENDED,
        "alpha": seed.alpha(before),
        "next_stage": int(seed.stage(step)),
        "next_contribution": seed.gain(step),
        "next_contribution_valid": seed.stage(step) in BLENDED,
    }
    if stage is not Stage.DORMANT:
        left, previous = earlier[-1]
        row |= {
            "previous_stage": int(previous),
            "epochs_in_stage": step - entered,
            "previous_epochs_in_stage": entered - left if left else 0,
            "age": step - seed.birth_step,
            "params": SEED_PARAMS,
            "accuracy_at_germination": policy.accuracy(seed.birth_step - 1),
            "accuracy_at_stage_start": policy.accuracy(entered - 1),
        }
    return row
