"""Counter-based random numbers: a draw is a pure function of its coordinates, there is no generator.

Words come from Philox 4x32-10 (`kernels.philox`).  A *stream* is an int64 `[..., 5]` tensor: two key words (the run
seed) and three counter words (minibatch and epoch, round and purpose, env); the fourth counter word counts the lanes,
four per block.  Different coordinates never share a block.
"""

import math

import torch
from torch import Tensor

from morphogen.kernels import philox
from morphogen.state.tree_ops import broadcast_shape
from morphogen.vocab.purpose import Purpose

_MASK = 0xFFFFFFFF
_EPOCH_BITS, _PURPOSE_BITS = 17, 20  # minibatch < 2**17, round < 2**20


def env_keys(seed: int, first: int, envs: int, device: torch.device | str = "cpu") -> Tensor:
    """Return keys of envs `first .. first+envs-1` (global indices): int64 [E, 3] = seed low word, high word, env."""
    env = torch.arange(first, first + envs, dtype=torch.int64, device=device)
    words = (torch.full_like(env, seed & _MASK), torch.full_like(env, (seed >> 32) & _MASK), env)
    return torch.stack(words, dim=-1)


def sibling_keys(key: Tensor, number: int) -> Tensor:
    """Return keys of the envs for independent randomness; `number` 0 returns `key`.  int64 [..., 3] -> [..., 3]."""
    words = random_bits(stream(key, Purpose.SIBLING, round=number), 2)
    return torch.cat((words, key[..., 2:]), dim=-1) if number else key


def stream(
    key: Tensor, purpose: Purpose, *, round: Tensor | int = 0, epoch: Tensor | int = 0, minibatch: Tensor | int = 0
) -> Tensor:
    """Return the stream of a purpose at a position.  key int64 [..., 3]; coordinates broadcast -> int64 [..., 5]."""
    low, high, env = key.unbind(-1)
    where = torch.zeros_like(env) + minibatch + (torch.zeros_like(env) + epoch) * 2**_EPOCH_BITS
    when = torch.zeros_like(where) + round + int(purpose) * 2**_PURPOSE_BITS
    low, high, env = (word.expand_as(where) for word in (low, high, env))
    return torch.stack((low, high, where, when, env), dim=-1)


def random_bits(stream: Tensor, lanes: int, *, first: int = 0) -> Tensor:
    """Draw 32 random bits per lane, lanes `first .. first+lanes-1`.  stream int64 [..., 5] -> int64 [..., lanes]."""
    start = first // 4
    blocks = torch.arange(start, math.ceil((first + lanes) / 4), dtype=torch.int64, device=stream.device)
    words = _block_words(stream.unsqueeze(-2), blocks).flatten(-2)
    return words[..., first - 4 * start : first - 4 * start + lanes]


def random_bits_at(stream: Tensor, lanes: Tensor) -> Tensor:
    """Draw 32 random bits at the given lanes.  stream int64 [..., 5], lanes int64 [..., N] -> int64 [..., N]."""
    words = _block_words(stream.unsqueeze(-2), lanes // 4)
    return words.gather(-1, (lanes % 4).unsqueeze(-1)).squeeze(-1)


def _block_words(stream: Tensor, block: Tensor) -> Tensor:
    low, high, where, when, env = stream.unbind(-1)
    block = block.expand(broadcast_shape(block, where))
    rest = tuple(word.expand_as(block) for word in (where, when, env))
    key = torch.stack((low.expand_as(block), high.expand_as(block)), dim=-1)
    return philox(torch.stack((block, *rest), dim=-1), key)


def unit_floats(words: Tensor) -> Tensor:
    """Convert random bits to float32 in [0, 1), multiples of 2**-24."""
    return (words >> 8).to(torch.float32) * 2.0**-24


def uniform(stream: Tensor, lanes: int, *, first: int = 0) -> Tensor:
    """Draw uniform float32 in [0, 1).  stream int64 [..., 5] -> [..., lanes]."""
    return unit_floats(random_bits(stream, lanes, first=first))


def open_unit_floats(words: Tensor) -> Tensor:
    """Convert random bits to float32 strictly inside (0, 1), so that logarithms are finite."""
    return (words >> 9).to(torch.float32) * 2.0**-23 + 2.0**-24


def bounded_ints(words: Tensor, bound: Tensor | int) -> Tensor:
    """Convert random bits to int64 in 0 .. bound-1 by multiplication; bound < 2**31.  Integer arithmetic only."""
    return (words * bound) >> 32


def gumbel(stream: Tensor, lanes: int) -> Tensor:
    """Draw standard Gumbel noise, finite.  stream int64 [..., 5] -> float32 [..., lanes]."""
    return -torch.log(-torch.log(open_unit_floats(random_bits(stream, lanes))))


def normal(stream: Tensor, lanes: int) -> Tensor:
    """Draw standard normal noise by Box-Muller, two lanes each.  stream int64 [..., 5] -> float32 [..., lanes]."""
    first, second = random_bits(stream, 2 * lanes).chunk(2, dim=-1)
    radius = torch.sqrt(-2.0 * torch.log(open_unit_floats(first)))
    return radius * torch.cos(2.0 * math.pi * unit_floats(second))
