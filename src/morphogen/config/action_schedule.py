"""Declared schedules: which action is taken in which epoch, as JSON files and built in."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from morphogen.config.config_files import Settings, as_settings, parse_value
from morphogen.config.fields import Choice, FieldType, Int, Text, join_path, raise_all
from morphogen.config.spec import SCHEDULE_FILE, RunSpec, build_limits
from morphogen.errors import ConfigError
from morphogen.vocab.action import PLACEHOLDER, RELEVANT, TEMPO_EPOCHS, VALUES, Head, Op, Tempo
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.limits import AUTO_GATES
from morphogen.vocab.text import format_value

VERSION = 1
BUILTIN_SCHEDULES = ("wait", "germinate_one", "full_cycle")  # all on the first enabled slot, germinating NORM
_REQUIRED = (Head.SLOT, Head.BLUEPRINT)  # heads without a default
_TOP_KEYS: dict[str, FieldType] = {
    "version": Int(low=VERSION, high=VERSION),
    "name": Text(what="a name"),
    "on_illegal": Choice(names=("error", "wait")),
}


@dataclass(frozen=True, slots=True)
class ScheduleStep:
    """One declared action: one index per head, the placeholder where the op has no use for the head."""

    epoch: int  # from 0
    action: tuple[int, ...]
    env: int | None = None  # global index; None = every env


class SeedTimeline(NamedTuple):
    """Epochs from a germination to the first one in which a seed can pass each gate, and be kept."""

    training: int  # past TRAIN
    blending: int  # past BLEND
    holding: int  # past HOLD
    fossilizing: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """Declared actions in ascending order of epoch and env; an epoch without one is waited through."""

    name: str
    steps: tuple[ScheduleStep, ...]
    on_illegal: str = "error"  # what a declared action that is not legal leads to: `error` or `wait`

    @property
    def sha256(self) -> str:
        """Identity: the hash of what is done, whatever the file calls it and in which order."""
        rows = [
            {
                "action": {head.label: index for head, index in zip(Head, step.action, strict=True)},
                "env": step.env,
                "epoch": step.epoch,
            }
            for step in self.steps
        ]
        return hashlib.sha256(json.dumps(rows, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    def step_at(self, epoch: int, env: int) -> ScheduleStep | None:
        """Declared action of an env in an epoch."""
        return next((step for step in self.steps if step.epoch == epoch and step.env in (None, env)), None)


def parse_schedule(text: str, spec: RunSpec) -> Schedule:
    """The schedule of a JSON file, for a resolved spec; a ConfigError tells all faults, a line each."""
    settings, found = as_settings(parse_value(text))
    return _build_schedule(settings, spec, found)


def build_builtin(name: str, spec: RunSpec) -> Schedule:
    """A schedule by name, for a resolved spec; a ConfigError where the run is too short or lacks the blueprint."""
    ops = {"wait": (), "germinate_one": ((0, Op.GERMINATE),), "full_cycle": _full_cycle(spec)}[name]
    steps = [_step_settings(epoch, op, spec) for epoch, op in ops]
    return _build_schedule({"version": VERSION, "name": name, "steps": steps}, spec, [])


def seed_timeline(spec: RunSpec, tempo: Tempo) -> SeedTimeline:
    """Fewest epochs that a seed needs in each stage under a resolved spec; a gate that a tick opens costs no epoch."""
    life = spec.lifecycle
    by_hand = {gate: gate not in life.auto_forward for gate in ("TRAIN", "HOLD")}
    blending = max(TEMPO_EPOCHS[tempo], 0 if life.permissive_gates else life.min_blending_epochs)
    training = int(by_hand["TRAIN"])
    trained = training + max(1, life.min_training_epochs)
    blended = trained + blending
    return SeedTimeline(training, trained, blended, blended + by_hand["HOLD"])


def _full_cycle(spec: RunSpec) -> tuple[tuple[int, Op], ...]:
    *gates, kept = seed_timeline(spec, Tempo(PLACEHOLDER[Head.TEMPO]))
    asked = [gate.name not in spec.lifecycle.auto_forward for gate in AUTO_GATES]
    moves = [(epoch, Op.ADVANCE) for epoch, by_hand in zip(gates, asked, strict=True) if by_hand]
    return (0, Op.GERMINATE), *moves, (kept, Op.FOSSILIZE)


def dump_schedule(schedule: Schedule, spec: RunSpec) -> str:
    """The text of a file that gives this schedule again."""
    steps = [
        {"epoch": step.epoch, **name_heads(step, spec), **({} if step.env is None else {"env": step.env})}
        for step in schedule.steps
    ]
    top = {"version": VERSION, "name": schedule.name, "on_illegal": schedule.on_illegal, "steps": steps}
    return json.dumps(top, indent=2) + "\n"


def name_heads(step: ScheduleStep, spec: RunSpec) -> dict[str, str]:
    """The heads that the op of a step uses, and the names of their values."""
    used = [head for head in Head if RELEVANT[step.action[Head.OP]][head]]
    return {head.label: _value_names(head, spec)[step.action[head]] for head in used}


def schedule_path(policy_name: str) -> str | None:
    """`schedule:FILE` -> FILE; None for any other policy."""
    return policy_name.removeprefix(SCHEDULE_FILE) if policy_name.startswith(SCHEDULE_FILE) else None


def _step_settings(epoch: int, op: Op, spec: RunSpec) -> Settings:
    blueprint = {"blueprint": Blueprint.NORM.label} if op is Op.GERMINATE else {}
    return {"epoch": epoch, "op": op.name, "slot": spec.slots[0], **blueprint}


def _value_names(head: Head, spec: RunSpec) -> tuple[str, ...]:
    """Names of a head's values, by index."""
    if head is Head.SLOT:
        return spec.slots
    return tuple(one.label if isinstance(one, Blueprint) else one.name for one in VALUES[head])


