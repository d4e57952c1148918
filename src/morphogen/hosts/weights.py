"""Parameters of hosts from files: `host.weights`."""

import hashlib
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from morphogen.config import files
from morphogen.config.registry import error_line
from morphogen.errors import ConfigError
from morphogen.hosts.layout import ParamLayout
from morphogen.vocab.paths import expand_path
from morphogen.vocab.text import format_value

_SHOWN = 3  # names of entries in a message


def read_weights(names: tuple[str, ...], layout: ParamLayout, spare: frozenset[str]) -> Tensor:
    """Return the parameters in files, float32 [K, P], a row for each file.

    Args:
        names: of files: `.safetensors`, or `.pt` and `.pth`, which are read without running code.
        layout: of the host, whose leaves name the entries.
        spare: entries that a file may hold besides, such as running statistics.

    Raises: ConfigError for a file that cannot be read, or with missing, extra or misshapen entries.
    """
    return torch.stack([_read_row(name, layout, spare) for name in names])


def digest_weights(names: tuple[str, ...]) -> str:
    """Return the sha256 of all files; "" without any."""
    parts = [files.sha256(expand_path(name)) for name in names]
    return hashlib.sha256("".join(parts).encode()).hexdigest() if parts else ""


def _read_row(name: str, layout: ParamLayout, spare: frozenset[str]) -> Tensor:
    found = _read_file(expand_path(name), f"host.weights: {name}")
    wanted = {leaf.name: leaf.shape for leaf in layout.leaves}
    missing = [key for key in wanted if key not in found]
    extra = [key for key in found if key not in wanted and key not in spare]
    other = [
        f"{key} {list(found[key].shape)} in place of {list(shape)}"
        for key, shape in wanted.items()
        if key in found and tuple(found[key].shape) != shape
    ]
    faults = {"missing": missing, "extra": extra, "of another shape": other}
    listed = [f"{kind}: {_list(keys)}" for kind, keys in faults.items() if keys]
    if listed:
        raise ConfigError(
            f"host.weights: {name}: expected the {len(wanted)} parameters of the host, got "
            f"{'; '.join(listed)}"
        )
    row = torch.cat([found[key].detach().float().flatten() for key in wanted])
    if not row.isfinite().all():
        raise ConfigError(f"host.weights: {name}: expected finite numbers")
    return row


def _list(keys: list[str]) -> str:
    shown = ", ".join(keys[:_SHOWN])
    rest = len(keys) - _SHOWN
    return f"{shown} and {rest} more" if rest > 0 else shown


def _read_file(path: Path, fault: str) -> dict[str, Tensor]:
    """Return the tensors of a file by name."""
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        loaded: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # of a damaged file, or of one that holds code
        line = error_line(error)
        raise ConfigError(
            f"{fault}: expected parameters in a .safetensors or .pt file without code, got {line}"
        ) from error
    tensors = isinstance(loaded, dict) and all(isinstance(x, Tensor) for x in loaded.values())
    if not tensors:
        raise ConfigError(
            f"{fault}: expected a dictionary of tensors, as of state_dict(), got "
            f"{format_value(type(loaded).__name__)}"
        )
    return loaded
