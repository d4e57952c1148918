"""Grouped convolutions with the channels of the images innermost or as usual: what `ops.choose` rests on.

Run: `python bench/bench_conv.py [--threads 1]`.  Best milliseconds of forward, and of forward with both gradients.
"""

import argparse
import time

import torch

from morphogen.nets import ops

SHAPES = ((1, 4, 8, 3), (4, 4, 8, 3), (4, 8, 4, 3), (8, 8, 4, 3), (8, 16, 8, 3), (4, 4, 8, 1))


def best(call, repeats: int) -> float:
    """Shortest wall time of a call in milliseconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def measure(shape: tuple[int, int, int, int], rows: int, layout: torch.memory_format, repeats: int) -> str:
    """Forward, and forward with gradients, in one layout."""
    channels, outputs, size, kernel = shape
    x = torch.randn(64, rows * channels, size, size, requires_grad=True)
    weight = torch.randn(rows, outputs, channels, kernel, kernel, requires_grad=True)
    push = torch.randn(64, rows * outputs, size, size)
    ops.choose = lambda *_, **__: layout

    def forward() -> torch.Tensor:
        return ops.conv2d(x, weight, groups=rows)

    both = best(lambda: torch.autograd.grad(forward(), (x, weight), push), repeats)
    return f"{best(forward, repeats):6.2f} {both:6.2f}"


def main() -> None:
    """Print one line per shape."""
    parser = argparse.ArgumentParser()
    for name, default in (("--rows", 32), ("--threads", 1), ("--repeats", 15)):
        parser.add_argument(name, type=int, default=default)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, {options.threads} threads, {options.rows} rows, 64 samples")
    print("in out size k | usual: forward, both | innermost: forward, both")
    for shape in SHAPES:
        pair = [
            measure(shape, options.rows, layout, options.repeats)
            for layout in (torch.contiguous_format, torch.channels_last)
        ]
        print(f"{shape} | {pair[0]} | {pair[1]}")


if __name__ == "__main__":
    main()
