"""Run directory: names of its files, creation, opening, its manifest, and its lock.  No torch.

One process at a time holds the lock; the lock of a dead process is ignored.  A process that writes
stops with one line once its directory was moved, replaced or deleted: it never writes to another
one of the same name.  Nothing in a run directory may be a link.
"""

import contextlib
import hashlib
import itertools
import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from morphogen.config import files
from morphogen.config.config_files import parse_config
from morphogen.config.part_files import IMPORTED
from morphogen.config.parts import LOGGERS
from morphogen.config.spec import RunSpec
from morphogen.errors import CheckpointError, ConfigError
from morphogen.log.locks import hold_lock
from morphogen.vocab.text import format_value

ROOT = "runs"
RESULT = "result.json"
EVALUATION = "evaluation.json"
CONFIG = "config.json"
MANIFEST = "manifest.json"
EVENTS = "events.jsonl"
CHECKPOINTS = "checkpoints"
LOCK = "lock"
RECORDS = "records"  # folder of the records of rounds, next to the event file
METRICS = "metrics"
REPORT = "report"  # folders of the loggers, and of `morphogen report`
NETWORKS = "networks"  # folder of the networks that a run keeps
STATUS_COMPLETED: Final = "completed"  # status of a run that ended after its last round
PACKAGES = ("morphogen", "torch", "tensordict", "torchrl", "numpy")
NAMES = (
    LOCK,
    CHECKPOINTS,
    RECORDS,
    METRICS,
    REPORT,
    NETWORKS,
)  # of entries in use, and their suffixes
MAX_HINT = 500  # characters of a hint that a manifest decides
SUFFIXES = (".json", ".jsonl", ".lock", ".safetensors", ".pt")


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """Files of one run.

    Attributes:
        path: path of the directory.
        handle: descriptor of a directory that is held open.
        is_writer: whether this process writes the files of the run.
    """

    path: Path
    handle: int | None = None
    is_writer: bool = True

    @property
    def checkpoints(self) -> Path:
        """Folder of checkpoints."""
        return self.path / CHECKPOINTS

    def read_manifest(self) -> dict[str, Any]:
        """Return the current manifest."""
        return json.loads((self.path / MANIFEST).read_bytes())

    def write(self, name: str, content: Callable[[], bytes]) -> None:
        """Replace a file of the run, by its writer.  Raises: CheckpointError like `saving`."""
        if self.is_writer:
            with self.saving():
                files.write_atomic(self.path / name, content())

    def update(self, **fields: Any) -> None:
        """Set fields of the manifest; the file is replaced atomically.  Raises: CheckpointError
        like `saving`.
        """
        self.write(MANIFEST, lambda: files.json_bytes({**self.read_manifest(), **fields}))

    def check_present(self) -> None:
        """Raise a CheckpointError if the directory of a live run was moved, replaced or deleted."""
        is_present = (self.path / CONFIG).exists()
        if is_present and self.handle is not None:
            is_present = os.path.samestat(os.fstat(self.handle), os.stat(self.path))
        if not is_present:
            raise CheckpointError(
                f"run directory {self.path} was moved or deleted while it was in use"
            )

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """Raise a CheckpointError that names the directory for an OSError of a write to it."""
        self.check_present()
        try:
            yield
        except OSError as error:
            raise CheckpointError(
                f"{self.path} cannot be written: {error.strerror or error}"
            ) from error


