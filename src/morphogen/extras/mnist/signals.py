"""Signals of MNIST-1D, made by the generator of the package mnist1d."""

import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from morphogen.data.data_files import FileData, FileSource, find_package
from morphogen.data.splits import Samples, Splits
from morphogen.errors import DataError

PROGRAM = "morphogen.extras.mnist.signal_program"
COMMAND = 'pip install "morphogen[data]"'
LENGTH = 40  # numbers of a signal


def read_mnist1d(folder: Path) -> Splits:
    """Return the 4,000 training and 1,000 test signals of the published set, and 1,000 of another
    seed for validation; the folder of data files has no effect.

    Shapes: inputs float32 [N, 1, 40], labels int64 [N].
    Raises: DataError if the package is missing, or its generator fails.
    """
    del folder
    if find_package("mnist1d") is None:
        raise DataError(f"the package mnist1d is missing; run `{COMMAND}`")
    with np.load(io.BytesIO(run_generator()), allow_pickle=False) as arrays:
        parts = [
            Samples(
                torch.from_numpy(arrays[f"x{part}"]).to(torch.float32).view(-1, 1, LENGTH),
                torch.from_numpy(arrays[f"y{part}"]).to(torch.int64),
            )
            for part in ("", "_validation", "_test")
        ]
    return Splits(*parts)


def run_generator() -> bytes:
    """Return the output of the program that makes the signals.  Raises: DataError if it fails."""
    path = os.pathsep.join(filter(None, sys.path))  # packages are where this process finds them
    done = subprocess.run(
        [sys.executable, "-m", PROGRAM],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise DataError(f"the generator of mnist1d failed: {reason}; try `{COMMAND}`")
    return done.stdout


MNIST1D = FileData("mnist1d", read_mnist1d, FileSource("signals made by the package mnist1d"))
