"""Health of a run, and the phases that take its time."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from morphogen.analysis.console import mean_known
from morphogen.analysis.plots import canvas
from morphogen.analysis.plots.canvas import Plot, RunRows, add_legend, draw_curves, label_panel
from morphogen.analysis.run_log import RunLog
from morphogen.analysis.tables import Row
from morphogen.analysis.views import VIEWS, rows_of_round

GRADIENT_COLUMNS = ("gradient_health", "gradient_health_min", "host_gradient_norm", "skipped")
HIDDEN_COLUMNS = ("h_rms", "c_rms", "h_env_rms_max", "c_env_rms_max")
OBSERVATION_COLUMNS = ("clip_share", "near_clip_share", "outlier_share", "nonfinite_share", "drift")
RATE_COLUMNS = ("env_epochs_per_s", "samples_per_s", "rollout_s", "update_s", "compile_s")
RUN_OFFSET = 0.1  # between the crosses of runs
WAIT_COLUMNS = ("host_wait_time_share", "data_wait_time_share")


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
    return [*rounds, *({**empty, "round": row["round"], "anomaly": _anomaly_label(row)} for row in tables["anomalies"])]


def _anomaly_label(row: Row) -> str:
    return row["kind"] if row["subject"] is None else f"{row['kind']} {row['subject']}"


def _draw_health(runs: RunRows) -> Figure:
    page = canvas.new_figure(9.0)
    health, norm, hidden, observed, skipped, anomalies = canvas.add_panels(page, (1, 1), (1, 1), (1, 1))
    label_panel(health, "Gradient health of the seeds", "round", "0 (dead or exploding) to 1")
    label_panel(norm, "Gradients of the hosts", "round", "norm before clipping")
    label_panel(hidden, "Memory of the policy", "round", "root mean square")
    label_panel(observed, "Observations", "round", "share of the values, 0 to 1")
    label_panel(skipped, "Skipped minibatches and rollbacks", "round", "number in a round")
    label_panel(anomalies, "Anomalies", "round", "")
    rounds = {run: [row for row in rows if row["anomaly"] is None] for run, rows in runs.items()}
    draw_curves(health, rounds, {"gradient_health": "mean", "gradient_health_min": "worst"})
    draw_curves(norm, rounds, {"host_gradient_norm": "mean of the envs"})
    draw_curves(hidden, rounds, {"h_rms": "hidden", "c_rms": "cell"})
    draw_curves(observed, rounds, {"clip_share": "clipped", "outlier_share": "beyond 3 deviations"})
    draw_curves(skipped, rounds, {"skipped": "skipped minibatches", "rollbacks": "rollbacks"})
    skipped.set_ylim(0, max(1.0, skipped.get_ylim()[1]))
    _plot_anomalies(anomalies, runs)
    for ax in (health, norm, hidden, observed, skipped, anomalies):
        add_legend(ax)
    return page


def _plot_anomalies(ax: Axes, runs: RunRows) -> None:
    """A row per kind, a cross per anomaly."""
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
        style = {"linestyle": "", "marker": "x", "color": canvas.cycle_colour(i)}
        ax.plot([row["round"] for row in anomalies], places, label=run if len(runs) > 1 else "", **style)
    ax.set_yticks(range(len(kinds)), kinds)
    ax.set_ylim(-0.6, len(kinds) - 0.4)


def throughput_rows(log: RunLog) -> list[Row]:
    """A row per round: rates, seconds, and the share of every phase in the time of all of them."""
    tables = log.tables
    rows = []
    for one in tables["throughput"]:
        phases: dict[str, Any] = next((row["phases"] for row in rows_of_round(tables["phases"], one["round"])), {})
        spent = {name: _phase_seconds(phase) for name, phase in phases.items()}
        total = sum(spent.values())
        shares = {f"phase.{name}": value / total for name, value in spent.items() if total}
        rows.append({"round": one["round"], **{name: one[name] for name in (*RATE_COLUMNS, *WAIT_COLUMNS)}, **shares})
    return rows


def _phase_seconds(phase: Row) -> float:
    """On the device where it has a clock, else of the host."""
    return (phase["wall_s"] if phase["device_s"] is None else phase["device_s"]) or 0.0


def _draw_throughput(runs: RunRows) -> Figure:
    page = canvas.new_figure(3.0 + 3.0 * len(runs))
    rate, wait, *phases = canvas.add_panels(page, (1, 1), *((1,) for _ in runs))
    label_panel(rate, "Rate of the rollouts", "round", "epochs of an env per second")
    label_panel(wait, "Standing still", "round", "share of the wall time, 0 to 1")
    draw_curves(rate, runs, {"env_epochs_per_s": "rate"})
    draw_curves(wait, runs, {"host_wait_time_share": "host in fences", "data_wait_time_share": "making minibatches"})
    rate.set_ylim(bottom=0)
    for ax in (rate, wait):
        add_legend(ax)
    for ax, (run, rows) in zip(phases, runs.items(), strict=True):
        _plot_phases(ax, rows, run if len(runs) > 1 else "")
    return page


def _plot_phases(ax: Axes, rows: Sequence[Row], run: str) -> None:
    label_panel(ax, f"Where the time of a round goes {run}".rstrip(), "round", "share of the time, 0 to 1")
    names = canvas.prefixed_columns(rows, "phase")
    if not names:
        canvas.show_no_data(ax)
        return
    canvas.draw_areas(ax, rows, names, {})
    ax.set_ylim(0, 1)
    add_legend(ax)


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
