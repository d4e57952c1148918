"""Record of one epoch: all values for telemetry in one transfer, with one schema per run."""

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.instance_spec import INSTANCE_PARAMETERS
from morphogen.engine.epoch import Epoch
from morphogen.rules.legality import head_value_counts
from morphogen.state.env import Signals, Slots
from morphogen.state.tree_ops import constant_table, unsafe_new
from morphogen.vocab.action import Head
from morphogen.vocab.fault import Fault
from morphogen.vocab.stage import Removal, Stage


def build_record(epoch: Epoch) -> TensorDict:
    """Build the record, flat, all leaves [E, ...]."""
    signals: Signals = epoch.before.signals
    leaves = {"loss_before": signals.val_loss, "acc_before": signals.val_acc}
    leaves |= {**_measurement_values(epoch), **_slot_values(epoch), **_step_values(epoch), **_governor_values(epoch)}
    reals = [leaf.reshape(leaf.shape[0], -1) for leaf in leaves.values() if leaf.is_floating_point()]
    leaves["nonfinite"] = (~torch.cat(reals, dim=-1).isfinite()).sum(-1)
    small = {
        name: leaf.to(_SMALL_DTYPES.get(name, torch.int32)) if leaf.dtype == torch.int64 else leaf
        for name, leaf in leaves.items()
    }
    return unsafe_new(TensorDict, epoch.before, **small)


_INT8_NAMES = ("stage_before", "stage_acted", "stage_ticked", "stage", "blueprint", "algorithm", "gate", "removal")
_INT8_NAMES += ("op_effective", "outcome", "reason", "panic", "anomaly")
_INT16_NAMES = ("since_measured", "age", "epochs_in_stage", "gate_failed", "action", "legal_choices", "tempo")
_INT16_NAMES += ("panic_streak", "snapshot_epoch", "stable_epochs")
# Narrow integers; all others are int32.
_SMALL_DTYPES = {**dict.fromkeys(_INT8_NAMES, torch.int8), **dict.fromkeys(_INT16_NAMES, torch.int16)}


# Leaves recorded under their own names.
_ATTRIBUTION_LEAVES = ("val_acc", "committed_acc", "host_acc", "clean_improvement", "measured", "exact", "acc_table")
_ATTRIBUTION_LEAVES += ("contribution", "contribution_valid", "shapley", "interaction_sum", "boost_received")
_ATTRIBUTION_LEAVES += ("interaction_valid", "forwards")
_SLOT_LEAVES = ("gradient_norm", "gradient_health", "gradient_ratio", "gradient_valid", "gradient_ratio_valid")
_SLOT_LEAVES += ("vanishing", "exploding", "velocity", "velocity_valid", "since_measured")
_REWARD_LEAVES = ("reward", "components", "network_value", "param_cost", "potential", "potential_by_slot")
_REWARD_LEAVES += ("unmeasured", "detectors", "detector_ratio", "fossil_params", "live_params")


def _measurement_values(epoch: Epoch) -> dict[str, Tensor]:
    train, validation, worth = epoch.train.metrics, epoch.train.validation, epoch.score.attribution
    return {
        "train_loss": train.loss,
        "train_acc": train.accuracy,
        "train_valid": train.valid,
        "skipped": train.skipped,
        "host_gradient_norm": train.host_gradient_norm,
        "val_loss": validation.loss,
        **{name: getattr(worth, name) for name in _ATTRIBUTION_LEAVES},
    }


