"""Command `train`: a new run of a policy or a baseline.

Packages offer other ways to train, each with a flag: modules at the entry points
`morphogen.train_modes` with `add_flag(parser)`, `is_asked(args)` and `run(args, spec)`.
"""

import argparse
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cache, partial
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from morphogen.cli import arguments, process, setting_flags
from morphogen.cli.launcher import find_launcher
from morphogen.config.config_files import dump_config
from morphogen.config.fields import OneOf, Settings, check_flag
from morphogen.config.parts import FILE_POLICIES, POLICIES
from morphogen.config.spec import POLICY_MEANINGS, RunSpec, resolve, warn_of_short_episodes
from morphogen.errors import ConfigError
from morphogen.log import run_directory
from morphogen.log.events import tidy
from morphogen.train.stop_signals import StopSignals
from morphogen.vocab.text import format_value

INCOMPLETE = 6  # exit code: events are lost
_EPILOG = f"""A preset is a named set of settings. A config file is JSON with the fields that
--print-config shows.
Settings count in this order, the last one wins: defaults, preset, config file, --set and flags.

exit codes: 0 done, 1 unexpected error, 2 wrong usage or configuration, 3 data, 4 checkpoint or run
directory, 5 training diverged, 6 done, but lines of the event file are missing, 7 done, but stdout
or stderr could not be written, 8 a process of several failed, 128 and the number of a signal that
stopped the run.

examples:
  morphogen train                              train a policy that grows networks on pictures
  morphogen train --preset digits              handwritten digits, with 90 rounds
  morphogen train --preset smoke               very short, to see that everything works
  morphogen train heuristic --policy wait      what the hosts reach if nothing is ever grown
  morphogen train --set ppo.clip=0.1 --dry-run check a setting without running it
  morphogen config ppo                         explain settings: all, a group, or one

policies of heuristic:
{chr(10).join(f"  {name:<14}{text}" for name, text in POLICY_MEANINGS.items() if name != "ppo")}
others: {", ".join([*POLICIES.builtin()[3:], *(f"{kind}:FILE" for kind in FILE_POLICIES)])}"""
PARSER = {
    "description": "Train a policy with PPO (`train` or `train ppo`), or run a baseline (`train "
    "heuristic`).",
    "usage": "morphogen train [ppo|heuristic] [flags]",
    "epilog": _EPILOG,
    "formatter_class": argparse.RawDescriptionHelpFormatter,
}


