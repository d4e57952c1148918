"""Dropout of stacked language models.  Rows = networks, outermost: [R, B, n, d]."""

from torch import Tensor

from morphogen.state import rng

_LANES = 2**27  # random numbers of a place of dropout


def drop_values(x: Tensor, *, streams: Tensor, share: float, place: int) -> Tensor:
    """Drop a share of values and scale the others up.

    Shapes: x [R, ...]; streams int64 [R, 5], random streams of the pass -> like x.
    place: number of this call in the pass.
    """
    words = rng.random_bits(streams, x[0].numel(), first=place * _LANES)
    kept = (words >= round(share * 2**32)).to(x.dtype)
    return x * (kept / (1 - share)).view(x.shape)
