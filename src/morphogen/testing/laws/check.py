"""The three checks: which laws are asked of a step, of a rule, of a reward rule."""

import functools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis.strategies import SearchStrategy

from morphogen.errors import ConfigError
from morphogen.testing.laws import reward, step
from morphogen.testing.laws.graph import one_graph
from morphogen.testing.laws.reward import Payer
from morphogen.testing.laws.search import Law, hold
from morphogen.testing.laws.step import Subject
from morphogen.testing.strategies import reward_episodes, trajectories
from morphogen.testing.trees import cast

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


@dataclass(frozen=True, slots=True)
class _Search:
    """How much is tried."""

    examples: int | None
    but: Collection[str]
    backend: str

    def __post_init__(self) -> None:
        known = {**STEP_LAWS, **REWARD_LAWS}
        unknown = sorted(set(self.but) - known.keys())
        if unknown:
            raise ConfigError(f"but is {unknown}; want names of laws out of {', '.join(known)}")

    def asked(self, laws: Mapping[str, Law]) -> dict[str, Law]:
        """The laws without those that are not asked."""
        return {name: law for name, law in laws.items() if name not in self.but}


def check_step(
    called: Callable,
    states: SearchStrategy,
    *,
    slots: bool = False,
    examples: int | None = None,
    but: Collection[str] = (),
    backend: str = "aot_eager",
    **ways: Any,
) -> None:
    """Hold a step to the laws of `STEP_LAWS`; the first that is broken is raised as a `BrokenLaw`.

    `states`: draws its arguments, a tuple where there are several; some examples must be of the same shapes.
    `slots`: also ask that permuting slots permutes nothing else.  `examples`: how many; None: as the Hypothesis profile
    in use says.  `but`: laws that are not asked.  `backend`: of `torch.compile`.  `ways`: fields of `laws.Subject`,
    such as `name`, `tolerance` (0: bit for bit), `env_axis` and `slot_axis` of bare tensors.
    """
    laws = {**_STEP, **(_SLOTS if slots else {})}
    _hold(Subject(called, **{"name": name_of(called), **ways}), laws, states, _Search(examples, but, backend))


def check_rule(
    called: Callable,
    states: SearchStrategy,
    *,
    slots: bool = False,
    examples: int | None = None,
    but: Collection[str] = (),
    backend: str = "aot_eager",
    **ways: Any,
) -> None:
    """Hold a rule, tensors or sub-states in and out, to the laws of a step; and it returns no whole state.

    Knobs as in `check_step`.
    """
    laws = {**_STEP, "stateless": step.stateless, **(_SLOTS if slots else {})}
    _hold(Subject(called, **{"name": name_of(called), **ways}), laws, states, _Search(examples, but, backend))


def check_reward(
    rule: Any,
    *,
    gamma: float | None = None,
    component: str = "shaping",
    bounds: tuple[float, float] | None = None,
    slots: int = 3,
    examples: int | None = None,
    but: Collection[str] = (),
    backend: str = "aot_eager",
    **ways: Any,
) -> None:
    """Hold a reward rule to the laws of `REWARD_LAWS`; the first that is broken is raised as a `BrokenLaw`.

    `rule`: as in `rules.rewards.table`.  `gamma`: also ask that the named component telescopes under this discount.
    `bounds`: also ask that every reward lies between two numbers.  `slots`: how many each env has.  `examples`, `but`,
    `backend` as in `check_step`.  `ways`: `name`, and `tolerance` for a row alone against the row in the batch.
    """
    payer, search = Payer(rule, **{"name": name_of(rule), **ways}), _Search(examples, but, backend)
    wanted = {name: functools.partial(law, payer) for name, law in _REWARD.items()}
    laws = {**reward.of_steps(payer), **wanted, **_optional(payer, gamma, component, bounds)}
    episodes = hold(payer.name, search.asked(laws), reward_episodes(slots=slots), examples)
    played = {"heads": functools.partial(reward.heads, payer)}
    hold(payer.name, search.asked(played), trajectories(max_steps=3), min(PLAYED, examples or PLAYED))
    if "graph" not in but:
        pairs = [pair for episode in episodes for pair in payer.pairs(cast(episode, torch.float32))]
        one_graph(Subject(payer.call, payer.name), pairs, backend=backend)


def _optional(
    payer: Payer, gamma: float | None, component: str, bounds: tuple[float, float] | None
) -> dict[str, Law]:
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
    subject: Subject, laws: Mapping[str, Callable[[Subject, Any], str]], states: SearchStrategy, search: _Search
) -> None:
    bound = {name: functools.partial(law, subject) for name, law in laws.items()}
    drawn = hold(subject.name, search.asked(bound), states, search.examples)
    if "graph" not in search.but:
        one_graph(subject, drawn, backend=search.backend)


def name_of(called: Any) -> str:
    """What a function or an object is called in a sentence."""
    while isinstance(called, functools.partial):
        called = called.func
    return getattr(called, "__name__", type(called).__name__)
