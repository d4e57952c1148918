"""Command `resume`: continuation of a run, in its directory or in a new one."""

from argparse import ArgumentParser, Namespace
from typing import Any

from morphogen.cli import arguments, process, setting_flags
from morphogen.cli.launcher import find_launcher
from morphogen.cli.train import add_output, run_training
from morphogen.config.config_files import build_spec
from morphogen.config.fields import to_settings
from morphogen.config.spec import RunSpec, may_change_on_resume, resolve
from morphogen.errors import ConfigError
from morphogen.log import run_directory

PARSER = {
    "description": "Resume a run from its newest valid checkpoint. It ends like a run "
    "without interruption: hosts, policy, metrics and events are the same to the bit, on the "
    "same machine with the same number of threads and the same versions. Settings that cannot "
    "change in between are refused.",
}


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags of `resume`."""
    parser.add_argument(
        "run", metavar="RUN_DIR", type=arguments.parse_path, help="its run directory"
    )
    more = "run N additional rounds (--rounds sets the total)"
    parser.add_argument("--extend-rounds", metavar="N", help=more)
    older = "resume from this older one, in a new run directory (--out)"
    parser.add_argument("--checkpoint", metavar="NAME", help=older)
    setting_flags.add_flags(
        parser, [flag for flag in setting_flags.FLAGS if may_change_on_resume(flag.path)]
    )
    output = parser.add_argument_group("settings and output")
    arguments.add_set(output)
    output.add_argument(
        "--out",
        metavar="DIR",
        type=arguments.parse_path,
        help=f"with --checkpoint: {arguments.NEW_RUN}",
    )
    add_output(output)


def run(args: Namespace) -> int | None:
    """Resume a run with the changes of the command line."""
    _, previous, manifest = run_directory.open_directory(args.run)
    spec = resolve(read_changes(args, previous))
    if (args.checkpoint is None) != (args.out is None):
        raise ConfigError(
            "--checkpoint, --out: expected both or neither, got one; an older checkpoint "
            "needs a new run directory"
        )
    if args.out is not None:
        run_directory.check_new_directory(args.out)
    completed = manifest.get("status") == run_directory.STATUS_COMPLETED
    idle = completed and args.out is None and spec.rounds == previous.rounds

    def start(train: Any, **hooks: Any) -> Any:
        result = train.resume(args.run, spec, checkpoint=args.checkpoint, out=args.out, **hooks)
        if idle:
            process.print_notes(
                [f"all {spec.rounds} rounds are completed; add rounds with --extend-rounds N"]
            )
        return result

    return run_training(args, spec, start)


def read_changes(args: Namespace, previous: RunSpec) -> RunSpec:
    """Return the spec of a resumed run: `previous` with the settings of the command line."""
    flags = setting_flags.flag_settings(args)
    if args.out is None and "dir" not in flags.get("telemetry", {}):
        run_directory.refuse_outside(args.run, previous.telemetry.dir)
    if args.extend_rounds is not None:
        if find_launcher().restarts()[1]:
            raise ConfigError(
                "--extend-rounds: expected --rounds, the total, where the run may be "
                "restarted, which would add rounds "
                f"again, got {args.extend_rounds}"
            )
        if "rounds" in flags:
            raise ConfigError("--rounds, --extend-rounds: expected one of them, got both")
        flags["rounds"] = previous.rounds + arguments.parse_int_flag(
            "--extend-rounds", args.extend_rounds, 1
        )
    return build_spec(to_settings(previous), flags)
