"""Command `data`: tasks, the questions they ask, and the files that they need."""

from argparse import ArgumentParser, Namespace
from importlib import import_module
from itertools import groupby
from operator import itemgetter
from typing import Any

from morphogen.cli import arguments, process, setting_flags
from morphogen.config.fields import OneOf, check_flag
from morphogen.config.groups import DataSpec
from morphogen.config.parts import DATASETS
from morphogen.config.task import TASKS, TaskSpec
from morphogen.data import data_files
from morphogen.errors import ConfigError
from morphogen.vocab.text import escape_text

PARSER = {
    "description": "List the tasks and data sets, installed packages included: the "
    "question that a task asks, the files that it needs, the folder in which they are looked "
    "for, and whether they are there and sound. Files are read and checked as a run does. "
    "Nothing is downloaded.",
    "epilog": "exit codes: 0 listed, whatever is missing; with TASK 3 if its data is missing or "
    "damaged.",
}


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags of `data`."""
    parser.add_argument(
        "task", metavar="TASK", nargs="?", help="one task, with every file (default: all)"
    )
    setting_flags.add_flags(
        parser, [flag for flag in setting_flags.FLAGS if flag.path == "data.dir"]
    )
    parser.add_argument("--json", **arguments.JSON)


def run(args: Namespace) -> None:
    """Print tasks and data sets.  Raises, after that, the DataError or ConfigError of the one task
    that was named.
    """
    if args.task is not None:
        check_flag("task", args.task, OneOf(TASKS))
    chosen = vars(args)["data.dir"]
    tasks, faults = load_tasks([args.task] if args.task else list(TASKS))
    names: list[str] = [*(str(task.dataset) for task in tasks), *([] if args.task else DATASETS)]
    inventory = import_module("morphogen.data.inventory")
    data = {
        name: inventory.inspect_data(name, DataSpec(dir=chosen)) for name in dict.fromkeys(names)
    }
    errors = {task.name: inventory.find_task_error(task, data[str(task.dataset)]) for task in tasks}
    listing = build_listing(tasks, data, errors, chosen)
    if args.json:
        process.print_json(listing)
    else:
        print(*map(escape_text, listing_lines(listing, details=args.task is not None)), sep="\n")
    process.print_notes([*faults, *([] if args.task else DATASETS.unusable().values())])
    if args.task is not None and (error := errors[args.task]) is not None:
        raise error


def load_tasks(names: list[str]) -> tuple[list[TaskSpec], list[str]]:
    """Return tasks by name, and a line for each that cannot be used.  Raises the ConfigError of a
    single one.
    """
    tasks = []
    faults = [line for name, line in TASKS.unusable().items() if len(names) > 1 or name in names]
    for name in names:
        try:
            tasks.append(TASKS[name])
        except ConfigError as error:
            if len(names) == 1:
                raise
            faults.append(str(error))
    return tasks, faults


def build_listing(
    tasks: list[TaskSpec],
    data: dict[str, Any],
    errors: dict[str, Exception | None],
    chosen: str | None,
) -> dict[str, Any]:
    """Return the listing as JSON shows it.  data: `DataState` by name; errors: by task; chosen:
    folder of a flag.
    """
    folder, origin = data_files.find_folder(chosen)
    rows: list[dict[str, Any]] = []
    for task in tasks:
        state = data[str(task.dataset)]
        error = errors[task.name]
        rows.append(
            {
                "task": task.name,
                "part_of": TASKS.origin(task.name),
                "question": task.question,
                "data": state.name,
                "state": "unfit" if error and not state.error else state.state,
                "error": str(error) if error else None,
            }
        )
    return {
        "folder": str(folder.absolute()),
        "folder_from": origin,
        "tasks": rows,
        "data": [_data_row(state) for state in data.values()],
    }


def _data_row(state: Any) -> dict[str, Any]:
    forms = [
        {
            "form": each.form.name,
            "content": each.form.content,
            "files": [{"path": path, "bytes": size} for path, size in each.size_bytes.items()],
        }
        for each in state.forms
    ]
    return {
        "data": state.name,
        "part_of": DATASETS.origin(state.name),
        "state": state.state,
        "error": str(state.error) if state.error else None,
        "source": state.source,
        "sizes": state.sizes,
        "unit": state.unit,
        "form": state.used,
        "forms": forms,
    }


def listing_lines(listing: dict[str, Any], *, details: bool) -> list[str]:
    """Return the lines of a listing.  details: a line per file; errors are left to the caller."""
    tasks = listing["tasks"]
    data = listing["data"]
    widths = [max((len(row[key]) for row in tasks), default=0) for key in ("task", "data", "state")]
    lines = [
        "tasks",
        *(f"  {_columns(row, widths)}  {row['question']}{_author(row)}" for row in tasks),
    ]
    other = (
        ""
        if listing["folder_from"] == data_files.FLAG
        else f"; {data_files.FLAG} names another folder"
    )
    lines += ["", f"data, in {listing['folder']} ({listing['folder_from']}{other})"]
    for row in data:
        counts = ", ".join(f"{count:,} {split}" for split, count in row["sizes"].items())
        facts = [f"{counts} {row['unit']}"] if counts else []
        facts += [row["source"]] if row["source"] else []
        facts += ["any one of these forms"] if len(row["forms"]) > 1 else []
        lines.append(f"  {row['data']}: {'; '.join([row['state'], *facts])}{_author(row)}")
        for form in row["forms"]:
            lines += _form_lines(form, row["form"], details)
    errors = dict.fromkeys(row["error"] for row in (*data, *tasks) if row["error"])
    return lines if details else [*lines, *([""] if errors else []), *errors]


def _columns(row: dict[str, Any], widths: list[int]) -> str:
    return "  ".join(
        f"{row[key]:<{width}}" for key, width in zip(("task", "data", "state"), widths, strict=True)
    )


def _author(row: dict[str, Any]) -> str:
    return "" if row["part_of"] == "own" else f" [{row['part_of']}]"


def _form_lines(form: dict[str, Any], used: str | None, details: bool) -> list[str]:
    files = form["files"]
    there = sum(each["bytes"] is not None for each in files)
    read = ", read" if form["form"] == used and there == len(files) else ""
    lines = [f"    {form['form']} ({there} of {len(files)} files{read}): {form['content']}"]
    if details:
        sizes = [
            "missing" if each["bytes"] is None else f"{each['bytes']:,} bytes" for each in files
        ]
        return lines + [
            f"      {each['path']}  {size}" for each, size in zip(files, sizes, strict=True)
        ]
    folders = groupby((each["path"].rpartition("/") for each in files), key=itemgetter(0))
    groups = [(folder, ", ".join(name for *_, name in paths)) for folder, paths in folders]
    return lines + [f"      {f'{folder}: ' if folder else ''}{names}" for folder, names in groups]
