"""Declared schedules: which action is taken in which epoch, as JSON files and built in."""

import hashlib
import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, Field, ValidationError, create_model

from morphogen.config.config_files import parse_value
from morphogen.config.fields import CONFIG, Name, Null, OneOf, Settings, list_faults, raise_all
from morphogen.config.spec import SCHEDULE_FILE, RunSpec, blueprint_kinds, build_limits
from morphogen.vocab.action import PLACEHOLDER, RELEVANT, TEMPO_EPOCHS, VALUE_NAMES, Head, Op, Tempo
from morphogen.vocab.blueprint import Blueprint, code_labels
from morphogen.vocab.limits import AUTO_GATES

VERSION = 1
# all on the first enabled slot, germinating NORM
BUILTIN_SCHEDULES = ("wait", "germinate_one", "full_cycle")
_REQUIRED = (Head.SLOT, Head.BLUEPRINT)  # heads without a default


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


class SeedTimeline(NamedTuple):
    """Epochs from a germination to the first one in which a seed can pass each gate, and be
    kept.
    """

    training: int  # past TRAIN
    blending: int  # past BLEND
    holding: int  # past HOLD
    fossilizing: int


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
        actions = [dict(zip(labels, step.action, strict=True)) for step in self.steps]
        rows = [
            {"action": a, "env": s.env, "epoch": s.epoch}
            for a, s in zip(actions, self.steps, strict=True)
        ]
        return hashlib.sha256(
            json.dumps(rows, sort_keys=True, separators=(",", ":")).encode()
        ).hexdigest()

    def step_at(self, epoch: int, env: int) -> ScheduleStep | None:
        """Declared action of an env in an epoch."""
        return next(
            (step for step in self.steps if step.epoch == epoch and step.env in (None, env)), None
        )


def parse_schedule(text: str, spec: RunSpec) -> Schedule:
    """Return the schedule of a JSON file, for a resolved spec.  Raises ConfigError with all faults,
    a line each.
    """
    return _build_schedule(parse_value(text), spec)


def parse_action(heads: Settings, spec: RunSpec) -> tuple[int, ...]:
    """Return an action that is given by the names of heads and values, for a resolved spec: an
    index per head.

    Raises: ConfigError with all faults, a line each.
    """
    raise_all(_model_faults(_step_model(_find_op(heads), spec, timed=False), heads, "action"))
    return _head_indices(heads, spec)


def build_builtin(name: str, spec: RunSpec) -> Schedule:
    """Return a schedule by name.  Raises ConfigError if the run is too short or lacks the
    blueprint.
    """
    ops = {"wait": (), "germinate_one": ((0, Op.GERMINATE),), "full_cycle": _full_cycle(spec)}[name]
    steps = [
        {"epoch": epoch, "op": op.name, "slot": spec.slots[0]}
        | ({"blueprint": Blueprint.NORM.label} if op is Op.GERMINATE else {})
        for epoch, op in ops
    ]
    return _build_schedule({"version": VERSION, "name": name, "steps": steps}, spec)


def seed_timeline(spec: RunSpec, tempo: Tempo) -> SeedTimeline:
    """Fewest epochs that a seed needs in each stage under a resolved spec; a gate that a tick opens
    costs no epoch.
    """
    life = spec.lifecycle
    by_hand = {gate: gate not in life.auto_forward for gate in ("TRAIN", "HOLD")}
    blending = max(TEMPO_EPOCHS[tempo], 0 if life.permissive_gates else life.min_blending_epochs)
    training = int(by_hand["TRAIN"])
    trained = training + max(1, life.min_training_epochs)
    blended = trained + blending
    return SeedTimeline(training, trained, blended, blended + by_hand["HOLD"])


def _full_cycle(spec: RunSpec) -> tuple[tuple[int, Op], ...]:
    *gates, fossilizing = seed_timeline(spec, Tempo(PLACEHOLDER[Head.TEMPO]))
    pairs = zip(gates, AUTO_GATES, strict=True)
    moves = [
        (epoch, Op.ADVANCE) for epoch, gate in pairs if gate.name not in spec.lifecycle.auto_forward
    ]
    return (0, Op.GERMINATE), *moves, (fossilizing, Op.FOSSILIZE)


