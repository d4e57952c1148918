"""The state of all envs: every part, every leaf with dtype, shape and unit.  `E` envs are stacked
in dim 0.

`schema.py` holds these leaves as a table with the value of an empty entry; `empty_state` builds
from it.  Optional values are pairs (value, flag), the value 0 where the flag is False.
"""

from torch import Tensor

from morphogen.state.tree_ops import FrozenTree, TensorDictField
from morphogen.vocab.text import short_repr


@short_repr
class HostState(FrozenTree):
    """Stacked host networks; a row is one flat parameter vector, leaves at fixed offsets
    (`hosts.layout`).
    """

    params: Tensor
    """float32 [E, P]."""
    momentum: Tensor
    """float32 [E, P]."""
    adaptive: TensorDictField
    """Of `adamw`: {square: float32 [E, P], running mean of squared gradients; steps: float32
    [E, 1], steps taken}; {} of `sgd`."""


@short_repr
class Slots(FrozenTree):
    """Lifecycle of every slot.  batch_size [E]; every leaf is [E, S]; accuracies in points
    0..100.
    """

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
    blueprint: Tensor
    """int64, a `Blueprint`; -1 empty."""
    algorithm: Tensor
    """int64, an `Algorithm`."""
    tempo: Tensor
    """int64, epochs of the first ramp."""
    blend_target: Tensor
    """float32, target of the first ramp."""
    blend_curve: Tensor
    """int64, a `Curve`."""
    alpha: Tensor
    """float32 in [0, 1]."""
    alpha_start: Tensor
    """float32, of the current or last ramp."""
    alpha_target: Tensor
    """float32."""
    alpha_mode: Tensor
    """int64, an `AlphaMode`."""
    alpha_curve: Tensor
    """int64, a `Curve`."""
    alpha_steepness: Tensor
    """float32."""
    alpha_steps: Tensor
    """int64, ticks of the ramp."""
    alpha_done: Tensor
    """int64, ticks done."""
    gradient_norm: Tensor
    """float32, last epoch."""
    gradient_health: Tensor
    """float32 in [0, 1]."""
    vanishing: Tensor
    """bool."""
    exploding: Tensor
    """bool."""
    gradient_valid: Tensor
    """bool, flag of the four leaves above."""
    gradient_ratio: Tensor
    """float32, smoothed."""
    gradient_ratio_valid: Tensor
    """bool."""
    skip_streak: Tensor
    """int64, consecutive minibatches without a step."""
    accuracy_at_germination: Tensor
    """float32."""
    accuracy_at_stage_start: Tensor
    """float32."""
    accuracy_at_blending: Tensor
    """float32."""
    accuracy_at_blending_valid: Tensor
    """bool."""
    contribution: Tensor
    """float32, points, leave-one-out."""
    contribution_valid: Tensor
    """bool."""
    velocity: Tensor
    """float32, points per epoch."""
    velocity_valid: Tensor
    """bool."""
    since_measured: Tensor
    """int64, epochs."""
    interaction_sum: Tensor
    """float32, points."""
    boost_received: Tensor
    """float32, points."""
    interaction_valid: Tensor
    """bool, flag of the two leaves above."""


@short_repr
class Signals(FrozenTree):
    """Measurements of an env over its episode.  batch_size [E]; losses in nats, accuracies in
    points.
    """

    val_loss: Tensor
    """float32 [E]."""
    val_acc: Tensor
    """float32 [E]."""
    measured: Tensor
    """bool [E], flag of the two leaves above."""
    train_loss: Tensor
    """float32 [E], last epoch."""
    train_acc: Tensor
    """float32 [E]."""
    train_measured: Tensor
    """bool [E]."""
    loss_history: Tensor
    """float32 [E, 5], newest last."""
    acc_history: Tensor
    """float32 [E, 5]."""
    history_valid: Tensor
    """bool [E, 5]."""
    loss_delta: Tensor
    """float32 [E], previous - now."""
    acc_delta: Tensor
    """float32 [E], now - previous."""
    delta_valid: Tensor
    """bool [E]."""
    best_acc: Tensor
    """float32 [E], of the episode."""
    best_loss: Tensor
    """float32 [E]."""
    committed_acc: Tensor
    """float32 [E], fossilized slots only."""
    clean_improvement: Tensor
    """float32 [E], all live slots on minus all off."""
    clean_valid: Tensor
    """bool [E]."""
    plateau: Tensor
    """int64 [E], consecutive epochs without progress."""
    stable: Tensor
    """int64 [E], consecutive stable epochs."""
    stabilized: Tensor
    """bool [E], latch."""
    last_op: Tensor
    """int64 [E], requested op; -1 before the first."""
    last_outcome: Tensor
    """int64 [E], an `Outcome`; -1 before the first."""
    rolled_back: Tensor
    """bool [E], in the last epoch."""
    rollbacks: Tensor
    """int64 [E], in this episode."""


