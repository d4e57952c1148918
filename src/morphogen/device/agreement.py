"""Actions of ranks that succeed on all of them, or raise one error on all of them."""

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from morphogen import errors
from morphogen.device.collectives import Collectives

T = TypeVar("T")
ERRORS = (errors.ConfigError, errors.DataError, errors.CheckpointError, errors.TrainingDiverged)
TEXT_BYTES = 3_000  # of an error as JSON, which has to fit into a fact


def run_together(
    collectives: Collectives,
    action: Callable[[], T],
    *,
    describe: Callable[[BaseException], str] = str,
    named: bool = True,
) -> T:
    """Return the result of an action that every rank runs.

    Args:
        describe: text of an error, without what only this rank understands.
        named: an error that not all ranks have names its ranks.

    Raises: the first error of a rank, of its class and with its text, on all ranks; errors of other classes than
    `ERRORS` leave the other ranks waiting.
    """
    result, error = None, None
    try:
        result = action()
    except ERRORS as cause:
        error = cause
    if collectives.ranks == 1:
        return _result_of(result, error)
    fact = None if error is None else [type(error).__name__, _shorten(describe(error))]
    facts = collectives.gather_facts(fact)
    failed = [rank for rank, other in enumerate(facts) if other is not None]
    if not failed:
        return _result_of(result, None)
    kind, text = facts[failed[0]]
    alike = [rank for rank in failed if facts[rank] == facts[failed[0]]]
    if named and len(alike) < collectives.ranks:
        text = f"{name_ranks(alike)}: {text}"
    raise mark_common(getattr(errors, kind)(text)) from error


def mark_common(error: Exception) -> Exception:
    """Mark an error that all ranks raise, with equal text: nobody needs to know which of them prints it."""
    error.__dict__["common"] = True
    return error


def run_on_first(
    collectives: Collectives, action: Callable[[], Any], *, describe: Callable[[BaseException], str] = str
) -> Any:
    """Return the JSON value of an action that rank 0 runs for all.  Raises: its error, on all ranks."""
    result = run_together(
        collectives, action if collectives.rank == 0 else lambda: None, describe=describe, named=False
    )
    return collectives.broadcast(result)


def name_ranks(ranks: Sequence[int]) -> str:
    """Return "rank 1" or "ranks 1, 3"."""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks))}"


def _result_of(result: Any, error: BaseException | None) -> Any:
    if error is not None:
        raise error
    return result


def _shorten(text: str) -> str:
    return text if len(json.dumps(text)) <= TEXT_BYTES else f"{ascii(text)[1 : TEXT_BYTES // 2]}..."