def dump_schedule(schedule: Schedule, spec: RunSpec) -> str:
    """Return the text of a file with this schedule."""
    steps = [
        {
            "epoch": step.epoch,
            **name_heads(step, spec),
            **({} if step.env is None else {"env": step.env}),
        }
        for step in schedule.steps
    ]
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
    return {head.label: _value_names(head, spec)[step.action[head]] for head in used}


def schedule_path(policy_name: str) -> str | None:
    """`schedule:FILE` -> FILE; None for any other policy."""
    return (
        policy_name.removeprefix(SCHEDULE_FILE) if policy_name.startswith(SCHEDULE_FILE) else None
    )


def _value_names(head: Head, spec: RunSpec) -> tuple[str, ...]:
    """Names of a head's values, by index."""
    if head is Head.BLUEPRINT:
        return code_labels(blueprint_kinds(spec))
    return (spec.slots or ()) if head is Head.SLOT else VALUE_NAMES[head]


def _step_model(op: Op | None, spec: RunSpec, *, timed: bool = True) -> type[BaseModel]:
    """Return the model of a step with this op; without a valid op, a step may have every head.

    timed: a step of a schedule, which has an epoch, and may have an env.
    """
    epoch = Field(ge=0, le=spec.episode_length - 1)
    env = Field(ge=0, le=spec.envs - 1)
    fields: dict[str, Any] = {
        "epoch": (Annotated[int, epoch], ...),
        "env": (Annotated[int, env, Null("every env")], None),
    }
    fields = fields if timed else {}
    for head in Head:
        names = _value_names(head, spec)
        if head is Head.BLUEPRINT:
            names = tuple(names[code] for code in build_limits(spec).allowed_blueprints)
        if op is None or RELEVANT[op][head]:
            needed = head is Head.OP or (op is not None and head in _REQUIRED)
            fields[head.label] = (Annotated[str, OneOf(names)], ... if needed else None)
    return create_model("Step", __config__=CONFIG, **fields)


def _model_faults(model: type[BaseModel], settings: Any, path: str) -> list[str]:
    try:
        model.model_validate(settings)
    except ValidationError as error:
        return list_faults(error, model, settings, path)
    return []


def _find_op(row: Any) -> Op | None:
    name = row.get("op") if isinstance(row, dict) else None
    return Op[name] if isinstance(name, str) and name in Op.__members__ else None


def _build_schedule(settings: Any, spec: RunSpec) -> Schedule:
    lines = _model_faults(_ScheduleFile, settings, "" if isinstance(settings, dict) else "schedule")
    models = {op: _step_model(op, spec) for op in (None, *Op)}
    rows = settings.get("steps") if isinstance(settings, dict) else None
    for i, row in enumerate(rows if isinstance(rows, list) else []):
        lines += _model_faults(models[_find_op(row)], row, f"steps[{i}]")
    raise_all(lines)
    steps = [
        ScheduleStep(row["epoch"], _head_indices(row, spec), row.get("env"))
        for row in settings["steps"]
    ]
    raise_all(_repeat_faults(steps))
    ordered = sorted(steps, key=lambda step: (step.epoch, -1 if step.env is None else step.env))
    return Schedule(settings["name"], tuple(ordered), settings.get("on_illegal", "error"))


def _head_indices(row: Settings, spec: RunSpec) -> tuple[int, ...]:
    return tuple(
        _value_names(head, spec).index(row[head.label]) if head.label in row else PLACEHOLDER[head]
        for head in Head
    )


def _repeat_faults(steps: list[ScheduleStep]) -> list[str]:
    """A line for each step that declares a second action for an env in an epoch."""
    lines: list[str] = []
    earlier: dict[int, list[int]] = {}  # indices of the steps of each epoch
    for i, step in enumerate(steps):
        same = earlier.setdefault(step.epoch, [])
        clash = next(
            (j for j in same if steps[j].env == step.env or None in (steps[j].env, step.env)), None
        )
        if clash is not None:
            lines.append(
                f"steps[{i}].epoch: expected one step per epoch and env, got {step.epoch} "
                f"as steps[{clash}]"
            )
        same.append(i)
    return lines
