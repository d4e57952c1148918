"""Checkpoints: directories of nested dicts of tensors and plain values, complete or absent, verified on reading.

A directory is named by its position and written beside its place; its manifest comes last, names size and sha256 of
every file, and is sealed by a sha256 of its own.  Only then it gets its name.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from morphogen.errors import CheckpointError
from morphogen.run import files, reading, torchfile
from morphogen.run.trees import Tree, check_tree, plain
from morphogen.vocab.fields import show

FORMAT = 2
ENVS, SHARED, MANIFEST = "envs.rank0.pt", "shared.pt", "manifest.json"
TEMPORARY, TRASH = ".tmp-", ".trash-"
_NAME = re.compile("round-([0-9]{6,9})-epoch-([0-9]{4,6})")


def name(round: int, epoch: int) -> str:
    """The directory of a position: the next epoch to run."""
    return f"round-{round:06d}-epoch-{epoch:04d}"


def position(path: Path) -> tuple[int, int] | None:
    """The position that a directory is named by; None for other names."""
    found = _NAME.fullmatch(path.name)
    return None if found is None else (int(found[1]), int(found[2]))


def candidates(folder: Path) -> list[Path]:
    """The directories named like checkpoints, newest position first."""
    named = {path: position(path) for path in folder.iterdir()} if folder.is_dir() else {}
    return sorted((path for path, at in named.items() if at is not None), key=lambda path: named[path], reverse=True)


def save_checkpoint(
    folder: Path, *, round: int, epoch: int, envs: Any, shared: Any, facts: Mapping[str, Any], keep: int | None = None
) -> Path:
    """Write the state at a position below `folder`; a kill at any point leaves what was there before.

    `facts` go into the manifest: JSON values, among them `score`, by which the best one is told.  Of the others the
    newest `keep` stay (None = all).  A checkpoint that is there already and whole is left alone: the same position is
    the same state.
    """
    final = folder / name(round, epoch)
    head = {"format": FORMAT, "round": round, "epoch": epoch, **facts}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _clear(folder)
        if not final.exists() or fault(final) is not None:
            _write(final, {ENVS: plain(envs), SHARED: plain(shared)}, head)
        if keep is not None:
            _thin(folder, keep)
    except (OSError, RuntimeError) as error:  # torch.save tells of a full disk by a RuntimeError
        raise CheckpointError(f"checkpoint {final} cannot be written: {error}") from error
    return final


def _write(final: Path, parts: Mapping[str, Tree], head: Tree) -> None:
    work = final.with_name(f"{TEMPORARY}{final.name}-{os.getpid()}")
    try:
        work.mkdir()
        for file, tree in parts.items():
            torch.save(tree, work / file)
            files.sync(work / file)
        listed = {file: {"bytes": (work / file).stat().st_size, "sha256": files.sha256(work / file)} for file in parts}
        manifest = {**head, "files": listed}
        files.replace(work / MANIFEST, files.json_bytes({**manifest, "seal": seal(manifest)}))
        if final.exists():
            remove(final)
        work.rename(final)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)  # what is half written takes room that is wanted
        raise
    files.sync(final.parent)


def remove(path: Path) -> None:
    """Take a checkpoint away; its name is free at once, and nobody finds a part of it."""
    trash = path.with_name(f"{TRASH}{path.name}-{os.getpid()}")
    path.rename(trash)
    shutil.rmtree(trash, ignore_errors=True)


def _clear(folder: Path) -> None:
    """What a process that died has left."""
    for left in (*folder.glob(f"{TEMPORARY}*"), *folder.glob(f"{TRASH}*")):
        shutil.rmtree(left, ignore_errors=True)


def _thin(folder: Path, keep: int) -> None:
    """Remove all but the newest and the best one of those that are whole."""
    found = [(path, manifest) for path in candidates(folder) if (manifest := _listed(path)) is not None]
    scores = [(manifest.get("score"), path) for path, manifest in found]
    best = max([(score, at) for score, at in scores if isinstance(score, float)], default=None)
    for path, _ in found[keep:]:
        if best is None or path != best[1]:
            remove(path)


def _listed(path: Path) -> Tree | None:
    """The manifest of a checkpoint whose files have their sizes; None for others."""
    try:
        manifest = read_manifest(path)
    except CheckpointError:
        return None
    sizes = {file: facts["bytes"] for file, facts in manifest["files"].items()}
    return manifest if all(_size(path / file) == size for file, size in sizes.items()) else None


def load_checkpoint(path: Path) -> Tree:
    """`{"manifest", "envs", "shared"}` of a checkpoint directory, after sizes and hashes were compared."""
    wrong = fault(path)
    if wrong is not None:
        raise CheckpointError(f"checkpoint {path} {wrong}")
    envs, shared = (torchfile.load(path / file, what="checkpoint file") for file in (ENVS, SHARED))
    return {"manifest": read_manifest(path), "envs": envs, "shared": shared}


def fault(path: Path) -> str | None:
    """What is wrong with the files of a checkpoint directory; None if they are whole."""
    try:
        listed = read_manifest(path)["files"]
    except CheckpointError as error:
        return str(error)
    faults = (_file_fault(path / file, facts["bytes"], facts["sha256"]) for file, facts in listed.items())
    return next((found for found in faults if found is not None), None)


def read_manifest(path: Path) -> Tree:
    """The manifest of a checkpoint directory; a CheckpointError that says what is wrong with it."""
    try:
        manifest = reading.parsed(reading.whole(path / MANIFEST))
    except OSError as error:
        raise CheckpointError(f"has no readable {MANIFEST}: {reading.reason(error)}") from None
    except ValueError as error:
        raise CheckpointError(f"has a damaged {MANIFEST}: {reading.reason(error)}") from None
    if manifest.get("format") != FORMAT:
        raise CheckpointError(f"has format {show(manifest.get('format'))}; want {FORMAT}")
    if manifest.pop("seal", None) != seal(manifest):
        raise CheckpointError(f"has a damaged {MANIFEST}: it is not what was sealed")
    check_tree(manifest, {**manifest, **_LIKE}, MANIFEST)
    return manifest


_FILE = {"bytes": 0, "sha256": ""}
_LIKE: Tree = {"format": FORMAT, "round": 0, "epoch": 0, "files": {ENVS: _FILE, SHARED: _FILE}}


def seal(manifest: Tree) -> str:
    """The sha256 that a manifest without it gets."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _file_fault(path: Path, size: int, digest: str) -> str | None:
    found = _size(path)
    if found is None:
        return f"lacks {path.name}"
    if found != size:
        return f"is damaged: {path.name} has {found} bytes; want {size}"
    return None if files.sha256(path) == digest else f"is damaged: {path.name} has another sha256 than the manifest"


