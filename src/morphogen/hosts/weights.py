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
from morphogen.vocab.paths import NETWORK_ENTRY, expand_path
from morphogen.vocab.stage import Algorithm
from morphogen.vocab.text import format_value, list_names

if TYPE_CHECKING:
    from morphogen.hosts.net import Net

NORMALISATION = "normalisation"  # part of an exported network that data sets have themselves


class StoredSeed(TypedDict):
    """Seed of a slot in the metadata of a file."""

    blueprint: str
    algorithm: Literal["ADD", "MULTIPLY", "GATE"]
    alpha: Annotated[float, Field(ge=0, le=1)]
    entries: list[str]
    """Of its parameters, then of the parameters of its gate, in storage order."""


class StoredNetwork(TypedDict):
    """The metadata of a grown network that a run starts from; a file may hold more."""

    slots: dict[str, StoredSeed]


_NETWORK = TypeAdapter(StoredNetwork)


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
    forms = [(EMPTY, 0, 0.0) for _ in net.names]
    params = [torch.zeros(size, device="cpu") for size in net.seed_sizes]
    codes = {module.name: code for code, module in net.modules.items()}
    for slot, seed in seeds.items():
        kind = seed["blueprint"]
        if slot not in net.names or kind not in codes:
            raise ConfigError(
                f"{fault}: expected seeds of {', '.join(codes)} in {', '.join(net.names)}, got "
                f"{kind!a} in {slot!a}"
            )
        s = net.names.index(slot)
        forms[s] = (codes[kind], Algorithm[seed["algorithm"]], seed["alpha"])
        layout, gate = net.layouts(s, (codes[kind],))
        leaves = layout.leaves + (gate.leaves if forms[s][1] == Algorithm.GATE else ())
        row = _take(seed["entries"], leaves, found, faults)
        body = row[: layout.size]
        params[s] = torch.cat((body, params[s][len(row) :], row[layout.size :]))
        found.pop(f"slots.{slot}.alpha", None)
    spare = net.host.spare_weights()
    extra = [key for key in found if key not in spare and not key.startswith(NORMALISATION)]
    faults["extra"] += extra
    if listed := [f"{kind}: {list_names(names)}" for kind, names in faults.items() if names]:
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


def _read_file(path: Path, fault: str) -> tuple[dict[str, Tensor], dict[str, StoredSeed]]:
    """Return the tensors of a file by name, and its seeds by slot."""
    try:
        if path.suffix == ".safetensors":
            with safe_open(path, framework="pt") as file:
                network = (file.metadata() or {}).get(NETWORK_ENTRY, '{"slots": {}}')
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                return tensors, _NETWORK.validate_json(network)["slots"]
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
