"""Load runs of different training seeds that were evaluated on the same held-out instances."""

import argparse
import json
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from morphogen.config import files
from morphogen.config.config_files import flatten_settings
from morphogen.config.fields import raise_all, to_settings
from morphogen.config.spec import VALIDATION, RunSpec, resolve
from morphogen.errors import ConfigError, DataError
from morphogen.evaluation.play import TRAINED_ARM
from morphogen.log import run_directory, run_log
from morphogen.log.kinds.ppo import PpoUpdated
from morphogen.log.kinds.round import BatchSummary
from morphogen.log.kinds.run import HeldOutPlayed, RunStarted
from morphogen.vocab.text import format_value

EVALUATION_FIELDS = ("episodes", "seed", "greedy", "split")  # of the evaluations of all runs
ARM_FIELDS = ("network_value", "committed_accuracy", "params", "param_epochs", "minibatches")
FILE_ARMS = ("schedule:", "reactive:")  # arms of files, which are named by them
# what other runs cannot stand for
PER_RUN_ARMS = (TRAINED_ARM, "schedule", "static", "static-cost", "static-params")
# of network value that are kept; what the same arm may differ by beside two runs
DIGITS, ARM_TOLERANCE = 5, 1e-4
_PLAIN = RunSpec()
Array = np.ndarray[Any, Any]
# arm -> measure -> float [R, n], or [1, n] where no run matters
StackedArms = dict[str, dict[str, Array]]


@dataclass(frozen=True)
class EvaluatedRun:
    """One run that was evaluated."""

    path: Path
    spec: RunSpec
    command: str
    device: str
    seconds: float  # of all rollouts and updates, those before a resume too
    rounds: list[BatchSummary]
    plays: list[HeldOutPlayed]  # of the learning curve
    evaluation: dict[str, Any]  # what `morphogen evaluate` wrote

    @property
    def arms(self) -> dict[str, dict[str, Array]]:
        """Measure -> float [1, n], of every arm by its short name."""
        return {
            _arm_label(name): {
                kind: np.array(one[kind], dtype=np.float64)[None] for kind in ARM_FIELDS
            }
            for name, one in self.evaluation["arms"].items()
        }

    @property
    def facts(self) -> dict[str, Any]:
        """Settings and versions of the run, for a results file."""
        return {
            "seed": self.spec.seed,
            "seconds": self.seconds,
            "commands": [self.command, self.evaluation_command()],
        }

    @property
    def settings(self) -> dict[str, Any]:
        """Task, preset, size and evaluation of the run, for a results file."""
        return {
            **{
                name: getattr(self.spec, name)
                for name in ("task", "preset", "envs", "rounds", "episode_length")
            },
            **{
                f"evaluation_{name}" if name == "seed" else name: self.evaluation[name]
                for name in EVALUATION_FIELDS
            },
        }

    def evaluation_command(self) -> str:
        """The command that played."""
        said = self.evaluation
        rivals = ",".join(name for name in said["arms"] if name != TRAINED_ARM)
        words = ["morphogen", "evaluate", str(self.path), *(["--greedy"] if said["greedy"] else [])]
        words += [] if said["split"] == VALIDATION else ["--split", said["split"]]
        return shlex.join(
            [
                *words,
                "--episodes",
                str(said["episodes"]),
                "--seed",
                str(said["seed"]),
                "--arms",
                rivals,
            ]
        )


def run_study(
    parser: argparse.ArgumentParser,
    argv: Sequence[str] | None,
    *,
    minimum: str,
    collect: Callable[[argparse.Namespace], Mapping[Path, bytes]],
    format_table: Callable[[dict[str, Any]], str],
) -> None:
    """Run a command over finished runs: write its files, print the table of one; exit code 2 on
    faults.

    parser: has the flags of the command, among them --json; minimum: how many runs it takes, a word
    for its errors.
    collect: content of each file, from the flags and the runs; format_table: the table, from the
    content of --json.
    """
    parser.add_argument(
        "runs", nargs="*", type=Path, metavar="RUN", help="run directories with an evaluation.json"
    )
    parser.add_argument(
        "--add",
        action="store_true",
        help="add the runs to the JSON file, which keeps what it holds",
    )
    parser.add_argument("--table", action="store_true", help="print the table out of the JSON file")
    given = parser.parse_args(argv)
    if not (given.runs or given.table):
        parser.error(f"no RUN is given; want at least {minimum}, or --table")
    try:
        for path, data in collect(given).items() if given.runs else ():
            path.parent.mkdir(parents=True, exist_ok=True)
            files.write_atomic(path, data)
    except (ConfigError, DataError) as error:
        parser.error(str(error))
    if given.table:
        print(format_table(json.loads(given.json.read_bytes())))