def _slot_values(epoch: Epoch) -> dict[str, Tensor]:
    after: Slots = epoch.score.after.slots
    acted, ticked = epoch.act.acted.slots, epoch.act.ticked.slots
    by_action = epoch.act.outcome.target & (epoch.act.outcome.gate != 0).unsqueeze(-1)
    gate = torch.where(by_action, epoch.act.outcome.gate.unsqueeze(-1), epoch.act.ticks.gate)
    failed = torch.where(by_action, epoch.act.outcome.gate_failed.unsqueeze(-1), 0)
    return {
        "stage_before": epoch.before.slots.stage,
        "stage_acted": acted.stage,
        "stage_ticked": ticked.stage,
        "stage": after.stage,
        "blueprint": acted.blueprint,  # also of a seed that the end of the step removes
        "algorithm": acted.algorithm,
        "tempo": acted.tempo,
        "blend_target": acted.blend_target,
        "alpha": after.alpha,
        "age": ticked.age,
        "epochs_in_stage": ticked.epochs_in_stage,
        "params": epoch.score.seed_params,
        "gate": gate,
        "gate_passed": (gate != 0) & (failed == 0),
        "gate_failed": failed,
        "removal": removal_cause(epoch),
        **{name: getattr(after, name) for name in _SLOT_LEAVES},
    }


def removal_cause(epoch: Epoch) -> Tensor:
    """Cause of a removal in this step, int64 [E, S]."""
    pruned = int(Stage.PRUNED)
    by_action = (epoch.act.acted.slots.stage == pruned) & (epoch.before.slots.stage != pruned)
    by_governor = (epoch.score.governed.slots.stage == pruned) & (epoch.act.ticked.slots.stage != pruned)
    cause = torch.where(by_action, int(Removal.ACTION), epoch.act.ticks.removal)
    return torch.where(by_governor, int(Removal.GOVERNOR), cause)


def _step_values(epoch: Epoch) -> dict[str, Tensor]:
    choice, outcome = epoch.act.choice, epoch.act.outcome
    return {
        "action": choice.action,
        "op_effective": outcome.effective_op,
        "outcome": outcome.outcome,
        "reason": outcome.reason,
        "success": outcome.executed,
        "forced": choice.forced,
        "missed": epoch.act.missed,
        "op_prob": choice.op_prob,
        "op_legal": epoch.act.masks.op,
        "legal_choices": head_value_counts(epoch.act.masks, choice.action[:, Head.OP]),
        "log_prob": choice.log_prob,
        "entropy": choice.entropy,
        "value": choice.value,
        **{name: getattr(epoch.score.step, name) for name in _REWARD_LEAVES},
    }


def _governor_values(epoch: Epoch) -> dict[str, Tensor]:
    report, signals = epoch.score.report, epoch.score.after.signals
    instance = epoch.score.after.instance
    return {
        "rolled_back": report.rolled_back,
        "panic": report.panic,
        "loss_limit": report.limit,
        "panic_streak": report.streak,
        "anomaly": report.anomaly,
        "snapshot_epoch": report.snapshot_epoch,
        "snapshot_taken": report.snapshot_taken,
        "seeds_pruned": report.seeds_pruned,
        "stabilized": signals.stabilized,
        "stable_epochs": signals.stable,
        "host_params": epoch.score.host_params,
        "final_acc": signals.val_acc,
        "final_committed": signals.committed_acc,
        "final_loss": signals.val_loss,
        "best_acc": signals.best_acc,
        "fault": fault_bits(epoch),
        "instance": torch.stack([getattr(instance, name).float() for name in INSTANCE_PARAMETERS], dim=-1),
    }


def fault_bits(epoch: Epoch) -> Tensor:
    """Bit set of the faults of this epoch, int64 [E]."""
    choice = epoch.act.choice
    rows = (
        (epoch.train.metrics.skipped > 0, Fault.SKIPPED_STEP),
        (epoch.train.metrics.seed_skipped, Fault.SEED_SKIPPED),
        (~epoch.train.validation.loss.isfinite(), Fault.VALIDATION),
        (~epoch.act.observation.finite, Fault.OBSERVATION),
        (epoch.score.report.rolled_back, Fault.ROLLED_BACK),
        (~(choice.value.isfinite() & choice.log_prob.isfinite().all(-1)), Fault.POLICY),
    )
    hits = torch.stack([where for where, _ in rows], dim=-1)
    return (hits * constant_table(tuple(int(code) for _, code in rows), torch.int64, hits.device)).sum(-1)
