"""Declared schedules: which action is taken in which epoch, as JSON files and built in."""

import hashlib
import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from morphogen.config.action_names import (
    action_model,
    find_op,
    head_indices,
    model_faults,
    value_names,
)
from morphogen.config.config_files import parse_value
from morphogen.config.fields import CONFIG, Name, raise_all
from morphogen.config.spec import RunSpec, seed_timeline
from morphogen.vocab.action import PLACEHOLDER, RELEVANT, Head, Op, Tempo
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.limits import AUTO_GATES

VERSION = 1


class _ScheduleFile(BaseModel):
    model_config = CONFIG

    version: Annotated[int, Field(ge=VERSION, le=VERSION)]
    name: Name
    on_illegal: Literal["error", "wait"] = "error"
    steps: list


@dataclass(frozen=True, slots=True)
class ScheduleStep:
    """One declared action: one index per head, the placeholder where the op has no use for the
    head.
    """

    epoch: int  # from 0
    action: tuple[int, ...]
    env: int | None = None  # global index; None = every env


@dataclass(frozen=True, slots=True)
class Schedule:
    """Declared actions in ascending order of epoch and env; the op of all other epochs is WAIT."""

    name: str
    steps: tuple[ScheduleStep, ...]
    on_illegal: str = "error"  # consequence of an illegal declared action: `error` or `wait`

    @property
    def sha256(self) -> str:
        """Identity: the hash of the actions; name and order of the file do not count."""
        labels = [head.label for head in Head]
        rows = [
            {
                "action": dict(zip(labels, step.action, strict=True)),
                "env": step.env,
                "epoch": step.epoch,
            }
            for step in self.steps
        ]
        text = json.dumps(rows, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def parse_schedule(text: str, spec: RunSpec) -> Schedule:
    """Return the schedule of a JSON file, for a resolved spec.  Raises ConfigError with all faults,
    a line each.
    """
    return _build_schedule(parse_value(text), spec)


def build_builtin(name: str, spec: RunSpec) -> Schedule:
    """Return `germinate_one` or `full_cycle`, on the first enabled slot, germinating NORM.

    Raises: ConfigError if the run is too short or lacks the blueprint.
    """
    ops = ((0, Op.GERMINATE),) if name == "germinate_one" else _full_cycle(spec)
    steps = [
        {"epoch": epoch, "op": op.name, "slot": spec.slots[0]}
        | ({"blueprint": Blueprint.NORM.label} if op is Op.GERMINATE else {})
        for epoch, op in ops
    ]
    return _build_schedule({"version": VERSION, "name": name, "steps": steps}, spec)


def _full_cycle(spec: RunSpec) -> tuple[tuple[int, Op], ...]:
    *gates, fossilizing = seed_timeline(spec, Tempo(PLACEHOLDER[Head.TEMPO]))
    pairs = zip(gates, AUTO_GATES, strict=True)
    moves = [
        (epoch, Op.ADVANCE) for epoch, gate in pairs if gate.name not in spec.lifecycle.auto_forward
    ]
    return (0, Op.GERMINATE), *moves, (fossilizing, Op.FOSSILIZE)


def dump_schedule(schedule: Schedule, spec: RunSpec) -> str:
    """Return the text of a file with this schedule."""
    steps: list[dict[str, Any]] = []
    for step in schedule.steps:
        where = {"epoch": step.epoch} | ({} if step.env is None else {"env": step.env})
        steps.append(where | name_heads(step, spec))
    top = {
        "version": VERSION,
        "name": schedule.name,
        "on_illegal": schedule.on_illegal,
        "steps": steps,
    }
    return json.dumps(top, indent=2) + "\n"


def name_heads(step: ScheduleStep, spec: RunSpec) -> dict[str, str]:
    """Names of the heads that the op of a step uses, and of their values."""
    used = [head for head in Head if RELEVANT[step.action[Head.OP]][head]]
    return {head.label: value_names(head, spec)[step.action[head]] for head in used}


def _build_schedule(settings: Any, spec: RunSpec) -> Schedule:
    lines = model_faults(_ScheduleFile, settings, "" if isinstance(settings, dict) else "schedule")
    epoch = Annotated[int, Field(ge=0, le=spec.episode_length - 1)]
    env = Annotated[int | None, Field(ge=0, le=spec.envs - 1)]
    models = {
        op: action_model(op, spec, {"epoch": (epoch, ...), "env": (env, None)})
        for op in (None, *Op)
    }
    rows = settings.get("steps") if isinstance(settings, dict) else None
    for i, row in enumerate(rows if isinstance(rows, list) else []):
        lines += model_faults(models[find_op(row)], row, f"steps[{i}]")
    raise_all(lines)
    steps = [
        ScheduleStep(row["epoch"], head_indices(row, spec), row.get("env"))
        for row in settings["steps"]
    ]
    raise_all(_repeat_faults(steps))
    ordered = sorted(steps, key=lambda step: (step.epoch, -1 if step.env is None else step.env))
    return Schedule(settings["name"], tuple(ordered), settings.get("on_illegal", "error"))


def _repeat_faults(steps: list[ScheduleStep]) -> list[str]:
    """A line for each step that declares a second action for an env in an epoch."""
    lines: list[str] = []
    for i, step in enumerate(steps):
        for j, other in enumerate(steps[:i]):
            shared = step.env == other.env or None in (step.env, other.env)
            if step.epoch == other.epoch and shared:
                lines.append(
                    f"steps[{i}].epoch: expected one step per epoch and env, got {step.epoch} "
                    f"as steps[{j}]"
                )
                break
    return lines
