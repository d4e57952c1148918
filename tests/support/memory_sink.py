"""A sink in memory."""

from collections.abc import Iterable

from morphogen.log.events import Envelope
from morphogen.log.round_record import RoundRecord
from morphogen.log.writer import Sink


class MemorySink(Sink):
    """A sink that keeps events and records."""

    def __init__(self) -> None:
        self.events: list[Envelope] = []
        self.records: list[RoundRecord] = []

    def write(self, events: Iterable[Envelope]) -> None:
        """Keep events."""
        self.events += events

    def write_record(self, record: RoundRecord) -> None:
        """Keep the record of a round."""
        self.records.append(record)
