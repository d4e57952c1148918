"""Networks in files from which envs start: `host.weights`."""

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
from pydantic import Field, TypeAdapter
from safetensors import safe_open
from torch import Tensor
from typing_extensions import TypedDict

from morphogen.config import files
from morphogen.config.registry import error_line
from morphogen.errors import ConfigError
from morphogen.hosts.layout import ParamLeaf
from morphogen.vocab.blueprint import EMPTY
from morphogen.vocab.paths import expand_path
from morphogen.vocab.stage import Algorithm
from morphogen.vocab.text import format_value

if TYPE_CHECKING:
    from morphogen.hosts.net import Net

_SHOWN = 3  # names of entries in a message
SEEDS = "slots"  # key of the seeds in the metadata of a file
NORMALISATION = "normalisation"  # part of an exported network that data sets have themselves


class StoredSeed(TypedDict):
    """Seed of a slot in the metadata of a file."""

    blueprint: str
    algorithm: Literal["ADD", "MULTIPLY", "GATE"]
    alpha: Annotated[float, Field(ge=0, le=1)]
    entries: list[str]
    """Of its parameters, then of the parameters of its gate, in storage order."""


Seeds = dict[str, StoredSeed]  # by slot
_SEEDS: TypeAdapter[Seeds] = TypeAdapter(Seeds)


def read_weights(net: "Net") -> tuple[Tensor, ...]:
    """Return the networks in the files of `net.weights`, as `Net.start` has them.

    A file is `.safetensors`, or `.pt` and `.pth`, which are read without running code.  The leaves
    of the host name its entries.  A grown network has seeds as well, which its metadata describe.

    Raises: ConfigError for a file that cannot be read, for missing, extra or misshapen entries, and
        for a slot or blueprint that the run does not have.
    """
    rows = zip(*[_read_network(name, net) for name in net.weights], strict=True)
    start = tuple(torch.stack(row) for row in rows)
    return start if (start[1] > EMPTY).any() else start[:1]


def digest_weights(names: tuple[str, ...]) -> str:
    """Return the sha256 of all files; "" without any."""
    parts = [files.sha256(expand_path(name)) for name in names]
    return hashlib.sha256("".join(parts).encode()).hexdigest() if parts else ""


def _read_network(file: str, net: "Net") -> tuple[Tensor, ...]:
    """Return the rows of a file."""
    fault = f"host.weights: {file}"
    found, seeds = _read_file(expand_path(file), fault)
    faults = defaultdict[str, list[str]](list)
    leaves = net.host_layout.leaves
    host = _take([leaf.name for leaf in leaves], leaves, found, faults)
    codes = {module.name: code for code, module in net.modules.items()}
    forms: list[tuple[float, ...]] = []
    params: list[Tensor] = []
    for s, slot in enumerate(net.names):
        seed = seeds.pop(slot, None)
        form = (EMPTY, 0, 0.0)
        row = host[:0]
        body = 0
        if seed is not None:
            if seed["blueprint"] not in codes:
                faults[f"at {slot} {seed['blueprint']!a} in place of"] += codes
                continue
            code = codes[seed["blueprint"]]
            form = (code, Algorithm[seed["algorithm"]], seed["alpha"])
            layout, gate = net.layouts(s, (code,))
            leaves = layout.leaves + (gate.leaves if form[1] == Algorithm.GATE else ())
            row = _take(seed["entries"], leaves, found, faults)
            body = layout.size
            found.pop(f"{SEEDS}.{slot}.alpha", None)
        forms.append(form)
        gap = row.new_zeros(net.seed_sizes[s] - len(row))
        params.append(torch.cat((row[:body], gap, row[body:])))
    spare = net.host.spare_weights()
    extra = [key for key in found if key not in spare and key.partition(".")[0] != NORMALISATION]
    faults["extra"] += [*seeds, *extra]
    if listed := [f"{kind}: {_list(names)}" for kind, names in faults.items() if names]:
        raise ConfigError(
            f"{fault}: expected the parameters of the host and of its seeds, got "
            f"{'; '.join(listed)}"
        )
    rows = (host, torch.tensor(forms, device="cpu"), *params)
    if not all(row.isfinite().all() for row in rows):
        raise ConfigError(f"{fault}: expected finite numbers")
    return rows


def _take(
    names: list[str],
    leaves: Sequence[ParamLeaf],
    found: dict[str, Tensor],
    faults: dict[str, list[str]],
) -> Tensor:
    """Take entries out of a file, joined in one row; note missing and misshapen ones."""
    faults["missing"] += [leaf.name for leaf in leaves[len(names) :]]
    parts = [torch.zeros(0, device="cpu")]
    for name, leaf in zip(names, leaves, strict=False):
        value = found.pop(name, None)
        if value is None:
            faults["missing"].append(name)
        elif value.shape != leaf.shape:
            shapes = f"{list(value.shape)} in place of {list(leaf.shape)}"
            faults["of another shape"].append(f"{name} {shapes}")
        else:
            parts.append(value.detach().float().flatten())
    return torch.cat(parts)


def _list(names: list[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    rest = len(names) - _SHOWN
    return f"{shown} and {rest} more" if rest > 0 else shown


def _read_file(path: Path, fault: str) -> tuple[dict[str, Tensor], Seeds]:
    """Return the tensors of a file by name, and its seeds."""
    try:
        if path.suffix == ".safetensors":
            with safe_open(path, framework="pt") as file:
                seeds = (file.metadata() or {}).get(SEEDS, "{}")
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                return tensors, _SEEDS.validate_json(seeds)
        loaded: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # of a damaged file, or of one that holds code
        line = error_line(error)
        raise ConfigError(
            f"{fault}: expected parameters in a .safetensors or .pt file without code, got {line}"
        ) from error
    if not (isinstance(loaded, dict) and all(isinstance(x, Tensor) for x in loaded.values())):
        raise ConfigError(
            f"{fault}: expected a dictionary of tensors, as of state_dict(), got "
            f"{format_value(type(loaded).__name__)}"
        )
    return dict(loaded), {}
