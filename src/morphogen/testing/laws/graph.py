"""Law of one graph: `torch.compile(fullgraph=True)` traces once for all values and changes no number."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo import lookup_backend

from morphogen.errors import ConfigError
from morphogen.testing.audit import describe_error
from morphogen.testing.builders.tree_equality import copy_tree, differing_leaves, tree_form
from morphogen.testing.laws.search import BrokenLaw
from morphogen.testing.laws.step import Subject, as_arguments

CALL_COUNT = 5
COMPILED_TOLERANCE = 1e-6  # compiled against eager, times 1 + |x|


class GraphCounter:
    """Backend of `torch.compile` that counts its graphs."""

    def __init__(self, name: str) -> None:
        self.graphs, self._compile = 0, lookup_backend(name)

    def __call__(self, graph: Any, inputs: Any, **_: Any) -> Callable:
        """Compile and count a graph; options of other backends are ignored."""
        self.graphs += 1
        return self._compile(graph, inputs)


def same_form_examples(examples: list[Any]) -> list[Any]:
    """Select five examples of equal shapes, dtypes and plain values, at least two of them distinct."""
    groups: dict[tuple, list[Any]] = {}
    for example in examples:
        group = groups.setdefault(tree_form(example), [])
        if len(group) < CALL_COUNT and all(differing_leaves(example, other) for other in group):
            group.append(example)
    largest = max(groups.values(), key=len)
    if len(largest) < 2:
        raise ConfigError(
            "states: expected two distinct examples of equal shapes, got none; fix the sizes of the strategy"
        )
    return [largest[call % len(largest)] for call in range(CALL_COUNT)]


def check_one_graph(subject: Subject, examples: list[Any], *, backend: str) -> None:
    """It compiles to one graph over five calls with changing values, with the results of the eager form."""
    counter = GraphCounter(backend)
    torch.compiler.reset()
    compiled = torch.compile(lambda *args: subject.call(*args), fullgraph=True, backend=counter)
    for number, example in enumerate(same_form_examples(examples)):
        wrong = _compiled_violation(compiled, subject, example)
        if not wrong and counter.graphs > 1:
            wrong = f"is not one graph: call {number + 1} with other values of the same shapes made another one"
        if wrong:
            raise BrokenLaw("graph", f"{subject.name} {wrong}", example)


def _compiled_violation(compiled: Callable, subject: Subject, example: Any) -> str:
    """Describe the violation of a compiled call, compared with the eager one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the compiler
            result = compiled(*as_arguments(copy_tree(example)))
    except Exception as error:
        return f"is not one graph: torch.compile(fullgraph=True) stopped with {describe_error(error)}"
    other = sorted(differing_leaves(result, subject(example), COMPILED_TOLERANCE))
    return f"gives another {other[0] or 'result'} when it is compiled" if other else ""
