"""Snapshot of a run: its complete state as the trees of a checkpoint, and back.

Random numbers have no state besides the seed and the position: streams are counter-based.
"""

from typing import Any, NamedTuple

import torch
from tensordict import TensorDict

from morphogen.env.episodes import Carry
from morphogen.errors import CheckpointError
from morphogen.state.tensor_trees import Tree, check_tree, restore_tree, to_nested_dict
from morphogen.train.loop import Scheduler


class RunSnapshot(NamedTuple):
    """Trees of a checkpoint."""

    envs: Tree  # of the envs in this process
    # equal in all processes, but for the positions of the sinks, which belong to the first
    shared: Tree

    @property
    def sink_positions(self) -> Tree | None:
        """Positions of the sinks, as `Reporter.drain` returned them; a CheckpointError if
        missing.
        """
        if not isinstance(self.shared, dict) or "written" not in self.shared:
            raise CheckpointError("shared.written is missing")
        return self.shared["written"]


def capture(scheduler: Scheduler) -> RunSnapshot:
    """Return the state of a run between two epochs; the run is not changed.

    Pending records are read first; then one transfer.  Within a round, `envs` includes the rows of
    the rollout and the columns of telemetry so far, the hidden state of the policy and the marks of
    segments; between rounds they are not needed.
    """
    scheduler.read_pending_record()
    carry = scheduler.carry
    envs: dict[str, Any] = {} if carry is None else {"state": carry.state}
    if scheduler.epoch and carry is not None:
        envs["hidden"] = carry.memory
        envs["segment"] = carry.segment
        envs["rollout"] = scheduler.rollout.rows[: scheduler.epoch]
    shared = {} if scheduler.learned is None else {"learner": scheduler.learned}
    tensors = TensorDict({"envs": envs, "shared": shared}, batch_size=[])
    trees = to_nested_dict(scheduler.transfers.fetch_state(tensors))
    written = scheduler.reporter.drain()
    host = {"telemetry": scheduler.reporter.state(), "written": written}
    columns = {"columns": scheduler.reporter.columns()} if scheduler.epoch else {}
    held = {"state": {}, **trees.get("envs", {}), **columns}
    return RunSnapshot(held, {"learner": {}, **trees.get("shared", {}), **host})


def restore(scheduler: Scheduler, snapshot: RunSnapshot, round: int, epoch: int) -> None:
    """Set a new scheduler to a snapshot and its position.

    Raises: CheckpointError that names the entry which does not fit.
    """
    envs, shared = snapshot
    spec = scheduler.setup.spec
    if not (0 <= round <= spec.rounds and 0 <= epoch < spec.episode_length) or (
        round == spec.rounds and epoch
    ):
        raise CheckpointError(
            f"position: expected one of the run, got round {round}, epoch {epoch}"
        )
    keys = ["state", *(("hidden", "segment", "rollout", "columns") if epoch else ())]
    check_tree(dict.fromkeys(envs, 0), dict.fromkeys(keys, 0), "envs")
    check_tree(
        dict.fromkeys(shared, 0), dict.fromkeys(("learner", "telemetry", "written"), 0), "shared"
    )
    if scheduler.learned is not None:
        scheduler.learned = restore_tree(shared["learner"], scheduler.learned, "shared.learner")
        scheduler.params = scheduler.learned.get("params")
    scheduler.move_to(round, epoch)
    if round or epoch:
        env = scheduler.env
        start = env.init_state(torch.full_like(env.keys[:, 0], round))
        state = restore_tree(envs["state"], start, "envs.state")
        memory = scheduler.actor.policy.initial_hidden(env.envs, device=env.device)
        segment = torch.ones_like(env.keys[:, 0], dtype=torch.bool)
        if epoch:
            memory = restore_tree(envs["hidden"], memory, "envs.hidden")
            marks = TensorDict({"segment": segment}, batch_size=[])
            segment = restore_tree({"segment": envs["segment"]}, marks, "envs")["segment"]
            scheduler.rollout.restore(envs["rollout"], epoch, "envs.rollout")
        scheduler.carry = Carry(state, env.observe(state), memory, segment)
    scheduler.reporter.restore(shared["telemetry"], envs.get("columns", {}), (round, epoch))
