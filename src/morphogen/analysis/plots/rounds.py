"""Curves over rounds: learning, updates of the policy, health, and the phases that take the time."""

from collections.abc import Iterable
from itertools import product
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from morphogen.analysis.plots import canvas
from morphogen.analysis.plots.canvas import Plot, RunRows, draw_curves, label_panel
from morphogen.analysis.run_log import RunLog
from morphogen.analysis.tables import Row
from morphogen.analysis.views import VIEWS, flatten_row, held_out_table, mean_with_error, rows_of_round
from morphogen.telemetry.events import mean_known

KL_STOP = 1.5  # an update stops at this multiple of `ppo.target_kl`
UPDATE_COLUMNS = (
    *("policy_loss", "value_loss", "kl", "clip_share", "entropy", "explained_variance"),
    *("gradient_norm", "behaviour_gap", "learning_rate", "steps_done", "steps_skipped", "stopped_by_kl"),
)
HIDDEN_COLUMNS = ("h_rms", "c_rms", "h_env_rms_max", "c_env_rms_max")
OBSERVATION_COLUMNS = ("clip_share", "near_clip_share", "outlier_share", "nonfinite_share", "drift")
RATE_COLUMNS = ("env_epochs_per_s", "samples_per_s", "rollout_s", "update_s", "compile_s")
WAIT_COLUMNS, WAIT_NAMES = ("host_wait_time_share", "data_wait_time_share"), ("host in fences", "drawing minibatches")
RUN_OFFSET = 0.1  # between the crosses of runs

Panel = tuple[str, str, dict[str, str]]  # title, axis, column -> name of its curve
VALUE_PANELS: tuple[Panel, ...] = (
    ("Value of an episode", "accuracy (0 to 1) minus price", {"value_mean": "value"}),
    ("What the policy was paid", "reward per episode", {"reward_mean": "sum", "return_mean": "discounted"}),
)
CRITIC_CURVES = {"value_loss": "value loss", "gradient_norm": "gradient norm"}
LOSS_PANELS: tuple[Panel, ...] = (
    ("Policy loss", "mean over minibatches", {"policy_loss": "policy loss"}),
    ("Value loss and gradient norm", "loss; norm before clipping", CRITIC_CURVES),
    ("Distance from the policy that acted", "KL divergence, nats", {"kl": "KL"}),
    ("Clipped ratios", "share of steps, 0 to 1", {"clip_share": "clipped"}),
)
CRITIC_FIT = {"explained_variance": "explained"}
FIT_PANEL: Panel = ("Variance that the critic explains", "share of the variance of returns", CRITIC_FIT)
SEED_CURVES = {"gradient_health": "mean", "gradient_health_min": "worst"}
FAULT_CURVES = {"skipped": "skipped minibatches", "rollbacks": "rollbacks"}
HEALTH_PANELS: tuple[Panel, ...] = (
    ("Gradient health of the seeds", "0 (dead or exploding) to 1", SEED_CURVES),
    ("Gradients of the hosts", "norm before clipping", {"host_gradient_norm": "mean of the envs"}),
    ("Memory of the policy", "root mean square", {"h_rms": "hidden", "c_rms": "cell"}),
    ("Observations", "share of the values, 0 to 1", {"clip_share": "clipped", "outlier_share": "beyond 3 deviations"}),
    ("Skipped minibatches and rollbacks", "number in a round", FAULT_CURVES),
)
SPEED_PANELS: tuple[Panel, ...] = (
    ("Rate of the rollouts", "epochs of an env per second", {"env_epochs_per_s": "rate"}),
    ("Standing still", "share of the wall time, 0 to 1", dict(zip(WAIT_COLUMNS, WAIT_NAMES, strict=True))),
)


def _draw_panels(axes: Iterable[Axes], runs: RunRows, panels: Iterable[Panel]) -> None:
    for ax, (title, unit, series) in zip(axes, panels, strict=True):
        label_panel(ax, title, "round", unit)
        draw_curves(ax, runs, series)