def _key_types(spec: RunSpec) -> dict[str, FieldType]:
    """Keys of a step and their allowed values."""
    names = {head.label: _value_names(head, spec) for head in Head}
    allowed = tuple(Blueprint(code).label for code in build_limits(spec).allowed_blueprints)
    return {
        "epoch": Int(low=0, high=spec.episode_length - 1),
        "env": Int(low=0, high=spec.envs - 1, null="every env"),
        **{label: Choice(names=values) for label, values in {**names, Head.BLUEPRINT.label: allowed}.items()},
    }


def _build_schedule(settings: Any, spec: RunSpec, found: list[str]) -> Schedule:
    if not isinstance(settings, dict):
        raise ConfigError(f"the schedule is {format_value(settings)}; want one JSON object")
    known = (*_TOP_KEYS, "steps")
    unknown = [
        f"{join_path('', name)} is unknown; want one of {', '.join(known)}" for name in settings if name not in known
    ]
    lines = [*found, *unknown]
    given = {"on_illegal": "error", **settings}
    for name, want in _TOP_KEYS.items():
        lines += want.faults(name, given[name]) if name in given else [f"{name} is missing; want {want.text}"]
    rows, wants = settings.get("steps"), _key_types(spec)
    if not isinstance(rows, list):
        lines.append(f"steps is {format_value(rows)}; want a list of steps")
        rows = []
    lines += [line for i, row in enumerate(rows) for line in _step_faults(f"steps[{i}]", row, wants)]
    raise_all(lines)
    steps = [_parse_step(row, spec) for row in rows]
    raise_all(_repeat_faults(steps))
    ordered = sorted(steps, key=lambda step: (step.epoch, -1 if step.env is None else step.env))
    return Schedule(given["name"], tuple(ordered), given["on_illegal"])


def _parse_step(row: Settings, spec: RunSpec) -> ScheduleStep:
    action = [
        _value_names(head, spec).index(row[head.label]) if head.label in row else PLACEHOLDER[head] for head in Head
    ]
    return ScheduleStep(row["epoch"], tuple(action), row.get("env"))


def _step_faults(path: str, row: Any, wants: dict[str, FieldType]) -> list[str]:
    if not isinstance(row, dict):
        return [f"{path} is {format_value(row)}; want an object"]
    op = row.get("op")
    known = isinstance(op, str) and op in Op.__members__  # an unknown op uses every head: only its name is wrong
    idle = [head.label for head in Head if known and not RELEVANT[Op[op]][head]]
    needed = ("epoch", "op", *(head.label for head in _REQUIRED if known and head.label not in idle))
    lines = [f"{join_path(path, name)} is missing; want {wants[name].text}" for name in needed if name not in row]
    for name, value in row.items():
        if name not in wants:
            lines.append(f"{join_path(path, name)} is unknown; want one of {', '.join(wants)}")
        elif name in idle:
            lines.append(f"{join_path(path, name)} is {format_value(value)}; want none, as {op} has no use for it")
        else:
            lines += wants[name].faults(join_path(path, name), value)
    return lines


def _repeat_faults(steps: list[ScheduleStep]) -> list[str]:
    """A line for each step that declares a second action for an env in an epoch."""
    lines, seen = [], {}
    for i, step in enumerate(steps):
        others = seen.setdefault(step.epoch, {})
        clash = next(iter(others.values()), None) if step.env is None else others.get(step.env, others.get(None))
        if clash is not None:
            lines.append(f"steps[{i}].epoch is {step.epoch}, as in steps[{clash}]; want one step per epoch and env")
        others.setdefault(step.env, i)
    return lines
