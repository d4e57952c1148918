"""Views of images: how a batch is shown to each env, as a pure function of the batch."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from morphogen.extras.regimes.image_view import View
from morphogen.state import rng
from morphogen.state.tree_ops import constant_table
from morphogen.vocab.purpose import Purpose


def show_views(
    images: Tensor, view: Tensor, sample: Tensor, *, views: tuple[View, ...], noise: float
) -> Tensor:
    """Show normalised images to each env in its view.

    Shapes: images float [E, B, C, H, W], or [B, C, H, W] shared by all envs; view int64 [E], a
    `View`; sample int64 [E, B] or [B], number of each image in its split, < 2**20 -> float [E, B,
    C, H, W]; the images themselves if only PLAIN is used.
    views: those that occur; only these are computed.  noise: deviation of the noise of NOISY.
    Promise: a row depends on its own images, view and sample numbers.
    """
    if views == (View.PLAIN,):
        return images
    shown = images if images.dim() == 5 else images.unsqueeze(0)
    where = view.view(-1, 1, 1, 1, 1)
    for code in views:
        if code is not View.PLAIN:
            shown = torch.where(where == int(code), _VIEWS[code](images, sample, noise), shown)
    return shown


def _hide_half(images: Tensor, *_: object) -> Tensor:
    width = images.shape[-1]
    kept = constant_table(
        tuple(column < width // 2 for column in range(width)), torch.bool, images.device
    )
    return images.masked_fill(~kept, 0.0)


def _add_noise(images: Tensor, sample: Tensor, deviation: float) -> Tensor:
    """Add the noise of each sample: uniform, of mean 0."""
    key = torch.zeros(*sample.shape, 3, dtype=torch.int64, device=sample.device)
    stream = rng.stream(key, Purpose.VIEW_NOISE, round=sample)
    noise = (rng.uniform(stream, math.prod(images.shape[-3:])) - 0.5) * (12**0.5 * deviation)
    return images + noise.to(images.dtype).view(images.shape)


_VIEWS: dict[View, Callable[[Tensor, Tensor, float], Tensor]] = {
    View.INVERTED: lambda images, *_: -images,
    View.TURNED: lambda images, *_: images.rot90(1, (-2, -1)),
    View.HALF: _hide_half,
    View.NOISY: _add_noise,
}
