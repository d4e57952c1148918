"""Registries: the parts of a run by name, from the package, from this program, and from installed packages.

A registry holds one kind of part: tasks, data sets, hosts, blueprints, reward rules, policies, networks, learners.
Parts from outside come in three ways, the same for every kind:

    TASKS.register("mine", part)                    in a program
    RunSpec(task=part)                              wherever a setting takes the name of a part
    [project.entry-points."morphogen.tasks"]        in a package: name = "module:part"

Listing names imports no package.  A part is imported when its name is first used, so a broken package stops only the
runs that name its part.
"""

import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from importlib import metadata
from itertools import chain
from typing import Any, Generic, TypeVar

from morphogen.errors import ConfigError

T = TypeVar("T")
EntryPoints = list[metadata.EntryPoint]
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")  # what a part may be called
PROGRAM = "this program"  # origin of parts that are registered by hand


@lru_cache(maxsize=1)
def _scan(path: tuple[str, ...], prefix: str) -> Mapping[str, Mapping[str, EntryPoints]]:
    """Return the entry points of installed packages by group and name; `path` is the import path."""
    del path
    points = metadata.entry_points()
    groups: dict[str, dict[str, EntryPoints]] = {}
    for group in (group for group in points.groups if group.startswith(prefix)):
        for point in points.select(group=group):
            groups.setdefault(group, {}).setdefault(point.name, []).append(point)
    return groups


def _is_name(name: object) -> bool:
    return isinstance(name, str) and NAME.fullmatch(name) is not None


def _packages(points: EntryPoints) -> str:
    """Name the packages and versions of entry points: `package 1.0`."""
    names = {f"{point.dist.name} {point.dist.version}" if point.dist else point.value for point in points}
    return " and ".join(sorted(names))


def error_line(error: BaseException) -> str:
    """Return an error of code from outside in one line."""
    if isinstance(error, ConfigError):
        return str(error)
    message = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {ascii(message)[1:-1]}" if message else type(error).__name__


def show_part(part: object) -> str:
    """Return an object from outside in a message, short and in one line."""
    return ascii(part).partition("\n")[0][:60]


class Registries(Collection[str]):
    """Names of several registries, for a setting that takes a part of any of them."""

    def __init__(self, *registries: "Registry[Any]") -> None:
        self._registries = registries

    def adopt(self, value: Any) -> Any:
        """Return the name of a part that is given as an object; any other value is returned as it is."""
        return next((registry.adopt(value) for registry in self._registries if registry.is_part(value)), value)

    def __contains__(self, name: object) -> bool:
        return any(name in registry for registry in self._registries)

    def __iter__(self) -> Iterator[str]:
        return chain(*self._registries)

    def __len__(self) -> int:
        return sum(map(len, self._registries))


