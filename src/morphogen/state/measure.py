"""Measurements of an epoch: training metrics, accuracies per coalition, attribution, governor's
report, score.
"""

from torch import Tensor

from morphogen.state.tree_ops import FrozenTree
from morphogen.vocab.text import short_repr


@short_repr
class InputBatch(FrozenTree):
    """One minibatch of every env."""

    inputs: Tensor
    """float32 [E, B, C, H, W], normalised images; or int64 [E, B, n]."""
    labels: Tensor
    """int64 [E, B], in 0 .. classes-1 of the env; or other targets [E, B, ...]."""


@short_repr
class LabelledInputs(FrozenTree):
    """Labelled images that all envs share.  batch_size []."""

    inputs: Tensor
    """float32 [N, C, H, W], normalised images; or int64 [N, n]."""
    labels: Tensor
    """int64 [N], original labels; or other targets [N, ...]."""


@short_repr
class TrainMetrics(FrozenTree):
    """Training of one epoch; losses in nats per sample, accuracies in points."""

    loss: Tensor
    """float32 [E], mean over finite minibatches."""
    accuracy: Tensor
    """float32 [E]."""
    valid: Tensor
    """bool [E], at least one minibatch was finite."""
    skipped: Tensor
    """int64 [E], minibatches not applied to the host."""
    overflowed: Tensor
    """int64 [E], skipped ones that a lower loss scale may mend."""
    host_gradient_norm: Tensor
    """float32 [E], root mean square over minibatches."""
    seed_skipped: Tensor
    """bool [E], an incubating seed skipped a step."""


@short_repr
class TickReport(FrozenTree):
    """Automatic transitions of the slots in a tick."""

    gate: Tensor
    """int64 [E, S], a `Gate` passed by auto-forward; 0 = no gate."""
    removal: Tensor
    """int64 [E, S], `Removal.RAMP` where a ramp to 0 ended."""


@short_repr
class Validation(FrozenTree):
    """One pass over the validation split under every coalition that attribution needs
    (`rules.attribution`).
    """

    loss: Tensor
    """float32 [E], of coalition 0: all seeds on."""
    accuracy: Tensor
    """float32 [E, K], points, per coalition; 0 where not evaluated."""
    coalition: Tensor
    """int64 [E, K], bit s set = player in slot s is on."""
    evaluated: Tensor
    """bool [E, K]."""


@short_repr
class Attribution(FrozenTree):
    """Worth of every seed; see `rules.attribution`.  Points; 0 where invalid."""

    val_acc: Tensor
    """float32 [E]."""
    committed_acc: Tensor
    """float32 [E]."""
    host_acc: Tensor
    """float32 [E], flag `measured`."""
    clean_improvement: Tensor
    """float32 [E], flag `measured`."""
    uncommitted_improvement: Tensor
    """float32 [E]."""
    contribution: Tensor
    """float32 [E, S]."""
    contribution_valid: Tensor
    """bool [E, S]."""
    shapley: Tensor
    """float32 [E, S], flag `contribution_valid`."""
    interaction: Tensor
    """float32 [E, S, S]."""
    interaction_sum: Tensor
    """float32 [E, S]."""
    boost_received: Tensor
    """float32 [E, S]."""
    interaction_valid: Tensor
    """bool [E, S]."""
    acc_table: Tensor
    """float32 [E, 2^N], per set of positions that are on; flag `exact`."""
    measured: Tensor
    """bool [E], this epoch was not skipped."""
    exact: Tensor
    """bool [E], all coalitions were evaluated."""
    forwards: Tensor
    """int64 [E], coalitions evaluated."""


@short_repr
class SlotInputs(FrozenTree):
    """Inputs of a reward rule per slot: before the step, and `next_` after the step.  Every leaf is
    [E, S].
    """

    op: Tensor
    """int64, op executed on this slot, else WAIT."""
    stage: Tensor
    """int64, a `Stage`."""
    previous_stage: Tensor
    """int64."""
    epochs_in_stage: Tensor
    """int64, completed epochs."""
    previous_epochs_in_stage: Tensor
    """int64."""
    age: Tensor
    """int64, completed epochs since germination."""
    contribution: Tensor
    """float32, points, leave-one-out."""
    contribution_valid: Tensor
    """bool."""
    accuracy_at_germination: Tensor
    """float32, points."""
    accuracy_at_stage_start: Tensor
    """float32, points."""
    interaction_sum: Tensor
    """float32, points, 0 where not measured."""
    alpha: Tensor
    """float32 in [0, 1]."""
    params: Tensor
    """int64, gate network included; 0 without a seed."""
    next_stage: Tensor
    """int64."""
    next_contribution: Tensor
    """float32, points."""
    next_contribution_valid: Tensor
    """bool."""


