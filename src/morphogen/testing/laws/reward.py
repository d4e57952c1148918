"""The laws of a reward rule: what holds whatever is paid for.  An example is an episode, one `RewardInputs` a step."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.state.measure import RewardInputs
from morphogen.testing.builders.permute import permute
from morphogen.testing.builders.reward_inputs import play, spoiled
from morphogen.testing.builders.synthetic_epoch import Moment, epoch
from morphogen.testing.builders.tree_equality import cast, copied, differing, equal, leaves
from morphogen.testing.laws.search import BY_FORM, Law
from morphogen.testing.laws.step import Subject, accepts, host, neighbours, repeats, writes
from morphogen.vocab.action import RELEVANT, Head, Op

EXACT = 1e-9  # rewards in float64
_WRONG = (0.0, math.nan, math.inf, -math.inf)  # what stands where nothing was measured
Episode = Sequence[RewardInputs]


class Pair(NamedTuple):
    """What a rule is given in one step."""

    inputs: RewardInputs
    ledger: TensorDict


@dataclass(frozen=True, slots=True)
class Payer:
    """A reward rule that is held to the laws."""

    rule: Any
    name: str
    tolerance: float = 0.0

    def call(self, inputs: RewardInputs, ledger: TensorDict) -> dict[str, Any]:
        """Everything that the rule says about one step."""
        reward, components, after = self.rule(inputs, ledger)
        potential, measured = self.rule.potential(inputs, ledger)
        out = {"reward": reward, "components": components, "ledger": after}
        return {**out, "potential": potential, "measured": measured}

    def pairs(self, episode: Episode) -> Iterator[Pair]:
        """What the rule is given in each step, inputs and ledger, each time tensors of its own."""
        ledger = self.rule.init(*episode[0].slots.stage.shape)
        for step in episode:
            yield copied(Pair(step, ledger))
            ledger = self.rule(*copied(Pair(step, ledger)))[2]

    def paid(self, episode: Episode) -> Tensor:
        """Rewards of an episode.  -> [T, E]."""
        return play(self.rule, copied(list(episode)))[0]


def of_steps(payer: Payer) -> dict[str, Law]:
    """The laws of any step, asked in every step of an episode."""
    subject = Subject(payer.call, payer.name, tolerance=payer.tolerance, source=payer.rule)
    laws = {"accepts": accepts, "host": host, "writes": writes, "repeats": repeats, "neighbours": neighbours}

    def over(name: str, law: Any) -> Law:
        steps = 2 if name in BY_FORM else None  # in the second step the ledger has taken the dtype of the inputs
        return lambda episode: next(
            (text for pair in itertools.islice(payer.pairs(episode), steps) if (text := law(subject, pair))), ""
        )

    return {name: over(name, law) for name, law in laws.items()}


def shapes(payer: Payer, episode: Episode) -> str:
    """Reward and components are [E] in the dtype of the inputs; the ledger keeps its leaves and its device."""
    strays = [path for path, leaf in leaves(payer.rule.init(2, 3, "meta")).items() if leaf.device.type != "meta"]
    if strays:
        return f"does not keep its device: init makes {strays[0]} elsewhere"
    pairs = payer.pairs(cast(list(episode), torch.float32))
    return next((text for pair in pairs if (text := _shapes(payer, pair))), "")


def _shapes(payer: Payer, pair: Pair) -> str:
    out = payer.call(*pair)
    if tuple(out["components"]) != tuple(payer.rule.components):
        return f"pays components {list(out['components'])}, but says {list(payer.rule.components)}"
    for name, value in {"reward": out["reward"], **out["components"], "potential": out["potential"]}.items():
        if (value.shape, value.dtype) != (pair.inputs.horizon.shape, torch.float32):
            return f"pays {name} as {value.dtype} {list(value.shape)}; want the dtype of its inputs and one an env"
    was, now = leaves(pair.ledger), leaves(out["ledger"])
    wrong = sorted(path for path in was.keys() | now.keys() if _kind(was.get(path)) != _kind(now.get(path)))
    return f"does not keep the leaves of its ledger: {wrong[0]} is another kind after a step" if wrong else ""


def _kind(leaf: Tensor | None) -> Any:
    return None if leaf is None else (leaf.dtype, leaf.shape)


def finite(payer: Payer, episode: Episode) -> str:
    """Rewards are finite and do not read what is not valid, NaN and infinities there too."""
    tries = itertools.product(payer.pairs(episode), _WRONG)
    return next((text for pair, wrong in tries if (text := _finite(payer, pair, wrong))), "")


def _finite(payer: Payer, pair: Pair, wrong: float) -> str:
    clean, out = payer.call(*pair), payer.call(spoiled(pair.inputs, wrong), pair.ledger)
    where = f"where a value that is not valid is {wrong:g}"
    bad = sorted(path for path, leaf in leaves(out).items() if not bool(leaf.isfinite().all()))
    if bad:
        return f"pays what is not finite: {bad[0]} is not, {where}"
    other = sorted(differing(out, clean))
    return f"reads what is not valid: {other[0]} changes {where}" if other else ""


def sums(payer: Payer, episode: Episode) -> str:
    """The components sum to the reward."""
    for inputs, ledger in payer.pairs(episode):
        out = payer.call(inputs, ledger)
        total = torch.stack([out["components"][name] for name in payer.rule.components]).sum(0)
        if not equal(out["reward"], total, EXACT):
            env = int((out["reward"] - total).abs().argmax())
            pair = f"{float(total[env]):.6g} and the reward is {float(out['reward'][env]):.6g}"
            return f"has components that do not sum to the reward: in env {env} they are {pair}"
    return ""


def slots(payer: Payer, episode: Episode) -> str:
    """Permuting slots changes no reward."""
    count, here = episode[0].slots.stage.shape[1], payer.paid(episode)
    for shift in range(1, count):
        order = [*range(shift, count), *range(shift)]
        there = payer.paid([permute(step, order) for step in episode])
        if not equal(here, there, EXACT):
            t, env = divmod(int((here - there).abs().argmax()), here.shape[1])
            pair = f"{float(here[t, env]):.6g} for env {env}, and {float(there[t, env]):.6g} with its slots permuted"
            return f"pays for a slot index: step {t + 1} is {pair}"
    return ""


def unexecuted(payer: Payer, episode: Episode) -> str:
    """An op that did not take effect is paid like WAIT."""
    waited = [
        step.replace(
            op=torch.where(step.op_executed, step.op, int(Op.WAIT)), op_executed=torch.ones_like(step.op_executed)
        )
        for step in episode
    ]
    here, there = payer.paid(episode), payer.paid(waited)
    if equal(here, there, EXACT):
        return ""
    t, env = divmod(int((here - there).abs().argmax()), here.shape[1])
    op = Op(int(episode[t].op[env])).name
    return (
        f"pays for an op that did not take effect: {op} in env {env} makes {float(here[t, env] - there[t, env]):+.6g}"
    )


def heads(payer: Payer, moments: Sequence[Moment]) -> str:
    """Heads of the action that the op does not use change no reward, on the whole way from action to reward."""
    relevant = torch.tensor(RELEVANT)
    here = payer.paid([moment.inputs for moment in moments])
    noisy = []
    for moment in moments:
        filled = torch.where(relevant[moment.action[:, Head.OP]], moment.action, 7 - moment.action)
        noisy.append(epoch(moment.before, filled, moment.made, moment.terms).inputs)
    there = payer.paid(noisy)
    return "" if equal(here, there) else "pays for heads of the action that the op does not use"


def telescopes(payer: Payer, episode: Episode, *, gamma: float, component: str) -> str:
    """The discounted shaping of every segment, from a reset to a termination, sums to 0."""
    parts = play(payer.rule, copied(list(episode)))[1][component]
    ended = torch.stack([step.horizon | step.rolled_back for step in episode])
    total, weight = torch.zeros_like(parts[0]), torch.ones_like(parts[0])
    for t, (part, end) in enumerate(zip(parts, ended, strict=True)):
        total, weight = total + weight * part, weight * gamma
        rest = torch.where(end, total, 0.0)
        if not equal(rest, torch.zeros_like(rest), EXACT):
            env = int(rest.abs().argmax())
            where = f"of the segment of env {env} that ends in step {t + 1}"
            return f"does not telescope: the discounted {component} {where} sums to {float(rest[env]):.6g} instead of 0"
        total, weight = torch.where(end, 0.0, total), torch.where(end, 1.0, weight)
    return ""


def bounded(payer: Payer, episode: Episode, *, low: float, high: float) -> str:
    """Every reward lies between two bounds."""
    paid = payer.paid(episode)
    worst = float(torch.maximum(low - paid, paid - high).max())
    least, most = float(paid.min()), float(paid.max())
    return f"leaves its bounds: it pays {least:.6g} .. {most:.6g}; want {low} .. {high}" if worst > EXACT else ""
