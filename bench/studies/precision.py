"""Final accuracy in bfloat16 minus that in float32 on `digits`, on a CPU: `python -m
bench.studies.precision`.

Both precisions play the same instances with the same hosts and batches, so that the difference is
paired by env.  That
of an env is the mean over its episodes: the last epochs of small hosts are noisy, and rounding
leads them apart.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import morphogen as mg
from bench.harness.machine import machine_facts

FILE = Path(__file__).parents[1] / "results" / "precision.json"
Array = np.ndarray[Any, Any]


def final_accuracy(arm: str, mode: str, envs: int, episodes: int) -> Array:
    """Accuracies at the ends of episodes in points, [episodes, envs]."""
    env = mg.make("digits", envs=envs, seed=0, engine={"amp": mode})
    return mg.play(env, arm, episodes=envs * episodes).traces.accuracy[-1].reshape(episodes, envs)


def compare_precisions(arm: str, envs: int, episodes: int) -> dict[str, Any]:
    """The mean accuracies of an arm, and their difference in points with its 95 % interval over
    envs.
    """
    full, low = (final_accuracy(arm, mode, envs, episodes) for mode in ("off", "bfloat16"))
    mean, least, most = mg.interval((low - full).mean(axis=0), seed=0)
    means = {"float32": float(full.mean()), "bfloat16": float(low.mean())}
    return {
        "arm": arm,
        **means,
        "difference": mean,
        "low": least,
        "high": most,
        "all": (low - full).tolist(),
    }


def main() -> None:
    """Print a line per arm and write the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arms", nargs="+", default=["wait", "full_cycle", "heuristic"])
    parser.add_argument("--envs", type=int, default=32)
    parser.add_argument("--episodes", type=int, default=8, help="of each env")
    parser.add_argument("--json", type=Path, default=FILE)
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for arm in given.arms:
        rows.append(compare_precisions(arm, given.envs, given.episodes))
        print(
            "{arm}: {difference:+.2f} points ({low:+.2f} .. {high:+.2f})".format(**rows[-1]),
            flush=True,
        )
        facts = {
            "machine": machine_facts(device="cpu", threads=1),
            "envs": given.envs,
            "episodes": given.episodes,
        }
        given.json.write_text(json.dumps({**facts, "arms": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
