"""Parts in Python files and modules that a command names by `--import`: run once, so that their
parts have names.
"""

import contextlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from types import ModuleType

from morphogen.config.registry import REGISTRIES, error_line
from morphogen.errors import ConfigError

# absolute paths of files and names of modules that this process has imported
IMPORTED: list[str] = []
_SUFFIX = ".py"


def import_parts(name: str) -> None:
    """Run a Python file, or import a module by its dotted name, that registers parts; a second time
    has no effect.

    The folder of the file, or the working directory for a module, is where other modules are
    searched last.  What the
    file prints goes to stderr: stdout belongs to the command.

    Raises: ConfigError for a name without a file or module, and for one that raises or registers
    nothing.
    """
    source = _source(name)
    if source in IMPORTED:
        return
    before = list(_registered_parts())
    load_module(name, option="--import")
    if list(_registered_parts()) == before:
        raise ConfigError(
            f"--import: {name} registers no part: expected a call such as "
            'morphogen.TASKS.register("mine", task)'
        )
    IMPORTED.append(source)


def load_module(name: str, *, option: str) -> ModuleType:
    """Run a Python file, or import a module by its dotted name, as `import_parts` does; return the
    module.

    option: that names it, in messages.
    """
    source = _source(name)
    folder = os.path.dirname(source) or os.getcwd()
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return _load(source)
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{option}: {_describe(error, name)}") from error


def _source(name: str) -> str:
    """Return the absolute path of a Python file, or the name of a module."""
    return os.path.abspath(os.path.expanduser(name)) if name.endswith(_SUFFIX) else name


def _registered_parts() -> Iterator[tuple[str, str, int]]:
    for registry in REGISTRIES:
        for name, part in registry.registered().items():
            yield registry.group, name, id(part)


def _load(source: str) -> ModuleType:
    if not source.endswith(_SUFFIX):
        return importlib.import_module(source)
    spec = importlib.util.spec_from_file_location(source, source)  # no name of an installed module
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[source] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def _describe(error: BaseException, name: str) -> str:
    """Describe the error of an import in one line, with the line of the file that it comes from."""
    path = os.path.expanduser(name)
    absent = isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}.")
    if absent or (isinstance(error, OSError) and error.filename == os.path.abspath(path)):
        return (
            f"expected a Python file ({_SUFFIX}) or the dotted name of a module, got {name}, "
            "which cannot be found"
        )
    text = "; ".join(error_line(error).splitlines())  # of a syntax error with its line
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == os.path.abspath(path)]
    return f"{name}, line {lines[-1]}: {text}" if lines else f"{name}: {text}"