def _draw_held_out(runs: RunRows) -> Figure:
    page = canvas.new_figure(3.6)
    value, behind = canvas.add_panels(page, (1, 1))
    rivals = dict.fromkeys(
        name for rows in runs.values() for row in rows for name in row if f"minus_{name}_mean" in row
    )
    label_panel(value, "Value on held-out instances", "rounds of learning", "mean of an episode")
    label_panel(behind, "Trained policy minus rival", "rounds of learning", "difference in value, same instances")
    lines = {"value_mean": "trained policy", **{name: f"`{name}`" for name in rivals}} if len(runs) == 1 else {}
    draw_curves(value, runs, lines or {"value_mean": "trained policy"})
    draw_curves(behind, runs, {f"minus_{name}_mean": f"minus `{name}`" for name in rivals})
    behind.axhline(0.0, color=canvas.GREY, linewidth=0.8)
    for ax, names in ((value, ["value"]), (behind, [f"minus_{name}" for name in rivals])):
        for i, (rows, name) in enumerate(product(runs.values(), names)):
            shade = i if len(runs) == 1 else i // len(names)
            style = {"color": canvas.cycle_colour(shade), "alpha": 0.2}
            canvas.draw_band(ax, rows, (f"{name}_low", f"{name}_high"), **style)
        canvas.limit_to_learned(ax)
    canvas.add_legends(value, behind)
    return page


def learning_rows(log: RunLog) -> list[Row]:
    """A row per round: accuracies, values and rewards with their spread over the envs."""
    rows = []
    for one in log.tables["rounds"]:
        episodes = rows_of_round(log.tables["episodes"], one["round"])
        ablations = rows_of_round(log.tables["ablations"], one["round"])
        rows.append(
            {
                "round": one["round"],
                **{name: one[name] for name in ("accuracy_mean", "accuracy_min", "accuracy_max", "rolling_accuracy")},
                **mean_with_error("accuracy", one["env_accuracy"]),
                **mean_with_error("committed", one["env_committed"]),
                "host_only_mean": mean_known(ablations[-1]["host_acc"] if ablations else ()),
                **mean_with_error("value", [row["network_value"] for row in episodes]),
                **mean_with_error("reward", one["env_reward"]),
                "return_mean": one["return_mean"],
            }
        )
    return rows


def _draw_learning(runs: RunRows) -> Figure:
    page = canvas.new_figure(7.2)
    axes = canvas.add_panels(page, (1,), (1, 1), heights=(1.25, 1))
    names = {"accuracy_mean": "final", "committed_mean": "committed", "rolling_accuracy": "final, last 10 rounds"}
    accuracy = {**names, "host_only_mean": "host alone"} if len(runs) == 1 else names
    for ax, name in zip(axes, ("accuracy", "value", "reward"), strict=True):
        _plot_spread(ax, runs, name)
    _draw_panels(axes, runs, [("Accuracy at the end of an episode", "validation accuracy, %", accuracy), *VALUE_PANELS])
    canvas.add_legends(*axes)
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
    stop, names = None if target is None else KL_STOP * target, ("round", *UPDATE_COLUMNS)
    updates = log.tables["updates"]
    return [{**flatten_row(row, *names), "kl_stop": stop, **flatten_row(row, "entropy_head")} for row in updates]


def _draw_ppo(runs: RunRows) -> Figure:
    page = canvas.new_figure(8.4)
    axes = canvas.add_panels(page, (1, 1), (1, 1), (1, 1))
    heads = canvas.prefixed_columns((row for rows in runs.values() for row in rows), "entropy_head")
    entropy = ("Entropy of the policy", "nats", {"entropy": "entropy"})
    if len(runs) == 1 and heads:
        entropy = ("Entropy of the heads", "share of the maximum, 0 to 1", heads)
    _draw_panels(axes, runs, [*LOSS_PANELS, entropy, FIT_PANEL])
    for i, rows in enumerate(runs.values()):
        style = {"color": canvas.BLACK, "linestyle": "--", "label": "" if i else "update stops"}
        canvas.draw_line(axes[2], rows, "round", "kl_stop", **style)
    canvas.add_legends(*axes)
    return page


def health_rows(log: RunLog) -> list[Row]:
    """A row per round, then one per anomaly."""
    tables = log.tables
    rounds = []
    for one in tables["rounds"]:
        at = one["round"]
        epochs, gradients = rows_of_round(tables["epochs"], at), rows_of_round(tables["gradients"], at)
        hidden, observed = (next(iter(rows_of_round(tables[name], at)), {}) for name in ("hidden", "observations"))
        worst = [row["gradient_health_min"] for row in gradients if row["gradient_health_min"] is not None]
        rounds.append(
            {
                "round": at,
                "gradient_health": mean_known(row["gradient_health"] for row in gradients),
                "gradient_health_min": min(worst, default=None),
                "host_gradient_norm": mean_known(row["host_gradient_norm"] for row in epochs),
                "skipped": sum(row["skipped"] for row in epochs) if epochs else None,
                "rollbacks": one["rollbacks"],
                **{name: hidden.get(name) for name in HIDDEN_COLUMNS},
                **{name: observed.get(name) for name in OBSERVATION_COLUMNS},
                "anomaly": None,
            }
        )
    empty = dict.fromkeys(rounds[0]) if rounds else {}
    anomalies = (
        {**empty, "round": row["round"], "anomaly": " ".join(filter(None, (row["kind"], row["subject"])))}
        for row in tables["anomalies"]
    )
    return [*rounds, *anomalies]


