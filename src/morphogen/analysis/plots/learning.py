"""Learning of a run: its curves over rounds, and the updates of its policy."""

import math
from statistics import fmean, stdev

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from morphogen.analysis.console import mean_known
from morphogen.analysis.plots import canvas
from morphogen.analysis.plots.canvas import Plot, RunRows, add_legend, draw_curves, label_panel
from morphogen.analysis.run_log import RunLog
from morphogen.analysis.tables import Row
from morphogen.analysis.views import flatten_row, rows_of_round

KL_STOP = 1.5  # an update stops at this multiple of `ppo.target_kl`
UPDATE_COLUMNS = (
    *("policy_loss", "value_loss", "kl", "clip_share", "entropy", "explained_variance"),
    *("gradient_norm", "behaviour_gap", "learning_rate", "steps_done", "steps_skipped", "stopped_by_kl"),
)


def learning_rows(log: RunLog) -> list[Row]:
    """A row per round: accuracies, values and rewards with their spread over the envs."""
    rows = []
    for one in log.tables["rounds"]:
        episodes = rows_of_round(log.tables["episodes"], one["round"])
        hosts = [
            value for row in rows_of_round(log.tables["ablations"], one["round"])[-1:] for value in row["host_acc"]
        ]
        rows.append(
            {
                "round": one["round"],
                **{name: one[name] for name in ("accuracy_mean", "accuracy_min", "accuracy_max", "rolling_accuracy")},
                **_mean_with_error("accuracy", one["env_accuracy"]),
                **_mean_with_error("committed", one["env_committed"]),
                "host_only_mean": mean_known(hosts),
                **_mean_with_error("value", [row["network_value"] for row in episodes]),
                **_mean_with_error("reward", one["env_reward"]),
                "return_mean": one["return_mean"],
            }
        )
    return rows


def _mean_with_error(name: str, values: list[float | None]) -> Row:
    """Mean, and one standard error of it to either side."""
    known = [value for value in values if value is not None]
    if not known:
        return {f"{name}_mean": None, f"{name}_low": None, f"{name}_high": None}
    middle = fmean(known)
    error = stdev(known) / math.sqrt(len(known)) if len(known) > 1 else 0.0
    return {f"{name}_mean": middle, f"{name}_low": middle - error, f"{name}_high": middle + error}


def _draw_learning(runs: RunRows) -> Figure:
    page = canvas.new_figure(7.2)
    accuracy, value, reward = canvas.add_panels(page, (1,), (1, 1), heights=(1.25, 1))
    label_panel(accuracy, "Accuracy at the end of an episode", "round", "validation accuracy, %")
    label_panel(value, "Value of the delivered network", "round", "accuracy (0 to 1) minus price")
    label_panel(reward, "What the policy was paid", "round", "reward per episode")
    _plot_spread(accuracy, runs, "accuracy")
    names = {"accuracy_mean": "final", "committed_mean": "committed", "rolling_accuracy": "final, last 10 rounds"}
    draw_curves(accuracy, runs, {**names, "host_only_mean": "host alone"} if len(runs) == 1 else names)
    _plot_spread(value, runs, "value")
    draw_curves(value, runs, {"value_mean": "network value"})
    _plot_spread(reward, runs, "reward")
    draw_curves(reward, runs, {"reward_mean": "sum", "return_mean": "discounted"})
    for ax in (accuracy, value, reward):
        add_legend(ax)
    return page


def _plot_spread(ax: Axes, runs: RunRows, name: str) -> None:
    """Bands: one standard error around the mean, and from the worst env to the best where that is known."""
    for i, rows in enumerate(runs.values()):
        style = {"color": canvas.cycle_colour(i)}
        if len(runs) == 1 and f"{name}_min" in rows[0]:
            canvas.draw_band(ax, rows, (f"{name}_min", f"{name}_max"), alpha=0.12, label="worst to best env", **style)
        canvas.draw_band(
            ax, rows, (f"{name}_low", f"{name}_high"), alpha=0.3, label="± standard error" if not i else "", **style
        )


def ppo_rows(log: RunLog) -> list[Row]:
    """A row per update."""
    target = log.config.get("ppo", {}).get("target_kl")
    stop = None if target is None else KL_STOP * target
    return [
        {
            "round": row["round"],
            **{name: row[name] for name in UPDATE_COLUMNS},
            "kl_stop": stop,
            **flatten_row(row, "entropy_head"),
        }
        for row in log.tables["updates"]
    ]


def _draw_ppo(runs: RunRows) -> Figure:
    page = canvas.new_figure(8.4)
    policy, value, kl, clip, entropy, fit = canvas.add_panels(page, (1, 1), (1, 1), (1, 1))
    label_panel(policy, "Policy loss", "round", "mean over minibatches")
    label_panel(value, "Value loss and gradient norm", "round", "loss; norm before clipping")
    label_panel(kl, "Distance from the policy that acted", "round", "KL divergence, nats")
    label_panel(clip, "Clipped ratios", "round", "share of steps, 0 to 1")
    label_panel(fit, "Variance that the critic explains", "round", "share of the variance of returns")
    draw_curves(policy, runs, {"policy_loss": "policy loss"})
    draw_curves(value, runs, {"value_loss": "value loss", "gradient_norm": "gradient norm"})
    draw_curves(kl, runs, {"kl": "KL"})
    for i, rows in enumerate(runs.values()):
        canvas.draw_line(
            kl, rows, "round", "kl_stop", color=canvas.BLACK, linestyle="--", label="" if i else "update stops"
        )
    draw_curves(clip, runs, {"clip_share": "clipped"})
    _plot_entropy(entropy, runs)
    draw_curves(fit, runs, {"explained_variance": "explained"})
    for ax in (policy, value, kl, clip, entropy, fit):
        add_legend(ax)
    return page


def _plot_entropy(ax: Axes, runs: RunRows) -> None:
    """Per head of one run; of several, of the whole policy."""
    heads = canvas.prefixed_columns((row for rows in runs.values() for row in rows), "entropy_head")
    if len(runs) == 1 and heads:
        label_panel(ax, "Entropy of the heads", "round", "share of the maximum, 0 to 1")
        draw_curves(ax, runs, heads)
        return
    label_panel(ax, "Entropy of the policy", "round", "nats")
    draw_curves(ax, runs, {"entropy": "entropy"})


LEARNING = Plot(
    "learning_curve",
    "Learning curves",
    "Accuracies are of the validation split at the end of an episode, over all envs of a round. Committed: with "
    "fossilized seeds only. Host alone: the same host with all seeds switched off.",
    learning_rows,
    _draw_learning,
)
PPO = Plot(
    "ppo",
    "Updates of the policy",
    "Means over the minibatches of an update. Entropies of heads count only steps where the head had a choice.",
    ppo_rows,
    _draw_ppo,
)
