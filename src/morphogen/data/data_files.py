"""Files of data sets: where they are looked for, in which forms, and a remedy if one is
missing.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from morphogen.config.files import error_line
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
class FileSource:
    """Declaration of the files of a data set; errors of its reader and `morphogen data` use it."""

    name: str  # in words; it completes "put ... into the folder"
    forms: tuple[FileForm, ...] = ()  # the preferred one first; () = no files of the user
    usual: int = 0  # index of the form that errors name if no file is there

    def choose_form(self, folder: Path) -> FileForm:
        """Return the first form of which a file is there, the usual one if there is none."""
        present = (
            form for form in self.forms if any(os.path.exists(folder / path) for path in form.paths)
        )
        return next(present, self.forms[self.usual])

    def describe_missing(self, path: Path, folder: Path) -> DataError:
        """Return the error of a missing file: its path, and where the official files are to be
        put.
        """
        places = [Path(each) for form in self.forms for each in form.paths]
        remedy = (
            f"put {self.name} into {folder} (`morphogen data` lists all files), or name another "
            "folder"
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


@dataclass(frozen=True, slots=True, eq=False)
class FileData:
    """Data set with a declaration of its files; a part of the registry `DATASETS`."""

    name: str
    read: Callable[[Path], Any]  # folder -> Splits; a DataError if a file is missing or damaged
    source: FileSource

    def __call__(self, folder: Path) -> Any:
        """Return the splits of the files in a folder."""
        return self.read(folder)
