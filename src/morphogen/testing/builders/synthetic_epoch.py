"""An epoch without networks: the steps of the package in their order, on accuracies that are made up.

The strategy `trajectories` draws lives of such epochs, so its states are really reached.

    import torch
    from morphogen.testing.builders import scenes, synthetic_epoch
    world = synthetic_epoch.begin_episode(scenes.make_slots([[{}, {}]]))
    germinate = torch.tensor([[1, 0, 1, 0, 1, 2, 0, 0]])
    loss, accuracy = torch.tensor([1.0]), torch.tensor([[50.0, 51.0, 50.0, 52.0]])
    made_up = synthetic_epoch.SyntheticMeasurements(loss=loss, coalition_accuracy=accuracy)
    moment = synthetic_epoch.run_epoch(world, germinate, made_up)
    assert moment.after.slots.stage.tolist() == [[2, 1]]
    assert moment.outcome.executed.item() and moment.inputs.op.item() == 1  # what a reward rule is told
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from morphogen.config.spec import GovernorSpec, LifecycleSpec, SignalSpec
from morphogen.rules.attribution import coalitions, is_measured_epoch
from morphogen.rules.decode import decode
from morphogen.rules.legality import action_masks
from morphogen.state.decision import ActionMasks, ActionOutcome
from morphogen.state.env import EnvState, Slots
from morphogen.state.measure import Attribution, GovernorReport, RewardInputs, Validation
from morphogen.steps.apply import apply_action
from morphogen.steps.attribute import attribute
from morphogen.steps.govern import first_snapshot, govern
from morphogen.steps.score import close_epoch, reward_inputs
from morphogen.steps.tick import tick
from morphogen.testing.builders.scenes import make_state, make_train_metrics
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.limits import Limits
from morphogen.vocab.stage import ACTIVE

PAIRS = 2  # orders of players, where an env has more than four
HOST_PARAMS = 1000


@dataclass(frozen=True, slots=True)
class EpisodeSpec:
    """Constants of an episode; quick gates by default, so that short episodes hold whole lifecycles."""

    length: int = 8
    every: int = 1
    limits: Limits | None = None  # None: all slots enabled, as the lifecycle says
    target_loss: float = 0.3
    lifecycle: LifecycleSpec = field(
        default_factory=lambda: LifecycleSpec(min_training_epochs=1, min_prune_age=1, embargo_epochs=1)
    )
    governor: GovernorSpec = field(default_factory=lambda: GovernorSpec(min_samples=2, window=4, snapshot_every=2))

    def build_limits(self, slots: Slots) -> Limits:
        """The limits of the episode."""
        own, enabled = self.lifecycle, (True,) * slots.stage.shape[1]
        quick = Limits("cnn", enabled, min_prune_age=own.min_prune_age, auto_forward=own.auto_forward)
        return quick if self.limits is None else self.limits


@dataclass(frozen=True, slots=True)
class SyntheticMeasurements:
    """Made-up measurements of one epoch."""

    loss: Tensor  # float32 [E], nats; not finite makes the governor roll the env back
    coalition_accuracy: (
        Tensor  # float32 [E, 2^S], accuracy in points with coalition m on, bit s of m = the seed in slot s
    )


@dataclass(frozen=True, slots=True, repr=False)
class SyntheticEpoch:
    """One epoch: what was acted on, what was done, what came of it, and what a reward rule is told."""

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
        return f"Moment(action {self.action.tolist()}, loss {self.measurements.loss.tolist()}, {stages})"


def begin_episode(slots: Slots, terms: EpisodeSpec | None = None) -> EnvState:
    """Envs around the slots at the start of an episode, measured and with a first snapshot."""
    terms = terms or EpisodeSpec()
    return first_snapshot(make_state(slots, window=terms.governor.window))


class ScoredInputs(NamedTuple):
    """An epoch up to its reward: what `steps.score` is given."""

    state: EnvState  # as the governor left it
    outcome: ActionOutcome
    attribution: Attribution
    report: GovernorReport
    validation: Validation


def run_steps(now: EnvState, action: Tensor, measurements: SyntheticMeasurements, terms: EpisodeSpec) -> ScoredInputs:
    """Apply an action and synthetic measurements to the envs, up to the reward.  action int64 [E, 8]."""
    spec = decode(action, now.slots, terms.build_limits(now.slots))
    acted, outcome = apply_action(now, spec, lifecycle=terms.lifecycle)
    ticked, _ = tick(acted, lifecycle=terms.lifecycle)
    trained = ticked.replace(slots=_train_slots(ticked.slots))
    seen = synthetic_validation(trained, measurements, terms)
    valued, worth = attribute(trained, seen, every=terms.every, episode_length=terms.length, signal_spec=SignalSpec())
    governed, report = govern(
        valued, seen, make_train_metrics([0] * len(measurements.loss)), spec=terms.governor, minibatches=1
    )
    return ScoredInputs(governed, outcome, worth, report, seen)


def reward_context(now: EnvState, terms: EpisodeSpec) -> dict[str, Any]:
    """Keywords that `steps.score.reward_inputs` shares with `score`."""
    slots = now.slots.stage.shape[1]
    return {
        "before": now,
        "host_params": torch.full_like(now.clock.epoch, HOST_PARAMS),
        "net_counts": (tuple(10 * code for code in range(len(Blueprint))),) * slots,
        "gate_counts": (1,) * slots,
        "target_loss": terms.target_loss,
        "episode_length": terms.length,
    }


def run_epoch(
    now: EnvState, action: Tensor, measurements: SyntheticMeasurements, terms: EpisodeSpec | None = None
) -> SyntheticEpoch:
    """Run an epoch of an action and synthetic measurements.  All [E]; action int64 [E, 8] -> SyntheticEpoch."""
    terms = terms or EpisodeSpec()
    masks = action_masks(now.slots, terms.build_limits(now.slots))
    whole = run_steps(now, action, measurements, terms)
    told = reward_inputs(*whole, **reward_context(now, terms))
    return SyntheticEpoch(terms, now, masks, action, measurements, whole.outcome, close_epoch(whole.state), told)


def _train_slots(slots: Slots) -> Slots:
    """The slots after training in which every seed that runs had a healthy gradient."""
    runs = (slots.stage >= ACTIVE[0]) & (slots.stage <= ACTIVE[-1])
    one = {name: torch.where(runs, 1.0, getattr(slots, name)) for name in ("gradient_norm", "gradient_ratio")}
    return slots.replace(
        **one,
        gradient_health=torch.where(runs, 1.0, slots.gradient_health),
        gradient_valid=slots.gradient_valid | runs,
        gradient_ratio_valid=slots.gradient_ratio_valid | runs,
        exploding=slots.exploding & ~runs,
        vanishing=slots.vanishing & ~runs,
    )


def synthetic_validation(now: EnvState, measurements: SyntheticMeasurements, terms: EpisodeSpec) -> Validation:
    """The made-up accuracies of every coalition that is asked for.  now [E] after `tick` -> Validation [E]."""
    envs, count = now.slots.stage.shape
    full = is_measured_epoch(now.clock.epoch, every=terms.every, episode_length=terms.length)
    orders = torch.linspace(0, 0.9, PAIRS * count).view(1, PAIRS, count).expand(envs, -1, -1)
    coalition, evaluated = coalitions(now.slots, orders, pairs=PAIRS, full=full)
    accuracy = torch.where(evaluated, measurements.coalition_accuracy.gather(1, coalition), 0.0)
    return Validation(
        loss=measurements.loss, accuracy=accuracy, coalition=coalition, evaluated=evaluated, batch_size=[envs]
    )
