"""Description of a run: its manifest, its first event, and the fingerprint of its environment."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from morphogen import kernels
from morphogen.config import part_files
from morphogen.config.config_files import dump_config
from morphogen.device.cuda_memory import device_name
from morphogen.env.setup import Setup
from morphogen.hosts.weights import digest_weights
from morphogen.log import run_directory
from morphogen.log.kinds.run import RunStarted
from morphogen.train.loop import Scheduler
from morphogen.vocab.blueprint import code_labels
from morphogen.vocab.observation import ENV, SLOT

# with RunStarted
SHARED_FIELDS = ("run_id", "command", "config_sha256", "data_sha256", "data_placement", "versions")


def build_manifest(setup: Setup, *, out: Path, command: str) -> dict[str, Any]:
    """Return the manifest of a new run."""
    config = dump_config(setup.spec)
    dataset = setup.dataset
    return {
        "run_id": run_directory.config_hash(f"{config}{out}")[:12],
        "command": command,
        "imports": part_files.IMPORTED,
        "task": setup.spec.task,
        "status": "running",
        "config_sha256": run_directory.config_hash(config),
        "data_sha256": dataset.fingerprint,
        "data_sizes": dataset.sizes,
        "data_placement": dataset.placement,
        "score": setup.task.score_name,
        "weights_sha256": digest_weights(setup.net.weights),
        "last_checkpoint": None,
        **run_directory.describe_environment(),
        "kernels": describe_kernels(),
    }


def run_started_event(
    scheduler: Scheduler, manifest: dict[str, Any], devices: Sequence[str]
) -> RunStarted:
    """Return the first event of a run from its scheduler, its manifest, and the devices of its
    processes.
    """
    setup = scheduler.setup
    spec = scheduler.setup.spec
    net = scheduler.params.get("net", None)
    return RunStarted(
        **{name: manifest[name] for name in SHARED_FIELDS},
        **{name: getattr(spec, name) for name in ("task", "preset", "seed", "envs", "rounds")},
        config=json.loads(dump_config(spec)),
        slots=setup.net.names,
        blueprints=code_labels(setup.net.kinds),
        macs=setup.net.macs(),
        epochs=spec.episode_length,
        minibatches=spec.data.minibatches,
        batch=spec.data.batch,
        world=len(devices),
        devices=tuple(devices),
        precision=setup.net.precision.label,
        compile=spec.engine.compile,
        host_params=setup.net.host_size,
        obs_dim=len(ENV) + len(SLOT) * len(setup.net.slots),
        policy_params=0 if net is None else sum(leaf.numel() for leaf in net.values()),
    )


def describe_kernels() -> str:
    """Return the native kernels in use: "none" where the package was installed without a C
    compiler.
    """
    return (
        "none"
        if not kernels.AVAILABLE
        else "all"
        if kernels.CAN_CONVOLVE
        else "all but convolutions"
    )


def environment_fingerprint(setup: Setup) -> dict[str, str]:
    """Return all that the last bits of a result depend on besides the config."""
    return {
        **run_directory.describe_environment()["versions"],
        "processor": torch.backends.cpu.get_cpu_capability(),
        "threads": str(torch.get_num_threads()),
        "device": device_name(setup.device),
        "precision": setup.net.precision.label,
        "compile": setup.spec.engine.compile,
        "kernels": describe_kernels(),
    }