@short_repr
class RewardInputs(FrozenTree):
    """Inputs of a reward rule per env after the step, unless a leaf says otherwise; a value whose
    flag is False means nothing.

    batch_size [E].

    Example:
        >>> import morphogen as mg
        >>> inputs = mg.rules.make_reward_inputs(horizon=True, fossil_params=2000)
        >>> inputs.horizon.tolist(), inputs.fossil_params.tolist(), inputs.slots.stage.tolist()
        ([True], [2000], [[1, 1, 1]])
    """

    horizon: Tensor
    """bool [E], last step of the episode."""
    rolled_back: Tensor
    """bool [E], by the governor in this step."""
    op: Tensor
    """int64 [E], effective op."""
    op_executed: Tensor
    """bool [E]."""
    committed_acc: Tensor
    """float32 [E], points, of the host with its fossilized seeds alone."""
    committed_valid: Tensor
    """bool [E], flag of `committed_acc`."""
    clean_improvement: Tensor
    """float32 [E], points, all live seeds on minus all off."""
    clean_valid: Tensor
    """bool [E], flag of `clean_improvement`."""
    val_loss: Tensor
    """float32 [E], nats, after the step."""
    loss_valid: Tensor
    """bool [E], flag of `val_loss`."""
    fossil_params: Tensor
    """int64 [E], of the fossilized seeds."""
    live_params: Tensor
    """int64 [E], of all seeds, without the host."""
    param_price: Tensor
    """float32 [E]."""
    baseline_loss: Tensor
    """float32 [E], nats."""
    target_loss: Tensor
    """float32 [E], nats."""
    epoch: Tensor
    """int64 [E], number of this step, from 1."""
    host_params: Tensor
    """int64 [E]."""
    val_acc: Tensor
    """float32 [E], points, before the step."""
    stable_val_acc: Tensor
    """float32 [E], least accuracy of up to three epochs before the step."""
    uncommitted_improvement: Tensor
    """float32 [E], points, before the step: all on minus only the fossilized on."""
    uncommitted_valid: Tensor
    """bool [E], flag of the three leaves above."""
    next_val_acc: Tensor
    """float32 [E], points, after the step."""
    interaction: Tensor
    """float32 [E, S, S], points, of this epoch; 0 where not measured."""
    slots: SlotInputs


@short_repr
class GovernorReport(FrozenTree):
    """Decision of the governor in this step."""

    rolled_back: Tensor
    """bool [E]."""
    panic: Tensor
    """int64 [E], a `Panic`."""
    limit: Tensor
    """float32 [E], nats."""
    streak: Tensor
    """int64 [E], consecutive anomalies, including this step's."""
    anomaly: Tensor
    """int64 [E], a `Panic` code, with or without a rollback."""
    loss: Tensor
    """float32 [E], validation loss that was checked."""
    snapshot_taken: Tensor
    """bool [E]."""
    snapshot_epoch: Tensor
    """int64 [E]."""
    seeds_pruned: Tensor
    """int64 [E]."""


@short_repr
class StepScore(FrozenTree):
    """Reward of an env in this step, and its description; `C` components in the order of the
    rule.
    """

    reward: Tensor
    """float32 [E]."""
    components: Tensor
    """float32 [E, C], sum to the reward."""
    terminated: Tensor
    """bool [E], horizon or rollback."""
    network_value: Tensor
    """float32 [E], by the objective: value if delivered now, or of this epoch; for all rules."""
    param_cost: Tensor
    """float32 [E], price of the fossilized parameters."""
    potential: Tensor
    """float32 [E], of the state after the step."""
    unmeasured: Tensor
    """bool [E], the potential of the previous step was carried over."""
    potential_by_slot: Tensor
    """float32 [E, S], its split by Shapley value."""
    detectors: Tensor
    """bool [E, S, 2], in the order of `vocab.reward.DETECTORS`."""
    detector_ratio: Tensor
    """float32 [E, S], 0 where `attribution_ratio` did not fire."""
    fossil_params: Tensor
    """int64 [E]."""
    live_params: Tensor
    """int64 [E]."""
