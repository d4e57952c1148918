"""Make the packaged pictures of clothes of the official files: `python -m bench.data.fashion FOLDER
[--out FILE]`.

FOLDER holds the four official gzip files, whose unpacked bytes are checked by their sha256.  There
is no draw: image i of the file is the (i div 10)-th one of class i mod 10, in the order of the
official training file for the first 10,000 (of which the reader takes 2,000 for validation), of the
test file for the last 2,000.  A pixel is the rounded mean of 2 x 2 pixels, halves to even.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from morphogen.config.files import sha256
from morphogen.data.splits import Samples
from morphogen.extras.fashion.files import PACKAGED, TRAIN, VALIDATION, read_part

CLASSES, TEST = 10, 2_000


def take_balanced(samples: Samples, count: int) -> Samples:
    """The first `count` samples of classes in turn, in the order of each class."""
    places = [(samples.labels == label).nonzero()[: count // CLASSES] for label in range(CLASSES)]
    return samples.select(torch.cat(places, dim=1).flatten())


def halve(images: Tensor) -> Tensor:
    """Images of half the height and width.  uint8 [N, 1, H, W] -> uint8 [N, H / 2, W / 2]."""
    return torch.nn.functional.avg_pool2d(images.float(), 2).round().squeeze(1).to(torch.uint8)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--out", type=Path, default=PACKAGED, metavar="FILE")
    args = parser.parse_args()
    sizes = {"train": TRAIN + VALIDATION, "t10k": TEST}
    parts = [take_balanced(read_part(args.folder, part), n) for part, n in sizes.items()]
    images = torch.cat([halve(part.inputs) for part in parts])
    labels = torch.cat([part.labels for part in parts]).to(torch.uint8)
    np.savez_compressed(args.out, images=images.numpy(), labels=labels.numpy())
    print(f"{args.out}: {args.out.stat().st_size:,} bytes, sha256 {sha256(args.out)}")


if __name__ == "__main__":
    main()
