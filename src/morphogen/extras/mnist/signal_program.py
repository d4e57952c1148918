"""Program that makes the signals of MNIST-1D, and writes them to stdout as an .npz file.

It is a process of its own, because the generator of the package `mnist1d` seeds the global
generators of Python and NumPy, and imports libraries for pictures and downloads.
"""

import io
import sys
from importlib import import_module

import numpy as np

VALIDATION = {"num_samples": 1_000, "train_split": 1.0, "seed": 43}  # besides the published set


def main() -> None:
    """Write `x`, `y`, `x_test`, `y_test` of the published set, and `x_validation`, `y_validation`
    with another seed.
    """
    generator = import_module("mnist1d.data")
    settings = generator.get_dataset_args()
    published = generator.make_dataset(settings)
    vars(settings).update(VALIDATION)
    more = generator.make_dataset(settings)
    content = io.BytesIO()
    np.savez(
        content,
        x=published["x"],
        y=published["y"],
        x_test=published["x_test"],
        y_test=published["y_test"],
        x_validation=more["x"],
        y_validation=more["y"],
    )
    sys.stdout.buffer.write(content.getvalue())


if __name__ == "__main__":
    main()
