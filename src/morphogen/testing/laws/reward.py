"""Laws of a reward rule.  An example is an episode, one `RewardInputs` per step."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.env.part_check import form_fault
from morphogen.rules.rewards.protocol import Rule
from morphogen.state.measure import RewardInputs
from morphogen.testing.builders.permute import permute
from morphogen.testing.builders.reward_inputs import play_rule, replace_invalid
from morphogen.testing.builders.tree_equality import (
    cast_tree,
    copy_tree,
    differing_leaves,
    leaves,
    tensors_equal,
    tree_form,
)
from morphogen.testing.laws.search import Law, name_laws
from morphogen.testing.laws.step import (
    Subject,
    accepts,
    host,
    neighbours,
    over_rows,
    repeats,
    rotations,
    writes,
)
from morphogen.vocab.action import Op

REWARD_TOLERANCE = 1e-9  # rewards in float64
_INVALID_VALUES = (0.0, math.nan, math.inf, -math.inf)  # contents of invalid fields
SHAPING = "shaping"  # component that telescopes
STEP_LAWS = name_laws(accepts, host, writes, repeats, neighbours)
Episode = Sequence[RewardInputs]


class RuleArgs(NamedTuple):
    """Arguments of a rule in one step."""

    inputs: RewardInputs
    ledger: TensorDict


@dataclass(frozen=True, slots=True)
class RewardSubject:
    """Reward rule under test, and its options."""

    rule: Rule
    name: str
    tolerance: float = 0.0

    def call(self, inputs: RewardInputs, ledger: TensorDict) -> dict[str, Any]:
        """Return all results of the rule for one step."""
        reward, components, after = self.rule(inputs, ledger)
        potential, measured = self.rule.potential(inputs, ledger)
        out = {"reward": reward, "components": components, "ledger": after}
        return {**out, "potential": potential, "measured": measured}

    def rule_args(self, episode: Episode) -> Iterator[RuleArgs]:
        """Yield copies of the arguments of the rule in each step."""
        envs, slots = episode[0].slots.stage.shape
        ledger = self.rule.init(envs, slots)
        for step in episode:
            yield copy_tree(RuleArgs(step, ledger))
            ledger = self.rule(*copy_tree(RuleArgs(step, ledger)))[2]

    def play(self, episode: Episode) -> tuple[Tensor, dict[str, Tensor], TensorDict]:
        """Play an episode -> rewards [T, E], components {name: [T, E]}, last ledger."""
        return play_rule(self.rule, copy_tree(list(episode)))

    def rewards(self, episode: Episode) -> Tensor:
        """Rewards of an episode.  -> [T, E]."""
        return self.play(episode)[0]


def step_laws(payer: RewardSubject) -> dict[str, Law]:
    """Return the laws of any step, checked in every step of an episode."""
    subject = Subject(payer.call, payer.name, tolerance=payer.tolerance)

    def rows(episode: Episode) -> tuple[Subject, Iterator[RuleArgs]]:
        return subject, payer.rule_args(episode)

    return {name: over_rows(rows, law) for name, law in STEP_LAWS.items()}


def shapes(subject: RewardSubject, episode: Episode) -> str:
    """Reward and components are [E] in the dtype of the inputs; the ledger keeps its leaves and its
    device.
    """
    for path, leaf in leaves(subject.rule.init(2, 3, "meta")).items():
        if leaf.device.type != "meta":
            return f"does not keep its device: init makes {path} elsewhere"
    for inputs, ledger in subject.rule_args(cast_tree(list(episode), torch.float32)):
        out = subject.call(inputs, ledger)
        paid = out["components"]
        if tuple(paid) != tuple(subject.rule.components):
            return f"pays components {list(paid)}, but says {list(subject.rule.components)}"
        numbers = {"reward": out["reward"], **paid, "potential": out["potential"]}
        for name, value in numbers.items():
            if fault := form_fault(name, value, tuple(inputs.horizon.shape)):
                return f"pays other numbers than one per env: {fault}"
        wrong = tree_form(ledger)[0] ^ tree_form(out["ledger"])[0]
        if wrong:
            return f"does not keep the leaves of its ledger: {min(wrong)[0]} is another one"
    return ""


def finite(subject: RewardSubject, episode: Episode) -> str:
    """Rewards are finite and do not read invalid values, which may be NaN or infinite."""
    for (inputs, ledger), wrong in itertools.product(subject.rule_args(episode), _INVALID_VALUES):
        out = subject.call(replace_invalid(inputs, wrong), ledger)
        bad = sorted(path for path, leaf in leaves(out).items() if not bool(leaf.isfinite().all()))
        if bad:
            return f"pays a non-finite number: {bad[0]}, where an invalid value is {wrong:g}"
        other = sorted(differing_leaves(out, subject.call(inputs, ledger)))
        if other:
            return f"reads invalid values: {other[0]} changes where an invalid value is {wrong:g}"
    return ""


def sums(subject: RewardSubject, episode: Episode) -> str:
    """The components sum to the reward."""
    rewards, components, _ = subject.play(episode)
    gap = _first_gap(rewards, torch.stack(list(components.values())).sum(0))
    return f"has components that do not sum to the reward: {gap}" if gap else ""


def slots(subject: RewardSubject, episode: Episode) -> str:
    """Permuting slots changes no reward."""
    rewards = subject.rewards(episode)
    for order in rotations(episode[0].slots.stage.shape[1]):
        gap = _first_gap(rewards, subject.rewards([permute(step, order) for step in episode]))
        if gap:
            return f"pays for a slot index: {gap} with permuted slots"
    return ""


def unexecuted(subject: RewardSubject, episode: Episode) -> str:
    """An op that did not take effect is rewarded like WAIT."""
    waited = []
    for step in episode:
        op = torch.where(step.op_executed, step.op, int(Op.WAIT))
        waited.append(step.replace(op=op, op_executed=torch.ones_like(step.op_executed)))
    gap = _first_gap(subject.rewards(episode), subject.rewards(waited))
    return f"pays for an op that did not take effect: {gap} for WAIT" if gap else ""


def _first_gap(rewards: Tensor, other: Tensor) -> str:
    """Describe the largest difference between rewards [T, E]; empty if they are equal."""
    if tensors_equal(rewards, other, REWARD_TOLERANCE):
        return ""
    t, env = divmod(int((rewards - other).abs().argmax()), rewards.shape[1])
    pair = f"{float(rewards[t, env]):.6g} and {float(other[t, env]):.6g}"
    return f"step {t + 1} of env {env} has {pair}"


def telescopes(subject: RewardSubject, episode: Episode, *, gamma: float) -> str:
    """The discounted shaping of every segment, from a reset to a termination, sums to 0."""
    parts = subject.play(episode)[1][SHAPING]
    total = torch.zeros_like(parts[0])
    weight = torch.ones_like(parts[0])
    for t, (part, step) in enumerate(zip(parts, episode, strict=True)):
        end = step.horizon | step.rolled_back
        total = total + weight * part
        rest = torch.where(end, total, 0.0)
        env = int(rest.abs().argmax())
        if abs(float(rest[env])) > REWARD_TOLERANCE:
            return (
                f"does not telescope: the discounted {SHAPING} of the segment of env {env} that "
                f"ends in step {t + 1} sums to {float(rest[env]):.6g} instead of 0"
            )
        total = torch.where(end, 0.0, total)
        weight = torch.where(end, 1.0, weight * gamma)
    return ""
