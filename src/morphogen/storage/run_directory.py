"""Run directory: names of its files, creation, opening, and its manifest.  No torch."""

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
from morphogen.vocab.text import format_value

ROOT, RESULT, EVALUATION = "runs", "result.json", "evaluation.json"
CONFIG, MANIFEST, EVENTS = "config.json", "manifest.json", "events.jsonl"
CHECKPOINTS, POLICY = "checkpoints", "policy.safetensors"
STATUS_COMPLETED = "completed"  # status of a run that ended after its last round
PACKAGES = ("morphogen", "torch", "tensordict", "torchrl", "numpy")


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """Files of one run."""

    path: Path

    @property
    def events(self) -> Path:
        """Event file."""
        return self.path / EVENTS

    @property
    def checkpoints(self) -> Path:
        """Folder of checkpoints."""
        return self.path / CHECKPOINTS

    @property
    def policy(self) -> Path:
        """File of the final policy."""
        return self.path / POLICY

    def read_manifest(self) -> dict[str, Any]:
        """Return the current manifest."""
        return json.loads((self.path / MANIFEST).read_bytes())

    def update(self, **fields: Any) -> None:
        """Set fields of the manifest; the file is replaced atomically."""
        atomic_write.write_atomic(self.path / MANIFEST, atomic_write.json_bytes({**self.read_manifest(), **fields}))

    def write_config(self, config: str) -> None:
        """Replace `config.json`."""
        atomic_write.write_atomic(self.path / CONFIG, config.encode())

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Write `result.json`: the numbers of an evaluation, per episode."""
        atomic_write.write_atomic(self.path / RESULT, atomic_write.json_bytes(result))


def events_folder(path: Path, telemetry_dir: str | None) -> Path:
    """Return the folder of the events of the run in `path`; a relative `telemetry.dir` is relative to the run."""
    return path / (telemetry_dir or "")


def config_hash(config: str) -> str:
    """Return the sha256 of the text of a config file."""
    return hashlib.sha256(config.encode()).hexdigest()


def choose_path(out: Path | None, *, task: str, config: str, now: float | None = None) -> Path:
    """Return `out`, or a free path `runs/<UTC time>-<task>-<6 hex of the config hash>` if it is None."""
    if out is not None:
        return out
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    name = f"{moment}-{task}-{config_hash(config)[:6]}"
    paths = (Path(ROOT) / (name if not again else f"{name}-{again}") for again in range(1_000))
    return next(path for path in paths if not path.exists())


def check_new_directory(path: Path) -> None:
    """Raise a ConfigError unless a run directory is new or empty, in a writable place."""
    try:
        _check_free(path)
        _check_parent("out", path, "a new or empty directory")
    except OSError as error:
        raise ConfigError(f"out is {path}; it cannot be used: {error.strerror}") from error


def check_new_file(name: str, path: Path) -> None:
    """Raise a ConfigError unless a file is new, in a writable place; `name` is the option that asks for it."""
    try:
        if path.exists():
            raise ConfigError(f"{name} is {path}, which exists; want a new file")
        _check_parent(name, path, "a new file")
    except OSError as error:
        raise ConfigError(f"{name} is {path}; it cannot be used: {error.strerror}") from error


def check_writable(name: str, path: Path) -> None:
    """Raise a ConfigError unless a directory can be written to."""
    if not os.access(path, os.W_OK | os.X_OK):
        raise ConfigError(f"{name} is {path}, which cannot be written to; want a directory with write permission")


def _check_parent(name: str, path: Path, expected: str) -> None:
    above = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not above.is_dir():
        raise ConfigError(f"{name} is {path}, but {above} is a file; want {expected}")
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
    """Create and lock a run directory with `config.json` and `manifest.json`; a failure leaves nothing behind.

    Raises: ConfigError if the directory is not empty, in use, or cannot be written.
    """
    check_new_directory(path)
    missing = [folder for folder in (path, *path.absolute().parents) if not folder.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _remove_folders(missing)
        raise _write_error(path, error) from error
    filled = False
    try:
        with own_directory(path):
            check_new_directory(path)  # another process may have filled it before the lock was taken
            _write_files(path, config, manifest)
            filled = True
            yield RunDirectory(path)
    finally:
        _remove_folders([] if filled else missing)


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
    """Return the files, the config and the manifest of a run.

    Raises: ConfigError that names the file which is missing or damaged.
    """
    if not os.path.isfile(path / CONFIG):  # unlike Path.is_file, false for an invalid name
        raise ConfigError(f"{path} is not a run directory: {CONFIG} not found")
    spec = _read_file(path / CONFIG, lambda raw: parse_config(raw.decode()))
    manifest = _read_file(path / MANIFEST, safe_read.parse_json)
    if not isinstance(manifest.get("run_id"), str):
        raise ConfigError(f"{path / MANIFEST}: run_id: expected a string, got {format_value(manifest.get('run_id'))}")
    return RunDirectory(path), spec, manifest


def _read_file(path: Path, parse: Callable[[bytes], Any]) -> Any:
    try:
        return parse(safe_read.read_bytes(path))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {safe_read.error_line(error)}") from None


def describe_environment() -> dict[str, Any]:
    """Return versions and hardware for the manifest."""
    versions = {name: metadata.version(name) for name in PACKAGES}
    return {
        "versions": {"python": platform.python_version(), **versions},
        "hardware": {"machine": platform.machine(), "system": platform.system(), "cores": os.cpu_count()},
    }