def _size(path: Path) -> int | None:
    """Bytes of a file; None where there is none."""
    return path.stat().st_size if path.is_file() else None


def save_policy(path: Path, *, params: Any, normalisers: Any, config: str, facts: Mapping[str, Any]) -> None:
    """Write a policy file: parameters, normalisers, the config as JSON text, facts as plain values."""
    tree = {"format": FORMAT, "params": plain(params), "normalisers": plain(normalisers), "config": config}
    beside = path.with_name(f"{TEMPORARY}{path.name}-{os.getpid()}")
    try:
        torch.save({**tree, "facts": dict(facts)}, beside)
        files.sync(beside)
        beside.rename(path)
        files.sync(path.parent)
    except (OSError, RuntimeError) as error:
        raise CheckpointError(f"policy file {path} cannot be written: {error}") from error
    finally:
        beside.unlink(missing_ok=True)


def load_policy(path: Path, *, params: Any = None, normalisers: Any = None) -> Tree:
    """`{"format", "params", "normalisers", "config", "facts"}`; given templates are compared leaf by leaf."""
    tree = torchfile.load(path / "policy.pt" if path.is_dir() else path, what="policy file")
    wanted = {"format": int, "params": dict, "normalisers": dict, "config": str, "facts": dict}
    if not isinstance(tree, dict) or set(tree) != set(wanted):
        raise CheckpointError(f"{path} is no policy file; want one with {', '.join(wanted)}")
    if tree["format"] != FORMAT:
        raise CheckpointError(f"{path} has format {tree['format']!r}; want {FORMAT}")
    for key, kind in wanted.items():
        if not isinstance(tree[key], kind):
            raise CheckpointError(f"{path}: {key} is a {type(tree[key]).__name__}; want a {kind.__name__}")
    for key, template in (("params", params), ("normalisers", normalisers)):
        if template is not None:
            check_tree(tree[key], plain(template), key)
    return tree
