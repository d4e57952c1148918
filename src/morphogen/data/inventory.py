"""Inventory of data sets: which files they need, which are there, and whether a run could read
them.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from morphogen.config.groups import DataSpec
from morphogen.config.host import Host
from morphogen.config.parts import DATASETS
from morphogen.config.task import TaskSpec
from morphogen.data.data_files import FileData, FileForm
from morphogen.data.dataset import data_folder, deal_samples, read_splits
from morphogen.data.splits import StoredSplits
from morphogen.errors import ConfigError, DataError

READY = "ready"
MISSING = "missing"
DAMAGED = "damaged"
UNUSABLE = "unusable"


@dataclass(frozen=True, slots=True)
class FormState:
    """Results of a look at the files of one form."""

    form: FileForm
    size_bytes: dict[str, int | None]  # by path below the folder; None = not there


@dataclass(frozen=True, slots=True)
class DataState:
    """Results of reading a data set as a run does."""

    name: str
    state: str  # ready, missing, damaged, or unusable: a part of a package that fails
    source: str | None  # of its files, in words; None = not declared
    forms: tuple[FormState, ...]
    used: str | None  # name of the form that is read, or would be
    sizes: dict[str, int]  # by split
    unit: str  # of the sizes
    splits: StoredSplits | None
    error: DataError | ConfigError | None


def inspect_data(name: str, spec: DataSpec) -> DataState:
    """Return the state of a data set: its reader runs, with all its checks.

    name: in `DATASETS`.  spec: names the folder of data files; the other fields have no effect.
    """
    splits = None
    error = None
    state = READY
    source = None
    folder = data_folder(spec)
    try:
        part = DATASETS[name]
        source = part.source if isinstance(part, FileData) else None
        splits = read_splits(name, spec)
    except DataError as fault:
        error = fault
        state = DAMAGED
    except ConfigError as fault:
        error = fault
        state = UNUSABLE
    forms = (
        tuple(FormState(form, _measure(folder, form)) for form in source.forms) if source else ()
    )
    used = source.choose_form(folder).name if source and source.forms else None
    if state == DAMAGED and any(
        each.form.name == used and None in each.size_bytes.values() for each in forms
    ):
        state = MISSING
    known = isinstance(splits, StoredSplits)
    return DataState(
        name=name,
        state=state,
        source=source.name if source else None,
        forms=forms,
        used=used,
        sizes=splits.sizes() if known else {},
        unit=splits.unit if known else "samples",
        splits=splits,
        error=error,
    )


def find_task_error(task: TaskSpec, data: DataState) -> DataError | ConfigError | None:
    """Return the reason why a task cannot use a data set: an error of its files, or samples that
    its host refuses.
    """
    if data.error is not None or data.splits is None:
        return data.error
    assert isinstance(task.host, Host)  # a task resolves the name of its host
    try:
        deal_samples(data.splits, task.host, data.name)
    except DataError as error:
        return error
    return None


def _measure(folder: Path, form: FileForm) -> dict[str, int | None]:
    """Return the sizes of the files of a form in bytes, None for one that is not there."""
    paths = {path: folder / path for path in form.paths}
    return {
        path: os.path.getsize(file) if os.path.exists(file) else None
        for path, file in paths.items()
    }
