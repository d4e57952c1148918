"""Records of format 1: files of parts of the envs, whose columns are kept by level."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from morphogen.errors import DataError
from morphogen.extras.former_logs.former_lines import decode
from morphogen.log.codec import Array
from morphogen.log.derive import derive_events, derived_kinds
from morphogen.log.events import Envelope
from morphogen.log.jsonl import LogFormat
from morphogen.log.kinds.run import RunStarted
from morphogen.log.record_files import RecordMeta, read_members
from morphogen.log.round_record import RoundRecord
from morphogen.log.run_directory import RECORDS

VERSION = 1
NAME = re.compile(r"round-([0-9]{6,12})(?:\.rank([0-9]{1,6})-of-([0-9]{1,6}))?\.npz\.xz")
RENAMED = {"phase": "regime", "image_view": "view_code"}  # columns
MINIMAL = "minimal"
NORMAL = "normal"
DEBUG = "debug"
LEVELS = (MINIMAL, NORMAL, DEBUG)
ABLATIONS = "AblationsMeasured"  # below debug: at the end of an episode
KEPT = {  # kind of event -> the lowest level that keeps it; any other kind: debug
    **dict.fromkeys(("StageChanged", "SeedGerminated", "SeedFossilized", "SeedPruned"), MINIMAL),
    **dict.fromkeys(("RolledBack", "EpisodeCompleted", "AnomalyDetected"), MINIMAL),
    "TopologyRecorded": MINIMAL,
    **dict.fromkeys(("EpochCompleted", ABLATIONS, "RegimeBegan"), NORMAL),
    **dict.fromkeys(("GateEvaluated", "AnomalySeen", "HostStabilized"), NORMAL),
}


@dataclass(frozen=True, slots=True)
class FormerMeta(RecordMeta):
    """Contents of `meta`."""

    level: Literal["minimal", "normal", "debug"]


def list_records(folder: Path) -> dict[int, tuple[Path, ...]]:
    """Files of the records next to the event file in `folder`: round (from 0), ascending -> its
    files, in order.

    A round without one of its parts was not written.
    """
    parts = defaultdict[int, dict[int, Path]](dict)
    counts: dict[int, int] = {}
    for path in (folder / RECORDS).glob("round-*.npz.xz"):
        if (name := NAME.fullmatch(path.name)) is not None:
            number = int(name[1]) - 1
            parts[number][int(name[2] or 0)] = path
            counts[number] = int(name[3] or 1)
    return {
        number: tuple(found[part] for part in sorted(found))
        for number, found in sorted(parts.items())
        if [*sorted(found)] == [*range(counts[number])]
    }


def derive(
    paths: Sequence[Path], start: RunStarted, kinds: Collection[str] | None
) -> Iterator[Envelope]:
    """Yield the events of the record of a round that the levels of its epochs keep."""
    record, levels = _read_round(paths)
    wanted = {
        kind
        for kind in (derived_kinds() if kinds is None else kinds)
        if levels.max() >= LEVELS.index(KEPT.get(kind, DEBUG))
    }
    if "acc_table" not in record.columns:  # normal, of a round that is not over
        wanted.discard(ABLATIONS)
    with np.errstate(all="ignore"):  # epochs whose columns are 0
        for event in derive_events(record, wanted):
            epoch = event.epoch or 0
            least = KEPT.get(event.name, DEBUG)
            if event.name == ABLATIONS and epoch != record.facts.epochs - 1:
                least = DEBUG
            if levels[epoch] >= LEVELS.index(least):
                yield event


def _read_round(paths: Sequence[Path]) -> tuple[RoundRecord, Array]:
    """Read the record of all parts up to the epochs that all of them have, and the level of each
    epoch.
    """
    records = [_read_part(path) for path in paths]
    epochs = min(record.epochs for record, _ in records)
    first, _ = records[0]
    envs = 0
    for path, (record, _) in zip(paths, records, strict=True):
        facts = replace(record.facts, first=0, device=first.facts.device)
        if (facts, record.round, record.facts.first) != (first.facts, first.round, envs):
            raise DataError(f"{path} does not fit {paths[0]}: it is of another round or run")
        envs += record.envs
    shared = set.intersection(*(set(record.columns) for record, _ in records))
    columns = {
        name: np.concatenate([record.columns[name][:epochs] for record, _ in records], axis=1)
        for name in first.columns
        if name in shared
    }
    over = all(record.ends for record, _ in records)
    ends = {
        name: np.concatenate([record.ends[name] for record, _ in records])
        for name in first.ends
        if over
    }
    level = np.minimum.reduce([levels[:epochs] for _, levels in records])
    return replace(first, columns=columns, ends=ends), level


def _read_part(path: Path) -> tuple[RoundRecord, Array]:
    """Read a file; return its record and the level of each epoch."""
    meta, members, ends = read_members(path, FormerMeta, VERSION)
    detailed = members.pop("detailed")
    columns = {RENAMED.get(name, name): column for name, column in members.items()}
    levels = np.where(detailed, LEVELS.index(DEBUG), LEVELS.index(meta.level))
    return RoundRecord(meta.facts, meta.round - 1, columns, ends), levels


FORMAT = LogFormat(decode, list_records, derive)
