"""Checkpoints: nested dicts of tensors and plain values, complete or absent, verified when loaded.

A checkpoint is written under a temporary name, its manifest last, and then renamed.
"""

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from morphogen.config import files
from morphogen.config.files import error_line
from morphogen.errors import CheckpointError
from morphogen.state.tensor_trees import Tree, encode_tree, load_tree, to_nested_dict
from morphogen.train import checkpoint_store
from morphogen.train.checkpoint_store import ENVS, FORMAT, MANIFEST, SHARED
from morphogen.vocab.paths import expand_path


class Checkpoint(TypedDict):
    """Content of a checkpoint."""

    manifest: checkpoint_store.Manifest
    envs: Tree  # state of the envs
    shared: Tree  # state of learner, telemetry and run


def save_checkpoint(
    folder: Path,
    *,
    round: int,
    epoch: int,
    envs: Any,
    shared: Any,
    facts: Mapping[str, Any],
    keep: int | None = None,
) -> Path:
    """Write the state at a position below `folder`; a kill at any point leaves the earlier
    checkpoints intact.

    Args:
        envs: state of all envs.
        shared: state of learner, telemetry and run.
        facts: JSON values for the manifest, among them `score`, which decides the best checkpoint.
        keep: number of newest checkpoints that stay besides the best one; None: all.

    An undamaged checkpoint of the position is not written again: one position has one state.
    Raises: CheckpointError if a file cannot be written.
    """
    final = folder / checkpoint_store.checkpoint_name(round, epoch)
    head = {"format": FORMAT, "round": round, "epoch": epoch, "world": 1, **facts}
    try:
        work = _begin(final)
        if work is not None:
            _write_checkpoint(
                work, final, {ENVS: to_nested_dict(envs), SHARED: to_nested_dict(shared)}, head
            )
        if keep is not None:
            checkpoint_store.apply_retention(folder, keep)
    except OSError as error:
        raise CheckpointError(
            f"checkpoint {final} cannot be written: {error_line(error)}"
        ) from error
    return final


def _begin(final: Path) -> Path | None:
    """Create the directory that becomes a checkpoint and return it; None if the checkpoint is
    there, intact.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    checkpoint_store.remove_leftovers(final.parent)
    if final.exists() and checkpoint_store.find_damage(final) is None:
        return None
    work = files.temporary_path(final)
    work.mkdir()
    return work


def _write_checkpoint(work: Path, final: Path, trees: Mapping[str, Tree], head: Tree) -> None:
    """Write the trees, by the names of their files, and the manifest into `work`, which then
    becomes `final`.
    """
    try:
        manifest = {
            **head,
            "files": {name: _write_tree(work / name, tree) for name, tree in trees.items()},
        }
        manifest["seal"] = checkpoint_store.manifest_sha256(manifest)
        files.write_new(work / MANIFEST, files.json_bytes(manifest))
        if final.exists():
            checkpoint_store.remove_checkpoint(final)
        work.rename(final)
        files.sync_folder(final.parent)
    except BaseException:
        # a partial checkpoint fills a disk that may be full
        shutil.rmtree(work, ignore_errors=True)
        raise


def _write_tree(path: Path, tree: Tree) -> Tree:
    """Write a file, durably; return its entry in the manifest."""
    data = encode_tree(tree)
    files.write_new(path, data)
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def load_checkpoint(path: Path | str) -> Checkpoint:
    """Return `{"manifest", "envs", "shared"}` of a checkpoint directory, after comparing sizes and
    hashes.

    Returns: the manifest (round, epoch, config and more, as JSON values), and the trees of the
    states: nested dicts of tensors on the CPU and of plain values.
    Raises: CheckpointError if the checkpoint is damaged or cannot be read.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> import torch
        >>> import morphogen as mg
        >>> save = mg.train.checkpoint_files.save_checkpoint
        >>> with TemporaryDirectory() as folder:
        ...     path = save(
        ...         Path(folder),
        ...         round=3,
        ...         epoch=0,
        ...         envs={"x": torch.ones(2)},
        ...         shared={},
        ...         facts={"score": None},
        ...     )
        ...     checkpoint = mg.load_checkpoint(path)
        >>> path.name, checkpoint["manifest"]["round"], checkpoint["envs"]["x"].tolist()
        ('round-000003-epoch-0000', 3, [1.0, 1.0])
    """
    path = expand_path(path)
    checkpoint_store.check_undamaged(path)
    return read_checkpoint(path)


def read_checkpoint(path: Path) -> Checkpoint:
    """Return an undamaged checkpoint like `load_checkpoint`.  Raises: CheckpointError if a file
    cannot be read.
    """
    manifest = checkpoint_store.read_manifest(path)
    envs, shared = (load_tree(path / name, label="checkpoint file") for name in (ENVS, SHARED))
    return {"manifest": manifest, "envs": envs, "shared": shared}
