"""Command `grow`: a network of a file and data of a file to a grown network."""

from argparse import ArgumentParser, Namespace
from importlib import import_module
from typing import Any

from morphogen.cli import arguments, process
from morphogen.config.part_files import load_module
from morphogen.config.parts import LOSSES, SCORES
from morphogen.errors import ConfigError
from morphogen.extras.export.kept_files import form_of
from morphogen.log import run_directory
from morphogen.vocab.objective import CROSS_ENTROPY

PARSER = {
    "description": "Grow a network: copies of it train side by side, a policy grows seeds in their "
    "slots, and the best copy is returned, judged on a test split. Runs the Python file that is "
    "named. Prints a line per epoch of what grew where, with the time that is left, and at the end "
    "a table: the grown network, the host alone, and a network of the grown form trained from "
    "scratch.",
    "epilog": "example: morphogen grow my_net.py:Net --data my.npz --out grown.onnx",
}


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags of `grow`."""
    parser.add_argument(
        "network",
        metavar="FILE.py:NAME",
        help="a class, function or module in a Python file, which is run: a torch.nn.Module with "
        "slots (mg.Slot)",
    )
    parser.add_argument(
        "--data",
        metavar="FILE",
        type=arguments.parse_path,
        required=True,
        help="an .npz file with the arrays inputs [N, ...], channels first, and labels [N], or the "
        "targets of another loss [N, ...]",
    )
    parser.add_argument(
        "--policy",
        metavar="P",
        default="heuristic",
        help="a run directory, whose policy grows, or a policy, as heuristic or reactive:FILE "
        "(default %(default)s)",
    )
    for flag, default, text in (
        ("--epochs", "40", "epochs of training"),
        ("--copies", "16", "networks side by side"),
        ("--seed", "0", "of all draws"),
    ):
        parser.add_argument(
            flag, metavar="N", default=default, help=f"{text} (default %(default)s)"
        )
    parser.add_argument(
        "--price",
        metavar="X",
        default="0.1",
        help="what a network with all seeds would cost; a score of 100 %% is worth 1 "
        "(default %(default)s)",
    )
    for flag, registry, text in (
        ("--loss", LOSSES, f"loss of the task (default {CROSS_ENTROPY})"),
        ("--score", SCORES, "score of the task (default: the usual one of the loss)"),
    ):
        parser.add_argument(flag, metavar="NAME", help=f"{text}; one of {', '.join(registry)}")
    parser.add_argument(
        "--out",
        metavar="FILE",
        type=arguments.parse_path,
        help="write the grown network: .safetensors, .pt2 or .onnx, by the name",
    )
    arguments.add_json_file(parser)


def run(args: Namespace) -> None:
    """Grow, print the table, and write the network."""
    low = {"epochs": 1, "copies": 1, "seed": 0}
    numbers = {
        name: arguments.parse_int_flag(f"--{name}", getattr(args, name), least)
        for name, least in low.items()
    }
    price = arguments.parse_number(args.price)
    if not isinstance(price, int | float) or not 0 <= price <= 1:
        raise ConfigError(f"--price: expected a number in 0 .. 1, got {args.price}")
    outputs = import_module("morphogen.extras.export.network_files")
    for flag, path in (("--out", args.out), ("--json", args.json)):
        if path is not None:
            run_directory.check_new_file(flag, path)
    if args.out is not None:
        outputs.check_packages("--out", form_of("--out", args.out))
    data = read_arrays(args.data)
    network = read_network(args.network)
    process.exit_on_signals()
    grown = import_module("morphogen.extras.export.grow").grow(
        network,
        data,
        policy=args.policy,
        price=float(price),
        loss=args.loss or CROSS_ENTROPY,
        score=args.score,
        report=process.print_progress,
        **numbers,
    )
    process.print_tables([("grown networks", grown.table)])
    process.write_json(args.json, {"table": grown.table, "history": grown.history})
    if args.out is not None:
        lines = outputs.save_network(grown.module, data.inputs[:2], args.out)
        for line in (f"{args.out}, loaded by", *lines):
            process.print_progress(line)


def read_network(text: str) -> Any:
    """Return the object of a name in a Python file.  Raises: ConfigError."""
    path, colon, name = text.rpartition(":")
    if not colon or not path.endswith(".py") or not name:
        raise ConfigError(f"network: expected FILE.py:NAME, got {text}")
    module = load_module(path, option="network")
    if not hasattr(module, name):
        known = [key for key in vars(module) if not key.startswith("_")]
        raise ConfigError(f"network: expected a name in {path} ({', '.join(known)}), got {name}")
    return getattr(module, name)


def read_arrays(path: Any) -> Any:
    """Return the data set of an .npz file.  Raises: ConfigError, DataError."""
    numpy: Any = import_module("numpy")
    names = ("inputs", "labels")
    try:
        with numpy.load(path, allow_pickle=False) as stored:
            missing = [name for name in names if name not in stored]
            if missing:
                raise ConfigError(
                    f"--data: expected the arrays inputs and labels in {path}, got "
                    f"{', '.join(stored) or 'none'}"
                )
            arrays = [stored[name] for name in names]
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"--data: expected an .npz file without objects, got {path}: {error}"
        ) from None
    return import_module("morphogen.extras.arrays.array_data").from_arrays(path.name, *arrays)
