"""Checks of a step, a rule, a mask and a reward rule against their laws."""

import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

import torch
from hypothesis.strategies import SearchStrategy

from morphogen.config.registry import error_line
from morphogen.env.action_control import Mask
from morphogen.errors import ConfigError
from morphogen.rules.rewards.example_inputs import make_reward_inputs
from morphogen.rules.rewards.protocol import Rule
from morphogen.rules.rewards.table import FunctionRule, PaymentFn, component_names
from morphogen.testing.builders.tree_equality import cast_tree
from morphogen.testing.laws import mask, reward, step
from morphogen.testing.laws.reward import RewardSubject
from morphogen.testing.laws.search import (
    BrokenLaw,
    Law,
    check_laws,
    name_laws,
    name_part,
)
from morphogen.testing.laws.step import Subject, check_one_graph
from morphogen.testing.strategies import reward_episodes, slot_states
from morphogen.vocab.limits import Limits

# name -> law, whose docstring is its promise
STEP_LAWS = name_laws(
    step.accepts, step.host, step.writes, step.repeats, step.neighbours, step.kinds, step.slots
)
REWARD_LAWS = name_laws(reward.shapes, reward.finite, reward.sums, reward.slots, reward.unexecuted)
MASK_LAWS = name_laws(mask.shapes, mask.choice, mask.legal)
BACKEND = "aot_eager"


def check_step(
    function: Callable[..., Any],
    states: SearchStrategy[Any],
    *,
    slots: bool = False,
    examples: int | None = None,
    skip: Collection[str] = (),
    laws: Mapping[str, Callable[[Subject, Any], str]] | None = None,
    **options: Any,
) -> None:
    """Check a step against the laws of `STEP_LAWS`.  Raises BrokenLaw for the first violation.

    Args:
        states: draws the arguments, several as a tuple; some examples must have equal shapes.
        slots: also check that permuting slots permutes nothing else.
        examples: their number; None: as the Hypothesis profile says.
        skip: names of laws that are not checked.
        laws: further laws, by name.
        options: fields of `Subject`, such as `name`, `tolerance` (0: bit for bit), `env_axis`,
        `slot_axis`.

    Example:
        >>> import morphogen as mg
        >>> from morphogen.testing import laws, strategies
        >>> def hurry(state):  # a step of your own that writes to its input
        ...     state.clock.epoch.add_(1)
        ...     return state
        >>> try:
        ...     laws.check_step(hurry, strategies.env_states(), examples=3)
        ... except laws.BrokenLaw as error:
        ...     print(error.law, "|", error.sentence)
        writes | hurry writes to its input: clock.epoch has changed
    """
    options.setdefault("name", name_part(function))
    subject = Subject(function, **options)
    checks = _drop_skipped({**STEP_LAWS, **(laws or {})}, skip if slots else (*skip, "slots"))
    bound = {name: functools.partial(law, subject) for name, law in checks.items()}
    drawn = check_laws(subject.name, bound, states, count=examples)
    if "graph" not in skip:
        check_one_graph(subject, drawn, backend=BACKEND)


def check_rule(function: Callable[..., Any], states: SearchStrategy[Any], **options: Any) -> None:
    """Check a rule, tensors or sub-states in and out: the laws of a step, and no state is returned.

    Args: as in `check_step`.

    Raises: BrokenLaw for the first violation.

    Example:
        >>> import morphogen as mg
        >>> from morphogen.testing import laws, strategies
        >>> def older(slots):  # a rule of your own that mixes envs
        ...     return slots.age > slots.age.float().mean()
        >>> try:
        ...     laws.check_rule(older, strategies.slot_states(), examples=8)
        ... except laws.BrokenLaw as error:
        ...     print(error.law, error.example.age.shape)  # a small example
        neighbours torch.Size([2, 1])
    """
    check_step(function, states, laws={"stateless": step.stateless}, **options)


