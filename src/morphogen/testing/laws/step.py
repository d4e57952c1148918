"""Laws of a step: a function of its input alone, env by env, that writes nothing to its input."""

import functools
import itertools
import random
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch

from morphogen.compat import compiled_graphs
from morphogen.config.registry import error_line
from morphogen.errors import ConfigError
from morphogen.state.env import EnvState
from morphogen.testing.audit import audit
from morphogen.testing.builders.permute import permute
from morphogen.testing.builders.tree_equality import (
    cast_tree,
    copy_tree,
    differing_leaves,
    env_count,
    leaves,
    move_tree,
    select_env,
    tree_form,
)
from morphogen.testing.laws.search import BrokenLaw
from morphogen.vocab.text import list_names

Arguments = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Subject:
    """Function under test, and how the laws of `check_step` read its arguments.

    Example:
        >>> import morphogen as mg
        >>> from morphogen.testing import laws
        >>> from morphogen.testing.builders import scenes
        >>> subject = laws.Subject(mg.rules.occupied, "occupied")
        >>> subject(scenes.make_slots([[{"stage": mg.Stage.TRAINING}, {}]]).stage).tolist()
        [[True, False]]
    """

    call: Callable[..., Any]
    name: str
    tolerance: float = 0.0
    """Of reals, times 1 + |x|, in the laws `neighbours` and `slots`."""
    env_axis: int = 0
    """Of bare tensors."""
    slot_axis: int | None = None
    """Of bare tensors; None: no slots."""
    select_env: Callable[[Arguments, int], Arguments] | None = None
    """(arguments, env) -> arguments of this env alone."""
    permute_args: Callable[[Arguments, Sequence[int]], Arguments] | None = None
    """(arguments, order) -> arguments."""

    def __call__(self, example: Any) -> Any:
        """Call the subject on copies of the arguments."""
        return self.call(*as_arguments(copy_tree(example)))


def as_arguments(example: Any) -> Arguments:
    """Return a drawn example as a tuple of arguments."""
    return tuple(cast("tuple[Any, ...]", example)) if isinstance(example, tuple) else (example,)


def over_rows(
    rows: Callable[[Any], tuple[Subject, Iterable[Any]]], law: Callable[[Subject, Any], str]
) -> Callable[[Any], str]:
    """Return a law of a step as a law of a part; `rows`: part -> a function, and its examples."""

    def check(part: Any) -> str:
        subject, examples = rows(part)
        return next((text for example in examples if (text := law(subject, example))), "")

    return functools.update_wrapper(check, law)


def rotations(count: int) -> list[list[int]]:
    """Return the orders of slots that differ from the usual one by a rotation."""
    return [[*range(shift, count), *range(shift)] for shift in range(1, count)]


def accepts(subject: Subject, example: Any) -> str:
    """It takes every state that can be drawn."""
    try:
        subject(example)
    except Exception as error:
        return f"does not accept a valid input: {error_line(error)}"
    return ""


def host(subject: Subject, example: Any) -> str:
    """It never asks the host."""
    findings = audit(subject.call, *as_arguments(example))
    return f"asks the host: {findings}" if findings else ""


def writes(subject: Subject, example: Any) -> str:
    """It does not write to its input."""
    copy = copy_tree(example)
    subject.call(*as_arguments(copy))
    changed = differing_leaves(copy, example)
    verb = "has" if len(changed) == 1 else "have"
    return f"writes to its input: {_join_paths(changed)} {verb} changed" if changed else ""


def repeats(subject: Subject, example: Any) -> str:
    """It is a function of its input: no global generator, no memory."""
    before = torch.get_rng_state(), random.getstate()
    first = subject(example)
    if not torch.equal(torch.get_rng_state(), before[0]) or random.getstate() != before[1]:
        return "is not a function of its input: it draws from a global random generator"
    other = differing_leaves(first, subject(example))
    return (
        f"is not a function of its input: {_join_paths(other)} came out differently the second time"
        if other
        else ""
    )


def neighbours(subject: Subject, example: Any) -> str:
    """An env does not see its neighbours: a row alone is the row in the batch."""
    together = subject(example)
    axis = subject.env_axis
    count = env_count(example, axis)
    select = subject.select_env or functools.partial(select_env, count=count, axis=axis)
    for env in range(count if count > 1 else 0):
        alone = subject(select(as_arguments(example), env))
        among = select_env(together, env, count=count, axis=axis)
        other = differing_leaves(alone, among, subject.tolerance)
        if other:
            return f"sees its neighbours: env {env} alone differs in {_join_paths(other)}"
    return ""


