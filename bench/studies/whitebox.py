"""Share of a known optimum that PPO reaches: a preset with a known one, once per seed, in sequence.

`python -m bench.studies.whitebox [--preset whitebox_regimes] [--seeds 1 2 3 4 5] [--json FILE]`
runs the command of the preset in a process of its own for every seed, and keeps the share of the
optimal return of every policy and the seconds of the whole command.  The results of a preset are in
`bench/results/PRESET.json`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.harness.machine import machine_facts

RESULTS = Path(__file__).parents[1] / "results"
PRESETS = ("whitebox", "whitebox_regimes")


def run_seed(preset: str, seed: int, rounds: int | None) -> dict[str, Any]:
    """The shares of a run with its seconds: start, training and closing comparison."""
    more = [] if rounds is None else ["--rounds", str(rounds)]
    words = ["train", "--preset", preset, "--seed", str(seed), *more]
    with tempfile.TemporaryDirectory() as folder:
        where = ["--out", f"{folder}/run", "--quiet"]
        began = time.perf_counter()
        program = (sys.executable, "-m", "morphogen", *words, *where)
        subprocess.run(program, check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - began
        result = json.loads(Path(folder, "run", "result.json").read_text())
    shares, played = result["share_of_optimal"], result["episodes"]
    return {
        "seed": seed,
        "share": shares["ppo"],
        "seconds": seconds,
        "episodes": played,
        "all": shares,
    }


def main() -> None:
    """Print a line per seed and write the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", choices=PRESETS, default=PRESETS[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--rounds", type=int, help="instead of the preset's")
    parser.add_argument("--json", type=Path, help="default: bench/results/PRESET.json")
    given = parser.parse_args()
    file = given.json or RESULTS / f"{given.preset}.json"
    command = f"morphogen train --preset {given.preset}"
    facts = {"machine": machine_facts(device="cpu", threads=1), "command": command}
    rows: list[dict[str, Any]] = []
    file.parent.mkdir(parents=True, exist_ok=True)
    for seed in given.seeds:
        rows.append(run_seed(given.preset, seed, given.rounds))
        print(
            f"seed {seed}: {rows[-1]['share']:.3f} of the optimal return in "
            f"{rows[-1]['seconds']:.0f} s",
            flush=True,
        )
        worst = {
            "least_share": min(row["share"] for row in rows),
            "most_seconds": max(row["seconds"] for row in rows),
        }
        file.write_text(json.dumps({**facts, **worst, "runs": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
