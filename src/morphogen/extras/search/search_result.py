"""Result of a search, of fixed schedules or of thresholds: what a command shows and writes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from morphogen.config import files


class SearchResult(NamedTuple):
    """Best candidate of a search, with its report and the contents of its files."""

    best: Any
    numbers: dict[str, object]
    files: tuple[bytes, ...]
    tables: dict[str, list[dict[str, object]]]

    def write(self, paths: Sequence[Path]) -> None:
        """Write the files of the result."""
        for path, data in zip(paths, self.files, strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            files.write_atomic(path, data)
