"""Checkpoint: all that a resumed run needs, as one value: captured, saved, loaded, restored.

Random numbers have no state besides the seed and the position: streams are counter-based.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from tensordict import TensorDict

from morphogen.env.episodes import Carry
from morphogen.errors import CheckpointError
from morphogen.log.codec import pack, unpack
from morphogen.log.log_file import LogPosition
from morphogen.state.tensor_trees import Tree, encode_tree, load_tree, restore_tree, to_nested_dict
from morphogen.train.checkpoint_store import STATE, check_undamaged, write_checkpoint
from morphogen.train.loop import Scheduler
from morphogen.train.reporter import TelemetryState
from morphogen.vocab.paths import expand_path

TREES = ("learner", "carry", "rollout", "columns")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """State of a run between two epochs.  Trees are nested dicts of tensors on the CPU."""

    manifest: Mapping[str, Any]
    """JSON values: round and epoch of the next epoch; run_id, kind, config, devices, made, score;
    sha256 of config and data.  The store adds format, bytes and sha256 of the file."""
    learner: Tree
    """State of the learner: parameters, optimiser, normalisers; {} if the policy does not learn."""
    carry: Tree
    """`Carry` of all envs, [E]: state, memory and segment; its inputs follow from the state."""
    rollout: Tree
    """Rows of the unfinished round, [t, E]; t is 0 between two rounds."""
    columns: Tree
    """Records of the unfinished round, [t, E, ...]; {} between two rounds."""
    telemetry: TelemetryState
    """Memory of the summaries and of the monitors."""
    log: LogPosition | None
    """Position in the event file; None without one."""

    @property
    def position(self) -> tuple[int, int]:
        """Round and epoch of the next epoch to run."""
        return self.manifest["round"], self.manifest["epoch"]

    def map_envs(self, function: Callable[[Tree], Tree]) -> "Checkpoint":
        """Apply a function to the trees of the envs."""
        envs = {"carry": self.carry, "rollout": self.rollout, "columns": self.columns}
        return replace(self, **function(envs))

    def save(self, folder: Path, *, keep: int | None = None) -> Path:
        """Write the checkpoint as a directory below `folder`, like `write_checkpoint`."""
        tree = {name: getattr(self, name) for name in TREES}
        tree |= {"telemetry": pack(self.telemetry), "log": pack(self.log)}
        return write_checkpoint(folder, encode_tree(tree), self.manifest, keep=keep)


def load_checkpoint(path: Path | str) -> Checkpoint:
    """Return the checkpoint in a directory, after comparing its size and hash.

    Raises: CheckpointError if the checkpoint is damaged or cannot be read.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> import morphogen as mg
        >>> fields = {"preset": "tiny", "rounds": 1, "envs": 4, "policy_name": "wait"}
        >>> with TemporaryDirectory() as folder:
        ...     run = mg.train_ppo_vectorized(
        ...         **fields, episode_length=2, final_episodes=0, out=folder
        ...     )
        ...     saved = mg.load_checkpoint(f"{folder}/checkpoints/round-000001-epoch-0000")
        >>> saved.position, saved.carry["state"]["clock"]["epoch"].tolist()
        ((1, 0), [2, 2, 2, 2])
    """
    path = expand_path(path)
    manifest = check_undamaged(path)
    tree: Tree = load_tree(path / STATE, label="checkpoint file")
    try:
        return Checkpoint(
            manifest,
            **{name: tree[name] for name in TREES},
            telemetry=unpack(TelemetryState, tree["telemetry"], "telemetry"),
            log=unpack(LogPosition | None, tree["log"], "log"),
        )
    except (KeyError, TypeError):
        raise CheckpointError(f"checkpoint {path}: {STATE} lacks an entry") from None


def capture(scheduler: Scheduler, facts: Mapping[str, Any]) -> Checkpoint:
    """Return the state of a run between two epochs in one transfer; the run itself is unchanged.

    The record of the last epoch is read, and the log written, before.

    Args:
        scheduler: in or after its first round.
        facts: JSON values for the manifest.
    """
    scheduler.read_pending_record()
    carry: Any = scheduler.carry
    if carry is None:
        raise ValueError("scheduler: expected a round that has begun")
    tensors: Tree = {
        "learner": TensorDict() if scheduler.learned is None else scheduler.learned,
        "carry": {"state": carry.state, "memory": carry.memory, "segment": carry.segment},
        "rollout": scheduler.rollout.rows[: scheduler.epoch],
    }
    trees = to_nested_dict(scheduler.transfers.fetch_state(TensorDict(tensors, batch_size=[])))
    return Checkpoint(
        {"round": scheduler.round, "epoch": scheduler.epoch, **facts},
        trees["learner"],
        trees["carry"],
        trees["rollout"],
        to_nested_dict(scheduler.reporter.columns()),
        scheduler.reporter.state(),
        scheduler.reporter.writer.drain(scheduler.round),
    )


def restore(scheduler: Scheduler, checkpoint: Checkpoint) -> None:
    """Set a new scheduler of the same run to a checkpoint.

    Raises: CheckpointError that names the entry which does not fit.
    """
    round, epoch = checkpoint.position
    if scheduler.learned is not None:
        scheduler.learned = restore_tree(checkpoint.learner, scheduler.learned, "learner")
        scheduler.params = scheduler.learned.get("params")
    scheduler.move_to(round, epoch)
    if epoch:  # a round starts from a reset
        env = scheduler.env
        like: Tree = {
            "state": env.init_state(torch.full_like(env.keys[:, 0], round)),
            "memory": scheduler.actor.policy.initial_hidden(env.envs, device=env.device),
            "segment": torch.ones_like(env.keys[:, 0], dtype=torch.bool),
        }
        carry: Any = restore_tree(
            checkpoint.carry, TensorDict(like, batch_size=[env.envs]), "carry"
        )
        state: Any = carry["state"]
        scheduler.carry = Carry(state, env.observe(state), carry["memory"], carry["segment"])
        rows = cast(Any, scheduler.rollout.rows[:epoch])
        rows.update_(restore_tree(checkpoint.rollout, rows, "rollout"))
    scheduler.reporter.restore(checkpoint.telemetry, checkpoint.columns, epoch)
