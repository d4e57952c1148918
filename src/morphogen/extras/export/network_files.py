"""Files of exported networks: parameters, a program of torch, or ONNX."""

import io
import json
import logging
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from morphogen.config import files
from morphogen.config.registry import error_line
from morphogen.errors import ConfigError
from morphogen.extras.export.grown_slot import GrownSlot
from morphogen.extras.export.kept_files import ONNX, SAFETENSORS, TORCH, form_of
from morphogen.vocab.paths import NETWORK_ENTRY

NOTHING: Mapping[str, Any] = {}


def save_network(
    module: nn.Module,
    example: Tensor,
    path: Path | str,
    form: str = "",
    facts: Mapping[str, Any] = NOTHING,
) -> list[str]:
    """Write a network to a file; return three lines of Python that load it, without morphogen.

    Args:
        module: of `export`.
        example: samples as they are stored, [B, *shape]; any B fits the file.
        path: its end says the form: `.safetensors`, `.pt2` or `.onnx`.
        form: `safetensors` (parameters by name, which `host.weights` takes), `torch` (a program)
            or `onnx`; "": as the path says.
        facts: further metadata of a safetensors file, in the form of JSON.

    Raises: ConfigError for another name, for a form whose packages are not installed, and for a
        path that cannot be written.

    Example:
        >>> import tempfile
        >>> import torch
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0)
        >>> state, _ = env.reset()
        >>> module, images = mg.export(env, state, 0), torch.zeros(2, 1, 8, 8)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     lines = mg.save_network(module, images, f"{folder}/net.safetensors")
        >>> lines[0]
        'from safetensors.torch import load_file'
    """
    path = Path(path)
    form = form or form_of("out", path)
    check_packages("out", form)
    module.eval()
    data = pack_network(module, facts) if form == SAFETENSORS else _BUILDS[form](module, example)
    try:
        files.write_atomic(path, data)
    except OSError as error:
        raise ConfigError(f"out: {path} cannot be written: {error_line(error)}") from None
    shape = (1, *example.shape[1:])
    name = str(example.dtype).removeprefix("torch.")
    return [
        line.format(path=json.dumps(str(path)), shape=shape, dtype=name) for line in _LINES[form]
    ]


def check_packages(option: str, form: str) -> None:
    """Raise ConfigError if the packages of a form are not installed."""
    if form == ONNX:
        try:
            import_module("onnxscript")
        except ImportError as error:
            raise ConfigError(
                f"{option}: expected onnxscript for a file of ONNX, got {error_line(error)}: "
                'pip install "morphogen[onnx]"'
            ) from None


def pack_network(module: nn.Module, facts: Mapping[str, Any] = NOTHING) -> bytes:
    """Return the bytes of a safetensors file: a `state_dict`, with seeds and facts as metadata."""
    slots: Any = getattr(module, "slots", {})
    seeds = {name: _describe(name, slot) for name, slot in slots.items()}
    # layers that share a tensor get a copy each
    leaves = {name: leaf.clone().contiguous() for name, leaf in module.state_dict().items()}
    # one entry, because safetensors orders them at random
    return save(leaves, {NETWORK_ENTRY: json.dumps({**facts, "slots": seeds})})


def _describe(name: str, slot: GrownSlot) -> dict[str, Any]:
    entries = [f"slots.{name}.{path}" for path, _ in slot.named_parameters()]
    form = {"blueprint": slot.blueprint, "algorithm": slot.way.upper()}
    return {**form, "alpha": float(slot.alpha), "entries": entries}


def _program(module: nn.Module, example: Tensor) -> bytes:
    batch = torch.export.Dim("batch")
    program = torch.export.export(module, (example,), dynamic_shapes=({0: batch},))
    written = io.BytesIO()
    torch.export.save(program, written)
    return written.getvalue()


def _onnx(module: nn.Module, example: Tensor) -> bytes:
    batch = torch.export.Dim("batch")
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)  # of packages that are not needed
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exporter: Any = torch.onnx
            program = exporter.export(
                module, (example,), dynamo=True, verbose=False, dynamic_shapes=({0: batch},)
            )
    finally:
        logger.setLevel(level)
    return program.model_proto.SerializeToString()


_BUILDS: dict[str, Callable[[nn.Module, Tensor], bytes]] = {TORCH: _program, ONNX: _onnx}
_LINES = {
    SAFETENSORS: (
        "from safetensors.torch import load_file",
        "parameters = load_file({path})",
        "print(dict((name, tuple(leaf.shape)) for name, leaf in parameters.items()))",
    ),
    TORCH: (
        "import torch",
        "net = torch.export.load({path}).module()",
        "outputs = net(torch.zeros({shape}, dtype=torch.{dtype}))",
    ),
    ONNX: (
        "import numpy, onnxruntime",
        "net = onnxruntime.InferenceSession({path})",
        'outputs = net.run(None, {{net.get_inputs()[0].name: numpy.zeros({shape}, "{dtype}")}})',
    ),
}
