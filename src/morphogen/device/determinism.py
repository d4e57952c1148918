"""Settings of torch with which a GPU repeats its results bit by bit; a CPU does so by itself."""

import os
from typing import Any

import torch

CUBLAS_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"  # read when CUDA starts
# eight buffers of 4 MiB: the size for which cuBLAS repeats its results
_FIXED_WORKSPACE = ":4096:8"


def set_determinism(device: torch.device, *, deterministic: bool, tf32: bool) -> None:
    """Choose the operators of a CUDA device for this process; the last call counts.  No effect for
    a CPU.

    Args:
        deterministic: allow no operator whose result varies from run to run; torch raises
        RuntimeError for one.
        tf32: let matrix products and convolutions round their factors to 10 bits.

    Promise: reads and seeds no generator, and does not start CUDA.
    """
    if device.type != "cuda":
        return
    if deterministic:
        os.environ.setdefault(CUBLAS_WORKSPACE, _FIXED_WORKSPACE)
    torch.use_deterministic_algorithms(deterministic)
    filling: Any = torch.utils.deterministic
    filling.fill_uninitialized_memory = False  # every element is written before it is read
    torch.backends.cudnn.deterministic = deterministic
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
