"""Masks, decode and the reward of a step, per env: eager against compiled.

Run: `python -m bench.speed.rules [--envs 1024] [--json bench/results/reward.json]`. `reward_*` is a
rule of the table with all its components, over scripted episodes.  `score_*` is the whole step that
scores: the inputs of the rule, the rule, its split by slots, the detectors and the close of the
epoch.  A timed call is an episode, or the same number of calls on one state.  Both forms must agree
to 1e-6; compile time is reported separately.
"""

import functools
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from bench.harness.bench_scenes import build_scene
from bench.harness.timing import (
    Bench,
    Measure,
    median_measure,
    ratio_measure,
    run_bench,
)
from morphogen.config.groups import GovernorSpec, LifecycleSpec, RewardSpec, SignalSpec
from morphogen.config.parts import RULES
from morphogen.extras.archetypes.scripted_policies import (
    ARCHETYPES,
    SLOTS,
    STEPS,
    TERMS,
    archetype_inputs,
)
from morphogen.rules.counts import seed_params
from morphogen.rules.decoding import decode
from morphogen.rules.legality import action_masks
from morphogen.rules.rewards.table import build_rule
from morphogen.state.measure import RewardInputs
from morphogen.steps.apply import apply_action
from morphogen.steps.govern_step import govern
from morphogen.steps.score_step import ScoreInputs, attribute, score
from morphogen.steps.train import finish_epoch, start_epoch
from morphogen.testing.builders.tree_equality import leaves
from morphogen.vocab.action import PLACEHOLDER, SIZES, Head
from morphogen.vocab.limits import Limits

Call = Callable[..., Any]


def scripted_steps(envs: int, device: torch.device) -> list[RewardInputs]:
    """Every step of the scripted lives, which are repeated over the envs: [E] each."""
    whole: Any = archetype_inputs(list(ARCHETYPES.values()), dtype=torch.float32)
    rows = torch.arange(envs) % len(ARCHETYPES)
    return [step.clone().to(device) for step in whole[:, rows]]


def pay_episode(rule: Call, *, steps: list[RewardInputs], ledger: TensorDict) -> Tensor:
    """Return the sum of rewards of an episode.  [E]."""
    paid = []
    for step in steps:
        reward, _, ledger = rule(step, ledger)
        paid.append(reward)
    return torch.stack(paid).sum(0)


def repeat_call(rule: Call, *, args: tuple) -> object:
    """A rule on one and the same state, as often as a life has steps."""
    return [rule(*args) for _ in range(STEPS)][-1]


def build_paying_step(envs: int, name: str, device: torch.device) -> tuple[Call, tuple]:
    """The step that pays by a rule, and its arguments after an epoch of hosts with seeds."""
    rule = build_rule(RewardSpec(rule=name), **asdict(TERMS))
    scene = build_scene("digits", envs, "mixed", val_samples=1)
    before = scene.state.replace(ledger=rule.init(envs, SLOTS))
    action = torch.tensor([PLACEHOLDER] * envs)
    heads = decode(action, before.slots, Limits((True,) * SLOTS))
    acted, outcome = apply_action(before, heads, lifecycle=LifecycleSpec())
    start = start_epoch(acted, scene.plan, net=scene.net)
    trained, metrics = finish_epoch(acted, start, scene.plan, net=scene.net)
    validation = scene.validate()
    attributed, attribution = attribute(
        trained, validation, every=1, episode_length=STEPS, signal_spec=SignalSpec()
    )
    governed, report = govern(attributed, validation, metrics, spec=GovernorSpec(), minibatches=1)
    sizes = (
        seed_params(state.slots, scene.net.counts, scene.net.gate_counts)
        for state in (before, governed)
    )
    host_params = torch.full((envs,), scene.net.host_size)
    measured = outcome, attribution, report, validation
    given = ScoreInputs(before, *measured, host_params, *sizes, 0.0, STEPS)
    placed = (part.to(device) if hasattr(part, "to") else part for part in given)
    pay = functools.partial(score, rule=rule, param_budget=TERMS.param_budget)
    return pay, (governed.to(device), ScoreInputs(*placed))


def build_subjects(envs: int, device: torch.device) -> dict[str, tuple[Call, Call]]:
    """Name -> a rule, and what calls it STEPS times."""
    slots = build_scene("digits", envs, "mixed", val_samples=1, device=device).state.slots
    limits, count = Limits((True,) * slots.stage.shape[1]), slots.stage.shape[1]
    sizes = torch.tensor([SIZES.get(head, count) for head in Head], device=device)
    action = torch.arange(envs, device=device).unsqueeze(-1) % sizes
    found: dict[str, tuple[Call, Call]] = {
        "masks": (
            lambda slots: action_masks(slots, limits),
            functools.partial(repeat_call, args=(slots,)),
        ),
        "decode": (
            lambda *given: decode(*given, limits),
            functools.partial(repeat_call, args=(action, slots)),
        ),
    }
    steps = scripted_steps(envs, device)
    for name in RULES:
        rule = build_rule(RewardSpec(rule=name), **asdict(TERMS))
        whole = functools.partial(pay_episode, steps=steps, ledger=rule.init(envs, SLOTS, device))
        found[f"reward_{name}"] = (lambda *given, rule=rule: rule(*given), whole)
        pay, given = build_paying_step(envs, name, device)
        found[f"score_{name}"] = (pay, functools.partial(repeat_call, args=given))
    return found


@torch.no_grad()
def measures(bench: Bench, envs: int = 1024) -> list[Measure]:
    """Microseconds per env and step, eager and compiled; seconds of the first compiled call."""
    found = []
    for name, (rule, call) in build_subjects(envs, bench.device).items():
        torch._dynamo.reset()
        rules = {"eager": rule, "compiled": torch.compile(rule, fullgraph=True)}
        forms = {form: functools.partial(call, own) for form, own in rules.items()}
        first = bench.time_call(forms["compiled"])
        torch.testing.assert_close(
            leaves(forms["compiled"]()), leaves(forms["eager"]()), rtol=1e-6, atol=1e-5
        )
        seconds = bench.time_interleaved(forms)
        each = {form: [1e6 * t / STEPS / envs for t in times] for form, times in seconds.items()}
        found += [median_measure(f"{name}_{form}", times, "us") for form, times in each.items()]
        found += [
            ratio_measure(f"{name}_speedup", seconds["eager"], seconds["compiled"]),
            median_measure(f"{name}_compile", [first], "s"),
        ]
    return found


if __name__ == "__main__":
    run_bench(__doc__, measures, envs=1024)
