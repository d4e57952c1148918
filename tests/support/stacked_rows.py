"""Check of a layer: a network in a stack of any size, under any number of threads, has the same
bits.
"""

from collections.abc import Callable
from contextlib import contextmanager
from functools import partial

import torch
from support.small_states import normal

STACK = 64
ROWS = (*range(1, 10), 15, 16, 17, 31, 32, 33, 47, 63, 64)


@contextmanager
def threads(count: int):
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def same_bits(one, other) -> bool:
    """Equality of tensors in which a NaN equals a NaN."""
    return one.shape == other.shape and bool(
        ((one == other) | ((one != one) & (other != other))).all()
    )


def first_rows(x, rows: int):
    return x.narrow(x.shape.index(STACK), 0, rows).contiguous()


def both_ways(function, arguments, weights=None):
    """Result and gradients of all arguments."""
    given = {name: x.detach().requires_grad_() for name, x in arguments.items()}
    out = function(**given)
    weights = normal(*out.shape, seed=99) if weights is None else weights
    if not out.requires_grad:
        return out, (), weights
    return out, torch.autograd.grad(out, list(given.values()), weights, allow_unused=True), weights


def check_rows(function: Callable, shapes: dict[str, tuple[int, ...]]) -> None:
    """Hold results and gradients of every part of a stack to the ones of the stack.

    shapes: of the arguments; the axis of the networks is the one of the size STACK.
    """
    whole = {key: normal(*shape, seed=n) for n, (key, shape) in enumerate(shapes.items())}
    out, grads, weights = both_ways(function, whole)
    out_axis = next(n for n, size in enumerate(out.shape) if size in (STACK, 12 * STACK))
    unit = out.shape[out_axis] // STACK
    for rows in ROWS:
        part = {key: first_rows(x, rows) for key, x in whole.items()}
        out_part = partial(torch.narrow, dim=out_axis, start=0, length=rows * unit)
        for count in (1, 2, 3) if rows in (7, STACK) else (1,):
            with threads(count):
                found, own, _ = both_ways(function, part, out_part(weights).contiguous())
            assert same_bits(found, out_part(out)), (rows, count)
            for key, one, other in zip(shapes, own, grads, strict=False):
                assert one is other is None or same_bits(one, first_rows(other, rows)), (
                    key,
                    rows,
                    count,
                )
