"""The command `morphogen bench`: configurations measured one after the other, each in a process of its own.

So each has its own threads, its own graphs and its own peak of memory, whatever was measured before it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from morphogen.cli import measures, process
from morphogen.cli.measures import Measure
from morphogen.config.spec import RunSpec

UNLABELLED_POINT = "as configured"  # a point that has no place in a grid
COLUMNS = {  # of the table of numbers: heading -> measure
    "env-epochs/s": "env_epochs_per_s",
    "samples/s": "samples_per_s",
    "first round": "warm_up_env_epochs_per_s",
    "compile s": "compile_s",
    "graphs": "graphs",
    "fallbacks": "graph_fallbacks",
    "rolled back": "rollbacks",
    "peak MiB": "peak_memory",
}
SHARE_PREFIX, INTEGER_FROM = "share_", 100  # names of the measures of phases; from where a number needs no decimals
PointMeasures = dict[str, Measure]
Row = dict[str, Any]


def probe_in_process(spec: RunSpec) -> Any:
    """Run `probe` on a spec in a process of its own."""
    return process.run_in_process("morphogen.cli.probe", "probe", spec, threads=spec.engine.threads)


def explain_in_process(spec: RunSpec) -> list[Row]:
    """Measure the forms of the convolutions of a spec in a process of its own."""
    return process.run_in_process("morphogen.cli.explain", "explain", spec, threads=spec.engine.threads)


def measure_points(
    specs: Mapping[str, RunSpec], path: Path | None, *, probe: Callable[[RunSpec], Any] = probe_in_process
) -> Iterator[tuple[str, PointMeasures]]:
    """The points, each as soon as it is measured.  The file at `path` holds all so far."""
    kept: list[Measure] = []
    sums: dict[str, float] = {}
    for label, spec in specs.items():
        machine, sums[label or UNLABELLED_POINT], rows = probe(spec)
        kept += [replace(row, name=f"{row.name}[{label}]") if label else row for row in rows]
        if path is not None:
            measures.write_measures(path, {**machine, "checksums": sums}, kept)
        yield label or UNLABELLED_POINT, {row.name: row for row in rows}


def format_point(label: str, point: PointMeasures) -> str:
    """A point in one line."""
    rate, compiled, peak = point["env_epochs_per_s"], point["compile_s"], point.get("peak_memory")
    parts = [f"{rate.value:,.1f} +- {rate.spread:,.1f} env-epochs/s", f"compiled for {compiled.value:,.1f} s"]
    parts += [] if peak is None else [f"peak {peak.value:,.0f} MiB"]
    return f"{label}: {', '.join(parts)}"


def point_tables(points: Mapping[str, PointMeasures]) -> dict[str, list[Row]]:
    """Title -> rows: rates and sizes, then where the time goes; no rows where nothing was kept."""
    return {
        "medians over the rounds after the first": [_numbers_row(*one) for one in points.items()],
        "share of a round": [_phase_shares_row(*one) for one in points.items() if "control_share" in one[1]],
    }


def _numbers_row(label: str, point: PointMeasures) -> Row:
    cells = {heading: _format_number(point[name].value) if name in point else None for heading, name in COLUMNS.items()}
    (heading, rate), *rest = cells.items()
    return {"point": label, heading: rate, "+-": _format_number(point["env_epochs_per_s"].spread), **dict(rest)}


def _phase_shares_row(label: str, point: PointMeasures) -> Row:
    phases = {
        name.removeprefix(SHARE_PREFIX): row.value for name, row in point.items() if name.startswith(SHARE_PREFIX)
    }
    return {"point": label, "control": point["control_share"].value, **phases}


def _format_number(value: float) -> float | int:
    return round(value) if value >= INTEGER_FROM or value == int(value) else value
