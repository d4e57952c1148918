"""Files of networks: their forms, and the names and metadata of kept ones.  No torch."""

from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from morphogen.config import files
from morphogen.config.registry import error_line
from morphogen.errors import ConfigError, DataError
from morphogen.log.run_directory import NETWORKS
from morphogen.vocab.paths import NETWORK_ENTRY

Row = dict[str, Any]
SAFETENSORS = "safetensors"
TORCH = "torch"
ONNX = "onnx"
SUFFIXES = {".safetensors": SAFETENSORS, ".pt2": TORCH, ".onnx": ONNX}  # of the forms
BEST = "best"
MEDIAN = "median"
TRAINED = "trained"  # arm of the policy of the run
SHOWN = ("arm", "pick", "env", "parameters", "score", "value")  # columns of the table


def form_of(option: str, path: Path) -> str:
    """Return the form that the name of a file says.  Raises: ConfigError for another name."""
    if path.suffix not in SUFFIXES:
        ends = ", ".join(SUFFIXES)
        raise ConfigError(f"{option}: expected a name that ends in {ends}, got {path}")
    return SUFFIXES[path.suffix]


def file_name(arm: str, pick: str) -> str:
    """Return the name of the file of a network; characters of paths in the name of an arm become
    underscores.
    """
    plain = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in arm)
    return f"{plain}-{pick}.safetensors"


def read_facts(path: Path) -> Row:
    """Return the facts in the metadata of a kept network; empty for another file.

    Raises: DataError for a damaged file.
    """
    try:
        with files.open_regular(path), safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
        return files.parse_json(metadata[NETWORK_ENTRY]) if NETWORK_ENTRY in metadata else {}
    except (OSError, ValueError, SafetensorError) as error:
        raise DataError(f"{path}: expected a network of a run, got {error_line(error)}") from None


def list_networks(run: Path) -> list[Row]:
    """Return the facts about every network that a run keeps, with its `file`.

    Raises: DataError for a damaged file.
    """
    found = sorted((run / NETWORKS).glob("*.safetensors"))
    rows = [{**read_facts(path), "file": f"{NETWORKS}/{path.name}"} for path in found]
    return [row for row in rows if "arm" in row]


def table_rows(run: Path) -> list[Row]:
    """Return the table of the kept networks for people."""
    names = (*SHOWN, "file")
    return [{name: row.get(name) for name in names} for row in list_networks(run)]
