"""Runs that were evaluated, made up: what an arm is better by is the same on every instance."""

import json

from support import generated_logs

EPISODES, ROUNDS = 12, 7
HARD = [0.5 + 0.02 * (7 * i % EPISODES) for i in range(EPISODES)]  # never growing, by instance
COMMON = {
    "wait": 0.0,
    "random": -0.1,
    "schedule:runs/tuned.json": 0.05,
    "oracle:runs/tuned.portfolio.json": 0.2,
}
PARAMS = 438.0


def arm(more):
    return {
        "network_value": [value + more for value in HARD],
        "committed_accuracy": [70.0] * EPISODES,
        "params": [PARAMS] * EPISODES,
        "param_epochs": [2_000] * EPISODES,
        "minibatches": [24] * EPISODES,
    }


def evaluation(gain, others=(), *, seed=1234):
    """A trained policy that is better than never growing by `gain`; others: arm -> by what they
    are.
    """
    arms = {name: arm(more) for name, more in {"trained": gain, **dict(others)}.items()}
    return {"split": "validation", "episodes": EPISODES, "seed": seed, "greedy": True, "arms": arms}


def run(path, seed, reported):
    """A run directory, as `train` and `evaluate` leave it."""
    generated_logs.write(path, rounds=ROUNDS, envs=2, epochs=4, seed=seed, result=False)
    change(path / "config.json", seed=seed)
    change(
        path / "manifest.json",
        run_id=f"{seed:012}",
        command=f"morphogen train --seed {seed} --out {path.name}",
    )
    (path / "evaluation.json").write_text(json.dumps(reported))
    return path


def change(file, **fields):
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def several(folder, gains=(0.14, 0.16, 0.18)):
    """Runs with seeds from 1 on, the arms that need none of them beside the second only."""
    static = {"static": 0.1, "static-cost": 0.08}
    reported = [
        evaluation(gain, {**static, **(COMMON if i == 1 else {})}) for i, gain in enumerate(gains)
    ]
    return [run(folder / f"seed-{i + 1}", i + 1, one) for i, one in enumerate(reported)]