class Registry(Mapping[str, T], Generic[T]):
    """Parts of one kind by name, in the order built in, registered, offered by packages.

    Indexing imports the part.  Raises: KeyError for an unknown name, ConfigError for a part that cannot be used.

    Example:
        >>> import morphogen as mg
        >>> parts = {"setting": "data.sampler", "group": "morphogen.samplers", "expected": "a function"}
        >>> samplers = mg.Registry("sampler", **parts, is_part=callable)
        >>> samplers.register("sorted", sorted)
        >>> list(samplers), samplers.origin("sorted"), samplers["sorted"]([2, 1])
        (['sorted'], 'this program', [1, 2])
        >>> [name for name in mg.BLUEPRINTS if name.startswith("conv")]
        ['conv_light', 'conv_small', 'conv_heavy']
    """

    def __init__(self, kind: str, *, setting: str, group: str, expected: str, is_part: Callable[[Any], bool]) -> None:
        """Create an empty registry.

        Args:
            kind: noun for messages, such as `reward rule`.
            setting: path of the setting that takes a name, such as `reward.rule`.
            group: group of entry points.
            expected: description of a part, for messages.
            is_part: structural check of a part; it must not import anything.
        """
        self.kind, self.setting, self.group = kind, setting, group
        self._expected, self.is_part = expected, is_part
        self._origins: dict[str, str] = {}  # of built-in and registered parts
        self._parts: dict[str, T] = {}  # loaded
        self._homes: dict[str, str] = {}  # of built-in parts: module:attribute, relative to the package

    def __repr__(self) -> str:
        return f"Registry({self.kind}: {', '.join(self)})"

    def declare(self, origin: str, homes: Mapping[str, str]) -> None:
        """Declare built-in parts by their places, `module:attribute` below the package; they are imported on use."""
        self._homes |= homes
        self._origins |= dict.fromkeys(homes, origin)

    def register(self, name: str, part: T, *, origin: str = PROGRAM) -> None:
        """Add a part, or replace one of this program.

        Raises: ConfigError for an invalid name, for the name of a part that is from elsewhere, and for an object that
        is no part of this kind.
        """
        if not _is_name(name):
            remedy = "; a function made by def has a name" if name == "<lambda>" else ""
            raise ConfigError(
                f"name of a {self.kind}: expected letters and digits, with . _ - between them, got {name!a}{remedy}"
            )
        if not self.is_part(part):
            raise ConfigError(f"{self.kind} {name}: expected {self._expected}, got {show_part(part)}")
        if name in self and (other := self.origin(name)) != origin:
            raise ConfigError(f"{self.kind} {name}: expected a new name, got that of a {self.kind} of {other}")
        self._origins[name], self._parts[name] = origin, part

    def adopt(self, value: Any) -> Any:
        """Return the name of a part that is given as an object, registered as a part of this program.

        The name is the attribute `name` of the object, or `__name__`.  Any other value is returned as it is.
        """
        if not self.is_part(value):
            return value
        name = getattr(value, "name", None) or getattr(value, "__name__", type(value).__name__)
        if not (name in self._parts and self._parts[name] is value):
            self.register(name, value)
        return name

    def origin(self, name: str) -> str:
        """Return the author of a part: a family of built-in parts, `this program`, or `package 1.0`.

        Raises: KeyError for an unknown name.
        """
        return self._origins[name] if name in self._origins else _packages(self._offered()[name])

    def registered(self) -> dict[str, T]:
        """Return the parts of this program by name."""
        return {name: self._parts[name] for name, origin in self._origins.items() if origin == PROGRAM}

    def builtin(self) -> tuple[str, ...]:
        """Return the names of the built-in parts."""
        return tuple(name for name, origin in self._origins.items() if origin != PROGRAM)

    def unusable(self) -> dict[str, str]:
        """Describe the offers of packages that cannot be used, by name: an invalid name, or one in use."""
        faults: dict[str, str] = {}
        for name, points in _scan(tuple(sys.path), "morphogen.").get(self.group, {}).items():
            field = f"entry point of {_packages(points)}: expected"
            if not NAME.fullmatch(name):
                faults[name] = f"{field} a name of letters and digits, with . _ - between them, got {name!a}"
            elif name in self._origins:
                whose = f"a {self.kind} of {self._origins[name]}"
                faults[name] = f"{field} a free name, got {name!a}, {whose}; the entry point is ignored"
        return faults

    def __getitem__(self, name: str) -> T:
        if name in self._parts and name in self._origins:
            return self._parts[name]
        if name in self._homes:
            point = metadata.EntryPoint(name, f"morphogen.{self._homes[name]}", self.group)
            return self._parts.setdefault(name, point.load())
        points = self._offered()[name]
        if len(points) > 1:
            raise ConfigError(
                f"{self.setting}: expected one package with {name}, got {_packages(points)}; uninstall one"
            )
        try:
            part = points[0].load()
        except Exception as error:
            raise ConfigError(f"{self.source(name)}: cannot be imported: {error_line(error)}") from error
        if not self.is_part(part):
            raise ConfigError(f"{self.source(name)}: expected {self._expected}, got {show_part(part)}")
        return part

    def source(self, name: str) -> str:
        """Return the beginning of a message about a part: `reward.rule: thrift of package 1.0`."""
        return f"{self.setting}: {name} of {self.origin(name)}"

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self._origins or name in self._offered())

    def __iter__(self) -> Iterator[str]:
        return iter((*self._origins, *sorted(self._offered())))

    def __len__(self) -> int:
        return len(self._origins) + len(self._offered())

    def _offered(self) -> dict[str, EntryPoints]:
        """Return the usable offers of installed packages."""
        found = _scan(tuple(sys.path), "morphogen.").get(self.group, {})
        return {name: points for name, points in found.items() if NAME.fullmatch(name) and name not in self._origins}