@short_repr
class Governor(FrozenTree):
    """Vital signs and the last healthy snapshot.  batch_size [E]."""

    window: Tensor
    """float32 [E, window], ring buffer of normal losses."""
    count: Tensor
    """int64 [E], losses recorded since the window was emptied."""
    streak: Tensor
    """int64 [E], consecutive anomalies."""
    snapshot_epoch: Tensor
    """int64 [E], -1 = the reset state."""
    host: HostState
    """Snapshot."""
    seeds: TensorDictField
    """Snapshot."""
    slots: Slots
    """Snapshot."""
    signals: Signals
    """Snapshot."""


@short_repr
class Instance(FrozenTree):
    """Task of an env in this episode.  batch_size [E]."""

    width: Tensor
    """float32 [E], share of the host's channels in use."""
    data_share: Tensor
    """float32 [E]."""
    label_noise: Tensor
    """float32 [E]."""
    classes: Tensor
    """int64 [E]."""
    reach: Tensor
    """int64 [E], pixels to each side in the receptive field of a host's kernel, or places back."""
    param_price: Tensor
    """float32 [E]."""
    samples: Tensor
    """int64 [E], usable training samples."""
    baseline_loss: Tensor
    """float32 [E], loss of guessing: `ln(classes)` nats of class labels."""
    class_of: Tensor
    """int64 [E, C], label in this episode of each original label; -1 = not in use."""
    usable: Tensor
    """int32 [E, N], table of samples, usable ones first; N = 0: the identity."""
    regime: Tensor
    """int64 [E], number of the regime of the world, from 0; never observed."""
    view_code: Tensor
    """int64 [E], how samples are shown in the regime; never observed."""


@short_repr
class Clock(FrozenTree):
    """Position of an env in time.  batch_size [E]."""

    episode: Tensor
    """int64 [E], number of the episode: the round of a run."""
    epoch: Tensor
    """int64 [E], epochs completed in this episode."""


@short_repr
class LossScaling(FrozenTree):
    """Loss scale of training in float16; unused in other precisions.  batch_size [E]."""

    loss_scale: Tensor
    """float32 [E], a power of two; losses are multiplied by it for the backward pass."""
    good_minibatches: Tensor
    """int64 [E], since the last change of the scale."""


@short_repr
class EnvState(FrozenTree):
    """Everything that an epoch reads or writes.  batch_size [E].

    Frozen: steps return new states, and parts that did not change are shared.  Indexing selects
    envs.

    Example:
        >>> import morphogen as mg
        >>> state, _ = mg.make("tiny", envs=3, seed=0).reset()
        >>> state.batch_size, state[1].slots.stage.tolist(), state.host.params.shape
        (torch.Size([3]), [1, 1], torch.Size([3, 150]))
    """

    host: HostState
    seeds: TensorDictField
    """{slot name: {params, momentum: float32 [E, P_s]}}, and of `adamw` square [E, P_s] and steps
    [E, 1]; zeros without a seed."""
    slots: Slots
    signals: Signals
    ledger: TensorDictField
    """State of the reward rule; {phi: float32 [E]} for the `own` rules."""
    governor: Governor
    instance: Instance
    clock: Clock
    scaling: LossScaling
    """Not part of the snapshot: a rollback does not restore the scale."""
    key: Tensor
    """int64 [E, 3], see `rng.env_keys`."""
