"""Checks that values which are read fit an annotation: types, ranges and keys, without coercion.
No torch.
"""

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from morphogen.vocab.text import format_value

Count = Annotated[int, Field(ge=0)]
Real = float | None  # None: not measured, or not finite
Positive = Annotated[float, Field(ge=0)] | None
Share = Annotated[float, Field(ge=0, le=1)] | None
RealRow = tuple[Real, ...]
RealTable = tuple[RealRow, ...]
# an int passes as a float, and nothing else as anything else
STRICT = ConfigDict(strict=True, extra="forbid")


def build_adapter(name: str, hints: dict[str, Any]) -> TypeAdapter[dict[str, Any]]:
    """Build the strict validator of a dict with exactly these keys; nested TypedDicts are strict as
    well.
    """
    make: Any = TypedDict  # of keys that are known at run time only
    keys = make(name, hints)
    keys.__pydantic_config__ = STRICT
    return TypeAdapter(keys)


@cache
def build_check(hint: Any) -> Callable[[Any], bool]:
    """Return a predicate of values that fit an annotation, an int for a float included."""
    adapter = build_adapter("Value", {"value": hint})

    def fits(value: Any) -> bool:
        try:
            adapter.validate_python({"value": value})
        except ValidationError:
            return False
        return True

    return fits


def describe_fault(error: ValidationError) -> str:
    """Describe the first fault as `<path>: expected <what is allowed>, got <value>`."""
    fault = error.errors(include_url=False)[0]
    path = ".".join(str(part) for part in fault["loc"])
    text = fault["msg"].replace("Input should be", "expected")
    return f"{path}: {text}, got {format_value(fault['input'])}"
