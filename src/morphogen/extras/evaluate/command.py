"""Command `evaluate`: the policy of a run against other arms on the same held-out instances."""

from argparse import ArgumentParser, Namespace
from importlib import import_module
from typing import Any

from morphogen.cli import arguments, process
from morphogen.cli.launcher import find_launcher
from morphogen.config.parts import ARMS, FILE_POLICIES, POLICIES
from morphogen.config.spec import RIVALS, SPLITS
from morphogen.log import run_directory

_POLICIES = [*POLICIES.builtin(), *(f"{kind}:FILE" for kind in FILE_POLICIES)]
PARSER = {
    "description": "Play held-out instances with the policy of a run and with others, each of "
    "them the same worlds: value (delivered or anytime, as the task says) with 95 % intervals, "
    "sizes and costs, paired differences. Prints a table and writes evaluation.json in the run "
    "directory.",
    "epilog": f"arms: {', '.join(_POLICIES)} for files of `morphogen tune`, trained:PATH for the "
    "policy of another run or policy file; and of installed packages, as the manual describes: "
    f"{', '.join(ARMS)}",
}


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags of `evaluate`."""
    parser.add_argument(
        "run",
        metavar="RUN",
        type=arguments.parse_path,
        help="a run directory with a policy.safetensors",
    )
    parser.add_argument(
        "--episodes",
        metavar="N",
        default="256",
        help="held-out episodes of every arm (default 256)",
    )
    arms = ",".join(RIVALS)
    parser.add_argument(
        "--arms", metavar="A,B", default=arms, help="arms to compare (default %(default)s)"
    )
    parser.add_argument(
        "--greedy", action="store_true", help="the policy of the run takes its likeliest action"
    )
    split = "data split for the score (default %(default)s)"
    parser.add_argument("--split", choices=SPLITS, default=SPLITS[0], help=split)
    parser.add_argument(
        "--seed", metavar="N", help="of the held-out instances (default: the run's)"
    )
    find_launcher().add_flag(parser)
    arguments.add_json_file(parser)


def run(args: Namespace) -> int | None:
    """Play all arms and print the tables."""
    episodes = arguments.parse_int_flag("--episodes", args.episodes, 1, arguments.MAX_EPISODES)
    seed = (
        None
        if args.seed is None
        else arguments.parse_int_flag("--seed", args.seed, 0, arguments.MAX_SEED)
    )
    if args.json is not None:
        run_directory.check_new_file("--json", args.json)
    launcher = find_launcher()
    spec = launcher.read_flag(args, run_directory.open_directory(args.run)[1])

    def play(exchange: Any) -> None:
        tables, numbers = import_module("morphogen.extras.evaluate.evaluation").evaluate(
            args.run,
            [name for name in args.arms.split(",") if name],
            episodes=episodes,
            seed=seed,
            greedy=args.greedy,
            split=args.split,
            report=process.print_progress,
            exchange=exchange,
        )
        if exchange.first:
            process.write_json(args.json, numbers)
        process.print_tables(tables.items())

    process.exit_on_signals()
    process.set_threads(spec.engine.threads)
    return launcher.launch(spec, args.command_line, play)
