"""Epoch without networks: the steps of the package in order, on synthetic accuracies.

The strategy `trajectories` draws sequences of such epochs, so its states are reachable.

    import torch
    from morphogen.testing.builders import scenes, synthetic_epoch
    state = synthetic_epoch.begin_episode(scenes.make_slots([[{}, {}]]))
    germinate = torch.tensor([[1, 0, 1, 0, 1, 2, 0, 0]])
    loss, accuracy = torch.tensor([1.0]), torch.tensor([[50.0, 51.0, 50.0, 52.0]])
    measured = synthetic_epoch.SyntheticMeasurements(loss=loss, coalition_accuracy=accuracy)
    epoch = synthetic_epoch.run_epoch(state, germinate, measured)
    assert epoch.after.slots.stage.tolist() == [[2, 1]]
    assert epoch.outcome.executed.item() and epoch.inputs.op.item() == 1  # inputs of a reward rule
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from morphogen.config.groups import GovernorSpec, LifecycleSpec, SignalSpec
from morphogen.rules.attribution import coalitions, is_measured_epoch
from morphogen.rules.counts import seed_params
from morphogen.rules.decoding import decode
from morphogen.rules.legality import action_masks
from morphogen.state.decision import ActionMasks, ActionOutcome
from morphogen.state.env import EnvState, Slots
from morphogen.state.measure import Attribution, GovernorReport, RewardInputs, Validation
from morphogen.steps.apply import apply_action
from morphogen.steps.govern_step import first_snapshot, govern
from morphogen.steps.score_step import attribute, close_epoch, reward_inputs
from morphogen.steps.tick_step import tick
from morphogen.testing.builders.scenes import make_state, make_train_metrics
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.limits import Limits
from morphogen.vocab.stage import ACTIVE

PAIRS = 2  # pairs of permutations for envs with more than four players
HOST_PARAMS = 1000


@dataclass(frozen=True, slots=True)
class EpisodeSpec:
    """Constants of an episode; quick gates by default, so that short episodes hold whole
    lifecycles.
    """

    length: int = 8
    every: int = 1
    limits: Limits | None = None  # None: all slots enabled, limits of the lifecycle
    target_loss: float = 0.3
    lifecycle: LifecycleSpec = field(
        default_factory=lambda: LifecycleSpec(
            min_training_epochs=1, min_prune_age=1, embargo_epochs=1
        )
    )
    governor: GovernorSpec = field(
        default_factory=lambda: GovernorSpec(min_samples=2, window=4, snapshot_every=2)
    )

    def build_limits(self, slots: Slots) -> Limits:
        """Return the limits of the episode."""
        if self.limits is not None:
            return self.limits
        spec = self.lifecycle
        enabled = (True,) * slots.stage.shape[1]
        return Limits(enabled, min_prune_age=spec.min_prune_age, auto_forward=spec.auto_forward)


@dataclass(frozen=True, slots=True)
class SyntheticMeasurements:
    """Synthetic measurements of one epoch."""

    loss: Tensor  # float32 [E], nats; a non-finite loss causes a rollback
    # float32 [E, 2^S], points of coalition m; bit s of m: the seed in slot s
    coalition_accuracy: Tensor


@dataclass(frozen=True, slots=True, repr=False)
class SyntheticEpoch:
    """One epoch: state before, action, measurements, outcome, state after, inputs of a reward
    rule.
    """

    terms: EpisodeSpec
    before: EnvState
    masks: ActionMasks
    action: Tensor  # int64 [E, 8]
    measurements: SyntheticMeasurements
    outcome: ActionOutcome
    after: EnvState
    inputs: RewardInputs

    def __repr__(self) -> str:
        stages = f"stage {self.before.slots.stage.tolist()} -> {self.after.slots.stage.tolist()}"
        return (
            f"SyntheticEpoch(action {self.action.tolist()}, loss "
            f"{self.measurements.loss.tolist()}, {stages})"
        )


def begin_episode(slots: Slots, terms: EpisodeSpec | None = None) -> EnvState:
    """Build envs around slots at the start of an episode, measured and with a first snapshot."""
    terms = terms or EpisodeSpec()
    return first_snapshot(make_state(slots, window=terms.governor.window))


def run_steps(
    now: EnvState, action: Tensor, measurements: SyntheticMeasurements, terms: EpisodeSpec
) -> tuple[EnvState, ActionOutcome, Attribution, GovernorReport, Validation]:
    """Run an epoch up to its reward -> the arguments of `steps.score_step`.  All [E]; action int64
    [E, 8].
    """
    spec = decode(action, now.slots, terms.build_limits(now.slots))
    acted, outcome = apply_action(now, spec, lifecycle=terms.lifecycle)
    ticked, _ = tick(acted, lifecycle=terms.lifecycle)
    trained = ticked.replace(slots=_train_slots(ticked.slots))
    validation = synthetic_validation(trained, measurements, terms)
    rhythm = {"every": terms.every, "episode_length": terms.length}
    attributed, attribution = attribute(trained, validation, signal_spec=SignalSpec(), **rhythm)
    metrics = make_train_metrics([0] * len(measurements.loss))
    governed, report = govern(attributed, validation, metrics, spec=terms.governor, minibatches=1)
    return governed, outcome, attribution, report, validation


def reward_context(now: EnvState, governed: EnvState, terms: EpisodeSpec) -> dict[str, Any]:
    """Keyword arguments that `steps.score_step.reward_inputs` and `score` share."""
    slots = now.slots.stage.shape[1]
    counts = (tuple(10 * code for code in range(len(Blueprint))),) * slots, (1,) * slots
    return {
        "before": now,
        "host_params": torch.full_like(now.clock.epoch, HOST_PARAMS),
        "params": seed_params(now.slots, *counts),
        "next_params": seed_params(governed.slots, *counts),
        "target_loss": terms.target_loss,
        "episode_length": terms.length,
    }


def run_epoch(
    now: EnvState,
    action: Tensor,
    measurements: SyntheticMeasurements,
    terms: EpisodeSpec | None = None,
) -> SyntheticEpoch:
    """Run an epoch of an action and synthetic measurements.  All [E]; action int64 [E, 8] ->
    SyntheticEpoch.
    """
    terms = terms or EpisodeSpec()
    masks = action_masks(now.slots, terms.build_limits(now.slots))
    state, outcome, attribution, report, validation = run_steps(now, action, measurements, terms)
    context = reward_context(now, state, terms)
    inputs = reward_inputs(state, outcome, attribution, report, validation, **context)
    return SyntheticEpoch(
        terms, now, masks, action, measurements, outcome, close_epoch(state), inputs
    )


def _train_slots(slots: Slots) -> Slots:
    """Return the slots after training with healthy gradients of all active seeds."""
    runs = (slots.stage >= ACTIVE[0]) & (slots.stage <= ACTIVE[-1])
    healthy = {
        **dict.fromkeys(("gradient_norm", "gradient_ratio", "gradient_health"), 1.0),
        **dict.fromkeys(("gradient_valid", "gradient_ratio_valid"), True),
        **dict.fromkeys(("exploding", "vanishing"), False),
    }
    return slots.replace(
        **{name: torch.where(runs, value, slots.get(name)) for name, value in healthy.items()}
    )


def synthetic_validation(
    now: EnvState, measurements: SyntheticMeasurements, terms: EpisodeSpec
) -> Validation:
    """Look up the synthetic accuracies of the requested coalitions.  now [E] after `tick` ->
    Validation [E].
    """
    envs, count = now.slots.stage.shape
    full = is_measured_epoch(now.clock.epoch, every=terms.every, episode_length=terms.length)
    orders = (
        torch.linspace(0, 0.9, PAIRS * count, dtype=torch.float32, device="cpu")
        .view(1, PAIRS, count)
        .expand(envs, -1, -1)
    )
    coalition, evaluated = coalitions(now.slots, orders, pairs=PAIRS, full=full)
    accuracy = torch.where(evaluated, measurements.coalition_accuracy.gather(1, coalition), 0.0)
    return Validation(
        loss=measurements.loss,
        accuracy=accuracy,
        coalition=coalition,
        evaluated=evaluated,
        batch_size=[envs],
    )