@contextlib.contextmanager
def hold_directory(folder: Path, *, is_writer: bool = True) -> Iterator[RunDirectory]:
    """Hold a run directory open, so that another one in its place is noticed.

    Raises: ConfigError if it cannot be opened, or an entry of it is a link.
    """
    refuse_links(folder)
    with _config_errors(f"run directory {folder} cannot be opened"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield RunDirectory(folder, handle, is_writer)
    finally:
        os.close(handle)


def refuse_links(path: Path) -> None:
    """Raise a ConfigError if a file or folder of a run, or of a checkpoint, is a link, which can
    lead anywhere.
    """
    try:
        names = os.listdir(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {files.error_line(error)}") from error
    used = [name for name in names if name in NAMES or name.endswith(SUFFIXES)]
    for link in filter(None, (_find_link(path / name) for name in used)):
        raise ConfigError(
            f"{link} is a link: expected a file or folder of the run directory itself"
        )


def _find_link(path: Path) -> Path | None:
    """Return a link at or below a path; some loggers keep links of their own."""
    own = [
        path / name
        for name in LOGGERS
        if path.name == METRICS and (path / name).is_dir() and LOGGERS[name].KEEPS_LINKS
    ]
    for entry in (path, *path.rglob("*")):
        if entry.is_symlink() and not any(folder in entry.parents for folder in own):
            return entry
    return None


def events_folder(path: Path, telemetry_dir: str | None) -> Path:
    """Return the folder of the events of the run in `path`; a relative `telemetry.dir` is relative
    to the run.
    """
    return path / (telemetry_dir or "")


def is_outside(path: Path, telemetry_dir: str | None) -> bool:
    """Return whether the events of the run in `path` lie outside of its directory."""
    return not events_folder(path, telemetry_dir).resolve().is_relative_to(path.resolve())


def refuse_outside(path: Path, telemetry_dir: str | None) -> None:
    """Raise a ConfigError if the config of a run, which may be of somebody else, names a place
    outside of the run.
    """
    if is_outside(path, telemetry_dir):
        raise ConfigError(
            f"telemetry.dir: expected --telemetry-dir {events_folder(path, telemetry_dir)} "
            "to confirm that the run may "
            "write outside of its directory, got it from the config of the run alone"
        )


def config_hash(config: str) -> str:
    """Return the sha256 of the text of a config file."""
    return hashlib.sha256(config.encode()).hexdigest()


def default_paths(*, task: str, config: str, now: float | None = None) -> Iterator[Path]:
    """Yield the default paths of a run: `runs/<UTC time>-<task>-<6 hex of the config hash>`, then
    with a number.
    """
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    name = f"{moment}-{task}-{config_hash(config)[:6]}"
    yield from (Path(ROOT) / (f"{name}-{again}" if again else name) for again in itertools.count())


@contextlib.contextmanager
def reserve_path(paths: Iterable[Path]) -> Iterator[Path]:
    """Create the first directory of `paths` that no other process has created; at the end, remove
    it if it is empty.

    Raises: ConfigError if it cannot be created.
    """
    for path in paths:
        with _create_folders(path, f"out: expected a writable directory, got {path}") as is_new:
            if is_new:
                yield path
                return


@contextlib.contextmanager
def _config_errors(fault: str, *partial: Path) -> Iterator[None]:
    """Raise a ConfigError, `fault` and the reason, for an OSError, and delete the files
    `partial`.
    """
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
            hint = (
                f"; resume the run in it with `morphogen resume {path}`"
                if (path / CONFIG).exists()
                else ""
            )
            raise ConfigError(f"{fault}, which is not empty{hint}")
        _check_parent(path, fault)


def check_new_file(name: str, path: Path) -> None:
    """Raise a ConfigError unless a file is new, in a writable place.  name: the option that sets
    the file.
    """
    fault = f"{name}: expected a new file, got {path}"
    with _config_errors(fault):
        if os.path.lexists(path):
            raise ConfigError(f"{fault}, which exists")
        _check_parent(path, fault)


def _check_parent(path: Path, fault: str) -> None:
    above = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not above.is_dir():
        raise ConfigError(f"{fault}, but {above} is a file")
    if not os.access(above, os.W_OK | os.X_OK):
        raise ConfigError(f"{fault}, but {above} is not writable")


@contextlib.contextmanager
def create_directory(
    path: Path, *, config: str, manifest: Mapping[str, Any]
) -> Iterator[RunDirectory]:
    """Create and lock a run directory with `config.json` and `manifest.json`; a failure leaves
    nothing behind.

    Raises: ConfigError if the directory is not empty, in use, or cannot be written.
    """
    check_new_directory(path)
    fault = f"out: expected a writable directory, got {path}"
    with _create_folders(path, fault), own_directory(path) as run:
        # another process may have filled it before the lock was taken
        check_new_directory(run.path)
        with _config_errors(fault, run.path / CONFIG, run.path / MANIFEST):
            files.write_atomic(run.path / CONFIG, config.encode())
            files.write_atomic(run.path / MANIFEST, files.json_bytes(dict(manifest)))
        yield run


@contextlib.contextmanager
def _create_folders(path: Path, fault: str) -> Iterator[bool]:
    """Create a folder and those above it; yield whether it is new, and remove new ones that are
    empty at the end.
    """
    missing = [folder for folder in (path, *path.absolute().parents) if not folder.is_dir()]
    is_new = False
    with _config_errors(fault):
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            is_new = True
    try:
        yield is_new
    finally:
        with contextlib.suppress(OSError):
            for folder in missing if is_new else ():
                folder.rmdir()


@contextlib.contextmanager
def own_directory(folder: Path) -> Iterator[RunDirectory]:
    """Hold a run directory and its lock, which the operating system releases when its owner ends in
    any way.

    Raises: ConfigError if the directory is in use, by the process that the lock file names, or
    cannot be locked.
    """
    with hold_directory(folder) as run, contextlib.ExitStack() as stack:
        try:
            stack.enter_context(hold_lock(run.path / LOCK))
        except OSError as error:
            is_held = isinstance(error, BlockingIOError)
            fault = "is in use by" if is_held else "cannot be locked:"
            raise ConfigError(f"run directory {folder} {fault} {error.strerror}") from None
        yield run


def open_directory(path: Path) -> tuple[RunDirectory, RunSpec, dict[str, Any]]:
    """Return the files, the config and the manifest of a run.

    Raises: ConfigError that names the file which is missing, damaged or a link.
    """
    if not os.path.isfile(path / CONFIG):  # unlike Path.is_file, false for an invalid name
        raise ConfigError(f"{path} is not a run directory: {CONFIG} not found")
    refuse_links(path)
    try:
        spec = _read_file(path / CONFIG, lambda raw: parse_config(raw.decode()))
    except ConfigError as error:
        raise ConfigError(f"{error}{missing_imports(path)}") from None
    manifest = _read_file(path / MANIFEST, files.parse_json)
    if not isinstance(manifest.get("run_id"), str):
        raise ConfigError(
            f"{path / MANIFEST}: run_id: expected a string, got "
            f"{format_value(manifest.get('run_id'))}"
        )
    return RunDirectory(path), spec, manifest


def missing_imports(path: Path) -> str:
    """Return a hint at the files and modules with parts that a run imported and this process did
    not; "" if none.
    """
    imports: Any = []
    with contextlib.suppress(OSError, ValueError, AttributeError):
        imports = files.parse_json(files.read_bytes(path / MANIFEST)).get("imports")
    missing = (
        [str(name) for name in imports if name not in IMPORTED] if isinstance(imports, list) else []
    )
    needed = " ".join(f"--import {name}" for name in missing)
    return f"; the run needs {needed[:MAX_HINT]}" if missing else ""


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
        "hardware": {
            "machine": platform.machine(),
            "system": platform.system(),
            "cores": os.cpu_count(),
        },
    }
