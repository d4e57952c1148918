"""Command `data`: tasks, the questions they ask, and the files that they need."""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

from morphogen.cli import arguments, process, setting_flags
from morphogen.config.fields import OneOf, check_flag
from morphogen.config.groups import DataSpec
from morphogen.config.parts import DATASETS
from morphogen.config.task import TASKS
from morphogen.data import data_files
from morphogen.errors import ConfigError, DataError

PARSER = {
    "description": "List the tasks, installed packages included: the question that each asks, and "
    "whether its data can be read; then the files of the data sets, and the folder in which they "
    "are looked for. Files are read and checked as a run does. Nothing is downloaded.",
    "epilog": "exit codes: 0 listed, whatever is missing; with TASK 3 if its data is missing or "
    "damaged.",
}
Row = dict[str, Any]


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags of `data`."""
    parser.add_argument("task", metavar="TASK", nargs="?", help="one task (default: all)")
    setting_flags.add_flags(
        parser, [flag for flag in setting_flags.FLAGS if flag.path == "data.dir"]
    )
    arguments.add_json(parser)


def run(args: Namespace) -> None:
    """Print tasks and files.  Raises, after that, the DataError or ConfigError of the one task
    that was named.
    """
    if args.task is not None:
        check_flag("task", args.task, OneOf(TASKS))
    spec = DataSpec(dir=vars(args)["data.dir"])
    # tasks share data sets
    read = cache(partial(import_module("morphogen.data.dataset").read_splits, spec=spec))
    found = {name: inspect_task(name, read) for name in ([args.task] if args.task else TASKS)}
    folder, origin = data_files.find_folder(spec.dir)
    names = dict.fromkeys(
        str(row["data"]) for row, error in found.values() if not isinstance(error, ConfigError)
    )
    files = [file for name in names for file in list_files(name, folder)]
    rows = [row for row, _ in found.values()]
    errors = {str(error): error for _, error in found.values() if error is not None}
    if args.json:
        document = {"folder": str(folder.absolute()), "tasks": rows, "files": files}
        process.print_json(document | {"errors": list(errors)})
    else:
        title = f"files, in {folder.absolute()} ({origin})"
        process.print_tables([("tasks", rows), (title, files)])
    if args.task is not None:
        for error in errors.values():
            raise error
    process.print_notes(errors)


def inspect_task(name: str, read: Callable[[str], Any]) -> tuple[Row, Exception | None]:
    """Return the row of a task, and the reason why a run could not use its data.

    read: reads a data set, with all its checks.
    """
    row: Row = {"task": name, "of": TASKS.origin(name), "data": None, "state": "ready"}
    row |= {"samples": None, "question": None, "figures": None}
    error = None
    try:
        task = TASKS[name]
        row |= {"data": task.dataset, "question": task.question, "figures": task.figures or None}
        stored = read(str(task.dataset))
        opening = import_module("morphogen.data.dataset")
        splits = opening.deal_samples(stored, task.host, task.dataset)
        opening.deal_targets(splits, task, task.host, task.dataset)
        row["samples"] = ", ".join(f"{count:,} {split}" for split, count in splits.sizes().items())
    except (DataError, ConfigError) as fault:
        error = fault
        row["state"] = "not ready"
    return row, error


def list_files(name: str, folder: Path) -> Iterator[Row]:
    """Yield a row per file of a data set, or per folder of files, in all its forms; without bytes:
    it is missing.

    Installed files, which lie in another folder, have their full paths.
    """
    source = getattr(DATASETS.get(name), "source", data_files.FileSource(name))
    home = source.find_files(folder)
    for form in source.forms:
        for path in form.paths:
            place = home / path
            files = filter(os.path.isfile, (place, *place.rglob("*")))
            sizes = list(map(os.path.getsize, files))
            shown = path if home == folder else str(place)
            yield {
                "data": name,
                "form": form.name,
                "file": shown,
                "bytes": sum(sizes) if sizes else None,
            }
