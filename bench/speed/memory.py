"""Peak memory of an epoch per env: `python -m bench.speed.memory [--json FILE]`.

On a CPU every number of envs has a process of its own, and its peak is what the system counted
beyond the imported packages; on a CUDA device it is what the allocator handed out.  `linear`: what
the second doubling of the number of envs costs, over twice what the first does.
"""

import gc
import multiprocessing

import torch

from bench.harness.bench_scenes import build_scene, task_sizes
from bench.harness.timing import Bench, Measure, median_measure, run_bench
from morphogen.device.malloc import keep_freed_memory, process_memory


def resident_bytes(name: str) -> int:
    """Return a size of this process in bytes, 0 if the system does not report it."""
    return process_memory(name) or 0


def run_epoch(task: str, envs: int, device: str) -> None:
    """An epoch of training and validation, the scene included."""
    ours = build_scene(task, envs, "mixed", device=device)
    ours.train()
    ours.validate()


def peak_bytes(task: str, envs: int, device: str) -> int:
    """Peak bytes of an epoch, in this process."""
    gc.collect()
    if device == "cpu":
        keep_freed_memory()  # as in a run
        run_epoch(task, 1, device)  # what is loaded and made only once
        before = resident_bytes("VmRSS")
        run_epoch(task, envs, device)
        return resident_bytes("VmHWM") - before
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    run_epoch(task, envs, device)
    return torch.cuda.max_memory_allocated(device) - before


def peak_bytes_per_size(bench: Bench, task: str, sizes: list[int]) -> list[int]:
    """Peak bytes per number of envs."""
    jobs = [(task, envs, str(bench.device)) for envs in sizes]
    if bench.device.type == "cuda":
        return [peak_bytes(*job) for job in jobs]
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        return pool.starmap(peak_bytes, jobs, chunksize=1)


def measures(bench: Bench, tasks: dict[str, tuple[str, int]]) -> list[Measure]:
    """Measure memory at `envs`, twice and four times `envs`; empty if the system does not report
    sizes.
    """
    found = []
    for name, (task, envs) in (
        tasks.items() if bench.device.type == "cuda" or process_memory("VmHWM") else ()
    ):
        low, middle, high = peak_bytes_per_size(bench, task, [envs, 2 * envs, 4 * envs])
        found.append(
            median_measure(f"memory_{name}_per_env", [(high - low) / (3 * envs) / 2**20], "MiB")
        )
        found.append(
            median_measure(f"memory_{name}_linear", [(high - middle) / (middle - low) / 2], "ratio")
        )
    return found


if __name__ == "__main__":
    run_bench(__doc__, lambda bench, envs: measures(bench, task_sizes(envs)))
