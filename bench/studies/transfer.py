"""Policies of `digits_regimes` where they were not trained: `python -m bench.studies.transfer
RUN... --reactive FILE`.

The trained policies play held-out instances, greedily: as they were trained, with their memory
cleared after every epoch, and in worlds with other regimes, prices, lengths of an episode and
hosts.  Beside them play never growing and the best rules, in the file of `morphogen tune --family
reactive`; these too come from the worlds of training.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from bench.harness.machine import machine_facts
from bench.studies.learning import compare_to_arm
from morphogen.config.config_files import build_spec
from morphogen.config.files import json_bytes
from morphogen.config.spec import resolve
from morphogen.config.task import TASKS
from morphogen.device.transfers import Transfers
from morphogen.env.policies import TRAINED_PREFIX, Arm, Greedy, build_arm
from morphogen.env.setup import Setup, build_setup
from morphogen.evaluation.bootstrap import format_estimate, interval
from morphogen.evaluation.play import play_arm
from morphogen.state.decision import ActionMasks, ActOutput, Observation

FILE = Path(__file__).parents[1] / "results" / "transfer.json"
PRESET, SEED = "digits_regimes", 0  # seed of the resamples
IMPAIRED = replace(
    TASKS[PRESET], name="digits_regimes_impaired", host=TASKS["digits_impaired"].host
)
TRAINED, CLEARED = "as trained", "memory cleared every epoch"
CONDITIONS: dict[str, dict[str, Any]] = {  # settings that differ from training
    TRAINED: {},
    "regimes that end sooner": {"regime": {"hazard": 0.5, "least": 12}},
    "regimes that end later": {"regime": {"hazard": 0.05}},
    "lower prices": {"instance": {"param_price": (0.08, 0.12)}},
    "higher prices": {"instance": {"param_price": (0.18, 0.24)}},
    "episodes of 45 epochs": {"episode_length": 45},
    "episodes of 180 epochs": {"episode_length": 180},
    "hosts of digits_impaired": {"task": IMPAIRED.name},
}
Row = dict[str, Any]


class Memoryless(Greedy):
    """A policy restricted to its likeliest action, which forgets each epoch."""

    def act(
        self,
        params: TensorDict,
        obs: Observation,
        masks: ActionMasks,
        hidden: TensorDict,
        noise: Tensor,
    ) -> ActOutput:
        """Choose the action as in the first epoch of an episode."""
        fresh = self.policy.initial_hidden(len(masks.op), device=masks.op.device)
        found = self.policy.act(params, obs, masks, fresh, torch.zeros_like(noise))
        return found.replace(hidden=hidden)


def play_condition(setup: Setup, arms: dict[str, list[Arm]], episodes: int) -> Row:
    """Play the arms, each of one policy or of one per run, on the same held-out instances."""
    transfers = Transfers(setup.device, time.perf_counter)
    with torch.no_grad():
        values = {
            name: np.stack(
                [
                    play_arm(setup, transfers, arm, name=name, episodes=episodes).network_value
                    for arm in some
                ]
            )
            for name, some in arms.items()
        }
    ours = values["trained"]
    return {
        "means": {
            name: interval(rows.mean(axis=0), seed=SEED)._asdict() for name, rows in values.items()
        },
        "trained_minus": {
            name: compare_to_arm(ours, rows) for name, rows in values.items() if name != "trained"
        },
    }


def open_arms(
    setup: Setup, runs: Sequence[Path], reactive: Path, policy: type[Greedy]
) -> dict[str, list[Arm]]:
    """Build the arms of a condition: the policies of all runs, and their rivals."""
    trained = [build_arm(f"{TRAINED_PREFIX}{run}", setup) for run in runs]
    return {
        "trained": [arm._replace(policy=policy(arm.policy)) for arm in trained],
        "wait": [build_arm("wait", setup)],
        "reactive": [build_arm(f"reactive:{reactive}", setup)],
    }


def markdown(results: Row) -> str:
    """The table of bench/README.md."""
    rows = [
        f"| {name} | {format_estimate(row['means']['trained'])} | "
        + " | ".join(
            format_estimate(row["trained_minus"][rival]["difference"], "+")
            for rival in ("wait", "reactive")
        )
        + " |"
        for name, row in results["conditions"].items()
    ]
    head = (
        f"| {len(results['runs'])} policies, {results['episodes']} held-out instances | anytime "
        "value (95 % interval)"
    )
    return "\n".join([f"{head} | minus `wait` | minus the rules |", "|---|---|---|---|", *rows])


def main(words: Sequence[str] | None = None) -> None:
    """Play all conditions, write and print them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="run directories of different seeds"
    )
    parser.add_argument(
        "--reactive", type=Path, required=True, metavar="FILE", help="of `morphogen tune`"
    )
    parser.add_argument(
        "--episodes", type=int, default=64, metavar="N", help="held-out instances (default 64)"
    )
    parser.add_argument(
        "--seed", type=int, default=1234, help="of the held-out instances (default 1234)"
    )
    parser.add_argument("--json", type=Path, default=FILE, help="default %(default)s")
    given = parser.parse_args(words)
    torch.set_num_threads(1)
    TASKS.register(IMPAIRED.name, IMPAIRED)
    began, rows = time.perf_counter(), dict[str, Row]()
    plans = [(name, Greedy, changes) for name, changes in CONDITIONS.items()]
    for name, policy, changes in [*plans, (CLEARED, Memoryless, CONDITIONS[TRAINED])]:
        envs = {"envs": given.episodes, "ppo": {"world_envs": 1}}
        setup = build_setup(
            resolve(build_spec({"preset": PRESET, "seed": given.seed, **envs, **changes}))
        )
        arms = open_arms(setup, given.runs, given.reactive, policy)
        rows[name] = {"settings": changes, **play_condition(setup, arms, given.episodes)}
        behind = rows[name]["trained_minus"]
        found = ", ".join(
            f"{rival} {format_estimate(one['difference'], '+')}" for rival, one in behind.items()
        )
        print(f"{time.perf_counter() - began:6.0f} s  {name}: trained minus {found}", flush=True)
    results = {
        "machine": machine_facts(device="cpu", threads=1),
        "runs": [str(run) for run in given.runs],
        "episodes": given.episodes,
        "seed": given.seed,
        "conditions": rows,
        "seconds": time.perf_counter() - began,
    }
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_bytes(json_bytes(results))
    print(markdown(results))


if __name__ == "__main__":
    main()
