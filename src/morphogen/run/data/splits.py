"""Samples as stored, and how a data set falls into training, validation and test: by a fixed key, never by the seed."""

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from morphogen.state import rng
from morphogen.vocab.purpose import Purpose


@dataclass(frozen=True, slots=True)
class Samples:
    """Images as stored.  pixels uint8 [N, C, H, W]; labels int64 [N]."""

    pixels: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return self.pixels.shape[0]

    def at(self, index: Tensor) -> "Samples":
        """The samples at int64 indices [n], in that order."""
        return Samples(self.pixels[index], self.labels[index])

    def to(self, device: torch.device | str) -> "Samples":
        """The same samples on a device."""
        return Samples(self.pixels.to(device), self.labels.to(device))


@dataclass(frozen=True, slots=True)
class Splits:
    """Three disjoint sets of samples; their union is the data set."""

    train: Samples
    validation: Samples
    test: Samples


def shuffled(count: int) -> Tensor:
    """The fixed order in which samples are dealt to the splits: int64 [count], a permutation."""
    return order(rng.bits(rng.stream(rng.env_keys(0, 0, 1), Purpose.SPLIT), count))[0]


def order(words: Tensor) -> Tensor:
    """The permutation that sorts random words; ties fall to the lower index.  int64 [..., N] -> int64 [..., N]."""
    index = torch.arange(words.shape[-1], dtype=torch.int64, device=words.device)
    return torch.argsort(words * 2**30 + index, dim=-1)


def held_out(samples: Samples, count: int) -> tuple[Samples, Samples]:
    """(rest, held out): `count` samples in dealt order, so that any first part of them is a fair sample."""
    dealt = shuffled(len(samples))
    return samples.at(dealt[count:].sort().values), samples.at(dealt[:count])


def fingerprint(splits: Splits) -> str:
    """Sha256 over the stored bytes of the three splits, in order."""
    digest = hashlib.sha256()
    for samples in (splits.train, splits.validation, splits.test):
        digest.update(samples.pixels.cpu().contiguous().numpy().tobytes())
        digest.update(samples.labels.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
