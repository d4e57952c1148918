"""Training step against the limits of the machine: `python -m bench.speed.roofline [--json FILE]`.

Operations are matrix products and convolutions; bytes are the reads and writes of every
operation of the step, views left out.  The peaks are a large matrix product and a large copy in the
same process on the same threads.  The nearer limit is the one that allows the step the longer time;
the share achieved is that time over the time it took.

The ceiling is how many times faster than the loop the step would be if all but its convolutions, or
on tokens its matrix products and attention, cost nothing.  Those are the same calls in every form,
eager or compiled, so no form gets past it.
"""

import math
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import (
    FlopCounterMode,
    conv_flop_count,
    sdpa_backward_flop_count,
    sdpa_flop_count,
)

from bench.harness.bench_scenes import BenchScene, build_scene, task_sizes
from bench.harness.module_loop import ModuleLoop
from bench.harness.timing import (
    Bench,
    Measure,
    median_measure,
    ratio_measure,
    run_bench,
)
from bench.speed.minibatch import fastest_layout

MATRIX_SIDE, COPY_FLOATS = 2048, 2**26  # of the matrices; floats of the copy
import_module("morphogen.extras.text.attention")  # registers its operators
_ATEN, _OURS = torch.ops.aten, torch.ops.morphogen
_FORWARD_OPS, _BACKWARD_OPS = (
    (_ATEN.convolution, _OURS.conv),
    (_ATEN.convolution_backward, _OURS.conv_backward),
)
CONV_OPS = tuple(packet.default for packet in (*_FORWARD_OPS, *_BACKWARD_OPS))
_ATTENTION = _ATEN._scaled_dot_product_flash_attention_for_cpu
_ATTENTION_BACKWARD = _ATEN._scaled_dot_product_flash_attention_for_cpu_backward
_PRODUCTS = (
    *(_ATEN.mm, _ATEN.addmm, _ATEN.bmm, _ATEN.baddbmm),
    *(_ATTENTION, _ATTENTION_BACKWARD, _OURS.attention, _OURS.attention_backward),
)
PRODUCT_OPS = tuple(packet.default for packet in _PRODUCTS)


def _conv_backward_flops(
    grads: Any, x: Any, weight: Any, *rest: Any, out_shape: Any = None, **_: Any
) -> int:
    """Each gradient of a convolution costs as much as the convolution; torch counts grouped ones as
    full.
    """
    transposed, asked = rest[4], rest[7]
    return conv_flop_count(x, weight, grads, transposed) * sum(asked[:2])


def _attention_flops(queries: Any, *rest: Any, out_shape: Any = None, **_: Any) -> int:
    """Attention to the tokens before each one: no products with those behind it."""
    return sdpa_flop_count(queries, *rest[:2]) * (queries[-2] + 1) // (2 * queries[-2])


def _attention_backward_flops(
    grads: Any, queries: Any, *rest: Any, out_shape: Any = None, **_: Any
) -> int:
    return (
        sdpa_backward_flop_count(grads, queries, *rest[:2]) * (queries[-2] + 1) // (2 * queries[-2])
    )


def _kernel_flops(x: Any, weight: Any, **_: Any) -> int:
    return 2 * math.prod(x[:3]) * math.prod(weight)


def _kernel_backward_flops(grad: Any, x: Any, weight: Any, needs_grad: bool, **_: Any) -> int:
    return (1 + needs_grad) * _kernel_flops(x, weight)


def _causal_flops(products: int, qkv: Any) -> int:
    samples, tokens, _, heads, size = qkv
    return products * samples * heads * size * tokens * (tokens + 1)


_FORMULAS = {
    _OURS.conv: _kernel_flops,
    _OURS.conv_backward: _kernel_backward_flops,
    _OURS.attention: lambda qkv, *_, **__: _causal_flops(2, qkv),
    _OURS.attention_backward: lambda _, qkv, *__, **___: _causal_flops(5, qkv),
    _ATEN.convolution_backward: _conv_backward_flops,
    _ATTENTION: _attention_flops,
    _ATTENTION_BACKWARD: _attention_backward_flops,
}


