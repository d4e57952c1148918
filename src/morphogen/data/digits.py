"""Packaged digits: 1,797 images of 8x8, values 0..16 (UCI optical recognition of handwritten digits, CC BY 4.0)."""

import hashlib
import io
from pathlib import Path

import numpy as np
import torch

from morphogen.data.splits import Samples, Splits, hold_out
from morphogen.errors import DataError

DIGITS_FILE = Path(__file__).with_name("digits.npz")
SHA256 = "b2dab7b501728c22e9119ad76740b2e17c77a231e42d1e592380d90886f1a05e"  # of the file
VALIDATION, TEST = 300, 300


def read_digits(path: Path = DIGITS_FILE) -> Splits:
    """Return training, validation and test: 1,197, 300 and 300 images.

    Raises: DataError if the file is missing or changed.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; reinstall the package") from error
    digest = hashlib.sha256(raw).hexdigest()
    if digest != SHA256:
        raise DataError(f"{path}: expected sha256 {SHA256}, got {digest}; reinstall the package")
    with np.load(io.BytesIO(raw), allow_pickle=False) as arrays:
        images, labels = arrays["images"], arrays["labels"]
    samples = Samples(torch.from_numpy(images).unsqueeze(1), torch.from_numpy(labels).to(torch.int64))
    rest, test = hold_out(samples, TEST)
    train, validation = hold_out(rest, VALIDATION)
    return Splits(train, validation, test)
