"""Checkpoints of a run on disk: written in one step, listed by position, checked for damage,
deleted by retention.  No torch.

A checkpoint is a directory of two files: the state, and a manifest with size and sha256 of the
state and a sha256 of itself.  It is written under a temporary name, and then renamed.
"""

import contextlib
import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from morphogen.config import files
from morphogen.errors import CheckpointError
from morphogen.vocab.text import format_value

Manifest = dict[str, Any]
FORMAT = 9
STATE = "state.safetensors"
MANIFEST = "manifest.json"
TRASH = ".trash-"  # prefix of checkpoints that are being deleted
REQUIRED = {"round": int, "epoch": int, "bytes": int, "sha256": str}  # entries of a manifest
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


def read_manifest(path: Path) -> Manifest:
    """Return the manifest of a checkpoint directory.  Raises: CheckpointError if it is damaged."""
    fault = f"checkpoint {path} has"
    if (path / MANIFEST).is_symlink():
        raise CheckpointError(f"{fault} a link in place of {MANIFEST}")
    try:
        manifest = files.parse_json(files.read_bytes(path / MANIFEST))
    except (OSError, ValueError) as error:
        state = "no readable" if isinstance(error, OSError) else "a damaged"
        reason = files.error_line(error)
        raise CheckpointError(f"{fault} {state} {MANIFEST}: {reason}") from None
    if manifest.get("format") != FORMAT:
        raise CheckpointError(
            f"{fault} format {format_value(manifest.get('format'))}: expected format {FORMAT}"
        )
    if manifest.pop("seal", None) != manifest_sha256(manifest):
        raise CheckpointError(f"{fault} a damaged {MANIFEST}: its sha256 differs from its seal")
    if any(type(manifest.get(name)) is not kind for name, kind in REQUIRED.items()):
        raise CheckpointError(f"{fault} an invalid {MANIFEST}: expected {', '.join(REQUIRED)}")
    return manifest


def manifest_sha256(manifest: Manifest) -> str:
    """Return the sha256 of a manifest without its seal."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def check_undamaged(path: Path) -> Manifest:
    """Return the manifest of a checkpoint directory after comparing its state with it.

    Raises: CheckpointError if either is missing, damaged or a link.
    """
    manifest = read_manifest(path)
    state = path / STATE
    try:
        if not state.is_file() or state.is_symlink():
            raise CheckpointError(f"checkpoint {path} lacks {STATE}")
        if (size := state.stat().st_size) != manifest["bytes"]:
            raise CheckpointError(
                f"checkpoint {path} is damaged: {STATE} has {size} bytes, expected "
                f"{manifest['bytes']}"
            )
        if files.sha256(state) != manifest["sha256"]:
            raise CheckpointError(f"checkpoint {path} is damaged: sha256 of {STATE} differs")
    except OSError as error:
        raise CheckpointError(
            f"checkpoint {path} has no readable {STATE}: {files.error_line(error)}"
        ) from None
    return manifest


def find_damage(path: Path) -> str | None:
    """Describe the first damage to a checkpoint directory; None if it is intact."""
    try:
        check_undamaged(path)
    except CheckpointError as error:
        return str(error)
    return None


def write_checkpoint(
    folder: Path, state: bytes, facts: Mapping[str, Any], *, keep: int | None = None
) -> Path:
    """Write a checkpoint below `folder`; a kill at any point leaves the earlier ones intact.

    Args:
        state: content of the file of the state.
        facts: JSON values for the manifest: round, epoch, and `score`, which decides the best
        checkpoint.
        keep: number of newest checkpoints that stay besides the best one; None: all.

    An undamaged checkpoint of the position is not written again: one position has one state.
    Raises: CheckpointError if a file cannot be written.
    """
    final = folder / checkpoint_name(facts["round"], facts["epoch"])
    manifest = {
        "format": FORMAT,
        **facts,
        "bytes": len(state),
        "sha256": hashlib.sha256(state).hexdigest(),
    }
    manifest["seal"] = manifest_sha256(manifest)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder)
        if not final.exists() or find_damage(final) is not None:
            _write_files(final, state, manifest)
        if keep is not None:
            apply_retention(folder, keep)
    except OSError as error:
        raise CheckpointError(
            f"checkpoint {final} cannot be written: {files.error_line(error)}"
        ) from error
    return final


def _write_files(final: Path, state: bytes, manifest: Manifest) -> None:
    """Write the directory of a checkpoint, durably, in place of a damaged one."""
    work = files.temporary_path(final)
    work.mkdir()
    try:
        files.write_new(work / STATE, state)
        files.write_new(work / MANIFEST, files.json_bytes(manifest))
        if final.exists():
            remove_checkpoint(final)
        work.rename(final)
        files.sync_folder(final.parent)
    except BaseException:
        # a partial checkpoint fills a disk that may be full
        shutil.rmtree(work, ignore_errors=True)
        raise


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
    scores: dict[Path, float] = {}
    for path in list_checkpoints(folder):
        with contextlib.suppress(CheckpointError, OSError):
            manifest = read_manifest(path)
            if (path / STATE).stat().st_size == manifest["bytes"]:
                score = manifest.get("score")
                scores[path] = score if isinstance(score, float) else float("-inf")
    best = max(scores, key=lambda path: scores[path], default=None)
    for path in [*scores][keep:]:
        if path != best:
            remove_checkpoint(path)
