"""Checkpoints and policy files: nested dicts of tensors and plain values, complete or absent, verified on reading."""

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from tensordict import is_tensor_collection
from torch import Tensor

from morphogen.errors import CheckpointError
from morphogen.run import files
from morphogen.run.reading import parsed, whole
from morphogen.run.torchfile import load
from morphogen.state.env import EnvState

FORMAT = 1
ENVS, SHARED, MANIFEST = "envs.rank0.pt", "shared.pt", "manifest.json"
TEMPORARY, TRASH = ".tmp-", ".trash-"
Tree = dict[str, Any]


def name(round: int, epoch: int) -> str:
    """The directory of a position: the next epoch to run."""
    return f"round-{round:06d}-epoch-{epoch:04d}"


def plain(tree: Any) -> Any:
    """Tensor collections and mappings as nested dicts; tensors on the CPU, each with a storage of its own."""
    if is_tensor_collection(tree):
        tree = {key: tree.get(key) for key in tree.keys()}  # noqa: SIM118  (iterating one walks its rows)
    if isinstance(tree, Mapping):
        return {str(key): plain(value) for key, value in tree.items()}
    return tree.detach().cpu().clone() if isinstance(tree, Tensor) else tree


def save_checkpoint(folder: Path, *, round: int, epoch: int, envs: Any, shared: Any, facts: Mapping[str, Any]) -> Path:
    """Write the state at a position below `folder`; a kill at any point leaves what was there before.

    `facts` (config hash, data fingerprint, versions) go into the manifest, which is written last.  A checkpoint that
    is there already and whole is left alone: the same position is the same state.
    """
    final = folder / name(round, epoch)
    position = {"format": FORMAT, "round": round, "epoch": epoch, **facts}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _clear(folder)
        if final.exists() and _fault(final) is None:
            return final
        _write(final, {ENVS: plain(envs), SHARED: plain(shared)}, position)
    except (OSError, RuntimeError) as error:  # torch.save tells of a full disk by a RuntimeError
        raise CheckpointError(f"checkpoint {final} cannot be written: {error}") from error
    return final


def _write(final: Path, parts: Mapping[str, Tree], position: Tree) -> None:
    work = final.with_name(f"{TEMPORARY}{final.name}-{os.getpid()}")
    work.mkdir()
    for file, tree in parts.items():
        torch.save(tree, work / file)
        files.sync(work / file)
    sizes = {file: {"bytes": (work / file).stat().st_size, "sha256": files.sha256(work / file)} for file in parts}
    files.replace(work / MANIFEST, files.json_bytes({**position, "files": sizes}))
    if final.exists():
        final.rename(final.with_name(f"{TRASH}{final.name}-{os.getpid()}"))
    work.rename(final)
    files.sync(final.parent)
    _clear(final.parent)


def _clear(folder: Path) -> None:
    for left in (*folder.glob(f"{TEMPORARY}*"), *folder.glob(f"{TRASH}*")):
        shutil.rmtree(left, ignore_errors=True)


def load_checkpoint(path: Path) -> Tree:
    """`{"manifest", "envs", "shared"}` of a checkpoint directory, after sizes and hashes were compared."""
    fault = _fault(path)
    if fault is not None:
        raise CheckpointError(f"checkpoint {path} {fault}")
    manifest = parsed(whole(path / MANIFEST))
    envs, shared = (load(path / file, what="checkpoint file") for file in (ENVS, SHARED))
    return {"manifest": manifest, "envs": envs, "shared": shared}


def _fault(path: Path) -> str | None:
    """What is wrong with a checkpoint directory; None if it is whole."""
    try:
        manifest = parsed(whole(path / MANIFEST))
        listed = {file: (facts["bytes"], facts["sha256"]) for file, facts in manifest["files"].items()}
    except OSError as error:
        return f"has no readable {MANIFEST}: {error.strerror}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"has a damaged {MANIFEST}"
    if manifest.get("format") != FORMAT:
        return f"has format {manifest.get('format')!r}; want {FORMAT}"
    if set(listed) != {ENVS, SHARED}:
        return f"lists the files {', '.join(sorted(listed)) or 'none'}; want {ENVS}, {SHARED}"
    return next((fault for file, facts in listed.items() if (fault := _file_fault(path / file, *facts))), None)


def _file_fault(path: Path, size: int, digest: str) -> str | None:
    if not path.is_file():
        return f"lacks {path.name}"
    found = path.stat().st_size
    if found != size:
        return f"is damaged: {path.name} has {found} bytes; want {size}"
    return None if files.sha256(path) == digest else f"is damaged: {path.name} has another sha256 than the manifest"


def restore(found: Tree, like: EnvState) -> EnvState:
    """The `envs` of a checkpoint as a state like `like`, on its device.

    A leaf that is missing, extra or of another shape or dtype is a CheckpointError that names it.
    """
    check_tree(found, plain(like), "envs")
    leaves = dict(_leaves(found))
    restored = like.named_apply(lambda key, leaf: leaves[".".join(_path(key))].to(leaf.device), nested_keys=True)
    return cast(EnvState, restored)


def _path(key: str | tuple[str, ...]) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else key


def _leaves(tree: Tree, above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def check_tree(found: Tree, want: Tree, where: str) -> None:
    """Two trees have the same leaves, tensors of the same shape and dtype; else a CheckpointError that names one."""
    have, need = dict(_leaves(found)), dict(_leaves(want))
    for leaf in [*need, *have]:
        path = f"{where}.{leaf}"
        if leaf not in have:
            raise CheckpointError(f"{path} is missing")
        if leaf not in need:
            raise CheckpointError(f"{path} is not known here")
        if _kind(have[leaf]) != _kind(need[leaf]):
            raise CheckpointError(f"{path} is {_kind(have[leaf])}; want {_kind(need[leaf])}")


def _kind(value: Any) -> str:
    if not isinstance(value, Tensor):
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"


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
    tree = load(path / "policy.pt" if path.is_dir() else path, what="policy file")
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
