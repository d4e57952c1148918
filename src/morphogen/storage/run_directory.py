"""Run directory: names of its files, creation, opening, its manifest, and its lock.  No torch.

One process at a time holds the lock; the lock of a dead process is ignored.
"""

import contextlib
import hashlib
import json
import os
import platform
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from morphogen.config.config_files import parse_config
from morphogen.config.spec import RunSpec
from morphogen.errors import ConfigError
from morphogen.storage import files
from morphogen.vocab.text import format_value

ROOT, RESULT, EVALUATION = "runs", "result.json", "evaluation.json"
CONFIG, MANIFEST, EVENTS = "config.json", "manifest.json", "events.jsonl"
CHECKPOINTS, POLICY, LOCK = "checkpoints", "policy.safetensors", "lock"
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
        files.write_atomic(self.path / MANIFEST, files.json_bytes({**self.read_manifest(), **fields}))


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


@contextlib.contextmanager
def _config_errors(fault: str, *partial: Path) -> Iterator[None]:
    """Raise a ConfigError, `fault` and the reason, for an OSError, and delete the files `partial`."""
    try:
        yield
    except OSError as error:
        for path in partial:
            path.unlink(missing_ok=True)
        raise ConfigError(f"{fault}: {error.strerror}") from error


def check_new_directory(path: Path) -> None:
    """Raise a ConfigError unless a run directory is new or empty, in a writable place."""
    fault = f"out: expected a new or empty directory, got {path}"
    with _config_errors(fault):
        if path.exists() and not path.is_dir():
            raise ConfigError(f"{fault}, which is a file")
        if path.is_dir() and any(entry.name != LOCK for entry in path.iterdir()):
            hint = f"; resume the run in it with `morphogen resume {path}`" if (path / CONFIG).exists() else ""
            raise ConfigError(f"{fault}, which is not empty{hint}")
        _check_parent(path, fault)


def check_new_file(name: str, path: Path) -> None:
    """Raise a ConfigError unless a file is new, in a writable place.  name: the option that sets the file."""
    fault = f"{name}: expected a new file, got {path}"
    with _config_errors(fault):
        if path.exists():
            raise ConfigError(f"{fault}, which exists")
        _check_parent(path, fault)


def check_writable(name: str, path: Path) -> None:
    """Raise a ConfigError unless a directory can be written to."""
    if not os.access(path, os.W_OK | os.X_OK):
        raise ConfigError(f"{name}: expected a writable directory, got {path}")


def _check_parent(path: Path, fault: str) -> None:
    above = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not above.is_dir():
        raise ConfigError(f"{fault}, but {above} is a file")
    if not os.access(above, os.W_OK | os.X_OK):
        raise ConfigError(f"{fault}, but {above} is not writable")


@contextlib.contextmanager
def create_directory(path: Path, *, config: str, manifest: Mapping[str, Any]) -> Iterator[RunDirectory]:
    """Create and lock a run directory with `config.json` and `manifest.json`; a failure leaves nothing behind.

    Raises: ConfigError if the directory is not empty, in use, or cannot be written.
    """
    check_new_directory(path)
    missing = [folder for folder in (path, *path.absolute().parents) if not folder.exists()]
    fault = f"out: expected a writable directory, got {path}"
    try:
        with _config_errors(fault):
            path.mkdir(parents=True, exist_ok=True)
        with own_directory(path):
            check_new_directory(path)  # another process may have filled it before the lock was taken
            with _config_errors(fault, path / CONFIG, path / MANIFEST):
                files.write_atomic(path / CONFIG, config.encode())
                files.write_atomic(path / MANIFEST, files.json_bytes(manifest))
            missing = []
            yield RunDirectory(path)
    finally:
        for folder in missing:
            with contextlib.suppress(OSError):
                folder.rmdir()


@contextlib.contextmanager
def own_directory(folder: Path) -> Iterator[None]:
    """Hold the lock of a run directory; the operating system releases it when its owner ends in any way.

    Raises: ConfigError if the directory is in use, by the process that the lock file names, or cannot be locked.
    """
    path = folder / LOCK
    lock = FileLock(path, blocking=False)
    try:
        lock.acquire()
    except Timeout:
        raise ConfigError(f"run directory {folder} is in use by {_read_owner(path)}") from None
    except OSError as error:
        raise ConfigError(f"run directory {folder} cannot be locked: {error.strerror}") from error
    try:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        path.write_bytes(files.json_bytes({"pid": os.getpid(), "host": socket.gethostname(), "since": now}))
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()  # under the lock: a process that opened the file meanwhile sees that it is gone
        lock.release()


def _read_owner(path: Path) -> str:
    with contextlib.suppress(OSError, ValueError):
        match files.parse_json(files.read_bytes(path)):
            case {"pid": int(pid), "host": str(host), "since": str(since)}:
                return f"process {pid} on host {host} since {since}"
    return "another process"


def open_directory(path: Path) -> tuple[RunDirectory, RunSpec, dict[str, Any]]:
    """Return the files, the config and the manifest of a run.

    Raises: ConfigError that names the file which is missing or damaged.
    """
    if not os.path.isfile(path / CONFIG):  # unlike Path.is_file, false for an invalid name
        raise ConfigError(f"{path} is not a run directory: {CONFIG} not found")
    spec = _read_file(path / CONFIG, lambda raw: parse_config(raw.decode()))
    manifest = _read_file(path / MANIFEST, files.parse_json)
    if not isinstance(manifest.get("run_id"), str):
        raise ConfigError(f"{path / MANIFEST}: run_id: expected a string, got {format_value(manifest.get('run_id'))}")
    return RunDirectory(path), spec, manifest


def _read_file(path: Path, parse: Callable[[bytes], Any]) -> Any:
    try:
        return parse(files.read_bytes(path))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {files.error_line(error)}") from None


def describe_environment() -> dict[str, Any]:
    """Return versions and hardware for the manifest."""
    versions = {name: metadata.version(name) for name in PACKAGES}
    return {
        "versions": {"python": platform.python_version(), **versions},
        "hardware": {"machine": platform.machine(), "system": platform.system(), "cores": os.cpu_count()},
    }
