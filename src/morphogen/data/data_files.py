"""Files of data sets: where they are looked for, in which forms, and a remedy if one is
missing.
"""

import gzip
import hashlib
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from morphogen.config.files import error_line, open_regular, sha256
from morphogen.errors import DataError
from morphogen.vocab.paths import expand_path

FLAG = "--data-dir"
FOLDER_VARIABLE = "MORPHOGEN_DATA"
FOLDER = "data"


def find_folder(chosen: str | None) -> tuple[Path, str]:
    """Return the folder of data files and its origin: `--data-dir`, else $MORPHOGEN_DATA, else the
    default.
    """
    if chosen:
        return expand_path(chosen), FLAG
    if variable := os.environ.get(FOLDER_VARIABLE):
        return expand_path(variable), f"${FOLDER_VARIABLE}"
    return Path(FOLDER), "default"


@dataclass(frozen=True, slots=True)
class FileForm:
    """Form of a data set: the files that belong together."""

    name: str
    paths: tuple[str, ...]  # below the folder of data files


@dataclass(frozen=True, slots=True)
class Official:
    """Content of an official file, unpacked."""

    size: int  # bytes
    sha256: str


@dataclass(frozen=True, slots=True)
class FileSource:
    """Declaration of the files of a data set; errors of its reader and `morphogen data` use it."""

    name: str  # in words; it completes "put ... into the folder"
    forms: tuple[FileForm, ...] = ()  # the preferred one first; () = no files of the user
    usual: int = 0  # index of the form that errors name if no file is there
    command: str = ""  # of a shell, that installs the files; "": none does
    package: str = ""  # of Python, that holds the files and is never imported; "": none does
    installed: str = ""  # folder of the installed files, below the package if there is one

    def find_files(self, folder: Path) -> Path:
        """Return the folder that holds files: the one of data files, else the installed one; the
        first if neither does.
        """
        root = find_package(self.package) if self.package else Path("/")
        places = [folder, root / self.installed] if root and self.installed else [folder]
        paths = [path for form in self.forms for path in form.paths]
        holding = (place for place in places if _hold_any(place, paths))
        return next(holding, folder)

    def choose_form(self, folder: Path) -> FileForm:
        """Return the first form of which a file is there, the usual one if there is none."""
        present = (form for form in self.forms if _hold_any(folder, form.paths))
        return next(present, self.forms[self.usual])

    def describe_missing(self, path: Path, folder: Path) -> DataError:
        """Return the error of a missing file: its path, and where the official files are to be
        put.
        """
        places = [Path(each) for form in self.forms for each in form.paths]
        remedy = (
            f"{f'run `{self.command}`, or ' if self.command else ''}put {self.name} into {folder} "
            "(`morphogen data` lists all files), or name another folder"
        )
        if any(len(place.parts) > 1 and (folder / place.name).exists() for place in places):
            remedy = f"{folder} is the folder of the files itself: name the one above it"
        return DataError(f"{path} is missing; {remedy} with {FLAG} or {FOLDER_VARIABLE}")

    @contextmanager
    def reading(self, path: Path, folder: Path) -> Iterator[None]:
        """Turn errors of opening and reading a file into a DataError."""
        try:
            yield
        except FileNotFoundError:
            raise self.describe_missing(path, folder) from None
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error_line(error)}") from error

    def read_official(self, path: Path, folder: Path, official: Official) -> bytes:
        """Return the content of an official file, unpacked if it is a .gz file.

        Raises: DataError if the file is missing, damaged, or another one.
        """
        wanted = (
            f"{path}: expected {official.size:,} bytes of {self.name}, with sha256 "
            f"{official.sha256}"
        )
        with self.reading(path, folder), open_regular(path) as file:
            try:
                source = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
                content = source.read(official.size + 1)  # a small .gz file may hold very much
            except (gzip.BadGzipFile, zlib.error, EOFError) as error:
                raise DataError(f"{wanted}, got a damaged file: {error_line(error)}") from error
        digest = hashlib.sha256(content).hexdigest()
        if digest != official.sha256:
            size = "more" if len(content) > official.size else f"{len(content):,} bytes"
            raise DataError(f"{wanted}, got {size} with sha256 {digest}")
        return content


def _hold_any(folder: Path, paths: Iterable[str]) -> bool:
    """Return whether one of the paths below a folder is there."""
    return any(os.path.exists(folder / path) for path in paths)


def check_packaged(path: Path, digest: str) -> None:
    """Raise DataError unless a file of this package has the sha256 that it was made with."""
    try:
        got = sha256(path)
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error_line(error)}; reinstall the package"
        ) from error
    if got != digest:
        raise DataError(f"{path}: expected sha256 {digest}, got {got}; reinstall the package")


def find_package(name: str) -> Path | None:
    """Return the folder of an installed package without a run of its code; None: not installed."""
    found = PathFinder.find_spec(name)
    return Path(found.origin).parent if found and found.origin else None


@dataclass(frozen=True, slots=True, eq=False)
class FileData:
    """Data set with a declaration of its files; a part of the registry `DATASETS`."""

    name: str
    read: Callable[[Path], Any]  # folder -> Splits; a DataError if a file is missing or damaged
    source: FileSource

    def __call__(self, folder: Path) -> Any:
        """Return the splits of the files in a folder."""
        return self.read(folder)