def _arm_label(name: str) -> str:
    """Short name of an arm: its file, or its kind."""
    return Path(name.partition(":")[2]).stem if name.startswith(FILE_ARMS) else name


def load_seed_runs(paths: Sequence[Path]) -> list[EvaluatedRun]:
    """Load runs that differ in their seed alone, sorted by it.

    Raises: ConfigError with every difference that prevents a comparison.
    """
    runs = sorted(load_runs(paths), key=lambda run: run.spec.seed)
    raise_all([*duplicate_seeds(runs), *_differing_configs(runs)])
    return runs


def load_runs(paths: Sequence[Path]) -> list[EvaluatedRun]:
    """Runs that were evaluated alike, in the order of the paths; a ConfigError where they were
    not.
    """
    first, *others = runs = [_load_run(path) for path in paths]
    faults = [
        f"{one.path} was evaluated with {name} {format_value(one.evaluation[name])}, "
        f"{first.path} with {format_value(first.evaluation[name])}"
        for one in others
        for name in EVALUATION_FIELDS
        if one.evaluation[name] != first.evaluation[name]
    ]
    raise_all(faults)
    return runs


def read_results(
    path: Path, runs: Sequence[EvaluatedRun], *, keys: Sequence[str]
) -> dict[str, Any]:
    """Results that runs are added to: from `path`, whose evaluations played the same instances.

    Raises: ConfigError for a file without these keys, or with every setting that tells the
    instances apart; the number of rounds does not.
    """
    try:
        kept = files.parse_json(files.read_bytes(path))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be added to: {files.error_line(error)}") from None
    lacking = [key for key in ("settings", *keys) if key not in kept]
    fault = f"{path} cannot be added to: it lacks {', '.join(lacking)}; want results of this study"
    raise_all([fault] if lacking else [])
    said = kept["settings"]
    raise_all(
        [
            f"{run.path} has {name} {format_value(value)}, {path} "
            f"{format_value(said[name])}; want equal ones"
            for run in runs
            for name, value in run.settings.items()
            if name != "rounds" and value != said[name]
        ]
    )
    return kept


def duplicate_seeds(runs: Sequence[EvaluatedRun]) -> list[str]:
    """A line for every run that has the seed of one before it."""
    seeds = [run.spec.seed for run in runs]
    again = [run for i, run in enumerate(runs) if run.spec.seed in seeds[:i]]
    return [f"{one.path} has seed {one.spec.seed}, as another run; want each once" for one in again]


def _differing_configs(runs: Sequence[EvaluatedRun]) -> list[str]:
    return [
        f"{one.path} was configured differently from {runs[0].path}; want runs that only "
        "their seed tells apart"
        for one in runs[1:]
        if learning_settings(one.spec) != learning_settings(runs[0].spec)
    ]


def learning_settings(spec: RunSpec) -> RunSpec:
    """The settings without those that no number follows from."""
    names = ("seed", "telemetry", "checkpoint", "engine", "evaluation", "final_episodes")
    return replace(spec, **{name: getattr(_PLAIN, name) for name in names})


def preset_settings(name: str | None) -> RunSpec:
    """The settings of a preset that numbers follow from."""
    return learning_settings(resolve(RunSpec(preset=name)))


def settings_diff(base: RunSpec, other: RunSpec) -> dict[str, Any]:
    """The settings in which two runs differ: path -> what it was and what it became."""
    before, after = (dict(flatten_settings(to_settings(spec))) for spec in (base, other))
    return {
        path: [before.get(path), after.get(path)]
        for path in after
        if before.get(path) != after.get(path)
    }


def _load_run(path: Path) -> EvaluatedRun:
    _, spec, said = run_directory.open_directory(path)
    if said.get("status") != run_directory.STATUS_COMPLETED:
        raise ConfigError(f"{path} is {format_value(said.get('status'))}; want a completed run")
    played = _read_evaluation(path / run_directory.EVALUATION)
    started, rounds, plays, seconds = _read_events(path, spec)
    devices = ",".join(started[0].devices)
    return EvaluatedRun(
        path, spec, str(said.get("command")), devices, seconds, rounds, plays, played
    )


