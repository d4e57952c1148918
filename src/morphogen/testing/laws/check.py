"""The three checks: which laws are asked of a step, of a rule, of a reward rule."""

import functools
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import torch
from hypothesis.strategies import SearchStrategy

from morphogen.errors import ConfigError
from morphogen.testing.builders.tree_equality import cast
from morphogen.testing.laws import reward, step
from morphogen.testing.laws.graph import one_graph
from morphogen.testing.laws.reward import Payer
from morphogen.testing.laws.search import Law, Search, hold
from morphogen.testing.laws.step import Subject
from morphogen.testing.strategies import reward_episodes, trajectories

_STEP: dict[str, Callable[[Subject, Any], str]] = {
    "accepts": step.accepts,
    "host": step.host,
    "writes": step.writes,
    "repeats": step.repeats,
    "neighbours": step.neighbours,
    "kinds": step.kinds,
}
_SLOTS = {"slots": step.slots}
_REWARD: dict[str, Callable[[reward.Payer, Any], str]] = {
    "shapes": reward.shapes,
    "finite": reward.finite,
    "sums": reward.sums,
    "slots": reward.slots,
    "unexecuted": reward.unexecuted,
}
# name -> what holds
STEP_LAWS: dict[str, str] = {
    **{name: (law.__doc__ or "").strip() for name, law in _STEP.items()},
    "slots": (step.slots.__doc__ or "").strip(),
    "graph": (one_graph.__doc__ or "").strip(),
}
REWARD_LAWS: dict[str, str] = {
    **{name: STEP_LAWS[name] for name in ("accepts", "host", "writes", "repeats", "neighbours", "graph")},
    **{name: (law.__doc__ or "").strip() for name, law in _REWARD.items()},
    **{law.__name__: (law.__doc__ or "").strip() for law in (reward.heads, reward.telescopes, reward.bounded)},
}
PLAYED = 10  # examples of the law `heads`, which plays whole epochs
SHRINKS, BACKEND = 500, "aot_eager"


def check_step(
    called: Callable,
    states: SearchStrategy,
    *,
    slots: bool = False,
    examples: int | None = None,
    shrinks: int = SHRINKS,
    but: Collection[str] = (),
    backend: str = BACKEND,
    **ways: Any,
) -> None:
    """Hold a step to the laws of `STEP_LAWS`; the first that is broken is raised as a `BrokenLaw`.

    `states`: draws its arguments, a tuple where there are several; some examples must be of the same shapes.
    `slots`: also ask that permuting slots permutes nothing else.  `examples`: how many; None: as the Hypothesis profile
    in use says; `shrinks`: how often a smaller example is looked for.  `but`: laws that are not asked.  `backend`: of
    `torch.compile`.  `ways`: fields of `Subject`, such as `name`, `tolerance` (0: bit for bit), `env_axis` and
    `slot_axis` of bare tensors.
    """
    laws = {**_STEP, **(_SLOTS if slots else {})}
    _hold(Subject(called, **{"name": name_of(called), **ways}), laws, states, _search(examples, shrinks, but, backend))


def check_rule(
    called: Callable,
    states: SearchStrategy,
    *,
    slots: bool = False,
    examples: int | None = None,
    shrinks: int = SHRINKS,
    but: Collection[str] = (),
    backend: str = BACKEND,
    **ways: Any,
) -> None:
    """Hold a rule, tensors or sub-states in and out, to the laws of a step; and it returns no whole state.

    Knobs as in `check_step`.
    """
    laws = {**_STEP, "stateless": step.stateless, **(_SLOTS if slots else {})}
    _hold(Subject(called, **{"name": name_of(called), **ways}), laws, states, _search(examples, shrinks, but, backend))


def check_reward(
    rule: Any,
    *,
    gamma: float | None = None,
    component: str = "shaping",
    bounds: tuple[float, float] | None = None,
    slots: int = 3,
    examples: int | None = None,
    shrinks: int = SHRINKS,
    but: Collection[str] = (),
    backend: str = BACKEND,
    **ways: Any,
) -> None:
    """Hold a reward rule to the laws of `REWARD_LAWS`; the first that is broken is raised as a `BrokenLaw`.

    `rule`: as in `rules.rewards.rule`.  `gamma`: also ask that the named component telescopes under this discount.
    `bounds`: also ask that every reward lies between two numbers.  `slots`: how many each env has.  `examples`,
    `shrinks`, `but`, `backend` as in `check_step`.  `ways`: `name`, and `tolerance` for a row alone against the row in
    the batch.
    """
    payer, search = Payer(rule, **{"name": name_of(rule), **ways}), _search(examples, shrinks, but, backend)
    wanted = {name: functools.partial(law, payer) for name, law in _REWARD.items()}
    laws = {**reward.of_steps(payer), **wanted, **_optional(payer, gamma, component, bounds)}
    episodes = hold(payer.name, laws, reward_episodes(max_steps=3, slots=slots), search)
    played = replace(search, examples=min(PLAYED, examples or PLAYED))
    hold(payer.name, {"heads": functools.partial(reward.heads, payer)}, trajectories(max_steps=3), played)
    if "graph" not in but:
        pairs = [pair for episode in episodes for pair in payer.pairs(cast(episode, torch.float32))]
        one_graph(Subject(payer.call, payer.name), pairs, backend=backend)


def name_of(called: Any) -> str:
    """What a function or an object is called in a sentence."""
    while isinstance(called, functools.partial):
        called = called.func
    return getattr(called, "__name__", type(called).__name__)


def _search(examples: int | None, shrinks: int, but: Collection[str], backend: str) -> Search:
    """The knobs of a search, names of laws checked."""
    known = {**STEP_LAWS, **REWARD_LAWS}
    unknown = sorted(set(but) - known.keys())
    if unknown:
        raise ConfigError(f"but is {unknown}; want names of laws out of {', '.join(known)}")
    return Search(examples=examples, shrinks=shrinks, but=but, backend=backend)


def _optional(payer: Payer, gamma: float | None, component: str, bounds: tuple[float, float] | None) -> dict[str, Law]:
    """The laws that are asked only of rules that say so."""
    laws: dict[str, Law] = {}
    if gamma is not None:
        if component not in payer.rule.components:
            raise ConfigError(f"component is {component!r}; want one of {', '.join(payer.rule.components)}")
        laws["telescopes"] = functools.partial(reward.telescopes, payer, gamma=gamma, component=component)
    if bounds is not None:
        laws["bounded"] = functools.partial(reward.bounded, payer, low=bounds[0], high=bounds[1])
    return laws


def _hold(
    subject: Subject, laws: Mapping[str, Callable[[Subject, Any], str]], states: SearchStrategy, search: Search
) -> None:
    drawn = hold(subject.name, {name: functools.partial(law, subject) for name, law in laws.items()}, states, search)
    if "graph" not in search.but:
        one_graph(subject, drawn, backend=search.backend)
