"""Samples as stored, and how a data set falls into training, validation and test: by a fixed key, never by the seed."""

import hashlib
import math
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from morphogen.state import rng
from morphogen.vocab.purpose import Purpose

CHUNK = 4096  # images read at once where all are


@dataclass(frozen=True, slots=True)
class StoredImages:
    """Images on the host where they are stored, as it may be in mapped files: none is read before it is asked for.

    Indexing chooses and reads nothing; `read` and `to` read.
    """

    parts: tuple[Tensor, ...]  # uint8 [n, C, H, W] each
    rows: Tensor  # int64 [N], places in all parts laid one after the other

    @property
    def shape(self) -> tuple[int, ...]:
        """(N, C, H, W)."""
        return (len(self.rows), *self.parts[0].shape[1:])

    def __getitem__(self, index: Tensor) -> "StoredImages":
        """The images at int64 indices [n], in that order."""
        return StoredImages(self.parts, self.rows[index])

    def read(self, index: Tensor, out: Tensor) -> None:
        """Write the images at int64 indices [n] to `out`, uint8 [n, C, H, W]."""
        rows = self.rows[index]
        if len(self.parts) == 1:
            torch.index_select(self.parts[0], 0, rows, out=out)
            return
        ends = tuple(accumulate(map(len, self.parts)))
        rising, order = rows.sort()  # as they lie in the files
        pieces = rising.tensor_split(torch.searchsorted(rising, torch.tensor(ends[:-1])))
        found = [
            images.index_select(0, piece - (end - len(images)))
            for images, piece, end in zip(self.parts, pieces, ends, strict=True)
        ]
        torch.index_select(torch.cat(found), 0, order.argsort(), out=out)

    def to(self, device: torch.device | str) -> Tensor:
        """A copy of all of them on a device, uint8 [N, C, H, W]."""
        out = torch.empty(self.shape, dtype=torch.uint8)
        self.read(torch.arange(len(self.rows)), out)
        return out.to(device)


def as_stored(pixels: "Tensor | StoredImages") -> StoredImages:
    """Images in memory, as if they were stored."""
    return pixels if isinstance(pixels, StoredImages) else StoredImages((pixels,), torch.arange(len(pixels)))


@dataclass(frozen=True, slots=True)
class Samples:
    """Images as stored.  pixels uint8 [N, C, H, W]; labels int64 [N]."""

    pixels: Tensor | StoredImages
    labels: Tensor

    def __len__(self) -> int:
        return self.pixels.shape[0]

    def select(self, index: Tensor) -> "Samples":
        """The samples at int64 indices [n], in that order."""
        return Samples(self.pixels[index], self.labels[index])

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return math.prod(self.pixels.shape) + self.labels.nbytes

    def to(self, device: torch.device | str) -> "Samples":
        """The same samples in the memory of a device."""
        return Samples(self.pixels.to(device), self.labels.to(device))


@dataclass(frozen=True, slots=True)
class Splits:
    """Three disjoint sets of samples; their union is the data set."""

    train: Samples
    validation: Samples
    test: Samples


def split_order(count: int) -> Tensor:
    """The fixed order in which samples are dealt to the splits: int64 [count], a permutation."""
    return sorting_permutation(rng.random_bits(rng.stream(rng.env_keys(0, 0, 1), Purpose.SPLIT), count))[0]


def sorting_permutation(words: Tensor) -> Tensor:
    """The permutation that sorts random words; ties fall to the lower index.  int64 [..., N] -> int64 [..., N]."""
    index = torch.arange(words.shape[-1], dtype=torch.int64, device=words.device)
    return torch.argsort(words * 2**30 + index, dim=-1)


def hold_out(samples: Samples, count: int) -> tuple[Samples, Samples]:
    """(rest, held out): `count` samples in dealt order, so that any first part of them is a fair sample."""
    dealt = split_order(len(samples))
    return samples.select(dealt[count:].sort().values), samples.select(dealt[:count])


def fingerprint(splits: Splits) -> str:
    """Sha256 over the stored bytes of the three splits, in order."""
    digest = hashlib.sha256()
    for samples in (splits.train, splits.validation, splits.test):
        for index in torch.arange(len(samples)).split(CHUNK):
            digest.update(samples.pixels[index].to("cpu").numpy().tobytes())
        digest.update(samples.labels.numpy().tobytes())
    return digest.hexdigest()