@cache
def find_modes() -> list[Any]:
    """Return the other ways to train that packages offer."""
    return [point.load() for point in metadata.entry_points(group="morphogen.train_modes")]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `train`."""
    parser.add_argument(
        "who", choices=("ppo", "heuristic"), metavar="ppo|heuristic", help="default: ppo"
    )
    parser.add_argument(
        "--policy", metavar="NAME", help="with heuristic: another policy, see below"
    )
    output = setting_flags.add_settings(parser)
    output.add_argument(
        "--out",
        metavar="DIR",
        type=arguments.parse_path,
        help=f"{arguments.NEW_RUN} (default: one in runs/)",
    )
    add_output(output)
    output.add_argument(
        "--dry-run", action="store_true", help="check everything, print sizes, write nothing"
    )
    either = output.add_mutually_exclusive_group()
    for mode in find_modes():
        mode.add_flag(either)
    either.add_argument(
        "--print-config", action="store_true", help="print the complete config as JSON and exit"
    )


def add_output(parser: argparse._ArgumentGroup) -> None:
    """Add the flags for the output of a run."""
    parser.add_argument("--quiet", action="store_true", help=arguments.QUIET)
    arguments.add_json(parser)


def run(args: Namespace) -> int | None:
    """Check everything, then train."""
    spec = resolve(setting_flags.spec_from_args(args, overrides=choose_policy(args)))
    if args.print_config:
        sys.stdout.write(dump_config(spec))
        return None
    mode = next((mode for mode in find_modes() if mode.is_asked(args)), None)
    if mode is not None:
        return mode.run(args, spec)
    out = choose_directory(args, spec)
    again = find_launcher().restarts()[0] > 0 and (out / run_directory.CONFIG).exists()
    if not again:
        run_directory.check_new_directory(out)
    import_module("morphogen.train.sinks").check_sinks(spec)
    if args.dry_run:
        print_dry_run(args, spec, {"run directory": str(out)})
        return None
    if again:
        return run_training(args, spec, lambda train, **hooks: train.resume(out, spec, **hooks))

    def start(train: Any, *, exchange: Any, **hooks: Any) -> Any:
        with open_directory(args, spec, exchange) as path:
            return train.train_ppo_vectorized(
                spec, out=path, command=args.command_line, exchange=exchange, **hooks
            )

    return run_training(args, spec, start)


def choose_policy(args: Namespace) -> Settings:
    """Return the setting of the policy that a command line names, if it names one."""
    if args.policy is None:
        return {"policy_name": args.who} if args.named else {}
    if args.who != "heuristic":
        raise ConfigError(
            "--policy: expected `morphogen train heuristic --policy NAME`, got ppo and "
            f"{format_value(args.policy)}"
        )
    check_flag("--policy", args.policy, OneOf(POLICIES, FILE_POLICIES))
    return {"policy_name": args.policy}


def choose_directory(args: Namespace, spec: RunSpec) -> Path:
    """Return the path of `--out`, or a new one in `runs/`; nothing is created."""
    _, most = find_launcher().restarts()
    if most and args.out is None:
        raise ConfigError(
            "--out: expected a run directory, which a restarted process finds again, got none"
        )
    paths = run_directory.default_paths(task=spec.task, config=dump_config(spec))
    return args.out or next(path for path in paths if not path.exists())


@contextmanager
def open_directory(args: Namespace, spec: RunSpec, exchange: Any) -> Iterator[Path]:
    """Yield the path of `--out`, or a new one in `runs/` that is held, to every process."""
    with ExitStack() as stack:

        def choose() -> str:
            paths = run_directory.default_paths(task=spec.task, config=dump_config(spec))
            return str(args.out or stack.enter_context(run_directory.reserve_path(paths)))

        yield Path(exchange.on_first(choose))


def print_dry_run(args: Namespace, spec: RunSpec, more: dict[str, str]) -> None:
    """Check all that a run checks before its first epoch, and print its description."""
    process.set_threads(spec.engine.threads)
    find_launcher().check(spec)
    with process.warnings_as_notes():
        warn_of_short_episodes(spec)
    train = import_module("morphogen.train.train")
    setup = train.check_run(spec, None)
    train.compile_units(setup, train.Parts(), import_module("morphogen.log.console").Console())
    facts = {**import_module("morphogen.env.setup").describe_run(setup), **more}
    if args.json:
        process.print_json(facts)
        return
    print(f"{args.command_line} would run:")
    for name, text in facts.items():
        print(f"  {name:<22}{text}")


def run_training(
    args: Namespace, spec: RunSpec, start: Callable[..., Any], *, prints: bool = False
) -> int | None:
    """Call `start(morphogen.train.train, console=, parts=, exchange=)` in every process; return the
    common exit code.

    A run ends early if a signal to any process stops it.  prints: `start` itself prints the result
    on stdout.
    """
    process.exit_on_signals()
    process.set_threads(spec.engine.threads)
    body = partial(_train, args, spec, start, prints)
    return find_launcher().launch(spec, args.command_line, body, trains=True)


def _train(
    args: Namespace, spec: RunSpec, start: Callable[..., Any], prints: bool, exchange: Any
) -> int | None:
    """Train in this process, until the end or the first signal."""
    train = import_module("morphogen.train.train")
    loop = import_module("morphogen.train.loop")
    process.note_missing_kernels()
    stream = sys.stderr if args.json or prints else sys.stdout
    quiet = args.quiet or not spec.telemetry.console
    console = nullcontext()
    if exchange.first:
        console = import_module("morphogen.log.console").Console(quiet=quiet, out=stream)
    with console as screen, StopSignals(quiet=screen is None) as stop:
        hooks = loop.Hooks(should_stop=lambda: stop.exit_code is not None)
        with process.warnings_as_notes():
            result = start(train, console=screen, parts=loop.Parts(hooks=hooks), exchange=exchange)
    code = stop.exit_code if result.stopped else INCOMPLETE if result.losses.incomplete else None
    codes = exchange.facts(code)
    if args.json and not prints:
        _print_result(spec, result)
    process.print_notes(result.losses.lines())
    if result.stopped and result.run_dir is not None:
        process.print_notes([f"stopped: `morphogen resume {result.run_dir}` continues the run"])
    return next((code for code in codes if code is not None), None)


def _print_result(spec: RunSpec, result: Any) -> None:
    """Print the result of a run as a JSON document."""
    policies = [arm.table_row(result.results[-1], seed=spec.seed) for arm in result.results]
    status = "stopped" if result.stopped else run_directory.STATUS_COMPLETED
    facts = {"run_dir": str(result.run_dir), "status": status, "rounds": len(result.history)}
    process.print_json(tidy({**facts, "policies": policies}))
