"""Counter-based random numbers: a draw is a pure function of its coordinates, there is no
generator.

Words come from Philox 4x32-10 (`kernels.philox`).  A *stream* is an int64 `[..., 5]` tensor: two
key words (the run seed) and three counter words (minibatch and epoch, round and purpose, env); the
fourth counter word counts the lanes, four per block.  Different coordinates never share a block.

    keys = env_keys(seed=7, first=0, envs=32)
    noise = uniform(stream(keys, Purpose.ACTION, round=0, epoch=3), lanes=8)
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from morphogen.kernels.philox import philox
from morphogen.state.tree_ops import broadcast
from morphogen.vocab.purpose import Purpose as Purpose

_MASK = 0xFFFFFFFF
_EPOCH_BITS = 17
_PURPOSE_BITS = 20  # minibatch < 2**17, round < 2**20


def env_keys(seed: int, first: int, envs: int, device: torch.device | str = "cpu") -> Tensor:
    """Return the keys of envs, the first coordinates of all their random numbers.

    Args:
        seed: of the run; its low 64 bits count.
        first: number of the first env.  Env `n` is the same in every program with this seed.
        envs: number of envs.
        device: of the result.

    Returns: int64 [E, 3]: low word of the seed, its high word, number of the env.

    Example:
        >>> import morphogen as mg
        >>> mg.rng.env_keys(seed=7, first=2, envs=3).tolist()
        [[7, 0, 2], [7, 0, 3], [7, 0, 4]]
    """
    env = torch.arange(first, first + envs, dtype=torch.int64, device=device)
    words = (torch.full_like(env, seed & _MASK), torch.full_like(env, (seed >> 32) & _MASK), env)
    return torch.stack(words, dim=-1)


def sibling_keys(key: Tensor, number: int) -> Tensor:
    """Return keys of the same envs for independent randomness; `number` 0 returns `key`.

    Shapes: key int64 [..., 3] -> int64 [..., 3].  `number`: 0 .. 2**20 - 1, one for each family of
    keys.

    Example:
        >>> import morphogen as mg
        >>> keys = mg.rng.env_keys(seed=7, first=0, envs=2)
        >>> mg.rng.sibling_keys(keys, 0).equal(keys), mg.rng.sibling_keys(keys, 1).equal(keys)
        (True, False)
    """
    words = random_bits(stream(key, Purpose.SIBLING, round=number), 2)
    return torch.cat((words, key[..., 2:]), dim=-1) if number else key


def stream(
    key: Tensor,
    purpose: Purpose,
    *,
    round: Tensor | int = 0,
    epoch: Tensor | int = 0,
    minibatch: Tensor | int = 0,
) -> Tensor:
    """Return the stream of a purpose at a position.

    Shapes: key int64 [..., 3]; round, epoch, minibatch int64 [...] or numbers, broadcast -> int64
    [..., 5].
    Limits: round < 2**20, minibatch < 2**17; beyond them two positions share a stream.

    Example:
        >>> import morphogen as mg
        >>> keys = mg.rng.env_keys(seed=7, first=0, envs=2)
        >>> a, b = (mg.rng.stream(keys, mg.rng.Purpose.ACTION, epoch=epoch) for epoch in (0, 1))
        >>> mg.rng.random_bits(a, 2).tolist()
        [[994916490, 1505196724], [3018864344, 1665403463]]
        >>> mg.rng.random_bits(b, 2).equal(mg.rng.random_bits(a, 2))
        False
    """
    low, high, env = key.unbind(-1)
    where = minibatch + epoch * 2**_EPOCH_BITS
    when = round + int(purpose) * 2**_PURPOSE_BITS
    where, when = (
        word if isinstance(word, Tensor) else torch.full_like(env, word) for word in (where, when)
    )
    return torch.stack(broadcast(low, high, where, when, env), dim=-1)


class LaneRange(NamedTuple):
    """Lanes `first .. first+lanes-1` of streams."""

    stream: Tensor
    """int64 [..., 5]."""
    lanes: int
    """Number of lanes."""
    first: int = 0
    """First lane."""


def random_bits(stream: Tensor, lanes: int, *, first: int = 0) -> Tensor:
    """Draw 32 random bits per lane, lanes `first .. first+lanes-1`.

    Shapes: stream int64 [..., 5] -> int64 [..., N], N = `lanes`, in 0 .. 2**32 - 1.
    Promise: a lane has the same bits whatever other lanes are drawn.

    Example:
        >>> import morphogen as mg
        >>> stream = mg.rng.stream(mg.rng.env_keys(seed=7, first=0, envs=1), mg.rng.Purpose.ACTION)
        >>> mg.rng.random_bits(stream, 6)[:, 4:].equal(mg.rng.random_bits(stream, 2, first=4))
        True
    """
    return random_bits_of([LaneRange(stream, lanes, first)])[0]


def random_bits_of(ranges: Sequence[LaneRange]) -> list[Tensor]:
    """Draw the bits of several ranges at once, in the launches of one draw and one copy.

    Returns: per range int64 [..., N], as `random_bits` draws them.

    Example:
        >>> import morphogen as mg
        >>> keys = mg.rng.env_keys(seed=7, first=0, envs=2)
        >>> a, b = (
        ...     mg.rng.stream(keys, purpose)
        ...     for purpose in (mg.rng.Purpose.DATA, mg.rng.Purpose.AUGMENT)
        ... )
        >>> bits = mg.rng.random_bits_of(
        ...     [mg.rng.LaneRange(a, 3), mg.rng.LaneRange(b[0], 9, first=2)]
        ... )
        >>> [
        ...     x.equal(y)
        ...     for x, y in zip(
        ...         bits, (mg.rng.random_bits(a, 3), mg.rng.random_bits(b[0], 9, first=2))
        ...     )
        ... ]
        [True, True]
    """
    blocks: list[tuple[Tensor, Tensor]] = []
    for drawn in ranges:
        ends = (drawn.first // 4, math.ceil((drawn.first + drawn.lanes) / 4))
        block = torch.arange(*ends, dtype=torch.int64, device=drawn.stream.device)
        blocks.append(_blocks(drawn.stream.unsqueeze(-2), block))
    counters = [counter.flatten(0, -2) for counter, _ in blocks]
    keys = [key.flatten(0, -2) for _, key in blocks]
    words = philox(*(torch.cat(rows) if len(ranges) > 1 else rows[0] for rows in (counters, keys)))
    bits: list[Tensor] = []
    for drawn, (counter, _), part in zip(
        ranges, blocks, torch.split(words, [len(rows) for rows in counters]), strict=True
    ):
        start = drawn.first % 4
        lanes = part.view(counter.shape).flatten(-2)
        bits.append(lanes[..., start : start + drawn.lanes])
    return bits


def random_bits_at(stream: Tensor, lanes: Tensor) -> Tensor:
    """Draw 32 random bits at the given lanes, in any order.

    Shapes: stream int64 [..., 5]; lanes int64 [..., N], >= 0 -> int64 [..., N], in 0 .. 2**32 - 1.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> stream = mg.rng.stream(mg.rng.env_keys(seed=7, first=0, envs=1), mg.rng.Purpose.ACTION)
        >>> at = mg.rng.random_bits_at(stream, torch.tensor([[5, 0]]))
        >>> at.equal(mg.rng.random_bits(stream, 6)[:, [5, 0]])
        True
    """
    words = philox(*_blocks(stream.unsqueeze(-2), lanes // 4))
    return words.gather(-1, (lanes % 4).unsqueeze(-1)).squeeze(-1)


def _blocks(stream: Tensor, block: Tensor) -> tuple[Tensor, Tensor]:
    """Counters int64 [..., 4] and keys int64 [..., 2] of blocks."""
    low, high, *place, block = broadcast(*stream.unbind(-1), block)
    return torch.stack((block, *place), dim=-1), torch.stack((low, high), dim=-1)


def unit_floats(words: Tensor) -> Tensor:
    """Convert random bits to numbers in [0, 1), multiples of 2**-24.

    Shapes: words int64 [...] in 0 .. 2**32 - 1 -> float32 [...].

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> mg.rng.unit_floats(torch.tensor([0, 2**31, 2**32 - 1])).tolist()
        [0.0, 0.5, 0.9999999403953552]
    """
    return (words >> 8).to(torch.float32) * 2.0**-24


def uniform(stream: Tensor, lanes: int, *, first: int = 0) -> Tensor:
    """Draw uniform numbers in [0, 1), at lanes `first .. first+lanes-1`.

    Shapes: stream int64 [..., 5] -> float32 [..., N], N = `lanes`.

    Example:
        >>> import morphogen as mg
        >>> stream = mg.rng.stream(mg.rng.env_keys(seed=7, first=0, envs=2), mg.rng.Purpose.ACTION)
        >>> x = mg.rng.uniform(stream, 10_000)
        >>> x.shape, round(x.mean().item(), 2)
        (torch.Size([2, 10000]), 0.5)
    """
    return unit_floats(random_bits(stream, lanes, first=first))


def open_unit_floats(words: Tensor) -> Tensor:
    """Convert random bits to numbers strictly inside (0, 1), so that logarithms are finite.

    Shapes: words int64 [...] in 0 .. 2**32 - 1 -> float32 [...].

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> x = mg.rng.open_unit_floats(torch.tensor([0, 2**32 - 1]))
        >>> (x * 2**24).tolist(), bool((x < 1).all())
        ([1.0, 16777215.0], True)
    """
    return (words >> 9).to(torch.float32) * 2.0**-23 + 2.0**-24


def bounded_ints(words: Tensor, bound: Tensor | int) -> Tensor:
    """Convert random bits to integers in 0 .. bound-1 by multiplication, in integer arithmetic
    only.

    Shapes: words int64 [...] in 0 .. 2**32 - 1; bound int64, broadcast, or a number, < 2**31 ->
    int64 [...].
    Source: Lemire, Fast Random Integer Generation in an Interval, 2019, without its rejection step;
    no value is more than 2**-32 away from its probability.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> mg.rng.bounded_ints(torch.tensor([0, 2**31, 2**32 - 1]), 10).tolist()
        [0, 5, 9]
    """
    return (words * bound) >> 32


def gumbel(stream: Tensor, lanes: int, *, first: int = 0) -> Tensor:
    """Draw standard Gumbel noise, always finite, at lanes `first .. first+lanes-1`.

    The argmax of log-probabilities plus this noise is a sample.

    Shapes: stream int64 [..., 5] -> float32 [..., N], N = `lanes`.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> keys = mg.rng.env_keys(seed=7, first=0, envs=10_000)
        >>> noise = mg.rng.gumbel(mg.rng.stream(keys, mg.rng.Purpose.ACTION), 2)
        >>> sample = (torch.tensor([0.25, 0.75]).log() + noise).argmax(-1)
        >>> abs(sample.float().mean().item() - 0.75) < 0.02
        True
    """
    return -torch.log(-torch.log(open_unit_floats(random_bits(stream, lanes, first=first))))


def normal(stream: Tensor, lanes: int) -> Tensor:
    """Draw standard normal noise; a number takes two lanes.

    Shapes: stream int64 [..., 5] -> float32 [..., N], N = `lanes`.
    Source: Box and Muller, A Note on the Generation of Random Normal Deviates, 1958.

    Example:
        >>> import morphogen as mg
        >>> stream = mg.rng.stream(mg.rng.env_keys(seed=7, first=0, envs=1), mg.rng.Purpose.ACTION)
        >>> x = mg.rng.normal(stream, 10_000)
        >>> abs(x.mean().item()) < 0.05, abs(x.std().item() - 1) < 0.05
        (True, True)
    """
    first, second = random_bits(stream, 2 * lanes).chunk(2, dim=-1)
    radius = torch.sqrt(-2.0 * torch.log(open_unit_floats(first)))
    return radius * torch.cos(2.0 * math.pi * unit_floats(second))
