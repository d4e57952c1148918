"""The reward of a step with all its components, for every rule of the table: eager against compiled.

Run: `python bench/bench_reward.py [--envs 1024] [--slots 3] [--threads 1] [--repeats 200] [--json FILE]`.
Only the rule is timed, and every call gets other values than the one before.  Both forms run in turn in one process;
compile time is kept apart.  The check sum is that of the compiled rewards; eager ones must be equal to 1e-6.
"""

import argparse
import json
import os
import platform
import statistics
import time
from dataclasses import asdict
from pathlib import Path

import torch
from tensordict import TensorDict

from morphogen.rules.rewards.archetypes import ARCHETYPES, SLOTS, STEPS, TERMS, trajectories
from morphogen.rules.rewards.table import BUILDERS, Rule, build
from morphogen.state.measure import RewardInputs
from morphogen.vocab.spec import RewardSpec

TARGET_US = 5.0  # per env, compiled


def steps(envs: int, slots: int) -> list[RewardInputs]:
    """Every step of scripted lives, repeated over the envs and, slot by slot, over the slots: [E] each."""
    whole = trajectories(list(ARCHETYPES.values()), dtype=torch.float32)
    rows, places = torch.arange(envs) % len(ARCHETYPES), torch.arange(slots) % SLOTS
    wide = whole[:, rows]
    wide = wide.replace(
        slots=wide.slots.apply(lambda leaf: leaf[..., places].contiguous()),
        interaction=wide.interaction[..., places, :][..., places].contiguous(),
    )
    return [step.clone() for step in wide]


def measure(name: str, inputs: list[RewardInputs], slots: int, repeats: int) -> dict[str, object]:
    """Medians of both forms of a rule, its compile time, and a check sum of what it pays."""
    rule: Rule = build(RewardSpec(rule=name), **asdict(TERMS))
    envs = inputs[0].batch_size[0]
    torch._dynamo.reset()
    forms = {"eager": rule, "compiled": torch.compile(lambda step, ledger: rule(step, ledger), fullgraph=True)}
    ledgers: dict[str, TensorDict] = {form: rule.init(envs, slots) for form in forms}
    start = time.perf_counter()
    forms["compiled"](inputs[0], ledgers["compiled"])
    compile_s = time.perf_counter() - start
    times: dict[str, list[float]] = {form: [] for form in forms}
    checksum = 0.0
    for turn in range(repeats):
        paid = {}
        for form, call in forms.items():
            start = time.perf_counter()
            paid[form] = call(inputs[turn % STEPS], ledgers[form])
            times[form].append(1e3 * (time.perf_counter() - start))
            ledgers[form] = paid[form][2]
        torch.testing.assert_close(paid["compiled"][:2], paid["eager"][:2], rtol=1e-6, atol=1e-6)
        checksum += float(paid["compiled"][0].double().sum())
    row: dict[str, object] = {"rule": name, "compile_s": compile_s, "checksum": checksum}
    for form, found in times.items():
        low, middle, high = statistics.quantiles(found, n=4)
        row |= {f"{form}_ms": middle, f"{form}_quartiles_ms": [low, high], f"{form}_least_ms": min(found)}
        row[f"{form}_us_per_env"] = 1e3 * middle / envs
    return row


def main() -> None:
    """Print one line per rule."""
    parser = argparse.ArgumentParser()
    for name, default in (("--envs", 1024), ("--slots", 3), ("--threads", 1), ("--repeats", 200)):
        parser.add_argument(name, type=int, default=default)
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, {platform.machine()}, {options.threads} threads, E={options.envs}")
    rows = []
    inputs = steps(options.envs, options.slots)
    with torch.no_grad():
        for name in BUILDERS:
            row = measure(name, inputs, options.slots, options.repeats)
            print(
                f"{name:12} eager {row['eager_us_per_env']:6.3f} us per env  compiled {row['compiled_us_per_env']:6.3f}"
                f"  compile {row['compile_s']:5.1f} s  check sum {row['checksum']:.6g}"
            )
            rows.append(row)
    slow = [row["rule"] for row in rows if row["compiled_us_per_env"] > TARGET_US]
    print(f"more than {TARGET_US} us per env compiled: {', '.join(slow) or 'none'}")
    if options.json is not None:
        machine = {"torch": torch.__version__, "machine": platform.machine(), "threads": options.threads}
        machine |= {"cores": os.cpu_count(), "load": os.getloadavg()[0]}
        facts = {"machine": machine, "envs": options.envs, "slots": options.slots, "repeats": options.repeats}
        options.json.write_text(json.dumps({**facts, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
