"""Graphs of whole compiled runs: `python -m bench.speed.graphs [--runs N] [--json FILE]`, N seeds of each policy.

Nothing is compiled: a compiler that leaves functions as they are counts what it is asked for, so that only the plans of
a run matter.  Runs are those of digits by default, 50 rounds, but with one minibatch of 4 samples in an epoch and 16 to
validate on; three of them take a few minutes.  What a random policy grows does not depend on that.  The heuristic one
and the trained one look at accuracies, so theirs are lives of hosts that learn little: the same rules and the same
learning, but not the plans of a real run.

Shares are of the plans of a run, one per epoch and one per reset; `late` is after the first 5 rounds.  Overhead is rows
that run, of hosts and of seeds, over those that a plan needs.
"""

from collections.abc import Callable
from typing import Any
from unittest import mock

import torch

from bench.harness.bench_scenes import plain_spec
from bench.harness.timing import Bench, run_bench
from morphogen.cli.bench import Measure, median_measure
from morphogen.config.execution_spec import COMPILE_DEFAULT, EngineSpec
from morphogen.config.groups import DataSpec
from morphogen.config.spec import RunSpec, resolve
from morphogen.engine.compile import FittedPlan
from morphogen.engine.scheduler import Hooks, Parts, Scheduler
from morphogen.engine.setup import build_setup
from morphogen.nets.plan import Plan

NAME_SUFFIXES = {"ppo": "", "random": "_random", "heuristic": "_heuristic"}  # of the rows of a policy
ROUNDS, EARLY_ROUNDS = 50, 5
SMALL_DATA = DataSpec(batch=4, minibatches=1, val_samples=16)


class GraphCounter:
    """A run whose compiler only counts."""

    def __init__(self, bench: Bench, spec: RunSpec) -> None:
        self.graphs, self.rows = 0, {"train": [0, 0], "validate": [0, 0]}  # needed, run
        self.early_graphs = 0  # graphs of the first rounds
        self.scheduler = Scheduler(
            build_setup(spec), Parts(compiler=self._compiler, hooks=Hooks(on_round=self._on_round))
        )
        fit = self._count_rows(self.scheduler.compiled.fit)
        with mock.patch.object(self.scheduler.compiled, "fit", fit), torch.no_grad():
            self.history = self.scheduler.run()
        bench.record_checksum(f"graphs_{spec.policy_name}_{spec.seed}", self.scheduler.rollout.rows["reward"])

    def _compiler(self, function: Callable, **_: Any) -> Callable:
        self.graphs += 1
        return function

    def _on_round(self, summary: Any, scheduler: Scheduler) -> None:
        self.early_graphs = self.graphs if summary.round < EARLY_ROUNDS else self.early_graphs

    def _count_rows(self, fit: Callable[[Plan], FittedPlan]) -> Callable[[Plan], FittedPlan]:
        def watched(plan: Plan) -> FittedPlan:
            found = fit(plan)
            for at, one in enumerate((plan, found.plan)):
                self.rows["train"][at] += self.scheduler.setup.spec.envs + sum(crew.size for crew in one.train)
                self.rows["validate"][at] += one.rows[-1] + sum(crew.size for crew in one.evaluate)
            return found

        return watched

    def values(self) -> dict[str, tuple[float, str]]:
        """Values and units by name."""
        eager, plans = [one.graph_fallbacks for one in self.history], self.scheduler.setup.spec.episode_length + 1
        late = eager[EARLY_ROUNDS:] or [0]
        needed, done = zip(*self.rows.values(), strict=True)
        return {
            "graphs": (self.graphs, "graphs"),
            "graphs_after_5_rounds": (self.graphs - self.early_graphs, "graphs"),
            "graph_fallback_share": (sum(eager) / (plans * len(eager)), "share"),
            "graph_fallback_share_late": (sum(late) / (plans * len(late)), "share"),
            "padding_overhead": (done[0] / needed[0], "ratio"),
            "padding_overhead_validate": (done[1] / needed[1], "ratio"),
        }


def measures(bench: Bench, envs: int, *, rounds: int = ROUNDS) -> list[Measure]:
    """The rows of all policies, each over as many seeds as the bench has runs."""
    engine = EngineSpec(devices=(str(bench.device),), compile=COMPILE_DEFAULT)
    rows = []
    for policy, ending in NAME_SUFFIXES.items():
        base = {"envs": envs, "rounds": rounds, "policy_name": policy, "final_episodes": 0}
        specs = [resolve(plain_spec(**base, seed=seed, data=SMALL_DATA, engine=engine)) for seed in range(bench.runs)]
        found = [GraphCounter(bench, spec).values() for spec in specs]
        for name, (_, unit) in found[0].items():
            rows.append(median_measure(name + ending, [float(one[name][0]) for one in found], unit))
    return rows


if __name__ == "__main__":
    run_bench(__doc__, measures)
