"""Files of exported networks: parameters, a program of torch, or ONNX."""

import io
import logging
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from morphogen.config import files
from morphogen.config.registry import error_line
from morphogen.errors import ConfigError


def save_network(module: nn.Module, example: Tensor, path: Path) -> str:
    """Write a network to a file, in the form that its name says; return a line that loads it.

    Args:
        module: of `export`.
        example: samples as they are stored, [B, *shape]; any B fits the file.
        path: ends in `.safetensors` (parameters by name), `.pt2` (a program of torch) or `.onnx`.

    Raises: ConfigError for another name, and for a form whose packages are not installed.
    """
    check_name("out", path)
    build, line = _FORMS[path.suffix]
    files.write_atomic(path, build(module.eval(), example))
    return line.format(path=path)


def check_name(option: str, path: Path) -> None:
    """Raise ConfigError unless the name of a file says its form."""
    if path.suffix not in _FORMS:
        raise ConfigError(f"{option}: expected a name that ends in {', '.join(_FORMS)}, got {path}")
    if path.suffix == ".onnx":
        try:
            import_module("onnxscript")
        except ImportError as error:
            raise ConfigError(
                f"{option}: expected onnxscript for a file {path}, got {error_line(error)}: "
                'pip install "morphogen[onnx]"'
            ) from None


def _parameters(module: nn.Module, example: Tensor) -> bytes:
    del example
    # layers that share a tensor get a copy each
    return save({name: leaf.clone().contiguous() for name, leaf in module.state_dict().items()})


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
            program: Any = torch.onnx.export(
                module, (example,), dynamo=True, verbose=False, dynamic_shapes=({0: batch},)
            )
    finally:
        logger.setLevel(level)
    return program.model_proto.SerializeToString()


_FORMS: dict[str, tuple[Callable[[nn.Module, Tensor], bytes], str]] = {
    ".safetensors": (_parameters, 'safetensors.torch.load_file("{path}")'),
    ".pt2": (_program, 'torch.export.load("{path}").module()'),
    ".onnx": (_onnx, 'onnxruntime.InferenceSession("{path}")'),
}