def check_mask(function: Mask, *, limits: Limits | None = None, **options: Any) -> None:
    """Check a mask of your own: a rule that allows legal choices alone, and at least one in every
    env.

    Args:
        function: slots [E] -> bool [E, 6, S], True = allowed.
        limits: on the actions, such as `env.limits`; None: of two slots without further limits.
        options: as in `check_step`, such as `examples`; `slots=True` checks that the order of slots
        decides nothing.

    Raises: BrokenLaw for the first violation of `STEP_LAWS` or `MASK_LAWS`.

    Example:
        >>> import morphogen as mg
        >>> from morphogen.testing import laws
        >>> def keep(slots):  # a mask of your own that knows no stages
        ...     allowed = mg.rules.legal(slots, mg.Limits((True, True))).clone()
        ...     allowed[:, mg.Op.FOSSILIZE] = True
        ...     return allowed
        >>> try:
        ...     laws.check_mask(keep, examples=3)
        ... except laws.BrokenLaw as error:
        ...     print(error.sentence)
        keep allows what is illegal: FOSSILIZE in slot 0 of env 0, which is DORMANT
    """
    bounds = Limits((True, True)) if limits is None else limits
    drawn = slot_states(min_slots=len(bounds.enabled), max_slots=len(bounds.enabled))
    laws = MASK_LAWS | {"legal": functools.partial(mask.legal, limits=bounds)}
    check_step(function, drawn, laws=laws, slot_axis=2, **options)


def check_reward(
    rule: Rule | PaymentFn,
    *,
    gamma: float | None = None,
    examples: int | None = None,
    skip: Collection[str] = (),
    **options: Any,
) -> None:
    """Check a reward rule against the laws of `REWARD_LAWS`.  Raises BrokenLaw for the first
    violation.

    Args:
        rule: as in `rules.rewards.protocol`, or a function `RewardInputs [E] -> {component: float
        [E]}`.
        gamma: also check that the component `shaping` telescopes under this discount.
        examples, skip: as in `check_step`.
        options: `name`, and `tolerance` of a row alone against the row in the batch.

    Example:
        >>> import morphogen as mg
        >>> from morphogen.testing import laws
        >>> def naive(
        ...     inputs,
        ... ):  # a reward of your own that reads an accuracy without its flag `committed_valid`
        ...     return {"gain": inputs.committed_acc / 100}
        >>> try:
        ...     laws.check_reward(naive, examples=3)
        ... except laws.BrokenLaw as error:
        ...     print(error.sentence)
        naive pays a non-finite number: components.gain, where an invalid value is nan
    """
    rule = _as_rule(rule)
    options.setdefault("name", name_part(getattr(rule, "function", rule)))
    payer = RewardSubject(rule, **options)
    laws: dict[str, Law] = reward.step_laws(payer)
    laws |= {name: functools.partial(law, payer) for name, law in REWARD_LAWS.items()}
    if gamma is not None:
        if reward.SHAPING not in rule.components:
            wanted = f"expected a rule with a component {reward.SHAPING}"
            raise ConfigError(f"gamma: {wanted}, got {', '.join(rule.components)}")
        laws["telescopes"] = functools.partial(reward.telescopes, payer, gamma=gamma)
    drawn = reward_episodes(max_steps=3)
    episodes = check_laws(payer.name, _drop_skipped(laws, skip), drawn, count=examples)
    if "graph" not in skip:
        single = (cast_tree(episode, torch.float32) for episode in episodes)
        pairs = [pair for episode in single for pair in payer.rule_args(episode)]
        check_one_graph(Subject(payer.call, payer.name), pairs, backend=BACKEND)


def _as_rule(rule: Rule | PaymentFn) -> Rule:
    """Return the rule of a function.  Raises BrokenLaw for a function that pays no number per
    env.
    """
    if hasattr(rule, "components"):
        return cast(Rule, rule)
    # of a builder of `rule_from_function`
    function = cast(PaymentFn, getattr(rule, "__wrapped__", rule))
    try:
        names = component_names(function, make_reward_inputs(2, dtype=torch.float32))
    except ConfigError as error:
        raise BrokenLaw("shapes", f"{name_part(function)}: {error}") from None
    except Exception as error:
        fault = f"{name_part(function)} does not accept a valid input: {error_line(error)}"
        raise BrokenLaw("accepts", fault) from error
    return FunctionRule(function, governor_penalty=1.0, components=names)


def _drop_skipped(
    laws: Mapping[str, Callable[..., str]], skip: Collection[str]
) -> dict[str, Callable[..., str]]:
    """Return the laws without those to skip.  Raises ConfigError for unknown names."""
    known = (*laws, "graph")
    if unknown := sorted(set(skip).difference(known)):
        raise ConfigError(f"skip: expected names of {', '.join(known)}, got {unknown}")
    return {name: law for name, law in laws.items() if name not in skip}
