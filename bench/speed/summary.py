"""One table of what the package costs: `python -m bench.speed.summary [--json FILE] [--full]
[--markdown]`.

The quick form takes a few minutes on two cores.  `--full` adds whole epochs, rounds with and
without telemetry, and the compiled forms, which take minutes to compile. `--markdown` prints the
table of bench/README.md out of the file that `--json` names, and measures nothing.
"""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.harness.bench_scenes import TOKENS, task_sizes
from bench.harness.timing import (
    Bench,
    Measure,
    build_parser,
    finish_bench,
    start_bench,
)
from bench.speed import epoch, memory, minibatch, rollout, roofline, telemetry, validate

RESULTS = Path(__file__).parents[1] / "results" / "summary.json"
README_ROWS = {  # rows of bench/README.md: measure, what it is, how a number is written
    "epoch_digits_e32": (
        "an epoch of a run, digits, 32 envs: times faster than the loop",
        "{:.1f}",
    ),
    "epoch_digits_e8": ("the same, 8 envs", "{:.2f}"),
    "epoch_cifar_e32": ("an epoch of a run, cifar_baseline, 32 envs: the same", "{:.2f}"),
    "epoch_cifar_e8": ("the same, 8 envs", "{:.2f}"),
    "train_digits_e32_eager": (
        "training steps alone, digits, 32 envs: times faster than the loop",
        "{:.1f}",
    ),
    "train_digits_e8_eager": ("the same, 8 envs", "{:.2f}"),
    "train_digits_e32_eager_one_thread": ("the same, 32 envs, both with one thread", "{:.1f}"),
    "train_digits_e32_compiled": ("32 envs, two threads, compiled", "{:.1f}"),
    "train_digits_e32_light_eager": (
        "training, digits, one conv_light in each host, not compiled",
        "{:.1f}",
    ),
    "train_digits_e32_none_eager": ("training, digits, no seeds, not compiled", "{:.1f}"),
    "train_digits_e128_per_env": ("cost per env of 128 envs, over the cost of 32", "{:.2f}"),
    "train_cifar_e8_eager": ("training steps alone, cifar_baseline, 8 envs: the same", "{:.2f}"),
    "train_cifar_e32_eager": ("the same, 32 envs", "{:.2f}"),
    "train_cifar_e32_compiled": ("the same, compiled", "{:.2f}"),
    "train_tokens_e8_eager": ("training steps alone, a language model, 8 envs: the same", "{:.2f}"),
    "train_tokens_e32_eager": ("the same, 32 envs", "{:.2f}"),
    "train_tokens_e8_compiled": ("8 envs, compiled", "{:.2f}"),
    "train_tokens_e32_compiled": ("32 envs, compiled", "{:.2f}"),
    "ceiling_tokens_e8": (
        "8 envs again, were all but its products and attention for nothing",
        "{:.2f}",
    ),
    "ceiling_tokens_e32": ("the same, 32 envs", "{:.2f}"),
    "ceiling_cifar": ("8 envs again, were all but its convolutions for nothing", "{:.2f}"),
    "validate_8_over_1": (
        "validation of all 8 coalitions of three seeds, over one",
        "{:.2f}",
    ),
    "empty_slots": ("epoch of hosts with empty slots, over hosts without slots", "{:.3f}"),
    "control_share": ("share of control and bookkeeping in an epoch, digits, 32 envs", "{:.3f}"),
    "record_share": ("share of the record and its events in it", "{:.4f}"),
    "telemetry_normal": (
        "round of 8 epochs, digits, 32 envs, at level normal, over that at level off",
        "{:.3f}",
    ),
    "roofline_digits": (
        "training step, digits: share of the nearer limit of the machine",
        "{:.2f}",
    ),
    "roofline_cifar": ("training step, cifar_baseline: the same", "{:.2f}"),
    "roofline_tokens_e8_compute": (
        "training step, a language model, 8 envs: share of the rate of a large product",
        "{:.2f}",
    ),
    "roofline_tokens_e32_compute": ("the same, 32 envs", "{:.2f}"),
    "memory_digits_per_env": ("peak memory per env in MiB, digits", "{:.1f}"),
    "memory_cifar_per_env": ("the same, cifar_baseline", "{:.1f}"),
    "memory_tokens_per_env": ("the same, a language model", "{:.1f}"),
}


def measures(bench: Bench, *, full: bool, envs: int = 32) -> list[Measure]:
    """All rows; on standard error a line for each part as it begins, since they take long."""
    sizes, few = task_sizes(envs), max(1, envs // 4)
    limits = sizes | {f"{TOKENS}_e{count}": (TOKENS, count) for count in (few, envs)}
    parts: dict[str, Callable[[], Sequence[Measure]]] = {
        "training steps": lambda: minibatch.measures(bench, envs=envs),
        "validation": lambda: validate.measures(bench, envs),
        "shares of an epoch": lambda: rollout.share_rows(bench, envs),
        "empty slots": lambda: rollout.empty_slots(bench, envs),
        "limits of the machine": lambda: roofline.measures(bench, limits),
        "memory": lambda: memory.measures(bench, sizes | {TOKENS: (TOKENS, few)}),
    }
    if full:
        parts |= {
            "whole epochs": lambda: epoch.measures(bench, envs),
            "telemetry": lambda: telemetry.measures(bench, envs),
            "compiled forms": lambda: minibatch.compiled_measures(bench, envs=envs),
        }
    found: list[Measure] = []
    for number, (name, measure) in enumerate(parts.items(), 1):
        print(f"part {number} of {len(parts)}: {name}", file=sys.stderr, flush=True)
        found += measure()
    return found


def markdown(facts: dict) -> str:
    """The table of bench/README.md, out of the JSON of a table."""
    rows = {row["name"]: row for row in facts["measures"]}
    machine = "{cpu} with {instructions}, {cores} cores, threads used: {threads}, torch {torch}"
    place = machine.format(**facts["machine"])
    lines = [
        f"{place}: median, and half the range between the quartiles",
        "",
        "| measure | median | +- |",
        "|---|---|---|",
    ]
    for name, (words, form) in README_ROWS.items():
        if name in rows:
            lines.append(
                f"| {words} | {form.format(rows[name]['value'])} | "
                f"{form.format(rows[name]['spread'])} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Print all rows, or the table of bench/README.md."""
    own = build_parser(__doc__)
    own.add_argument("--full", action="store_true", help="also telemetry and the compiled forms")
    own.add_argument(
        "--envs", type=int, default=32, metavar="E", help="envs that training is measured with"
    )
    own.add_argument(
        "--markdown",
        action="store_true",
        help="print the table of bench/README.md from the JSON file",
    )
    given = own.parse_args()
    if given.markdown:
        print(markdown(json.loads((given.json or RESULTS).read_text())))
        return
    bench = start_bench(given)
    finish_bench(given, bench, measures(bench, full=given.full, envs=given.envs))


if __name__ == "__main__":
    main()