class TrafficCounter(TorchDispatchMode):
    """Bytes that operations read and write."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run an operation and count what it touches; a view touches nothing."""
        out = func(*args, **(kwargs or {}))
        if not func.is_view:
            touched = tree_leaves((args, kwargs, out))
            self.bytes += sum(
                leaf.numel() * leaf.element_size() for leaf in touched if isinstance(leaf, Tensor)
            )
        return out


class CallRecorder(TorchDispatchMode):
    """Calls of some operations, remembered with their arguments."""

    def __init__(self, ops: tuple[Any, ...]) -> None:
        super().__init__()
        self.ops = ops
        self.calls: list[tuple[Any, tuple, dict]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run an operation."""
        if func in self.ops:
            self.calls.append((func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))

    @torch.no_grad()
    def replay(self) -> None:
        """All of them once more, in their order."""
        for func, args, kwargs in self.calls:
            func(*args, **kwargs)


def ceiling(bench: Bench, task: str, envs: int) -> tuple[list[float], list[float]]:
    """Seconds of a minibatch of the loop, and of the convolutions or products of the stacked form,
    run by run.
    """
    ours = build_scene(task, envs, "mixed", device=bench.device)
    loop = ModuleLoop(
        ours, fastest_layout(bench, build_scene(task, min(envs, 4), "mixed", device=bench.device))
    )
    with CallRecorder(PRODUCT_OPS if ours.net.host.vocabulary else CONV_OPS) as kernels:
        ours.train()
    seconds = bench.time_interleaved({"loop": loop.train, "kernels": kernels.replay})
    return seconds["loop"], seconds["kernels"]


def count_work(scene: BenchScene) -> tuple[int, int]:
    """Operations and bytes of the training step of a scene, backward pass and optimiser
    included.
    """
    flops = FlopCounterMode(display=False, custom_mapping=_FORMULAS)
    with TrafficCounter() as traffic, flops:
        scene.train()
    return flops.get_total_flops(), traffic.bytes


def machine_peaks(
    bench: Bench, *, side: int = MATRIX_SIDE, copied: int = COPY_FLOATS
) -> tuple[list[float], list[float]]:
    """Operations per second of a large matrix product, and bytes per second of a large copy, run by
    run.
    """
    matrix = torch.ones(side, side, device=bench.device)
    product, source = torch.empty_like(matrix), torch.ones(copied, device=bench.device)
    target = torch.empty_like(source)
    forms = {
        "product": lambda: torch.mm(matrix, matrix, out=product),
        "copy": lambda: target.copy_(source),
    }
    seconds = bench.time_interleaved(forms)
    moved = 2 * copied * source.element_size()
    return [2 * side**3 / t for t in seconds["product"]], [moved / t for t in seconds["copy"]]


def measures(bench: Bench, tasks: dict[str, tuple[str, int]], **large: int) -> list[Measure]:
    """The rows on the limits of the machine."""
    compute, memory = machine_peaks(bench, **large)
    giga = [
        median_measure("peak_gflops", [c / 1e9 for c in compute], "Gflop/s"),
        median_measure("peak_copy", [m / 1e9 for m in memory], "GB/s"),
    ]
    found, fastest, widest = giga, max(compute), max(memory)
    for name, (task, envs) in tasks.items():
        ours = build_scene(task, envs, "mixed", device=bench.device)
        flops, moved = count_work(ours)
        limits = {"compute": flops / fastest, "memory": moved / widest}
        nearer = max(limits, key=lambda limit: limits[limit])
        seconds = bench.time_interleaved({"step": ours.train})["step"]
        rows = [
            ratio_measure(f"roofline_{name}_{limit}", [least] * len(seconds), seconds, "share")
            for limit, least in limits.items()
        ]
        best = ratio_measure(
            f"roofline_{name}", [limits[nearer]] * len(seconds), seconds, f"of {nearer}"
        )
        found += [ratio_measure(f"ceiling_{name}", *ceiling(bench, task, envs)), best, *rows]
        found += [median_measure(f"roofline_{name}_gflop", [flops / 1e9], "Gflop")]
        found += [
            median_measure(f"roofline_{name}_gbyte", [moved / 1e9], "GB"),
            median_measure(f"roofline_{name}_intensity", [flops / moved], "flop/byte"),
        ]
    return found


if __name__ == "__main__":
    run_bench(__doc__, lambda bench, envs: measures(bench, task_sizes(envs)))
