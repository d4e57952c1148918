"""The public names of `morphogen`, and of the packages that a user composes from."""

import importlib
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import morphogen

SRC = Path(morphogen.__file__).parent
COMPOSED = (
    "steps",
    "rules",
    "hosts",
    "policy",
    "ppo",
    "testing.laws",
    "testing.strategies",
    "actions",
    "rng",
)


def public_objects() -> dict[str, Any]:
    """Return every public object that a user may call or derive from, by its name below
    `morphogen`.
    """
    found = {name: getattr(morphogen, name) for name in morphogen._HOMES}
    for package in COMPOSED:
        module = getattr(morphogen, package, None) or importlib.import_module(
            f"morphogen.{package}"
        )
        names = getattr(module, "__all__", None) or [
            name
            for name, value in vars(module).items()
            if getattr(value, "__module__", "") == module.__name__
        ]
        found |= {
            f"{package}.{name}": getattr(module, name) for name in names if not name.startswith("_")
        }
    return {name: value for name, value in found.items() if not isinstance(value, ModuleType)}


def public_files() -> list[str]:
    """Return the files that define a public name, relative to the root of the repository."""
    modules = {getattr(value, "__module__", None) for value in public_objects().values()}
    files = {
        Path(inspect.getfile(sys.modules[name]))
        for name in modules
        if name and name.startswith("morphogen")
    }
    return sorted(str(path.relative_to(SRC.parents[1])) for path in {*files, SRC / "__init__.py"})
