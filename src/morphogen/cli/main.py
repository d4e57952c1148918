"""The command `morphogen`: reads the flags, checks everything, then starts the run.  Nothing heavy loads before."""

import contextlib
import importlib
import os
import shlex
import signal
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from morphogen.cli import compare_sides, grid, options, parser, process
from morphogen.cli.stop import StopSignals
from morphogen.config.config_files import dump_config
from morphogen.config.spec import RunSpec, resolve
from morphogen.device import malloc
from morphogen.engine import extensions
from morphogen.errors import CheckpointError, ConfigError, DataError, TrainingDiverged
from morphogen.run import sink_checks
from morphogen.storage import atomic_write, run_directory

USAGE, DATA, CHECKPOINT, DIVERGED, INCOMPLETE, INTERRUPTED, TERMINATED = 2, 3, 4, 5, 6, 130, 143
EXITS: tuple[tuple[type[Exception], int], ...] = (
    (ConfigError, USAGE),
    (DataError, DATA),
    (CheckpointError, CHECKPOINT),
    (TrainingDiverged, DIVERGED),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code.  Errors of the user are one line each on stderr, without a traceback."""
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        extensions.register_names()
        given = parser.parse_args(words, metadata.version("morphogen"))
        code = COMMANDS[given.command](given, shlex.join(["morphogen", *words]))
        sys.stdout.flush()
    except tuple(kind for kind, _ in EXITS) as error:
        return _refused(error)
    except KeyboardInterrupt:
        print("morphogen: stopped", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of the output, such as `head`, has all that it asked for
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code or 0


def _refused(error: Exception) -> int:
    for line in str(error).splitlines() or [type(error).__name__]:
        print(f"morphogen: error: {line}", file=sys.stderr)
    return next(code for kind, code in EXITS if isinstance(error, kind))


def _train(given: Namespace, command: str) -> int | None:
    spec = resolve(options.spec_from_args(given))
    if given.print_config:
        sys.stdout.write(dump_config(spec))
        return None
    _note([line for name, line in extensions.unusable_extensions().items() if name == spec.reward.rule])
    out = run_directory.choose_path(given.out, task=spec.task, config=dump_config(spec))
    run_directory.check_new_directory(out)
    sink_checks.check_sinks(spec)
    if given.dry_run:
        process.set_threads(spec.engine.threads)
        _dry_run(spec, out, command)
        return None
    return _run(given, spec, lambda train, **knobs: train.train_ppo_vectorized(spec, out=out, command=command, **knobs))


def _resume(given: Namespace, command: str) -> int | None:
    """Go on with a run, in its directory or in a new one."""
    del command
    _, made, said = run_directory.open_directory(given.run)
    spec = resolve(options.resumed_spec(given, made))
    if (given.checkpoint is None) != (given.out is None):
        raise ConfigError("--checkpoint and --out go together: an older checkpoint needs a run directory of its own")
    if given.out is not None:
        run_directory.check_new_directory(given.out)
    older = {"checkpoint": given.checkpoint, "out": given.out}
    code = _run(given, spec, lambda train, **knobs: train.resume(given.run, spec, **older, **knobs))
    if said.get("status") == run_directory.STATUS_COMPLETED and given.out is None and spec.rounds == made.rounds:
        _note([f"all {made.rounds} rounds are over; want --extend-rounds N for more"])
    return code


def _run(given: Namespace, spec: RunSpec, go: Callable[..., Any]) -> int | None:
    """Train, heeding signals, and say what was lost; the exit code."""
    signal.signal(signal.SIGTERM, _terminated)
    process.set_threads(spec.engine.threads)
    malloc.keep_freed_memory()
    train, engine = _load("morphogen.run.train"), _load("morphogen.engine.scheduler")
    _note_missing_kernels()
    console = _load("morphogen.analysis.console").Console(quiet=given.quiet or not spec.telemetry.console)
    with console, StopSignals() as stop:
        hooks = engine.Hooks(should_stop=lambda: stop.exit_code is not None)
        result = go(train, console=console, parts=engine.Parts(hooks=hooks))
    _note(result.losses.lines())
    return stop.exit_code if result.stopped else INCOMPLETE if result.losses.incomplete else None


def _rewards(given: Namespace, command: str) -> None:
    """Print every reward rule, and what each pays the archetypes."""
    del given, command
    rewards, console = _load("morphogen.cli.rewards"), _load("morphogen.analysis.console").Console()
    rules, faults = rewards.load_rules()
    print(*rewards.rule_lines(rules), sep="\n")
    for title, rows in rewards.return_tables(rules):
        console.print_table(rows, title=title)
    _note(faults)


def _bench(given: Namespace, command: str) -> None:
    """Measure every point of the grid; what was measured is shown, however it ends."""
    del command
    specs = grid.expand_grid(given)
    if given.json is not None:
        run_directory.check_new_file("--json", given.json)
    signal.signal(signal.SIGTERM, _terminated)
    bench, console = _load("morphogen.cli.bench"), _load("morphogen.analysis.console").Console()
    _note_missing_kernels()
    if given.explain:
        for label, spec in specs.items():
            console.print_table(bench.explain_in_process(spec), title=label or bench.UNLABELLED_POINT)
        return
    found = {}
    try:
        for label, point in bench.measure_points(specs, given.json):
            found[label] = point
            print(bench.format_point(label, point), file=sys.stderr, flush=True)
    finally:
        for title, rows in bench.point_tables(found).items():
            console.print_table(rows, title=title)


def _report(given: Namespace, command: str) -> None:
    """Write the report of run directories and say where it is."""
    del command
    print(_load("morphogen.analysis.report").report(*given.runs, out=given.out))


def _tune(given: Namespace, command: str) -> None:
    """Search the best fixed schedule, and some that cover most instances between them."""
    del command
    spec = resolve(options.spec_from_args(given))
    instances = options.parse_int_flag("--on", given.on, 1, 65_536)
    worlds = options.parse_int_flag("--worlds", given.worlds, 2, 1_000)
    places = {"--out": given.out, "the portfolio": given.out.parent / f"{given.out.stem}.portfolio.json"}
    for name, path in places.items():
        run_directory.check_new_file(name, path)
    signal.signal(signal.SIGTERM, _terminated)
    process.set_threads(spec.engine.threads)
    malloc.keep_freed_memory()
    tune, console = _load("morphogen.evaluation.successive_halving"), _load("morphogen.analysis.console").Console()
    found = tune.search_schedules(spec, instances=instances, worlds=worlds, report=_tell)
    tune.write_schedules(found, spec, *places.values())
    console.print_table(tune.portfolio_table(found), title="the portfolio, on the training instances it was chosen on")
    print(*tune.summary_lines(found), f"files: {', '.join(map(str, places.values()))}", sep="\n")


def _inspect(given: Namespace, command: str) -> None:
    """Print what a run directory or a checkpoint holds."""
    del command
    console = _load("morphogen.analysis.console").Console()
    facts, tables = _load("morphogen.analysis.inspect_run").inspect_path(given.path)
    print(*(f"{name:<22}{fact}" for name, fact in facts.items()), sep="\n")
    for title, rows in tables.items():
        console.print_table(rows, title=title)


def _evaluate(given: Namespace, command: str) -> None:
    """Play the policy of a run and its rivals; print the table."""
    del command
    episodes = options.parse_int_flag("--episodes", given.episodes, 1, options.MAX_EPISODES)
    seed = None if given.seed is None else options.parse_int_flag("--seed", given.seed, 0, options.MAX_SEED)
    if given.json is not None:
        run_directory.check_new_file("--json", given.json)
    process.set_threads(run_directory.open_directory(given.run)[1].engine.threads)
    malloc.keep_freed_memory()
    evaluate, console = _load("morphogen.evaluation.evaluate").evaluate, _load("morphogen.analysis.console").Console()
    names = [name for name in given.arms.split(",") if name]
    how = {"episodes": episodes, "seed": seed, "greedy": given.greedy, "split": given.split}
    tables, found = evaluate(given.run, names, **how, report=_tell)
    _keep(given.json, found)
    for title, rows in tables.items():
        console.print_table(rows, title=title)


def _keep(path: Path | None, found: Mapping[str, Any]) -> None:
    if path is not None:
        atomic_write.write_atomic(path, atomic_write.json_bytes(found))


def _compare(given: Namespace, command: str) -> int | None:
    """Train what is to be compared, play it, print the table."""
    del command
    episodes = options.parse_int_flag("--episodes", given.episodes, 1, options.MAX_EPISODES)
    found = compare_sides.read_sides(given)
    if given.json is not None:
        run_directory.check_new_file("--json", given.json)
    process.set_threads(found[0].specs[0].engine.threads)
    malloc.keep_freed_memory()
    contest, console = _load("morphogen.cli.compare"), _load("morphogen.analysis.console").Console
    with console(quiet=given.quiet, out=sys.stderr) as screen, StopSignals() as stop:
        for side in found:
            contest.train_side(side, console=screen, halt=lambda: stop.exit_code is not None)
    if stop.exit_code is not None:
        return stop.exit_code
    pairs, told = contest.compare(found, episodes=episodes, report=_tell)
    for path in (given.json, None if given.out is None else given.out / compare_sides.COMPARISON_FILE):
        _keep(path, told)
    title = f"{episodes} held-out instances for each of {len(found[0].runs)} pairs of runs"
    console().print_table([contest.pair_row(pair) for pair in pairs], title=title)
    print(*(f"{pair['first']} against {pair['second']}: {pair['verdict']}" for pair in pairs), sep="\n")
    return None


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _watch(given: Namespace, command: str) -> None:
    """Follow a run; Ctrl-C is how one leaves, at any moment."""
    del command
    signal.signal(signal.SIGTERM, _terminated)
    with contextlib.suppress(KeyboardInterrupt):
        _load("morphogen.analysis.watch.loop").watch(given.run, once=given.once)


def _note(lines: Iterable[str]) -> None:
    """Print notes, which do not stop a command, to stderr."""
    for line in lines:
        print(f"morphogen: note: {line}", file=sys.stderr)


def _note_missing_kernels() -> None:
    if not _load("morphogen.kernels").AVAILABLE:
        _note(["compiled kernels are missing, plain torch is slower: install a C compiler, then morphogen again"])


def _load(name: str) -> ModuleType:
    """The one place that imports on use: help and refused commands must not wait for torch."""
    return importlib.import_module(name)


def _terminated(number: int, frame: FrameType | None) -> None:
    sys.exit(TERMINATED)


def _dry_run(spec: RunSpec, out: Path, command: str) -> None:
    """Open device and data, say what would run, write nothing."""
    setup = _load("morphogen.engine.setup").build_setup(spec)
    sizes = _load("morphogen.engine.setup").describe_run(setup)
    print(f"{command} would run:")
    for name, text in {**sizes, "run directory": str(out)}.items():
        print(f"  {name:<22}{text}")


COMMANDS: dict[str, Callable[[Namespace, str], int | None]] = {
    "train": _train,
    "resume": _resume,
    "bench": _bench,
    "tune": _tune,
    "rewards": _rewards,
    "report": _report,
    "inspect": _inspect,
    "evaluate": _evaluate,
    "compare": _compare,
    "watch": _watch,
}
