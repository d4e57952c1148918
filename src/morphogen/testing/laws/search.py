"""Search for the smallest example that breaks a law."""

import functools
from collections.abc import Callable, Mapping
from contextlib import suppress
from random import Random
from typing import Any, cast

from hypothesis import HealthCheck, Phase, find, settings
from hypothesis.errors import NoSuchExample
from hypothesis.strategies import SearchStrategy

from morphogen.config.registry import error_line
from morphogen.testing.builders.tree_equality import format_tree, leaves, tree_form

# example -> predicate of the violation, after the name of the subject; empty: the law holds
Law = Callable[[Any], str]
FORM_LAWS = {"host", "kinds", "shapes"}  # laws that depend on no values: checked once per form
MAX_SHRINKS = 500  # attempts to find a smaller example
_SEED = 0


class BrokenLaw(AssertionError):
    """Violation of a law: its name `law`, the violation as one `sentence`, the smallest arguments
    as `example`.
    """

    def __init__(self, law: str, sentence: str, example: Any = None) -> None:
        self.law = law
        self.sentence = sentence
        self.example = example
        message = f"{sentence} (law: {law})"
        if leaves(example):
            lines = "\n".join(f"    {line}" for line in format_tree(example).splitlines())
            message += f"\n  smallest example, without empty leaves:\n{lines}"
        super().__init__(message)


def name_laws(*laws: Callable[..., str]) -> dict[str, Callable[..., str]]:
    """Return laws by their names."""
    return {law.__name__: law for law in laws}


def name_part(part: object) -> str:
    """Return the `name` of a part, else the name of a function, or of the class of an object."""
    while isinstance(part, functools.partial):
        part = part.func
    return getattr(part, "name", None) or getattr(part, "__name__", None) or type(part).__name__


def check_laws(
    subject: str,
    laws: Mapping[str, Law],
    states: SearchStrategy[Any],
    *,
    count: int | None,
) -> list[Any]:
    """Check the laws in order on drawn examples -> examples.  Raises BrokenLaw with the smallest
    example.

    `count`: of the examples, drawn without randomness; None: as the Hypothesis profile says.
    """
    examples: list[Any] = []
    # collects all and finds none
    _find_example(states, lambda example: bool(examples.append(example)), count)
    forms = {tree_form(example): example for example in reversed(examples)}
    for name, law in laws.items():
        tried = forms.values() if name in FORM_LAWS else examples
        example = next((each for each in tried if find_violation(law, each)), None)
        if example is not None:
            if len(examples) > 1:
                example = _smallest_violation(law, states, count, example)
            raise BrokenLaw(name, f"{subject} {find_violation(law, example)}", example)
    return examples


def find_violation(law: Law, example: Any) -> str:
    """Describe the violation of a law by an example; an error is a violation."""
    try:
        return law(example)
    except BrokenLaw:
        raise
    except Exception as error:
        return f"raises {error_line(error)}"


class _ShrinkLimit(BaseException):  # Hypothesis would shrink an example of an `Exception` too
    """The limit of attempts to shrink is reached."""


def _smallest_violation(
    law: Law, states: SearchStrategy[Any], count: int | None, first: Any
) -> Any:
    """Return the smallest example that breaks the law; `first` breaks it."""
    broken = [first]
    attempts = MAX_SHRINKS

    def breaks(example: Any) -> bool:
        nonlocal attempts
        attempts -= len(broken) > 1
        if attempts < 0:
            raise _ShrinkLimit
        wrong = bool(find_violation(law, example))
        broken.extend([example] if wrong else [])
        return wrong

    with suppress(_ShrinkLimit):
        _find_example(states, breaks, count)
    return broken[-1]


def _find_example(
    states: SearchStrategy[Any], predicate: Callable[[Any], bool], count: int | None
) -> None:
    """Search for the smallest example of the predicate."""
    quiet = settings(
        max_examples=settings().max_examples if count is None else count,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=cast("list[HealthCheck]", list(HealthCheck)),
    )
    with suppress(NoSuchExample):
        find(states, predicate, settings=quiet, random=Random(_SEED))
