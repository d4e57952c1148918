"""Looking for the smallest example that breaks a law, and saying so in one sentence."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import HealthCheck, Phase, find, settings
from hypothesis.errors import NoSuchExample
from hypothesis.strategies import SearchStrategy

from morphogen.testing.builders.tree_equality import format_tree, tree_form

Law = Callable[[Any], str]  # example -> how it breaks the law, after the name of what is checked; empty: it holds
FORM_LAWS = {"host", "kinds", "shapes"}  # laws on what does not depend on values: asked once a form
_SEED = 0


class BrokenLaw(AssertionError):
    """A law that does not hold.

    `law`: its name; `sentence`: what is wrong, in one sentence; `example`: the smallest arguments that show it.
    """

    def __init__(self, law: str, sentence: str, example: Any) -> None:
        self.law, self.sentence, self.example = law, sentence, example
        lines = "\n".join(f"    {line}" for line in format_tree(example).splitlines())
        super().__init__(f"{sentence} (law: {law})\n  smallest example, leaves that are not empty:\n{lines}")


def draw_examples(states: SearchStrategy, count: int | None) -> list[Any]:
    """The first examples of a strategy, always the same; None: as many as the Hypothesis profile in use draws."""
    found: list[Any] = []

    def keep(example: Any) -> bool:
        found.append(example)
        return False

    _find_example(states, keep, count)
    return found


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """Size of a search.  `examples` None: as many as the Hypothesis profile in use says."""

    examples: int | None
    max_shrinks: int  # how often a smaller example is looked for
    skip: Collection[str]  # laws that are not asked
    backend: str  # of `torch.compile`


def check_laws(subject: str, laws: Mapping[str, Law], states: SearchStrategy, search: SearchSettings) -> list[Any]:
    """Try the laws in their order on drawn examples; a broken one is raised with its smallest example.  -> examples."""
    examples = draw_examples(states, search.examples)
    forms = {tree_form(example): example for example in reversed(examples)}
    for name, law in laws.items():
        tried = forms.values() if name in FORM_LAWS else examples
        first = next((example for example in tried if name not in search.skip and _find_violation(law, example)), None)
        if first is None:
            continue
        least = _smallest_violation(law, states, search)
        example = first if least is None else least
        raise BrokenLaw(name, f"{subject} {_find_violation(law, example)}", example)
    return examples


def _find_violation(law: Law, example: Any) -> str:
    """Describe the violation of a law by an example; an error is a violation."""
    try:
        return law(example)
    except Exception as error:
        return f"raises {describe_error(error)}"


def describe_error(error: Exception) -> str:
    """An error as its type and the first line of its message."""
    lines = (line.strip() for line in str(error).splitlines())
    return f"{type(error).__name__}: {next((line for line in lines if line), 'no message')}"


class _ShrinkLimit(Exception):
    """So many smaller examples were tried that the one at hand will do."""


def _smallest_violation(law: Law, states: SearchStrategy, search: SearchSettings) -> Any:
    """The smallest example met that breaks the law; None where none does."""
    found: list[Any] = []
    left = search.max_shrinks

    def breaks(example: Any) -> bool:
        nonlocal left
        left -= bool(found)
        if left < 0:
            raise _ShrinkLimit
        wrong = bool(_find_violation(law, example))
        found.extend([example] if wrong else [])
        return wrong

    try:
        return _find_example(states, breaks, search.examples)
    except _ShrinkLimit:
        return found[-1]


def _find_example(states: SearchStrategy, predicate: Callable[[Any], bool], count: int | None) -> Any:
    """The smallest example that is wanted; None where none was met."""
    number = settings().max_examples if count is None else count
    quiet = settings(
        max_examples=number,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    try:
        return find(states, predicate, settings=quiet, random=Random(_SEED))
    except NoSuchExample:
        return None
