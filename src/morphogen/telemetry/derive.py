"""Events of an epoch: a pure function of its record and a small memory.  numpy, no tensors.

A record is a mapping from leaf names to arrays [E, ...]; its schema is `engine.record.record`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from morphogen.config.task import INSTANCE_PARAMETERS
from morphogen.telemetry.events import Envelope, Event, Json, tidy
from morphogen.telemetry.jsonl import manifest_hash
from morphogen.telemetry.kinds import epoch as kinds
from morphogen.telemetry.record_memory import HEAD_USED, STAGE_POINTS, Array, EpisodeMemory, Record, RunFacts, in_stages
from morphogen.vocab.action import VALUE_NAMES, Head, Op, Outcome, Reason
from morphogen.vocab.reward import DETECTORS
from morphogen.vocab.stage import BLENDED, OCCUPIED, Algorithm, Check, Fault, Gate, Panic, Removal, Stage

CAUSES: dict[kinds.Cause, Removal] = {"action": Removal.ACTION, "tick": Removal.RAMP, "govern": Removal.GOVERNOR}
REMOVAL_NAMES: dict[Removal, kinds.RemovalName] = {
    Removal.ACTION: "action",
    Removal.RAMP: "ramp",
    Removal.GOVERNOR: "governor",
}
NO_VALUE: Any = None  # annotations of numpy refuse None as an array
PENALTY = "governor"  # the reward component that a rollback pays; a rule without it charges nothing


@dataclass(frozen=True, slots=True)
class DeriveContext:
    """Record of one epoch, and its context."""

    record: Record
    memory: EpisodeMemory  # as of the end of the epoch before, germinations of this one noted
    round: int
    epoch: int
    facts: RunFacts

    def envelope(self, env: int, data: Event, slot: int | None = None) -> Envelope:
        """An event of the env in row `env` of the record."""
        number = self.facts.first + int(env)
        return Envelope(
            data,
            round=self.round,
            epoch=self.epoch,
            env=number,
            episode=self.round * self.facts.envs + number,
            slot=None if slot is None else self.facts.slots[slot],
        )


def derive_events(
    record: Record, memories: tuple[EpisodeMemory, EpisodeMemory], position: tuple[int, int], facts: RunFacts
) -> tuple[Envelope, ...]:
    """The events of the epoch at (round, epoch) up to the normal level; memories: as `update_memory` returns them.

    Events about all envs come first, then those of each env, in order.
    """
    (round, epoch), (before, after) = position, memories
    step = DeriveContext(record, before, round, epoch, facts)
    state = [Envelope(epoch_event(record), round=round, epoch=epoch)]
    rules = (_gate_events, _stage_events, _env_events)
    events = [event for rule in rules for event in rule(step)]
    if epoch == facts.epochs - 1:
        state.append(Envelope(ablations_event(record), round=round, epoch=epoch, level="normal"))
        events += [step.envelope(env, data) for env, data in enumerate(completed_episodes(record, after, facts))]
        events += [step.envelope(env, data) for env, data in final_topologies(record, after, facts)]
    return (*state, *sorted(events, key=lambda event: event.env or 0))


def derive_details(
    record: Record, memory: EpisodeMemory, position: tuple[int, int], facts: RunFacts
) -> tuple[Envelope, ...]:
    """The events of an epoch that only the debug level writes.  memory: that after the epoch."""
    round, epoch = position
    data: list[Event] = [actions_event(record, facts), slots_event(record, memory)]
    missing = attribution_event(record)
    if any(map(any, missing.reason)):
        data.append(missing)
    amounts = {"components": record["components"], "totals": memory.components}
    data.append(kinds.RewardsPaid.build(names=facts.components, **amounts))
    if epoch < facts.epochs - 1:
        data.append(ablations_event(record))
    events = [Envelope(part, round=round, epoch=epoch) for part in data]
    step = DeriveContext(record, memory, round, epoch, facts)
    fossils = (record["stage"] == Stage.FOSSILIZED).sum(axis=1)
    for (env,) in _indices(record["snapshot_taken"]):
        events.append(step.envelope(env, kinds.SnapshotTaken(loss=record["val_loss"][env], fossils=fossils[env])))
    return tuple(events)


def _indices(mask: Array) -> list[list[int]]:
    return np.argwhere(mask).tolist()


def _gate_events(step: DeriveContext) -> Iterator[Envelope]:
    record = step.record
    for env, slot in _indices(record["gate"] != Gate.NONE):
        bits = int(record["gate_failed"][env, slot])
        data = kinds.GateEvaluated(
            gate=Gate(int(record["gate"][env, slot])).name,
            passed=record["gate_passed"][env, slot],
            failed=tuple([check.name.lower() for check in Check if bits >> check & 1]),
        )
        yield step.envelope(env, data, slot)


def _stage_events(step: DeriveContext) -> Iterator[Envelope]:
    """Every change of stage, in order, each followed by the event of its seed."""
    record, memory = step.record, step.memory
    for cause, (before, after) in zip(CAUSES, pairwise(STAGE_POINTS), strict=True):
        for env, slot in _indices(record[before] != record[after]):
            at = env, slot
            start, old, new = (Stage(int(record[point][at])) for point in ("stage_before", before, after))
            change = kinds.StageChanged(
                from_=old.name,
                to=new.name,
                cause=cause,
                blueprint=None if old is Stage.DORMANT else _blueprint_label(record, at, step.facts),
                alpha=memory.alpha[at],
                age=0 if start is Stage.DORMANT else memory.age[at],
                epochs_in_stage=0 if old != start else memory.epochs_in_stage[at],  # 0: its second move in this epoch
            )
            yield step.envelope(env, change, slot)
            if new in (Stage.GERMINATED, Stage.FOSSILIZED, Stage.PRUNED):
                yield step.envelope(env, _seed_event(step, at, new, cause), slot)


def _seed_event(step: DeriveContext, at: tuple[int, int], to: Stage, cause: kinds.Cause) -> Event:
    """A seed that germinates, or as of the last epoch before its move."""
    record, memory = step.record, step.memory
    blueprint, accuracy = _blueprint_label(record, at, step.facts), record["acc_before"][at[0]]
    if to is Stage.GERMINATED:
        return kinds.SeedGerminated(
            blueprint=blueprint,
            params=record["params"][at],
            algorithm=Algorithm(int(record["algorithm"][at])).name,
            tempo=record["tempo"][at],
            alpha_target=record["blend_target"][at],
            accuracy=accuracy,
        )
    measured = memory.contribution_valid[at]
    before: dict[str, Any] = {
        "blueprint": blueprint,
        "params": max(memory.params[at], record["params"][at]),  # counted in the epoch before, or first in this one
        "age": memory.age[at] if record["stage_before"][at] != Stage.DORMANT else 0,
        "contribution": memory.contribution[at] if measured else None,
        "accuracy_change": float(accuracy) - float(memory.germination_accuracy[at]),
    }
    if to is Stage.FOSSILIZED:
        return kinds.SeedFossilized(**before, shapley=memory.shapley[at] if measured else None)
    return kinds.SeedPruned(**before, reason=REMOVAL_NAMES[CAUSES[cause]])


def _blueprint_label(record: Record, at: tuple[int, int], facts: RunFacts) -> str:
    return facts.blueprints[int(record["blueprint"][at])]


def _env_events(step: DeriveContext) -> Iterator[Envelope]:
    """Rollbacks, then faults of envs that were not rolled back, then hosts whose loss settled."""
    record, names = step.record, step.facts.components
    penalty = -record["components"][:, names.index(PENALTY)] if PENALTY in names else np.zeros(len(record["reward"]))
    for (env,) in _indices(record["rolled_back"]):
        rollback = kinds.RolledBack(
            reason=Panic(int(record["panic"][env])).name.lower(),
            loss=record["val_loss"][env],
            streak=record["panic_streak"][env],
            penalty=penalty[env],
            **{name: record[name][env] for name in ("loss_limit", "seeds_pruned", "snapshot_epoch")},
        )
        yield step.envelope(env, rollback)
    wrong = (record["anomaly"] != Panic.NONE) | (record["fault"] != Fault.NONE)
    for (env,) in _indices(wrong & ~record["rolled_back"]):
        anomaly = kinds.AnomalySeen(
            sign=Panic(int(record["anomaly"][env])).name.lower(),
            faults=tuple([str(fault.name).lower() for fault in Fault(int(record["fault"][env]))]),
            loss=record["val_loss"][env],
            loss_limit=record["loss_limit"][env],
            streak=record["panic_streak"][env],
        )
        yield step.envelope(env, anomaly)
    for (env,) in _indices(record["stabilized"] & ~step.memory.stabilized):
        settled = kinds.HostStabilized(stable_epochs=record["stable_epochs"][env], loss=record["val_loss"][env])
        yield step.envelope(env, settled)


def enum_names(codes: Array, of: type[Stage | Op | Outcome | Reason]) -> Array:
    """The name of every code; codes are those of an enum.  int [...] -> str [...]."""
    table = np.full(max(of) + 1, "", dtype=object)
    table[[int(code) for code in of]] = [code.name for code in of]
    return table[codes]


def choice_names(values: Array, names: tuple[str, ...], used: Array) -> list[str | None]:
    """The name of the value that each env chose with a head; None where it uses none.  int [E], bool [E]."""
    known = used & (values >= 0) & (values < len(names))
    return [names[value] if good else None for value, good in zip(values.tolist(), known.tolist(), strict=True)]


def _columns(record: Record, *names: str, valid: Array | None = None) -> Record:
    """Leaves of a record by name; NaN (None in an event) where they are not valid.  Shapes broadcast."""
    return {name: record[name] if valid is None else np.where(valid, record[name], np.nan) for name in names}


def stability(accuracies: Array) -> float:
    """`1 / (1 + variance)` of the differences between accuracies in order; NaN = no epoch; 1 below two of them."""
    steps = np.diff(accuracies[~np.isnan(accuracies)])
    return float(1.0 / (1.0 + steps.var())) if steps.size > 1 else 1.0


def delivered_params(record: Record) -> Array:
    """Parameters of the host with the seeds that are blended in, int64 [E]."""
    blended = in_stages(record["stage"], BLENDED)
    return record["host_params"] + np.where(blended, record["params"], 0).sum(axis=1)


MAX_OTHERS = 2  # ops that are reported besides the chosen one


def epoch_event(record: Record) -> kinds.EpochCompleted:
    """State of every env."""
    measured = record["contribution_valid"] & in_stages(record["stage"], OCCUPIED)
    return kinds.EpochCompleted.build(
        **_columns(record, "val_loss", "val_acc", "committed_acc", "reward", "skipped", "forwards", "success", "alpha"),
        **_columns(record, "train_loss", "train_acc", "host_gradient_norm", valid=record["train_valid"]),
        **_columns(record, "contribution", valid=measured),
        params_ratio=delivered_params(record) / record["host_params"],
        op_effective=enum_names(record["op_effective"], Op),
        stage=enum_names(record["stage"], Stage),
    )


def ablations_event(record: Record) -> kinds.AblationsMeasured:
    """Contribution of every seed."""
    return kinds.AblationsMeasured.build(
        exact=record["exact"],
        **_columns(record, "acc_table", valid=record["exact"][:, None]),
        **_columns(record, "host_acc", valid=record["measured"]),
        **_columns(record, "shapley", valid=record["contribution_valid"]),
        **_columns(record, "interaction_sum", "boost_received", valid=record["interaction_valid"]),
    )


def actions_event(record: Record, facts: RunFacts) -> kinds.ActionsTaken:
    """Chosen actions, their outcomes, and the most likely legal ops besides, the likeliest first."""
    action = record["action"]
    used = HEAD_USED[np.clip(action[:, Head.OP], 0, len(Op) - 1)]
    names = {**VALUE_NAMES, Head.SLOT: facts.slots, Head.BLUEPRINT: facts.blueprints}
    free = record["op_legal"] & (np.arange(len(Op)) != record["action"][:, :1])
    likely = np.argsort(np.where(free, -record["op_prob"], np.inf), axis=1, kind="stable")[:, :MAX_OTHERS]
    return kinds.ActionsTaken.build(
        **{head.label: choice_names(action[:, head], names[head], used[:, head]) for head in Head},
        **_columns(record, "op_prob", "op_legal", "log_prob", "entropy", "value", "forced"),
        others=[[Op(op).name for op in row if free[env, op]] for env, row in enumerate(likely)],
        outcome=enum_names(record["outcome"], Outcome),
        reason=enum_names(record["reason"], Reason),
    )


def slots_event(record: Record, memory: EpisodeMemory) -> kinds.SlotsMeasured:
    """Gradients and progress of every seed."""
    graded = record["gradient_valid"]
    return kinds.SlotsMeasured.build(
        **_columns(record, "gradient_norm", "gradient_health", valid=graded),
        **_columns(record, "gradient_ratio", valid=record["gradient_ratio_valid"]),
        **_columns(record, "velocity", valid=record["velocity_valid"]),
        vanishing=np.where(graded, record["vanishing"], NO_VALUE),
        exploding=np.where(graded, record["exploding"], NO_VALUE),
        interaction=np.where(record["interaction_valid"], record["interaction_sum"], np.nan),
        age=memory.age,
        epochs_in_stage=memory.epochs_in_stage,
    )


def attribution_event(record: Record) -> kinds.AttributionMissing:
    """Seeds without a fresh contribution; `not_exact`: fresh, but its interactions were not measured."""
    seed, fresh = in_stages(record["stage"], OCCUPIED), record["contribution_valid"]
    player = in_stages(record["stage_ticked"], BLENDED) & (record["alpha"] > 0)
    reason = np.where(player & ~record["measured"][:, None], "skipped", "no_player").astype(object)
    reason = np.where(fresh & ~record["interaction_valid"], "not_exact", reason)
    missing = seed & ~(fresh & record["interaction_valid"])
    return kinds.AttributionMissing.build(reason=np.where(missing, reason, NO_VALUE))


EPISODE_SUMS = ("reward", "germinated", "fossilized", "pruned", "rollbacks")
CONTRIBUTING_POINTS = 1.0  # points of contribution from which a fossil counts as contributing


def completed_episodes(record: Record, memory: EpisodeMemory, facts: RunFacts) -> Iterator[kinds.EpisodeCompleted]:
    """An event for every env, in order; record of the last epoch, memory after it.

    After a rollback in the last epoch, accuracies and rewards are those of the restored state.
    """
    committed = [float(accuracy) for accuracy in record["final_committed"]]
    fossil = record["stage"] == Stage.FOSSILIZED
    worth = fossil & memory.contribution_valid & (memory.contribution >= CONTRIBUTING_POINTS)
    live = in_stages(record["stage"], OCCUPIED) & ~fossil
    kept, delivered = live | fossil, delivered_params(record)
    for env in range(record["stage"].shape[0]):
        yield kinds.EpisodeCompleted(
            accuracy=record["final_acc"][env],
            committed_accuracy=committed[env],
            initial_accuracy=memory.initial_accuracy[env],
            best_accuracy=record["best_acc"][env],
            loss=record["final_loss"][env],
            success=committed[env] >= facts.success_accuracy,
            stability=stability(memory.recent[env]),
            discounted_return=memory.discounted[env],
            network_value=record["network_value"][env],
            components=dict(zip(facts.components, memory.components[env], strict=True)),
            unmeasured_steps=memory.unmeasured[env],
            detectors=dict(zip(DETECTORS, memory.detectors[env], strict=True)),
            params=delivered[env],
            params_ratio=delivered[env] / record["host_params"][env],
            contributing=worth[env].sum(),
            live=live[env].sum(),
            **{name: getattr(memory, name)[env] for name in EPISODE_SUMS},
            ops={op.name: memory.ops[env, op] for op in Op},
            instance=dict(zip(INSTANCE_PARAMETERS, record["instance"][env], strict=True)),
            topology=tuple([_episode_seed(record, memory, facts, (env, slot)) for slot in _positions(kept[env])]),
        )


def _positions(mask: Array) -> list[int]:
    return np.flatnonzero(mask).tolist()


def _episode_seed(record: Record, memory: EpisodeMemory, facts: RunFacts, at: tuple[int, int]) -> kinds.EpisodeSeed:
    return {
        "slot": facts.slots[at[1]],
        "blueprint": _blueprint_label(record, at, facts),
        "stage": Stage(int(record["stage"][at])).name,
        "alpha": record["alpha"][at],
        "contribution": memory.contribution[at] if memory.contribution_valid[at] else None,
    }


def final_topologies(
    record: Record, memory: EpisodeMemory, facts: RunFacts
) -> Iterator[tuple[int, kinds.TopologyRecorded]]:
    """(env, event) for every env that ends with a fossil: its manifest and the hash of it."""
    fossil = record["stage"] == Stage.FOSSILIZED
    for env in _positions(fossil.any(axis=1)):
        slots: list[Json] = []
        for at in ((env, slot) for slot in _positions(fossil[env])):
            seed: Json = {**_episode_seed(record, memory, facts, at)}
            del seed["contribution"]
            algorithm = Algorithm(int(record["algorithm"][at])).name
            numbers = {"tempo": record["tempo"][at], "params": record["params"][at]}
            slots.append({**seed, "algorithm": algorithm, **numbers})
        manifest = tidy({"task": facts.task, "host": facts.host, "slots": slots})
        yield env, kinds.TopologyRecorded(sha256=manifest_hash(manifest), manifest=manifest)
