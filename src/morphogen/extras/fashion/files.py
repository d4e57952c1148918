"""Readers of Fashion-MNIST: the packaged copies, and the official files.  Nothing is downloaded."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from morphogen.data.data_files import FileData, FileForm, FileSource, Official, check_packaged
from morphogen.data.splits import Samples, Splits, hold_out

PACKAGED = Path(__file__).with_name("fashion.npz")
SHA256 = "032cca0360485962d8bd58d095a60c0575f7f6162768b631a1070c0d8b84c899"  # of it
TRAIN = 8_000
VALIDATION = 2_000
VALIDATION_FULL = 10_000  # of the 60,000 official training images
OFFICIAL = {  # unpacked
    "train-images-idx3-ubyte.gz": Official(
        47_040_016, "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"
    ),
    "train-labels-idx1-ubyte.gz": Official(
        60_008, "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"
    ),
    "t10k-images-idx3-ubyte.gz": Official(
        7_840_016, "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"
    ),
    "t10k-labels-idx1-ubyte.gz": Official(
        10_008, "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"
    ),
}
FILES = FileSource(
    "the official Fashion-MNIST files",
    (FileForm("gzip", tuple(OFFICIAL)),),
    command="apt install dataset-fashion-mnist",
    installed="usr/share/datasets/fashion-mnist",
)


def read_fashion(folder: Path) -> Splits:
    """Return the packaged images: 8,000 for training, 2,000 for validation, 2,000 for the test.

    Sample i of a split is of class i mod 10, so any first part of it is balanced.  The folder of
    data files has no effect.
    Shapes: inputs uint8 [N, 1, 14, 14], labels int64 [N].
    Raises: DataError if the packaged file is missing or changed.
    """
    del folder
    check_packaged(PACKAGED, SHA256)
    with np.load(PACKAGED, allow_pickle=False) as arrays:
        images, labels = (torch.from_numpy(arrays[name]) for name in ("images", "labels"))
    samples = Samples(images.unsqueeze(1), labels.to(torch.int64))
    sizes = [TRAIN, VALIDATION, len(samples) - TRAIN - VALIDATION]
    return Splits(*map(samples.select, torch.arange(len(samples), device="cpu").split(sizes)))


def read_fashion_full(folder: Path) -> Splits:
    """Return all 70,000 images: 50,000 for training, 10,000 for validation, 10,000 for the test.

    Shapes: inputs uint8 [N, 1, 28, 28], labels int64 [N].
    Raises: DataError if an official file is missing, damaged, or another one.
    """
    home = FILES.find_files(folder)
    train, validation = hold_out(read_part(home, "train"), VALIDATION_FULL)
    return Splits(train, validation, read_part(home, "t10k"))


def read_part(folder: Path, part: str) -> Samples:
    """Return the images of two official files.  part: `train` or `t10k`.

    Shapes: inputs uint8 [N, 1, 28, 28], labels int64 [N].
    Raises: DataError if a file is missing, damaged, or another one.
    """
    images = read_idx(folder, f"{part}-images-idx3-ubyte.gz")
    labels = read_idx(folder, f"{part}-labels-idx1-ubyte.gz")
    return Samples(images.unsqueeze(1), labels.to(torch.int64))


def read_idx(folder: Path, name: str) -> Tensor:
    """Return the array of bytes of an official idx file, uint8 [N] or [N, 28, 28]."""
    content = bytearray(FILES.read_official(folder / name, folder, OFFICIAL[name]))
    # after two zeros, the code of bytes and the number of axes: sizes of the axes
    shape = np.frombuffer(content, ">u4", count=content[3], offset=4).tolist()
    return torch.frombuffer(content, dtype=torch.uint8, offset=4 + 4 * len(shape)).view(shape)


FASHION = FileData("fashion", read_fashion, FileSource("packaged with morphogen"))
FASHION_FULL = FileData("fashion_full", read_fashion_full, FILES)
