"""The end of an episode: what each env became.  numpy, no tensors."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from morphogen.config.instance_spec import INSTANCE_PARAMETERS
from morphogen.telemetry.event_tally import Array, Record
from morphogen.telemetry.events import tidy
from morphogen.telemetry.kinds.env import EpisodeCompleted, TopologyRecorded
from morphogen.telemetry.record_memory import EpisodeMemory, RunFacts, in_stages
from morphogen.vocab.action import Op
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.reward import DETECTORS
from morphogen.vocab.stage import BLENDED, OCCUPIED, Algorithm, Stage

CONTRIBUTING_POINTS = 1.0  # points of contribution from which a fossil counts as contributing


def completed_episodes(
    record: Record, memory: EpisodeMemory, facts: RunFacts
) -> Iterator[tuple[int, EpisodeCompleted]]:
    """(env, event) for every env; record of the last epoch, memory after it."""
    fossil = record["stage"] == Stage.FOSSILIZED
    worth = fossil & memory.contribution_valid & (memory.contribution >= CONTRIBUTING_POINTS)
    live = in_stages(record["stage"], OCCUPIED) & ~fossil
    delivered = delivered_params(record)
    for env in range(record["stage"].shape[0]):
        yield (
            env,
            EpisodeCompleted(
                **_episode_metrics(record, memory, facts, env),
                components=dict(zip(facts.components, memory.components[env], strict=True)),
                unmeasured_steps=memory.unmeasured[env],
                detectors=dict(zip(DETECTORS, memory.detectors[env], strict=True)),
                params=delivered[env],
                params_ratio=delivered[env] / record["host_params"][env],
                germinated=memory.germinated[env],
                fossilized=memory.fossilized[env],
                contributing=worth[env].sum(),
                pruned=memory.pruned[env],
                live=live[env].sum(),
                rollbacks=memory.rollbacks[env],
                ops={op.name: memory.ops[env, op] for op in Op},
                instance=dict(zip(INSTANCE_PARAMETERS, record["instance"][env], strict=True)),
                topology=[
                    _seed_manifest(record, memory, facts, (env, slot)) for slot in np.flatnonzero((live | fossil)[env])
                ],
            ),
        )


def _episode_metrics(record: Record, memory: EpisodeMemory, facts: RunFacts, env: int) -> dict[str, Any]:
    """Accuracies and rewards; after a rollback in the last epoch they are those of the restored state."""
    committed = float(record["final_committed"][env])
    return {
        "accuracy": record["final_acc"][env],
        "committed_accuracy": committed,
        "initial_accuracy": memory.initial_accuracy[env],
        "best_accuracy": record["best_acc"][env],
        "loss": record["final_loss"][env],
        "success": committed >= facts.success_accuracy,
        "stability": stability(memory.recent[env]),
        "reward": memory.reward[env],
        "discounted_return": memory.discounted[env],
        "network_value": record["network_value"][env],
    }


def stability(accuracies: Array) -> float:
    """`1 / (1 + variance)` of the differences between accuracies in order; NaN = no epoch; 1 below two of them."""
    steps = np.diff(accuracies[~np.isnan(accuracies)])
    return float(1.0 / (1.0 + steps.var())) if steps.size > 1 else 1.0


def delivered_params(record: Record) -> Array:
    """Parameters of the host with the seeds that are blended in, int64 [E]."""
    blended = in_stages(record["stage"], BLENDED)
    return record["host_params"] + np.where(blended, record["params"], 0).sum(axis=1)


def _seed_manifest(record: Record, memory: EpisodeMemory, facts: RunFacts, at: tuple[int, int]) -> dict[str, Any]:
    return {
        "slot": facts.slots[at[1]],
        "blueprint": Blueprint(int(record["blueprint"][at])).label,
        "stage": Stage(int(record["stage"][at])).name,
        "alpha": record["alpha"][at],
        "contribution": memory.contribution[at] if memory.contribution_valid[at] else None,
    }


def final_topologies(record: Record, memory: EpisodeMemory, facts: RunFacts) -> Iterator[tuple[int, TopologyRecorded]]:
    """(env, event) for every env that ends with a fossil: its manifest and the hash of it."""
    fossil = record["stage"] == Stage.FOSSILIZED
    for env in np.flatnonzero(fossil.any(axis=1)).tolist():
        slots = [_fossil_manifest(record, memory, facts, (env, slot)) for slot in np.flatnonzero(fossil[env])]
        manifest = tidy({"task": facts.task, "host": facts.host, "slots": slots})
        yield env, TopologyRecorded(sha256=manifest_hash(manifest), manifest=manifest)


def _fossil_manifest(record: Record, memory: EpisodeMemory, facts: RunFacts, at: tuple[int, int]) -> dict[str, Any]:
    seed = _seed_manifest(record, memory, facts, at)
    del seed["contribution"]
    algorithm = Algorithm(int(record["algorithm"][at])).name
    return {**seed, "algorithm": algorithm, "tempo": record["tempo"][at], "params": record["params"][at]}


def manifest_hash(manifest: dict[str, Any]) -> str:
    """Sha256 of a manifest as canonical JSON: sorted keys, no spaces."""
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
