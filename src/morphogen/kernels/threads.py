"""Number of threads of operators of torch whose results depend on it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread(device: torch.device) -> Iterator[None]:
    """Compute on one thread of a CPU within this context: sums in one order, whatever the setting.

    No effect on another device, nor in a graph of the compiler, whose loops are made for a number
    of threads.
    """
    if torch.compiler.is_compiling() or device.type != "cpu":
        yield
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
