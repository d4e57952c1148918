"""Where a run stands: everything that it goes on from, as trees for a checkpoint, and back.

The seed of the run and the position are the whole state of its random numbers: there is no generator to keep.
"""

from typing import Any, NamedTuple

from tensordict import TensorDict

from morphogen.engine.compile import PaddingState
from morphogen.engine.scheduler import Scheduler
from morphogen.errors import CheckpointError
from morphogen.nets import plan as plans
from morphogen.storage.codec import pack, unpack
from morphogen.storage.tensor_trees import Tree, check_tree, restore_tree, to_nested_dict


class RunSnapshot(NamedTuple):
    """The two trees of a checkpoint."""

    envs: Tree  # of the envs of this process
    shared: Tree

    @property
    def sink_positions(self) -> Tree | None:
        """Where the sinks stood."""
        if not isinstance(self.shared, dict) or "written" not in self.shared:
            raise CheckpointError("shared.written is missing")
        return self.shared["written"]


def capture(scheduler: Scheduler) -> RunSnapshot:
    """Where a run stands between two epochs.  What is on its way is taken in first; nothing of the run changes.

    One crossing.  Inside a round the rows of the rollout so far, the memory of the policy and the marks of segments go
    with the envs; a round that begins makes them anew.
    """
    scheduler.read_pending_record()
    crossing = TensorDict(_snapshot_tensors(scheduler), batch_size=[])
    found = to_nested_dict(scheduler.transfers.fetch_state(crossing))
    written = scheduler.reporter.drain()
    more = {
        "telemetry": scheduler.reporter.state(),
        "written": written,
        "compiled": pack(scheduler.compiled.padding_state()),
    }
    return RunSnapshot({"state": {}, **found.get("envs", {})}, {"learner": {}, **found.get("shared", {}), **more})


def _snapshot_tensors(scheduler: Scheduler) -> dict[str, Any]:
    envs = {} if scheduler.state is None else {"state": scheduler.state}
    if scheduler.epoch:
        envs["hidden"], envs["segment"] = scheduler.hidden, scheduler.segment
        envs["rollout"] = scheduler.rollout.rows[: scheduler.epoch]
    return {"envs": envs, "shared": {} if scheduler.learner is None else {"learner": scheduler.learner}}


def restore(scheduler: Scheduler, snapshot: RunSnapshot, round: int, epoch: int) -> None:
    """A new scheduler goes on from where another one stood.  What does not fit is a CheckpointError that names it."""
    envs, shared = snapshot
    spec = scheduler.setup.spec
    if not (0 <= round <= spec.rounds and 0 <= epoch < spec.episode_length) or (round == spec.rounds and epoch):
        raise CheckpointError(f"the position is round {round}, epoch {epoch}; want one of the run")
    keys = ["state", *(("hidden", "segment", "rollout") if epoch else ())]
    check_tree(dict.fromkeys(envs, 0), dict.fromkeys(keys, 0), "envs")
    check_tree(dict.fromkeys(shared, 0), dict.fromkeys(("learner", "telemetry", "written", "compiled"), 0), "shared")
    scheduler.compiled.restore(
        unpack(PaddingState, shared["compiled"], "shared.compiled"), plans.empty_plan(spec.envs, scheduler.setup.net)
    )
    if scheduler.learner is not None:
        scheduler.learner = restore_tree(shared["learner"], scheduler.learner, "shared.learner")
        scheduler.params = scheduler.learner.params
    if round or epoch:
        scheduler.state = restore_tree(envs["state"], scheduler.vector_env.init_state(round), "envs.state")
    if epoch:
        scheduler.hidden = restore_tree(envs["hidden"], scheduler.hidden, "envs.hidden")
        marks = TensorDict({"segment": scheduler.segment}, batch_size=[])
        scheduler.segment = restore_tree({"segment": envs["segment"]}, marks, "envs")["segment"]
        scheduler.rollout.restore(envs["rollout"], epoch, "envs.rollout")
        scheduler.vector_env.resume_data_at(round, epoch)
    scheduler.reporter.restore(shared["telemetry"])
    scheduler.round, scheduler.epoch = round, epoch
