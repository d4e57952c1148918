"""The shelf of a run: its checkpoints by position, which of them are whole, and which stay.  No torch.

A checkpoint is a directory whose manifest names size and sha256 of every file, and is sealed by a sha256 of its own.
"""

import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from morphogen.errors import CheckpointError
from morphogen.storage import atomic_write, safe_read
from morphogen.vocab.text import format_value

Manifest = dict[str, Any]
FORMAT = 3
ENVS, SHARED, MANIFEST = "envs.rank0.pt", "shared.pt", "manifest.json"
TEMPORARY, TRASH = ".tmp-", ".trash-"
_NAME = re.compile("round-([0-9]{6,9})-epoch-([0-9]{4,6})")


def checkpoint_name(round: int, epoch: int) -> str:
    """The directory of a position: the next epoch to run."""
    return f"round-{round:06d}-epoch-{epoch:04d}"


def parse_position(path: Path) -> tuple[int, int] | None:
    """The position that a directory is named by; None for other names."""
    found = _NAME.fullmatch(path.name)
    return None if found is None else (int(found[1]), int(found[2]))


def list_checkpoints(folder: Path) -> list[Path]:
    """The directories named like checkpoints, newest position first."""
    named = {path: parse_position(path) for path in folder.iterdir()} if folder.is_dir() else {}
    return sorted((path for path, at in named.items() if at is not None), key=lambda path: named[path], reverse=True)


def find_damage(path: Path) -> str | None:
    """What is wrong with the files of a checkpoint directory; None if they are whole."""
    try:
        listed = read_manifest(path)["files"]
    except CheckpointError as error:
        return str(error)
    faults = (_find_file_damage(path / file, facts["bytes"], facts["sha256"]) for file, facts in listed.items())
    return next((found for found in faults if found is not None), None)


def read_manifest(path: Path) -> Manifest:
    """The manifest of a checkpoint directory; a CheckpointError that says what is wrong with it."""
    try:
        manifest = safe_read.parse_json(safe_read.read_bytes(path / MANIFEST))
    except OSError as error:
        raise CheckpointError(f"has no readable {MANIFEST}: {safe_read.error_line(error)}") from None
    except ValueError as error:
        raise CheckpointError(f"has a damaged {MANIFEST}: {safe_read.error_line(error)}") from None
    if manifest.get("format") != FORMAT:
        raise CheckpointError(f"has format {format_value(manifest.get('format'))}; want {FORMAT}")
    if manifest.pop("seal", None) != manifest_sha256(manifest):
        raise CheckpointError(f"has a damaged {MANIFEST}: it is not what was sealed")
    if not _is_well_formed(manifest):
        raise CheckpointError(f"has a {MANIFEST} of another form; want round, epoch, and the files {ENVS}, {SHARED}")
    return manifest


def _is_well_formed(manifest: Manifest) -> bool:
    match manifest:
        case {"round": int(), "epoch": int(), "files": dict(listed)} if set(listed) == {ENVS, SHARED}:
            return all(map(_is_file_entry, listed.values()))
    return False


def _is_file_entry(file: Any) -> bool:
    match file:
        case {"bytes": int(), "sha256": str()}:
            return True
    return False


def manifest_sha256(manifest: Manifest) -> str:
    """The sha256 that a manifest without it gets."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _find_file_damage(path: Path, size: int, digest: str) -> str | None:
    try:
        found = _file_size(path)
        if found is None:
            return f"lacks {path.name}"
        if found != size:
            return f"is damaged: {path.name} has {found} bytes; want {size}"
        return (
            None
            if atomic_write.sha256(path) == digest
            else f"is damaged: {path.name} has another sha256 than the manifest"
        )
    except OSError as error:
        return f"has no readable {path.name}: {safe_read.error_line(error)}"


def _file_size(path: Path) -> int | None:
    """Bytes of a file; None where there is none."""
    return path.stat().st_size if path.is_file() else None


def remove_checkpoint(path: Path) -> None:
    """Take a checkpoint away; its name is free at once, and nobody finds a part of it."""
    trash = path.with_name(f"{TRASH}{path.name}-{os.getpid()}")
    path.rename(trash)
    shutil.rmtree(trash, ignore_errors=True)


def remove_leftovers(folder: Path) -> None:
    """What a process that died has left."""
    for left in (*folder.glob(f"{TEMPORARY}*"), *folder.glob(f"{TRASH}*")):
        shutil.rmtree(left, ignore_errors=True)


def apply_retention(folder: Path, keep: int) -> None:
    """Remove all but the newest and the best one of those that are whole."""
    found = [(path, manifest) for path in list_checkpoints(folder) if (manifest := _read_undamaged(path)) is not None]
    scores = [(manifest.get("score"), path) for path, manifest in found]
    best = max([(score, at) for score, at in scores if isinstance(score, float)], default=None)
    for path, _ in found[keep:]:
        if best is None or path != best[1]:
            remove_checkpoint(path)


def _read_undamaged(path: Path) -> Manifest | None:
    """The manifest of a checkpoint whose files have their sizes; None for others."""
    try:
        manifest = read_manifest(path)
    except CheckpointError:
        return None
    sizes = {file: facts["bytes"] for file, facts in manifest["files"].items()}
    return manifest if all(_file_size(path / file) == size for file, size in sizes.items()) else None
