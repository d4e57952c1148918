"""Actions by the names of heads and values, checked against a run."""

from typing import Annotated, Any

from pydantic import BaseModel, ValidationError, create_model

from morphogen.config.fields import CONFIG, OneOf, Settings, list_faults, raise_all
from morphogen.config.spec import RunSpec, blueprint_kinds, build_limits
from morphogen.vocab.action import PLACEHOLDER, RELEVANT, VALUE_NAMES, Head, Op
from morphogen.vocab.blueprint import code_labels

_REQUIRED = (Head.SLOT, Head.BLUEPRINT)  # heads without a default


def parse_action(heads: Settings, spec: RunSpec) -> tuple[int, ...]:
    """Return an action that is given by the names of heads and values, for a resolved spec: an
    index per head.

    Raises: ConfigError with all faults, a line each.
    """
    raise_all(model_faults(action_model(find_op(heads), spec, {}), heads, "action"))
    return head_indices(heads, spec)


def value_names(head: Head, spec: RunSpec) -> tuple[str, ...]:
    """Return the names of a head's values, by index."""
    if head is Head.BLUEPRINT:
        return code_labels(blueprint_kinds(spec))
    return spec.slots if head is Head.SLOT else VALUE_NAMES[head]


def action_model(op: Op | None, spec: RunSpec, others: Settings) -> type[BaseModel]:
    """Return the model of an action with this op; without a valid op, it may have every head.

    others: further fields of the model, as of `pydantic.create_model`.
    """
    fields = dict(others)
    for head in Head:
        names = value_names(head, spec)
        if head is Head.BLUEPRINT:
            names = tuple(names[code] for code in build_limits(spec).allowed_blueprints)
        if op is None or RELEVANT[op][head]:
            needed = head is Head.OP or (op is not None and head in _REQUIRED)
            fields[head.label] = (Annotated[str, OneOf(names)], ... if needed else None)
    return create_model("Action", __config__=CONFIG, **fields)


def model_faults(model: type[BaseModel], settings: Any, path: str) -> list[str]:
    """Return a line for each fault of settings under a model."""
    try:
        model.model_validate(settings)
    except ValidationError as error:
        return list_faults(error, model, path)
    return []


def find_op(row: Any) -> Op | None:
    """Return the op that a row of heads names; None without a valid one."""
    name = row.get("op") if isinstance(row, dict) else None
    return Op[name] if isinstance(name, str) and name in Op.__members__ else None


def head_indices(row: Settings, spec: RunSpec) -> tuple[int, ...]:
    """Return the index of the value of each head of a valid row."""
    return tuple(
        value_names(head, spec).index(row[head.label]) if head.label in row else PLACEHOLDER[head]
        for head in Head
    )
