"""Execution of a run: device, threads, precision, compile mode and checkpoints."""

import re
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from morphogen.config.fields import (
    Checks,
    Count,
    Names,
    Positive,
    Spec,
    spec,
)

COMPILE_OFF = "off"
# Modes of precision.
AMP_OFF = "off"
AMP_AUTO = "auto"
AMP_BFLOAT16 = "bfloat16"
AMP_FLOAT16 = "float16"
REDUCE_GATHER = "gather"
REDUCE_ALLREDUCE = "allreduce"
CAPTURE_OFF = "off"
STOP = "stop"  # after a checkpoint that failed
# torch keeps the index in 8 bits and wraps beyond
_DEVICE_NAME = re.compile("auto|cpu|cuda|cuda:(0|[1-9][0-9]?)")


@spec
class EngineSpec(Spec):
    """Devices, threads, precision and compile mode of a run.

    `amp` is the number format of features in training and validation.  Parameters, optimiser state,
    statistics, losses and updates stay in float32, and so does the policy.  float16 needs a CUDA
    device and scales the loss of every env; `auto` is bfloat16 on a CUDA device that computes in
    it, float16 on any other one, and off on a CPU.  bfloat16 on a
    CPU is for testing: plain torch computes it there, slower than float32 in the compiled kernels.

    Raises: ConfigError with all faults, a line each.

    Example:
        >>> import morphogen as mg
        >>> mg.EngineSpec(devices=["cpu"], threads=1).devices
        ('cpu',)
        >>> mg.EngineSpec(devices=["gpu"])
        Traceback (most recent call last):
            ...
        morphogen.errors.ConfigError: engine.devices: expected auto, cpu, cuda or
            cuda:0 .. cuda:99, got ["gpu"]
    """

    PATH: ClassVar[str] = "engine"

    devices: Annotated[tuple[str, ...], Names()] = ("auto",)
    """auto (default: a GPU if there is one), cpu, cuda, cuda:N, or several, as cuda:0,cuda:1: a
    rank on each
    """
    ranks: Annotated[int | None, Field(ge=1, le=65_536)] = None
    """processes that share the envs (default: one per device)"""
    rank_per_core: bool = False
    """true: without `ranks`, a command on a CPU shares the envs among its cores, up to four"""
    reduce: Literal["gather", "allreduce"] = REDUCE_GATHER
    """ranks exchange rows and update alike, bit for bit (gather), or they exchange gradients
    (allreduce)
    """
    collective_timeout_s: Positive = 600.0
    """seconds that a rank waits for the others before the run ends with an error"""
    threads: Annotated[int | None, Field(ge=1, le=4_096)] = None
    """CPU threads (default: 1 on digits, else one per core)"""
    amp: Literal["off", "auto", "bfloat16", "float16"] = AMP_OFF
    """mixed precision: off (default), auto, bfloat16 (on a CPU for testing: slow), float16
    (CUDA)
    """
    compile: Literal["off", "auto", "default", "reduce-overhead", "max-autotune"] = COMPILE_OFF
    """off (default), default, auto (default where the compiler works, else off), reduce-
    overhead, max-autotune
    """
    capture: Literal["auto", "off"] = "auto"
    """record the operators of a minibatch and replay them for the rest of the epoch: auto
    (default), off
    """
    activation_mib: Positive | None = None
    """MiB of activations at once; further envs train and validate in pieces, one after the
    other; null = 768 on a CPU, 16384 on a GPU
    """
    phase_profile: bool = True
    """false: do not measure the time of the phases of a round"""
    deterministic: bool = True
    """false: allow a GPU operators whose results vary from run to run"""
    tf32: bool = False
    """let a GPU round factors of products to 10 bits (TF32)"""

    def cross_checks(self) -> Checks:
        """Every device has a valid name, and its rank; its existence is checked when it is
        opened.
        """
        count = len(self.devices)
        return {
            "devices": (
                self.devices and all(map(_DEVICE_NAME.fullmatch, self.devices)),
                "auto, cpu, cuda or cuda:0 .. cuda:99",
            ),
            "ranks": (
                count == 1 or self.ranks in (None, count),
                f"{count}, one on each of engine.devices",
            ),
        }


@spec
class CheckpointSpec(Spec):
    """Frequency and retention of checkpoints.

    Raises: ConfigError with all faults, a line each.

    Example:
        >>> import morphogen as mg
        >>> mg.CheckpointSpec(every_rounds=None).every_rounds is None  # only at the end
        True
        >>> mg.CheckpointSpec(keep=0)
        Traceback (most recent call last):
            ...
        morphogen.errors.ConfigError: checkpoint.keep: expected a number
            greater than or equal to 1, got 0
    """

    PATH: ClassVar[str] = "checkpoint"

    every_rounds: Count | None = 10
    """save a checkpoint every N rounds (default 10); null = only at the end"""
    every_minutes: Positive | None = None
    """minutes between two checkpoints, also inside a round; null = not by the clock"""
    keep: Annotated[int, Field(ge=1, le=1_000)] = 3
    """checkpoints to keep, besides the best one (default 3)"""
    on_failure: Literal["continue", "stop"] = "continue"
    """continue or stop after a checkpoint, but the last one, that could not be written"""
