"""Checkpoints of a run on disk: listed by position, checked for damage, deleted by retention.  No
torch.

A checkpoint is a directory whose manifest holds size and sha256 of every file, and a sha256 of the
manifest itself.
"""

import contextlib
import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

from morphogen.config import files
from morphogen.errors import CheckpointError
from morphogen.vocab.text import format_value

Manifest = dict[str, Any]
FORMAT = 8
ENVS = "envs.rank0.safetensors"  # the name of format 8, with the state of all envs
SHARED = "shared.safetensors"
MANIFEST = "manifest.json"
TRASH = ".trash-"  # prefix of checkpoints that are being deleted
_NAME = re.compile("round-([0-9]{6,9})-epoch-([0-9]{4,6})")
_LEFTOVER = re.compile(rf"\.(tmp|trash)-{_NAME.pattern}-[0-9a-f]{{16}}")


def checkpoint_name(round: int, epoch: int) -> str:
    """Return the directory name of a position, which is the next epoch to run."""
    return f"round-{round:06d}-epoch-{epoch:04d}"


def parse_position(path: Path) -> tuple[int, int] | None:
    """Return (round, epoch) from the name of a checkpoint directory; None for other names."""
    match = _NAME.fullmatch(path.name)
    return None if match is None else (int(match[1]), int(match[2]))


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the directories named like checkpoints, newest position first."""
    paths = folder.iterdir() if folder.is_dir() else ()
    positions = {path: position for path in paths if (position := parse_position(path)) is not None}
    return sorted(positions, key=lambda path: positions[path], reverse=True)


def find_damage(path: Path) -> str | None:
    """Describe the first damage to a checkpoint directory, as the rest of a sentence; None if it is
    intact.
    """
    try:
        entries = read_manifest(path)["files"]
    except CheckpointError as error:
        return str(error)
    faults = (
        _find_file_damage(path / file, entry["bytes"], entry["sha256"])
        for file, entry in entries.items()
    )
    return next(filter(None, faults), None)


def check_undamaged(path: Path) -> None:
    """Raise a CheckpointError for a damaged checkpoint directory."""
    if (damage := find_damage(path)) is not None:
        raise CheckpointError(f"checkpoint {path} {damage}")


def read_manifest(path: Path) -> Manifest:
    """Return the manifest of a checkpoint directory.

    Raises: CheckpointError, with the rest of a sentence that begins with the directory.
    """
    if (path / MANIFEST).is_symlink():
        raise CheckpointError(f"has a link in place of {MANIFEST}")
    try:
        manifest = files.parse_json(files.read_bytes(path / MANIFEST))
    except OSError as error:
        raise CheckpointError(f"has no readable {MANIFEST}: {files.error_line(error)}") from None
    except ValueError as error:
        raise CheckpointError(f"has a damaged {MANIFEST}: {files.error_line(error)}") from None
    if manifest.get("format") != FORMAT:
        raise CheckpointError(
            f"has format {format_value(manifest.get('format'))}: expected format {FORMAT}"
        )
    if manifest.pop("seal", None) != manifest_sha256(manifest):
        raise CheckpointError(f"has a damaged {MANIFEST}: its sha256 differs from its seal")
    if not _lists_files(manifest):
        raise CheckpointError(
            f"has an invalid {MANIFEST}: expected round, epoch, world 1, and the files "
            f"{ENVS}, {SHARED}"
        )
    return manifest


def _lists_files(manifest: Manifest) -> bool:
    match manifest:
        case {"round": int(), "epoch": int(), "world": 1, "files": {**files}}:
            sizes = [entry for entry in files.values() if isinstance(entry, dict)]
            kinds = [(type(entry.get("bytes")), type(entry.get("sha256"))) for entry in sizes]
            return files.keys() == {ENVS, SHARED} and kinds == [(int, str)] * 2
    return False


def manifest_sha256(manifest: Manifest) -> str:
    """Return the sha256 of a manifest without its seal."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _find_file_damage(path: Path, size: int, digest: str) -> str | None:
    try:
        actual = _file_size(path)
        if actual is None:
            return f"lacks {path.name}"
        if actual != size:
            return f"is damaged: {path.name} has {actual} bytes, expected {size}"
        return (
            None if files.sha256(path) == digest else f"is damaged: sha256 of {path.name} differs"
        )
    except OSError as error:
        return f"has no readable {path.name}: {files.error_line(error)}"


def _file_size(path: Path) -> int | None:
    """Return the size of a regular file in bytes; None if there is none, or a link."""
    return path.stat().st_size if path.is_file() and not path.is_symlink() else None


def remove_checkpoint(path: Path) -> None:
    """Delete a checkpoint: renamed first, so that its name never refers to a part of it."""
    trash = files.temporary_path(path, TRASH)
    path.rename(trash)
    shutil.rmtree(trash, ignore_errors=True)


def remove_leftovers(folder: Path) -> None:
    """Delete the checkpoints that dead processes left half written or half deleted; nothing else
    that is there.
    """
    for path in folder.iterdir():
        if _LEFTOVER.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)


def apply_retention(folder: Path, keep: int) -> None:
    """Delete all intact checkpoints except the `keep` newest and the one with the highest score."""
    scores = {}
    for path in list_checkpoints(folder):
        with contextlib.suppress(CheckpointError):
            manifest = read_manifest(path)
            if all(
                _file_size(path / file) == entry["bytes"]
                for file, entry in manifest["files"].items()
            ):
                scores[path] = manifest.get("score")
    _, best = max(
        [(score, path) for path, score in scores.items() if isinstance(score, float)],
        default=(None, None),
    )
    for path in [*scores][keep:]:
        if path != best:
            remove_checkpoint(path)
