"""The three checks: which laws are asked of a step, of a rule, of a reward rule."""

import functools
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import torch
from hypothesis.strategies import SearchStrategy

from morphogen.errors import ConfigError
from morphogen.testing.builders.tree_equality import cast_tree
from morphogen.testing.laws import reward, step
from morphogen.testing.laws.graph import check_one_graph
from morphogen.testing.laws.reward import RewardSubject
from morphogen.testing.laws.search import Law, SearchSettings, check_laws
from morphogen.testing.laws.step import Subject
from morphogen.testing.strategies import reward_episodes, trajectories

_STEP_CHECKS: dict[str, Callable[[Subject, Any], str]] = {
    "accepts": step.accepts,
    "host": step.host,
    "writes": step.writes,
    "repeats": step.repeats,
    "neighbours": step.neighbours,
    "kinds": step.kinds,
}
_SLOT_CHECKS = {"slots": step.slots}
_REWARD_CHECKS: dict[str, Callable[[reward.RewardSubject, Any], str]] = {
    "shapes": reward.shapes,
    "finite": reward.finite,
    "sums": reward.sums,
    "slots": reward.slots,
    "unexecuted": reward.ignores_unexecuted,
}
# name -> what holds
STEP_LAWS: dict[str, str] = {
    **{name: (law.__doc__ or "").strip() for name, law in _STEP_CHECKS.items()},
    "slots": (step.slots.__doc__ or "").strip(),
    "graph": (check_one_graph.__doc__ or "").strip(),
}
REWARD_LAWS: dict[str, str] = {
    **{name: STEP_LAWS[name] for name in ("accepts", "host", "writes", "repeats", "neighbours", "graph")},
    **{name: (law.__doc__ or "").strip() for name, law in _REWARD_CHECKS.items()},
    **{law.__name__: (law.__doc__ or "").strip() for law in (reward.heads, reward.telescopes, reward.within_bounds)},
}
HEADS_EXAMPLES = 10  # examples of the law `heads`, which plays whole epochs
MAX_SHRINKS, BACKEND = 500, "aot_eager"


def check_step(
    function: Callable,
    states: SearchStrategy,
    *,
    slots: bool = False,
    examples: int | None = None,
    shrinks: int = MAX_SHRINKS,
    skip: Collection[str] = (),
    backend: str = BACKEND,
    **options: Any,
) -> None:
    """Hold a step to the laws of `STEP_LAWS`; the first that is broken is raised as a `BrokenLaw`.

    `states`: draws its arguments, a tuple where there are several; some examples must be of the same shapes.
    `slots`: also ask that permuting slots permutes nothing else.  `examples`: how many; None: as the Hypothesis profile
    in use says; `shrinks`: how often a smaller example is looked for.  `but`: laws that are not asked.  `backend`: of
    `torch.compile`.  `ways`: fields of `Subject`, such as `name`, `tolerance` (0: bit for bit), `env_axis` and
    `slot_axis` of bare tensors.
    """
    laws = {**_STEP_CHECKS, **(_SLOT_CHECKS if slots else {})}
    _check_subject(
        Subject(function, **{"name": callable_name(function), **options}),
        laws,
        states,
        _build_search(examples, shrinks, skip, backend),
    )


def check_rule(
    function: Callable,
    states: SearchStrategy,
    *,
    slots: bool = False,
    examples: int | None = None,
    shrinks: int = MAX_SHRINKS,
    skip: Collection[str] = (),
    backend: str = BACKEND,
    **options: Any,
) -> None:
    """Hold a rule, tensors or sub-states in and out, to the laws of a step; and it returns no whole state.

    Knobs as in `check_step`.
    """
    laws = {**_STEP_CHECKS, "stateless": step.stateless, **(_SLOT_CHECKS if slots else {})}
    _check_subject(
        Subject(function, **{"name": callable_name(function), **options}),
        laws,
        states,
        _build_search(examples, shrinks, skip, backend),
    )


def check_reward(
    rule: Any,
    *,
    gamma: float | None = None,
    component: str = "shaping",
    bounds: tuple[float, float] | None = None,
    slots: int = 3,
    examples: int | None = None,
    shrinks: int = MAX_SHRINKS,
    skip: Collection[str] = (),
    backend: str = BACKEND,
    **options: Any,
) -> None:
    """Hold a reward rule to the laws of `REWARD_LAWS`; the first that is broken is raised as a `BrokenLaw`.

    `rule`: as in `rules.rewards.rule`.  `gamma`: also ask that the named component telescopes under this discount.
    `bounds`: also ask that every reward lies between two numbers.  `slots`: how many each env has.  `examples`,
    `shrinks`, `but`, `backend` as in `check_step`.  `ways`: `name`, and `tolerance` for a row alone against the row in
    the batch.
    """
    payer, search = (
        RewardSubject(rule, **{"name": callable_name(rule), **options}),
        _build_search(examples, shrinks, skip, backend),
    )
    wanted = {name: functools.partial(law, payer) for name, law in _REWARD_CHECKS.items()}
    laws = {**reward.step_laws(payer), **wanted, **_optional_laws(payer, gamma, component, bounds)}
    episodes = check_laws(payer.name, laws, reward_episodes(max_steps=3, slots=slots), search)
    played = replace(search, examples=min(HEADS_EXAMPLES, examples or HEADS_EXAMPLES))
    check_laws(payer.name, {"heads": functools.partial(reward.heads, payer)}, trajectories(max_steps=3), played)
    if "graph" not in skip:
        pairs = [pair for episode in episodes for pair in payer.rule_args(cast_tree(episode, torch.float32))]
        check_one_graph(Subject(payer.call, payer.name), pairs, backend=backend)


def callable_name(function: Any) -> str:
    """Name of a function or an object in a sentence."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)


def _build_search(examples: int | None, shrinks: int, skip: Collection[str], backend: str) -> SearchSettings:
    """The knobs of a search, names of laws checked."""
    known = {**STEP_LAWS, **REWARD_LAWS}
    unknown = sorted(set(skip) - known.keys())
    if unknown:
        raise ConfigError(f"but is {unknown}; want names of laws out of {', '.join(known)}")
    return SearchSettings(examples=examples, max_shrinks=shrinks, skip=skip, backend=backend)


def _optional_laws(
    payer: RewardSubject, gamma: float | None, component: str, bounds: tuple[float, float] | None
) -> dict[str, Law]:
    """The laws that are asked only of rules that say so."""
    laws: dict[str, Law] = {}
    if gamma is not None:
        if component not in payer.rule.components:
            raise ConfigError(f"component is {component!r}; want one of {', '.join(payer.rule.components)}")
        laws["telescopes"] = functools.partial(reward.telescopes, payer, gamma=gamma, component=component)
    if bounds is not None:
        laws["within_bounds"] = functools.partial(reward.within_bounds, payer, low=bounds[0], high=bounds[1])
    return laws


def _check_subject(
    subject: Subject, laws: Mapping[str, Callable[[Subject, Any], str]], states: SearchStrategy, search: SearchSettings
) -> None:
    drawn = check_laws(
        subject.name, {name: functools.partial(law, subject) for name, law in laws.items()}, states, search
    )
    if "graph" not in search.skip:
        check_one_graph(subject, drawn, backend=search.backend)
