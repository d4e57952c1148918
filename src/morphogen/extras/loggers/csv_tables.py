"""The logger `csv`: a folder of CSV files, one per table, a header, then a row per step."""

import csv
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path

from morphogen.config import files
from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.extras.loggers.scalars import ScalarRow, ScalarSink
from morphogen.log.events import Envelope
from morphogen.log.writer import LoggerPlace


class CsvTables(ScalarSink):
    """Tables that continue after the complete rounds of a run; rows of later steps are cut."""

    NAME = "csv"
    local = True

    def __init__(self, place: LoggerPlace, spec: TelemetrySpec) -> None:
        super().__init__(place, spec)
        self._folder = place.folder / self.NAME
        self._files = ExitStack()
        self._writers: dict[str, csv.DictWriter[str]] = {}  # by table, opened with its first row
        # At once, because a run directory that is moved later gets no folder at its old place.
        with suppress(OSError):  # the first row reports it
            self._folder.mkdir(parents=True, exist_ok=True)

    def write(self, events: Iterable[Envelope]) -> None:
        """Log the numbers of events; before the first row, cut the tables of a resumed run."""
        if not self._writers:
            for path in self._folder.glob("*.csv"):
                self._cut(path)
        super().write(events)

    def _cut(self, path: Path) -> None:
        """Remove the rows of rounds that the run computes again, and a row that is not complete."""
        rounds = self._place.rounds
        last = rounds if path.stem != "epoch" else rounds * self._place.epochs - 1
        with files.open_regular(path) as file:
            header, *rows = file.read().decode("utf-8").splitlines(keepends=True) or [""]
        kept = [row for row in rows if row.endswith("\n") and int(row.partition(",")[0]) <= last]
        if len(kept) < len(rows):
            path.write_text("".join((header, *kept)), "utf-8")

    def write_row(self, row: ScalarRow) -> None:
        """Append a row; a cell is empty where nothing was measured.

        Raises: ValueError for a number that the header of the table has no column for.
        """
        values = {"step": row.step, **row.values}
        if row.table not in self._writers:
            self._writers[row.table] = self._open(row.table, tuple(values))
        known = {name: value for name, value in values.items() if value is not None}
        self._writers[row.table].writerow(known)

    def flush(self) -> None:
        """Do nothing: every row is written out."""

    def close(self) -> None:
        """Close all files."""
        self._files.close()

    def _open(self, table: str, columns: tuple[str, ...]) -> "csv.DictWriter[str]":
        """Open the file of a table; its own header stands, a new file gets these columns."""
        path = self._folder / f"{table}.csv"
        file = self._files.enter_context(path.open("a+", 1, newline="", encoding="utf-8"))
        file.seek(0)
        header = next(csv.reader(file), None)
        writer = csv.DictWriter(file, header or columns, lineterminator="\n")
        if header is None:
            writer.writeheader()
        file.seek(0, 2)
        return writer
