"""Memory of measurements of an env: histories, changes, best values, plateau, stability."""

import torch
from torch import Tensor

from morphogen.config.groups import SignalSpec
from morphogen.state.env import Signals
from morphogen.state.measure import Attribution
from morphogen.state.tree_ops import choose, is_finite, replace

MIN_LOSS = 1e-8  # below it a relative change says nothing


def update_signals(
    signals: Signals, loss: Tensor, attribution: Attribution, *, spec: SignalSpec
) -> Signals:
    """Update the signals with one validation.

    Shapes: signals, attribution [E]; loss float32 [E], nats, of the env as it is -> Signals [E].
    Promise: a measurement that is not finite enters no number; it costs one history flag and the
    stability count.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0)
        >>> before, _ = env.reset()
        >>> after, step = env.step(before, mg.actions.wait(env))
        >>> loss = torch.tensor([1.5, float("nan")])
        >>> signals = mg.rules.update_signals(
        ...     after.signals, loss, step.measured, spec=env.spec.signal
        ... )
        >>> (
        ...     signals.val_loss.tolist(),
        ...     signals.measured.tolist(),
        ...     signals.history_valid[:, -1].tolist(),
        ... )
        ([1.5, 0.0], [True, False], [True, False])
    """
    accuracy = attribution.val_acc
    measured = is_finite(loss) & is_finite(accuracy)
    loss = choose(measured, loss, 0.0)
    accuracy = choose(measured, accuracy, 0.0)
    delta_valid = measured & signals.measured
    loss_delta = choose(delta_valid, signals.val_loss - loss, 0.0)
    acc_delta = choose(delta_valid, accuracy - signals.val_acc, 0.0)
    flat = choose(acc_delta < spec.plateau_points, signals.plateau + 1, 0)
    comparable = delta_valid & (signals.val_loss > MIN_LOSS)
    gain = loss_delta / choose(comparable, signals.val_loss, 1.0)
    inside = comparable & (gain > -spec.stable_regression) & (gain < spec.stable_gain)
    # consecutive epochs of stable gain, counted until the latch
    stable = choose(inside, signals.stable + 1, 0)
    stable = torch.where(signals.stabilized & comparable, signals.stable, stable)
    clean = measured & attribution.measured
    has_best = signals.history_valid.any(-1)
    return replace(
        signals,
        val_loss=loss,
        val_acc=accuracy,
        measured=measured,
        loss_history=_append(signals.loss_history, loss),
        acc_history=_append(signals.acc_history, accuracy),
        history_valid=_append(signals.history_valid, measured),
        loss_delta=loss_delta,
        acc_delta=acc_delta,
        delta_valid=delta_valid,
        # no accuracy is below the empty value 0
        best_acc=torch.maximum(signals.best_acc, accuracy),
        best_loss=torch.where(
            measured & (~has_best | (loss < signals.best_loss)), loss, signals.best_loss
        ),
        committed_acc=choose(measured, attribution.committed_acc, 0.0),
        clean_improvement=torch.where(
            clean, attribution.clean_improvement, signals.clean_improvement
        ),
        clean_valid=clean | signals.clean_valid,
        plateau=torch.where(delta_valid, flat, signals.plateau),
        stable=stable,
        stabilized=signals.stabilized | (stable >= spec.stable_epochs),
    )


def recent_min_accuracy(signals: Signals, epochs: int) -> Tensor:
    """Least accuracy of the last 1..5 epochs; 0 without a measured one.  signals [E] -> [E]."""
    valid = signals.history_valid[:, -epochs:]
    least = choose(valid, signals.acc_history[:, -epochs:], torch.inf).amin(-1)
    return choose(valid.any(-1), least, 0.0)


def _append(history: Tensor, newest: Tensor) -> Tensor:
    return torch.cat((history[:, 1:], newest.unsqueeze(-1)), dim=-1)
