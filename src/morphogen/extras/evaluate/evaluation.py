"""Evaluate the policy of a run and other arms on the same held-out instances, with statistics."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from morphogen.config import files
from morphogen.config.spec import RIVALS, VALIDATION, SplitName
from morphogen.env.policies import TRAINED_PREFIX, build_arm, greedy_arm
from morphogen.env.setup import Setup, build_setup
from morphogen.errors import CheckpointError, ConfigError
from morphogen.evaluation.arms import open_arms, open_context, play_each, policy_player
from morphogen.evaluation.bootstrap import (
    Array,
    format_estimate,
    improvement_probability,
    interval,
    iqm,
)
from morphogen.evaluation.play import (
    SHARE_TITLE,
    TRAINED_ARM,
    ArmResult,
    evaluation_spec,
    share_table,
    shares_of_optimum,
)
from morphogen.log import run_directory
from morphogen.ppo.exchange import ALONE, Exchange
from morphogen.vocab.paths import expand_path
from morphogen.vocab.plain import read_count, to_plain

Row = dict[str, Any]
Results = Mapping[str, ArmResult]


def evaluate(
    run: Path | str,
    names: Sequence[str] = RIVALS,
    *,
    episodes: int = 256,
    seed: int | None = None,
    greedy: bool = False,
    split: SplitName = VALIDATION,
    report: Callable[[str], None] = print,
    exchange: Exchange = ALONE,
) -> tuple[dict[str, list[Row]], Row]:
    """Play the policy of a run and other arms on the same held-out instances; write
    `evaluation.json`.

    A run directory that cannot be written to gets no file, and `report` receives a line.

    Args:
        run: run directory.
        names: other arms: baselines, registered policies, `reactive:FILE`,
            `trained:PATH`, and arms that packages offer, such as `static`.
        episodes: held-out episodes per arm.
        seed: of the held-out instances; default: the seed of the run.
        greedy: the policy of the run takes its most likely actions.
        split: samples for accuracies, `validation` or `test`.
        report: receives a line after each arm.
        exchange: with other processes of the evaluation, which play a part each; the first one
        writes the file.

    Returns: tables by title, each a list of rows; and the contents of the file, with a number per
    episode and arm.
    Raises: ConfigError for unknown arms or a task without samples of the split, CheckpointError for
    a damaged policy.

    Example:
        >>> import tempfile
        >>> import morphogen as mg
        >>> spec = mg.RunSpec(preset="tiny", rounds=1, envs=4, final_episodes=0, policy_name="wait")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result = mg.train_ppo_vectorized(spec, out=folder)
        ...     tables, contents = mg.evaluate(
        ...         folder, ["random"], episodes=2, report=lambda line: None
        ...     )
        >>> {arm: round(row["mean"]["value"], 3) for arm, row in contents["statistics"].items()}
        {'trained': 0.05, 'random': -0.105}
    """
    run = expand_path(run)
    episodes = read_count("episodes", episodes)
    seed, greedy = to_plain((seed, greedy))
    with run_directory.hold_directory(run) as folder, torch.no_grad():
        _, spec, manifest = run_directory.open_directory(run)
        seed = spec.seed if seed is None else seed
        setup = select_split(
            split, build_setup(evaluation_spec(spec, seed=seed, envs=spec.envs), exchange)
        )
        context = open_context(setup, report)
        own_name = f"{TRAINED_PREFIX}{run}"
        own = build_arm(own_name, setup)
        players = {TRAINED_ARM: policy_player(greedy_arm(own) if greedy else own, TRAINED_ARM)}
        players |= open_arms([name for name in names if name != own_name], setup)
        results: dict[str, ArmResult] = {}
        play_each(context, players, results, episodes)
        values = {name: result.network_value for name, result in results.items()}
        contents: Row = {
            "run_id": manifest["run_id"],
            "greedy": greedy,
            "split": split,
            "episodes": episodes,
            "seed": seed,
            "arms": {name: {**one.per_episode(), **one.costs()} for name, one in results.items()},
            "statistics": {
                name: describe_values(values, name, TRAINED_ARM, seed=seed) for name in values
            },
        }
        shares = shares_of_optimum(setup, context.transfers, tuple(results.values()))
        if shares:
            contents["share_of_optimal"] = shares
        if exchange.first:
            try:
                folder.write(run_directory.EVALUATION, lambda: files.json_bytes(contents))
            except CheckpointError as error:
                report(f"{run_directory.EVALUATION} was not written: {error}")
    return evaluation_tables(results, contents), contents


def describe_values(
    values: Mapping[str, Array], arm: str, reference: str, *, seed: int
) -> dict[str, dict[str, float] | None]:
    """Describe the values of an arm: means, difference of the reference, how often that is better.

    values: [n] by arm, paired.  The comparisons of the reference with itself are None.
    """
    own = values[arm]
    found: dict[str, dict[str, float] | None] = {
        "mean": interval(own, seed=seed)._asdict(),
        "iqm": iqm(own, seed=seed)._asdict(),
        "difference": None,
        "improvement": None,
    }
    if arm != reference:
        found["difference"] = interval(values[reference] - own, seed=seed)._asdict()
        found["improvement"] = improvement_probability(values[reference], own, seed=seed)._asdict()
    return found


def select_split(split: SplitName, setup: Setup) -> Setup:
    """Setup with accuracies on the samples of a split; raise ConfigError for a task without
    samples.
    """
    if split == VALIDATION:
        return setup
    if not setup.kind.samples:
        raise ConfigError(
            f"--split: expected {VALIDATION}, because task {setup.task.name} has no "
            f"samples, got {split}"
        )
    return replace(setup, dataset=setup.dataset.on_test_split())


def evaluation_tables(results: Results, contents: Row) -> dict[str, list[Row]]:
    """Return the tables of an evaluation by title: values, costs, shares of a known optimum."""
    values: list[Row] = []
    costs: list[Row] = []
    for name, result in results.items():
        statistics = contents["statistics"][name]
        values.append(
            {
                "arm": _short_name(name),
                f"{result.value_name} (95 % interval)": format_estimate(statistics["mean"]),
                "interquartile mean": format_estimate(statistics["iqm"]),
                f"{TRAINED_ARM} minus arm": format_estimate(statistics["difference"], "+"),
            }
        )
        costs.append(
            {
                "arm": _short_name(result.policy),
                f"P({TRAINED_ARM} is better)": format_estimate(statistics["improvement"]),
                f"{result.score_name} %": float(result.committed_accuracy.mean()),
                "parameters": round(float(result.params.mean())),
                "parameter-epochs": round(float(result.param_epochs.mean())),
                "minibatches": round(float(result.minibatches.mean())),
                "seconds": float(result.seconds),
            }
        )
    title = (
        f"{contents['episodes']} held-out instances, the same for every arm; "
        f"{contents['split']} samples"
    )
    tables = {title: values, "means per instance; seconds in total": costs}
    shares = contents.get("share_of_optimal")
    if shares:
        tables[SHARE_TITLE] = share_table(
            {_short_name(name): share for name, share in shares.items()}
        )
    return tables


def _short_name(name: str) -> str:
    head, colon, place = name.rpartition(":")
    return f"{head}{colon}{Path(place).name}"
