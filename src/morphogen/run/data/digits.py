"""The packaged digits: 1,797 images of 8x8, values 0..16 (UCI optical recognition of handwritten digits, CC BY 4.0)."""

import hashlib
from pathlib import Path

import numpy as np
import torch

from morphogen.errors import DataError
from morphogen.run.data.splits import Samples, Splits, held_out

FILE = Path(__file__).with_name("digits.npz")
SHA256 = "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"  # of the bytes of images, then labels
VALIDATION, TEST = 300, 300


def read_digits(path: Path = FILE) -> Splits:
    """Training, validation and test: 1,197, 300 and 300 images."""
    samples = _read(path)
    rest, test = held_out(samples, TEST)
    train, validation = held_out(rest, VALIDATION)
    return Splits(train, validation, test)


def _read(path: Path) -> Samples:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            images, labels = arrays["images"], arrays["labels"]
    except Exception as error:  # a damaged archive raises whatever its damage leads to
        raise DataError(f"{path} cannot be read: {error}; reinstall the package") from error
    found = hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest()
    if found != SHA256:
        raise DataError(f"{path} has sha256 {found}; want {SHA256}; reinstall the package")
    return Samples(torch.from_numpy(images).unsqueeze(1), torch.from_numpy(labels).to(torch.int64))
