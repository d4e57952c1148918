"""Laws of a reward rule.  An example is an episode, one `RewardInputs` per step."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.rules.rewards.protocol import Rule
from morphogen.state.measure import RewardInputs
from morphogen.testing.builders.permute import permute
from morphogen.testing.builders.reward_inputs import play_rule, replace_invalid
from morphogen.testing.builders.synthetic_epoch import SyntheticEpoch, run_epoch
from morphogen.testing.builders.tree_equality import (
    cast_tree,
    copy_tree,
    differing_leaves,
    leaves,
    tensors_equal,
)
from morphogen.testing.laws.search import Law
from morphogen.testing.laws.step import Subject, accepts, host, neighbours, repeats, writes
from morphogen.vocab.action import RELEVANT, Head, Op

REWARD_TOLERANCE = 1e-9  # rewards in float64
_INVALID_VALUES = (0.0, math.nan, math.inf, -math.inf)  # contents of invalid fields
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

    def rewards(self, episode: Episode) -> Tensor:
        """Rewards of an episode.  -> [T, E]."""
        return play_rule(self.rule, copy_tree(list(episode)))[0]


def step_laws(payer: RewardSubject) -> dict[str, Law]:
    """Return the laws of any step, checked in every step of an episode."""
    subject = Subject(
        payer.call,
        payer.name,
        tolerance=payer.tolerance,
        source=getattr(payer.rule, "function", payer.rule),
    )

    def over(law: Callable[[Subject, Any], str]) -> Law:
        # from the second step on the ledger has the dtype of the inputs
        steps = 2 if law is host else None
        return lambda episode: next(
            (
                text
                for pair in itertools.islice(payer.rule_args(episode), steps)
                if (text := law(subject, pair))
            ),
            "",
        )

    return {law.__name__: over(law) for law in (accepts, host, writes, repeats, neighbours)}


def shapes(subject: RewardSubject, episode: Episode) -> str:
    """Reward and components are [E] in the dtype of the inputs; the ledger keeps its leaves and its
    device.
    """
    strays = [
        path
        for path, leaf in leaves(subject.rule.init(2, 3, "meta")).items()
        if leaf.device.type != "meta"
    ]
    if strays:
        return f"does not keep its device: init makes {strays[0]} elsewhere"
    for inputs, ledger in subject.rule_args(cast_tree(list(episode), torch.float32)):
        out = subject.call(inputs, ledger)
        if tuple(out["components"]) != tuple(subject.rule.components):
            return (
                f"pays components {list(out['components'])}, but says "
                f"{list(subject.rule.components)}"
            )
        for name, value in {
            "reward": out["reward"],
            **out["components"],
            "potential": out["potential"],
        }.items():
            if (value.shape, value.dtype) != (inputs.horizon.shape, torch.float32):
                return (
                    f"pays {name} as {value.dtype} {list(value.shape)}, not in the dtype of its "
                    "inputs, one per env"
                )
        before, after = (
            {(path, leaf.dtype, leaf.shape) for path, leaf in leaves(tree).items()}
            for tree in (ledger, out["ledger"])
        )
        wrong = sorted(path for path, _, _ in before ^ after)
        if wrong:
            return (
                f"does not keep the leaves of its ledger: {wrong[0]} has another dtype or shape "
                "after a step"
            )
    return ""


def finite(subject: RewardSubject, episode: Episode) -> str:
    """Rewards are finite and do not read invalid values, which may be NaN or infinite."""
    for (inputs, ledger), wrong in itertools.product(subject.rule_args(episode), _INVALID_VALUES):
        clean = subject.call(inputs, ledger)
        out = subject.call(replace_invalid(inputs, wrong), ledger)
        bad = sorted(path for path, leaf in leaves(out).items() if not bool(leaf.isfinite().all()))
        if bad:
            return f"pays a non-finite number: {bad[0]}, where an invalid value is {wrong:g}"
        other = sorted(differing_leaves(out, clean))
        if other:
            return f"reads invalid values: {other[0]} changes where an invalid value is {wrong:g}"
    return ""


def sums(subject: RewardSubject, episode: Episode) -> str:
    """The components sum to the reward."""
    for inputs, ledger in subject.rule_args(episode):
        out = subject.call(inputs, ledger)
        total = torch.stack([out["components"][name] for name in subject.rule.components]).sum(0)
        if not tensors_equal(out["reward"], total, REWARD_TOLERANCE):
            env = int((out["reward"] - total).abs().argmax())
            pair = f"{float(total[env]):.6g} and the reward is {float(out['reward'][env]):.6g}"
            return f"has components that do not sum to the reward: in env {env} they are {pair}"
    return ""


def slots(subject: RewardSubject, episode: Episode) -> str:
    """Permuting slots changes no reward."""
    count = episode[0].slots.stage.shape[1]
    rewards = subject.rewards(episode)
    for shift in range(1, count):
        order = [*range(shift, count), *range(shift)]
        moved = subject.rewards([permute(step, order) for step in episode])
        if not tensors_equal(rewards, moved, REWARD_TOLERANCE):
            t, env = divmod(int((rewards - moved).abs().argmax()), rewards.shape[1])
            pair = (
                f"{float(rewards[t, env]):.6g} for env {env}, and {float(moved[t, env]):.6g} "
                "with its slots permuted"
            )
            return f"pays for a slot index: step {t + 1} is {pair}"
    return ""


def unexecuted(subject: RewardSubject, episode: Episode) -> str:
    """An op that did not take effect is paid like WAIT."""
    waited = []
    for step in episode:
        op = torch.where(step.op_executed, step.op, int(Op.WAIT))
        waited.append(step.replace(op=op, op_executed=torch.ones_like(step.op_executed)))
    rewards = subject.rewards(episode)
    without = subject.rewards(waited)
    if tensors_equal(rewards, without, REWARD_TOLERANCE):
        return ""
    t, env = divmod(int((rewards - without).abs().argmax()), rewards.shape[1])
    name = Op(int(episode[t].op[env])).name
    difference = float(rewards[t, env] - without[t, env])
    return f"pays for an op that did not take effect: {name} in env {env} makes {difference:+.6g}"


def heads(subject: RewardSubject, epochs: Sequence[SyntheticEpoch]) -> str:
    """Heads of the action that the op does not use change no reward, from the action to the
    reward.
    """
    relevant = torch.tensor(RELEVANT, device="cpu")
    rewards = subject.rewards([moment.inputs for moment in epochs])
    noisy = []
    for moment in epochs:
        filled = torch.where(relevant[moment.action[:, Head.OP]], moment.action, 7 - moment.action)
        noisy.append(run_epoch(moment.before, filled, moment.measurements, moment.terms).inputs)
    changed = subject.rewards(noisy)
    return (
        ""
        if tensors_equal(rewards, changed)
        else "pays for heads of the action that the op does not use"
    )


def telescopes(subject: RewardSubject, episode: Episode, *, gamma: float, component: str) -> str:
    """The discounted shaping of every segment, from a reset to a termination, sums to 0."""
    parts = play_rule(subject.rule, copy_tree(list(episode)))[1][component]
    ended = torch.stack([step.horizon | step.rolled_back for step in episode])
    total = torch.zeros_like(parts[0])
    weight = torch.ones_like(parts[0])
    for t, (part, end) in enumerate(zip(parts, ended, strict=True)):
        total = total + weight * part
        weight = weight * gamma
        rest = torch.where(end, total, 0.0)
        if not tensors_equal(rest, torch.zeros_like(rest), REWARD_TOLERANCE):
            env = int(rest.abs().argmax())
            where = f"of the segment of env {env} that ends in step {t + 1}"
            return (
                f"does not telescope: the discounted {component} {where} sums to "
                f"{float(rest[env]):.6g} instead of 0"
            )
        total = torch.where(end, 0.0, total)
        weight = torch.where(end, 1.0, weight)
    return ""


def within_bounds(subject: RewardSubject, episode: Episode, *, low: float, high: float) -> str:
    """Every reward lies between two bounds."""
    paid = subject.rewards(episode)
    worst = float(torch.maximum(low - paid, paid - high).max())
    pays = f"{float(paid.min()):.6g} .. {float(paid.max()):.6g}"
    return f"leaves its bounds {low} .. {high}: it pays {pays}" if worst > REWARD_TOLERANCE else ""
