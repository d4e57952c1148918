"""Lines of format 3."""

from morphogen.log.events import Envelope, Json
from morphogen.log.jsonl import HEAD, unpack_event

RETIRED = ("TelemetryEscalated",)  # events that are not read


def decode(line: Json) -> tuple[Envelope, ...]:
    """The event of a line; none for a retired one."""
    for name in (*HEAD, "rank"):
        del line[name]
    return () if line["event"] in RETIRED else (unpack_event(line),)
