"""The run directory: where it goes, what must not be there yet, and its manifest."""

import contextlib
import hashlib
import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from morphogen.config.config_files import parse_config
from morphogen.config.spec import RunSpec
from morphogen.errors import ConfigError
from morphogen.storage import atomic_write, safe_read
from morphogen.storage.lock import LOCK, own_directory

ROOT, RESULT, EVALUATION = "runs", "result.json", "evaluation.json"
CONFIG, MANIFEST, EVENTS, CHECKPOINTS, POLICY = (
    "config.json",
    "manifest.json",
    "events.jsonl",
    "checkpoints",
    "policy.pt",
)
STATUS_COMPLETED = "completed"  # status of a run that is over
PACKAGES = ("morphogen", "torch", "tensordict", "torchrl", "numpy")


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The files of one run."""

    path: Path

    @property
    def events(self) -> Path:
        """The event file."""
        return self.path / EVENTS

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.path / CHECKPOINTS

    @property
    def policy(self) -> Path:
        """The final policy."""
        return self.path / POLICY

    def read_manifest(self) -> dict[str, Any]:
        """The manifest as it stands."""
        return json.loads((self.path / MANIFEST).read_bytes())

    def update(self, **fields: Any) -> None:
        """Set fields of the manifest; the file is replaced in one step."""
        atomic_write.write_atomic(self.path / MANIFEST, atomic_write.json_bytes({**self.read_manifest(), **fields}))

    def write_config(self, config: str) -> None:
        """Replace `config.json`."""
        atomic_write.write_atomic(self.path / CONFIG, config.encode())

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Write `result.json`: the numbers of an evaluation, per episode."""
        atomic_write.write_atomic(self.path / RESULT, atomic_write.json_bytes(result))


def config_hash(config: str) -> str:
    """Sha256 of a config file's text."""
    return hashlib.sha256(config.encode()).hexdigest()


def choose_path(out: Path | None, *, task: str, config: str, now: float | None = None) -> Path:
    """The directory a run is to use: as asked for, else `runs/<UTC time>-<task>-<6 hex of the config hash>`."""
    if out is not None:
        return out
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    name = f"{moment}-{task}-{config_hash(config)[:6]}"
    taken = (Path(ROOT) / (name if not again else f"{name}-{again}") for again in range(1_000))
    return next(path for path in taken if not path.exists())


def check_new_directory(path: Path) -> None:
    """A run directory must be new or empty and lie where something can be written; else a ConfigError."""
    try:
        _check_free(path)
        _check_parent("out", path, "a new or empty directory")
    except OSError as error:
        raise ConfigError(f"out is {path}; it cannot be used: {error.strerror}") from error


def check_new_file(name: str, path: Path) -> None:
    """A file that is asked for must be new and lie where something can be written; else a ConfigError."""
    try:
        if path.exists():
            raise ConfigError(f"{name} is {path}, which exists; want a new file")
        _check_parent(name, path, "a new file")
    except OSError as error:
        raise ConfigError(f"{name} is {path}; it cannot be used: {error.strerror}") from error


def check_writable(name: str, path: Path) -> None:
    """A directory that a file is to be put into can be written to; else a ConfigError."""
    if not os.access(path, os.W_OK | os.X_OK):
        raise ConfigError(f"{name} is {path}, which cannot be written to; want a directory with write permission")


def _check_parent(name: str, path: Path, wanted: str) -> None:
    above = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not above.is_dir():
        raise ConfigError(f"{name} is {path}, but {above} is a file; want {wanted}")
    if not os.access(above, os.W_OK | os.X_OK):
        raise ConfigError(f"{name} is {path}, but {above} cannot be written to; want a directory with write permission")


def _check_free(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise ConfigError(f"out is {path}, which is a file; want a new or empty directory")
    if path.is_dir() and any(entry.name != LOCK for entry in path.iterdir()):
        hint = f" (`morphogen resume {path}` goes on with the run in it)" if (path / CONFIG).exists() else ""
        raise ConfigError(f"out is {path}, which is not empty; want a new or empty directory{hint}")


@contextlib.contextmanager
def create_directory(path: Path, *, config: str, manifest: Mapping[str, Any]) -> Iterator[RunDirectory]:
    """Own a new directory with `config.json` and `manifest.json`; what fails half-way leaves nothing behind."""
    check_new_directory(path)
    made = [folder for folder in (path, *path.absolute().parents) if not folder.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _remove_folders(made)
        raise _write_error(path, error) from error
    filled = False
    try:
        with own_directory(path):
            check_new_directory(path)  # somebody else may have been quicker
            _write_files(path, config, manifest)
            filled = True
            yield RunDirectory(path)
    finally:
        _remove_folders([] if filled else made)


def _write_files(path: Path, config: str, manifest: Mapping[str, Any]) -> None:
    try:
        atomic_write.write_atomic(path / CONFIG, config.encode())
        atomic_write.write_atomic(path / MANIFEST, atomic_write.json_bytes(manifest))
    except OSError as error:
        for name in (CONFIG, MANIFEST):
            (path / name).unlink(missing_ok=True)
        raise _write_error(path, error) from error


def _write_error(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"out is {path}; it cannot be written: {error.strerror}")


def _remove_folders(folders: list[Path]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def open_directory(path: Path) -> tuple[RunDirectory, RunSpec, dict[str, Any]]:
    """The directory of a run, its config and its manifest; what is missing or damaged is refused by name."""
    if not os.path.isfile(path / CONFIG):  # no name of a file is no error
        raise ConfigError(f"run directory is {path}, which holds no {CONFIG}; want the directory of a run")
    spec = _read_file(path / CONFIG, lambda raw: parse_config(raw.decode()))
    said = _read_file(path / MANIFEST, safe_read.parse_json)
    if not isinstance(said.get("run_id"), str):
        raise ConfigError(f"{path / MANIFEST} names no run_id; want that of the run")
    return RunDirectory(path), spec, said


def _read_file(path: Path, parse: Callable[[bytes], Any]) -> Any:
    try:
        return parse(safe_read.read_bytes(path))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be used: {safe_read.error_line(error)}") from None


def describe_environment() -> dict[str, Any]:
    """Versions and hardware, as the manifest states them."""
    versions = {name: metadata.version(name) for name in PACKAGES}
    return {
        "versions": {"python": platform.python_version(), **versions},
        "hardware": {"machine": platform.machine(), "system": platform.system(), "cores": os.cpu_count()},
    }
