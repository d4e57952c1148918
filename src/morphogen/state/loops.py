"""Loops over a carried state: the plain loop, and the type of every other way to run one
(`env.capture`).
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

C = TypeVar("C")


class Repeat(Protocol):
    """Function that calls `body` a number of times, each time on its last result."""

    def __call__(self, body: Callable[[C], C], carry: C, times: int, /) -> C:
        """Return the result of the last call."""
        ...


def repeat(body: Callable[[C], C], carry: C, times: int, /) -> C:
    """Call `body` on the carry, then on its result, `times` times in all; return the last
    result.
    """
    for _ in range(times):
        carry = body(carry)
    return carry