def _draw_health(runs: RunRows) -> Figure:
    page = canvas.new_figure(9.0)
    axes = canvas.add_panels(page, (1, 1), (1, 1), (1, 1))
    *curves, anomalies = axes
    rounds = {run: [row for row in rows if row["anomaly"] is None] for run, rows in runs.items()}
    _draw_panels(curves, rounds, HEALTH_PANELS)
    curves[-1].set_ylim(0, max(1.0, curves[-1].get_ylim()[1]))
    _plot_anomalies(anomalies, runs)
    canvas.add_legends(*axes)
    return page


def _plot_anomalies(ax: Axes, runs: RunRows) -> None:
    label_panel(ax, "Anomalies", "round", "")
    kinds = sorted({row["anomaly"] for rows in runs.values() for row in rows if row["anomaly"] is not None})
    last = max((row["round"] for rows in runs.values() for row in rows), default=1)
    canvas.set_integer_x(ax)
    ax.set_xlim(0.5, last + 0.5)
    if not kinds:
        canvas.show_no_data(ax, "none")
        ax.set_yticks([])
        return
    for i, (run, rows) in enumerate(runs.items()):
        anomalies = [row for row in rows if row["anomaly"] is not None]
        places = [kinds.index(row["anomaly"]) - i * RUN_OFFSET for row in anomalies]
        style: dict[str, Any] = {"linestyle": "", "marker": "x", "color": canvas.cycle_colour(i)}
        ax.plot([row["round"] for row in anomalies], places, label=run if len(runs) > 1 else "", **style)
    ax.set_yticks(range(len(kinds)), kinds)
    ax.set_ylim(-0.6, len(kinds) - 0.4)


def throughput_rows(log: RunLog) -> list[Row]:
    """A row per round: rates, seconds, and the share of every phase in the time of all of them."""
    tables = log.tables
    rows = []
    for one in tables["throughput"]:
        phases: dict[str, Any] = next((row["phases"] for row in rows_of_round(tables["phases"], one["round"])), {})
        clocks = {name: "wall_s" if phase["device_s"] is None else "device_s" for name, phase in phases.items()}
        spent = {name: phases[name][clock] or 0.0 for name, clock in clocks.items()}
        total = sum(spent.values())
        shares = {f"phase.{name}": value / total for name, value in spent.items() if total}
        rows.append({"round": one["round"], **{name: one[name] for name in (*RATE_COLUMNS, *WAIT_COLUMNS)}, **shares})
    return rows


def _draw_throughput(runs: RunRows) -> Figure:
    page = canvas.new_figure(3.0 + 3.0 * len(runs))
    rate, wait, *phases = canvas.add_panels(page, (1, 1), *((1,) for _ in runs))
    _draw_panels((rate, wait), runs, SPEED_PANELS)
    rate.set_ylim(bottom=0)
    canvas.add_legends(rate, wait)
    for ax, (run, rows) in zip(phases, runs.items(), strict=True):
        name = run if len(runs) > 1 else ""
        label_panel(ax, f"Where the time of a round goes {name}".rstrip(), "round", "share of the time, 0 to 1")
        if names := canvas.prefixed_columns(rows, "phase"):
            canvas.draw_areas(ax, rows, names)
            ax.set_ylim(0, 1)
            canvas.add_legends(ax)
        else:
            canvas.show_no_data(ax)
    return page


HELD_OUT = Plot(
    "held_out_curve",
    "Learning on held-out instances",
    "The policy plays the same few held-out instances again and again while it learns; its rivals play them once. "
    "Bands: one standard error over the instances; that of a difference is of paired instances.",
    lambda log: held_out_table(log.tables),
    _draw_held_out,
)
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
HEALTH = Plot(
    "health",
    "Health",
    "Gradient health is 1 where no gradient of a seed vanishes or explodes; it is written at level debug. Clipped: "
    "observations that the policy sees cut off.",
    health_rows,
    _draw_health,
    lambda log: VIEWS["anomalies"](log.tables),
)
THROUGHPUT = Plot(
    "throughput",
    "Throughput",
    "The time of making graphs is in none of the numbers. Shares are of the device's time where it has a clock, else "
    "of the host's.",
    throughput_rows,
    _draw_throughput,
)
