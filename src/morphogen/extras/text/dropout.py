"""Dropout of stacked language models.  Rows = networks, outermost: [R, B, n, d]."""

from typing import NamedTuple

from torch import Tensor

from morphogen.state import rng

_LANES = 2**27  # random numbers of a place of dropout


class Dropout(NamedTuple):
    """Dropout in a pass of training: random streams and the share that is dropped."""

    streams: Tensor  # int64 [R, 5]
    share: float

    def __call__(self, x: Tensor, place: int) -> Tensor:
        """Drop values and scale the others up.  x [R, ...]; place: number of this call in the
        pass.
        """
        words = rng.random_bits(self.streams, x[0].numel(), first=place * _LANES)
        kept = (words >= round(self.share * 2**32)).to(x.dtype)
        return x * (kept / (1 - self.share)).view(x.shape)
