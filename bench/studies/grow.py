"""Networks that `morphogen.grow` returns, against their hosts alone and against networks of their
form trained from scratch: `python -m bench.studies.grow [--seeds 5] [--json FILE]`.

Every row is the best of as many copies by the validation split, judged on the test split.  The
policy is `heuristic`, a rule; nothing is learned here but the weights.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import morphogen as mg
from bench.harness.machine import machine_facts
from bench.studies.tables import make_table
from morphogen.config.files import json_bytes

FILE = Path(__file__).parents[1] / "results" / "grow.json"
EPOCHS = 20
COPIES = 8


class Pictures(nn.Module):
    """A small network on images of digits."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.grow0 = nn.Conv2d(1, 8, 3, padding=1), mg.Slot()
        self.block, self.grow1 = nn.Conv2d(8, 8, 3, padding=1), mg.Slot()
        self.head = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.grow0(torch.relu(self.stem(x)))
        x = self.grow1(torch.relu(self.block(x)))
        return self.head(x.mean((2, 3)))


def table_network() -> nn.Module:
    """A perceptron on a table of numbers."""
    return nn.Sequential(nn.Linear(10, 12), nn.ReLU(), mg.Slot(), nn.Linear(12, 1))


def draw_table() -> Any:
    """A table of numbers, as in `bench.studies.tables`."""
    x, numbers, _ = make_table()
    return mg.from_arrays("table", x, numbers)


# network, data, loss, price of parameters
CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any], str, float]] = {
    "digits": (Pictures, lambda: "digits", "cross_entropy", 0.1),
    "table": (table_network, draw_table, "mse", 0.02),
}


def measure(name: str, seeds: int) -> dict[str, Any]:
    """Grow a case from several seeds; return the tables and their means."""
    network, data, loss, price = CASES[name]
    tables: list[list[dict[str, Any]]] = []
    seconds: list[float] = []
    for seed in range(1, seeds + 1):
        started = time.perf_counter()
        grown = mg.grow(
            network, data(), loss=loss, price=price, epochs=EPOCHS, copies=COPIES, seed=seed
        )
        seconds.append(round(time.perf_counter() - started, 1))
        tables.append(grown.table)
        print(f"{name}, seed {seed} of {seeds}: {grown.score:.1f} % in {seconds[-1]} s", flush=True)
    [column] = (name for name in tables[0][0] if name.startswith("test "))
    scores = {
        rows[0]["network"]: [float(row[column]) for row in rows]
        for rows in zip(*tables, strict=True)
    }
    first, *rivals = scores
    differences = {
        rival: [a - b for a, b in zip(scores[first], scores[rival], strict=True)]
        for rival in rivals
    }
    return {
        "case": name,
        column: {network: statistics.mean(found) for network, found in scores.items()},
        "grown minus": {
            rival: {
                "mean": statistics.mean(found),
                "least": min(found),
                "most": max(found),
            }
            for rival, found in differences.items()
        },
        "seconds": seconds,
        "tables": tables,
    }


def main(words: Sequence[str] | None = None) -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--seeds", type=int, default=5, metavar="N")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--json", type=Path, default=FILE, metavar="FILE")
    args = parser.parse_args(words)
    rows = []
    for name in args.cases:
        rows.append(measure(name, args.seeds))
        print({key: value for key, value in rows[-1].items() if key != "tables"}, flush=True)
    facts = machine_facts(device="cpu", threads=torch.get_num_threads())
    found = {"machine": facts, "epochs": EPOCHS, "copies": COPIES, "cases": rows}
    args.json.write_bytes(json_bytes(found))


if __name__ == "__main__":
    main()
