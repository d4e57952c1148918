"""Registries: the parts of a run by name, from the package, from this program, and from installed
packages.

A registry holds one kind of part: tasks, data sets, hosts, blueprints, reward rules, policies,
networks, learners. Parts from outside come in three ways, the same for every kind:

    TASKS.register("mine", part)                    in a program
    RunSpec(task=part)                              wherever a setting takes the name of a part
    [project.entry-points."morphogen.tasks"]        in a package: name = "module:part"

The extras of this distribution come by entry points too.  Listing names imports no package.  A part
is imported when its name is first used, so a broken package stops only the runs that name its part.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from importlib import metadata
from pkgutil import resolve_name
from typing import Any, Generic, TypeVar

from morphogen.config import files
from morphogen.errors import ConfigError, DataError

T = TypeVar("T")
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")  # allowed names of parts
# origins of parts of the core, and of parts that a program registers
BUILT_IN = "own"
PROGRAM = "this program"
# place of a part of an extra of this distribution
EXTRA = re.compile(r"morphogen\.extras\.(\w+)\b.*")


@lru_cache(maxsize=1)
def _scan(path: tuple[str, ...]) -> Any:
    """Return the entry points of installed packages; `path` is the import path."""
    return metadata.entry_points()


@lru_cache
def _offers(path: tuple[str, ...], group: str) -> dict[str, list[metadata.EntryPoint]]:
    """Return the entry points of a group by name, in alphabetical order."""
    offers: dict[str, list[metadata.EntryPoint]] = {}
    for point in sorted(_scan(path).select(group=group), key=lambda point: point.name):
        offers.setdefault(point.name, []).append(point)
    return offers


@lru_cache
def extra_parts(group: str) -> dict[str, Any]:
    """Return the parts that extras of this distribution offer at a group of entry points.

    For hooks that run in every process, where a broken package would stop every run.
    """
    offers = _offers(tuple(sys.path), group).items()
    return {name: points[0].load() for name, points in offers if EXTRA.fullmatch(points[0].value)}


def _author(point: metadata.EntryPoint) -> str:
    """Name the extra of an entry point, or its package and version: `package 1.0`."""
    extra = EXTRA.fullmatch(point.value)
    if extra is not None:
        return extra[1]
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value


def _authors(points: list[metadata.EntryPoint]) -> str:
    return " and ".join(sorted(set(map(_author, points))))


def error_line(error: BaseException) -> str:
    """Return an error of code from outside in one line."""
    if isinstance(error, ConfigError):
        return str(error)
    return f"{type(error).__name__}: {files.error_line(error)}"


def show_part(part: object) -> str:
    """Return an object from outside in a message, short and in one line."""
    return ascii(part).partition("\n")[0][:60]


def is_ours(part: object) -> bool:
    """Return whether the class of a part is of this distribution."""
    return type(part).__module__.partition(".")[0] == "morphogen"


REGISTRIES: list["Registry[Any]"] = []  # all of this process


class Registry(Mapping[str, T], Generic[T]):
    """Parts of one kind by name: first of the core, then of this program, then of
    packages.

    Indexing imports the part.  Raises: KeyError for an unknown name, ConfigError for a part that
    cannot be used.

    Example:
        >>> import morphogen as mg
        >>> parts = {
        ...     "setting": "data.sampler",
        ...     "group": "morphogen.samplers",
        ...     "expected": "a function",
        ... }
        >>> samplers = mg.Registry("sampler", **parts, is_part=callable)
        >>> samplers.register("sorted", sorted)
        >>> list(samplers), samplers.origin("sorted"), samplers["sorted"]([2, 1])
        (['sorted'], 'this program', [1, 2])
        >>> [name for name in mg.BLUEPRINTS if name.startswith("conv")]
        ['conv_light', 'conv_small', 'conv_heavy']
    """

    def __init__(
        self,
        kind: str,
        *,
        group: str,
        expected: str,
        setting: str = "",
        is_part: Callable[[Any], bool] = callable,
        core: Mapping[str, T | str] | None = None,
    ) -> None:
        """Create a registry.

        Args:
            kind: noun for messages, such as `reward rule`.
            group: group of entry points.
            expected: description of a part, for messages.
            setting: path of the setting that takes a name, such as `reward.rule`; "": none does.
            is_part: structural check of a part; it must not import anything.
            core: parts of the core, or their places, `module:attribute`.
        """
        self.kind = kind
        self.setting = setting or kind
        self.group = group
        self.is_part = is_part
        self._expected = expected
        self._core = dict(core or {})
        self._registered: dict[str, T] = {}
        REGISTRIES.append(self)

    def __repr__(self) -> str:
        return f"Registry({self.kind}: {', '.join(self)})"

    def register(self, name: str, part: T) -> None:
        """Add a part of this program, or replace one.

        Raises: ConfigError for an invalid name, for the name of a part that is from elsewhere, and
        for an object that is no part of this kind.
        """
        if not NAME.fullmatch(name):
            raise ConfigError(
                f"name of a {self.kind}: expected letters and digits, with . _ - between them, "
                f"got {name!a}"
            )
        if name in self and name not in self._registered:
            got = f"the name of a {self.kind} of {self.origin(name)}"
            raise ConfigError(f"{self.kind} {name}: expected a new name, got {got}")
        self._registered[name] = self._check(f"{self.kind} {name}", part)

    def adopt(self, value: Any) -> Any:
        """Return the name of a part that is given as an object, registered as a part of this
        program.

        The name is the attribute `name` of the object, or `__name__`.  Any other value is returned
        as it is.
        """
        if not self.is_part(value):
            return value
        name = getattr(value, "name", None) or getattr(value, "__name__", type(value).__name__)
        if not (name in self and self[name] is value):
            self.register(name, value)
        return name

    def origin(self, name: str) -> str:
        """Return the author of a part: `own`, the name of an extra, `this program`, or `package
        1.0`.

        Raises: KeyError for an unknown name.
        """
        if name in self._core:
            return BUILT_IN
        return PROGRAM if name in self._registered else _authors(self._offers()[name])

    def registered(self) -> dict[str, T]:
        """Return the parts of this program by name."""
        return dict(self._registered)

    def builtin(self) -> tuple[str, ...]:
        """Return the names of the parts of this distribution: of the core, then of its extras."""
        offers = self._offers().items()
        return (*self._core, *(name for name, points in offers if EXTRA.fullmatch(points[0].value)))

    def source(self, name: str) -> str:
        """Return the beginning of a message about a part: `reward.rule: thrift of package 1.0`."""
        return f"{self.setting}: {name} of {self.origin(name)}"

    def call(self, name: str, *args: Any) -> Any:
        """Call a part that is a function.

        Raises: ConfigError that names the part for an error of one from outside; its DataError
        stays.
        """
        part: Any = self[name]
        try:
            return part(*args)
        except Exception as error:
            if name in self.builtin() or isinstance(error, DataError):
                raise
            raise ConfigError(f"{self.source(name)}: {error_line(error)}") from error

    def __getitem__(self, name: str) -> T:
        if name in self._registered:
            return self._registered[name]
        if name in self._core:
            part: Any = self._core[name]
            if isinstance(part, str):
                part = self._core[name] = resolve_name(part)
            return part
        points = self._offers()[name]
        if len(points) > 1:
            raise ConfigError(
                f"{self.setting}: expected one package with {name}, got {_authors(points)}; "
                "uninstall one"
            )
        try:
            part = points[0].load()
        except Exception as error:
            raise ConfigError(
                f"{self.source(name)}: cannot be imported: {error_line(error)}"
            ) from error
        return self._check(self.source(name), part)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._names()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def _names(self) -> dict[str, Any]:
        return {**self._core, **self._registered, **self._offers()}

    def _offers(self) -> dict[str, list[metadata.EntryPoint]]:
        """Return the offers of installed packages by name; parts of the core and of this program
        win.
        """
        return _offers(tuple(sys.path), self.group)

    def _check(self, source: str, part: Any) -> T:
        if not self.is_part(part):
            raise ConfigError(f"{source}: expected {self._expected}, got {show_part(part)}")
        return part
