"""Errors of ranks: raised on all of them, with equal text, and named by rank."""

from collections.abc import Sequence

from morphogen import errors

ERRORS = (errors.ConfigError, errors.DataError, errors.CheckpointError, errors.TrainingDiverged)


def mark_common(error: Exception) -> Exception:
    """Mark an error that all ranks raise with equal text, so that one of them prints it."""
    error.__dict__["common"] = True
    return error


def is_common(error: BaseException) -> bool:
    """Return whether all ranks raise this error."""
    return getattr(error, "common", False)


def name_ranks(ranks: Sequence[int]) -> str:
    """Return "rank 1" or "ranks 1, 3"."""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks))}"


def first_error(reports: Sequence[tuple[str, str] | None], *, named: bool) -> Exception | None:
    """Return the error of the first rank that reports one as class and text; None without any.

    named: an error that not all ranks have names its ranks.
    """
    failed = [rank for rank, report in enumerate(reports) if report is not None]
    if not failed:
        return None
    first = reports[failed[0]]
    assert first is not None
    kind, text = first
    alike = [rank for rank in failed if reports[rank] == first]
    if named and len(alike) < len(reports):
        text = f"{name_ranks(alike)}: {text}"
    return mark_common(getattr(errors, kind)(text))