def _read_evaluation(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ConfigError(f"{path} is not there; want it written by morphogen evaluate")
    try:
        found = files.parse_json(files.read_bytes(path))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be used: {files.error_line(error)}") from None
    raise_all(
        [
            f"{path} lacks {name}; want the file of morphogen evaluate"
            for name in (*EVALUATION_FIELDS, "arms")
            if name not in found
        ]
    )
    arms = found["arms"]
    raise_all([f"{path} lacks the arm {TRAINED_ARM}"] if TRAINED_ARM not in arms else [])
    raise_all(
        [f"{path} has several arms of one kind: {', '.join(arms)}"]
        if len(set(map(_arm_label, arms))) < len(arms)
        else []
    )
    raise_all(
        [
            f"{path} has no {kind} of {found['episodes']} episodes of {name}"
            for name, one in arms.items()
            for kind in ARM_FIELDS
            if np.shape(one.get(kind, ())) != (found["episodes"],)
        ]
    )
    return found


def _read_events(
    path: Path, spec: RunSpec
) -> tuple[list[RunStarted], list[BatchSummary], list[HeldOutPlayed], float]:
    """Read start, rounds, plays of the learning curve, and seconds of all rounds of a run from its
    event file.
    """
    folder = run_directory.events_folder(path, spec.telemetry.dir)
    kinds = (RunStarted, BatchSummary, PpoUpdated, HeldOutPlayed)
    found = [one.data for one in run_log.iterate_events(folder, {kind.NAME for kind in kinds})]
    started = [one for one in found if isinstance(one, RunStarted)]
    rounds = [one for one in found if isinstance(one, BatchSummary)]
    plays = [one for one in found if isinstance(one, HeldOutPlayed)]
    if not (started and rounds):
        raise ConfigError(
            f"{path} tells no begin and no rounds; want its events.jsonl at level normal"
        )
    updates = [one for one in found if isinstance(one, PpoUpdated)]
    seconds = sum(one.seconds for one in rounds) + sum(one.update_s or 0.0 for one in updates)
    return started, rounds, plays, seconds


def stack_arms(runs: Sequence[EvaluatedRun]) -> StackedArms:
    """Every arm that played, network values rounded.

    What depends on a run has to have played beside all of them.  Anything else is the same beside
    each, and may have played beside one; a ConfigError where two disagree.
    """
    every, common = [run.arms for run in runs], common_arms(runs)
    names = [
        TRAINED_ARM,
        *dict.fromkeys(name for one in every for name in one if name != TRAINED_ARM),
    ]
    own = {
        name: [one[name] for one in every if name in one] for name in names if name not in common
    }
    lacking = [name for name, some in own.items() if len(some) < len(runs)]
    raise_all(
        [
            f"{name} played beside {len(own[name])} of {len(runs)} runs; want all or none"
            for name in lacking
        ]
    )
    return {name: common[name] if name in common else _stack_measures(own[name]) for name in names}


def common_arms(runs: Sequence[EvaluatedRun], among: Collection[str] | None = None) -> StackedArms:
    """Every arm that played beside some run and that no run matters for; a ConfigError where two
    disagree.

    among: those that count; None: all, of runs with the same settings.
    """
    found: dict[str, list[dict[str, Array]]] = {}
    for run in runs:
        for name, one in run.arms.items():
            if name not in PER_RUN_ARMS and (among is None or name in among):
                found.setdefault(name, []).append(one)
    for name, some in found.items():
        _refuse_other_values(
            name,
            some[0]["network_value"],
            [one["network_value"] for one in some],
            "beside two runs",
        )
    return {name: _stack_measures(some[:1]) for name, some in found.items()}


def check_same_arms(kept: Mapping[str, Any], played: StackedArms, run: Path) -> None:
    """Refuse plays in which the same choices end in other values than in the results, whose arms
    are `kept`.

    kept: arm -> network value, float [n] or [1, n].
    Raises: ConfigError, also where no arm played in both.
    """
    common = [name for name in played if name in kept]
    raise_all(
        [] if common else [f"{run} has no arm of the results, such as wait; want one to compare"]
    )
    for name in common:
        _refuse_other_values(
            name, np.array(kept[name]), [played[name]["network_value"]], "as in the results"
        )


def _refuse_other_values(name: str, first: Array, others: Sequence[Array], where: str) -> None:
    fault = f"{name} is not the same {where}; want one seed, number of envs and kind of processor"
    raise_all([fault] if any(np.abs(one - first).max() > ARM_TOLERANCE for one in others) else [])


def _stack_measures(parts: Sequence[dict[str, Array]]) -> dict[str, Array]:
    stacked = {kind: np.concatenate([one[kind] for one in parts]) for kind in ARM_FIELDS}
    return {**stacked, "network_value": stacked["network_value"].round(DIGITS)}