def kinds(subject: Subject, example: Any) -> str:
    """It keeps device and dtype: trees that come out as they went in have leaves of the same
    kinds.
    """
    meta_result = leaves(subject.call(*as_arguments(move_tree(example, "meta"))))
    for path, leaf in leaves(subject(example)).items():
        twin = meta_result.get(path)
        if twin is None or (twin.dtype, twin.shape) != (leaf.dtype, leaf.shape):
            return f"makes another kind of {path or 'result'} on the meta device than on the CPU"
    wide = cast_tree(example, torch.float64)
    return _dtype_violation(subject, example) or _dtype_violation(subject, wide)


def _dtype_violation(subject: Subject, example: Any) -> str:
    pairs = itertools.product(_tensor_classes(example), _tensor_classes(subject(example)))
    for old, new in ((leaves(a), leaves(b)) for a, b in pairs if type(a) is type(b)):
        for path in sorted(old.keys() & new.keys()):
            if old[path].dtype != new[path].dtype:
                change = f"went in as {old[path].dtype} and came out as {new[path].dtype}"
                return f"does not keep dtypes: {path} {change}"
    return ""


def _tensor_classes(part: Any) -> list[Any]:
    """List the TensorClasses among arguments or results; bare tensors have no class to compare
    by.
    """
    if isinstance(part, tuple | list):
        return [tree for each in cast("list[Any]", part) for tree in _tensor_classes(each)]
    return [part] if hasattr(part, "batch_size") else []


def slots(subject: Subject, example: Any) -> str:
    """Permuting slots permutes values of slots, and nothing else."""
    axis = subject.slot_axis
    turn = subject.permute_args or functools.partial(permute, axis=axis)
    result = subject(example)
    for order in rotations(_slot_count(example, axis)):
        turned = subject(turn(as_arguments(example), order))
        other = differing_leaves(turned, permute(result, order, axis=axis), subject.tolerance)
        if other:
            return f"depends on the order of slots: {_join_paths(other)} changed with it"
    return ""


def _slot_count(example: Any, axis: int | None) -> int:
    """Return the number of slots of the first tree with stages, else of the first bare tensor with
    a slot axis.
    """
    found = leaves(example)
    stages = [leaf.shape[1] for path, leaf in found.items() if path.endswith("stage")]
    bare = [leaf.shape[axis] for leaf in found.values() if axis is not None and leaf.dim() > axis]
    return next(iter(stages + bare), 0)


def stateless(subject: Subject, example: Any) -> str:
    """A rule returns no complete state: that is a step."""
    states = [part for part in _tensor_classes(subject(example)) if isinstance(part, EnvState)]
    return "returns a complete state, so it is no rule but a step" if states else ""


def _join_paths(paths: set[str]) -> str:
    return list_names(sorted(path or "the result" for path in paths))


CALL_COUNT = 5
COMPILED_TOLERANCE = 1e-6  # compiled against eager, times 1 + |x|


def same_form_examples(examples: list[Any]) -> list[Any]:
    """Select five examples of equal shapes, dtypes and plain values, at least two of them
    distinct.
    """
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for example in examples:
        group = groups.setdefault(tree_form(example), [])
        if len(group) < CALL_COUNT and all(differing_leaves(example, other) for other in group):
            group.append(example)
    largest = max(groups.values(), key=len)
    if len(largest) < 2:
        raise ConfigError(
            "states: expected two distinct examples of equal shapes, got none; fix the "
            "sizes of the strategy"
        )
    return [largest[call % len(largest)] for call in range(CALL_COUNT)]


def check_one_graph(subject: Subject, examples: list[Any], *, backend: str) -> None:
    """It compiles to one graph over five calls with changing values, with the results of the eager
    form.
    """
    torch.compiler.reset()
    before = compiled_graphs()

    def run(*args: Any) -> Any:
        return subject.call(*args)

    compiled = cast(Any, torch).compile(run, fullgraph=True, backend=backend)
    for number, example in enumerate(same_form_examples(examples)):
        wrong = _compiled_violation(compiled, subject, example)
        if not wrong and compiled_graphs() > before + 1:
            wrong = (
                f"is not one graph: call {number + 1} with other values of the same shapes made "
                "another one"
            )
        if wrong:
            raise BrokenLaw("graph", f"{subject.name} {wrong}", example)


def _compiled_violation(compiled: Callable[..., Any], subject: Subject, example: Any) -> str:
    """Describe the violation of a compiled call, compared with the eager one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the compiler
            result = compiled(*as_arguments(copy_tree(example)))
    except Exception as error:
        return f"is not one graph: torch.compile(fullgraph=True) stopped with {error_line(error)}"
    other = sorted(differing_leaves(result, subject(example), COMPILED_TOLERANCE))
    return f"gives another {other[0] or 'result'} when it is compiled" if other else ""
