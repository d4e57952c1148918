"""The blocks of an observation: sub-states in, float32 features out, in the order of
`vocab.observation`.

Blocks may hold non-finite numbers where the state does; `steps.observe_step` removes them.
"""

import torch
from torch import Tensor

from morphogen.config.instance_spec import INSTANCE_PARAMETERS
from morphogen.rules.stages import STAGE_ROWS, clamp_stage, occupied
from morphogen.state.env import Instance, Signals, Slots
from morphogen.state.tree_ops import choose, constant_table, divide_ints
from morphogen.vocab.action import Op
from morphogen.vocab.limits import Limits
from morphogen.vocab.observation import INSTANCE, INSTANCE_SOURCES, OUTCOMES, STAGES
from morphogen.vocab.stage import COOLING, Algorithm, AlphaMode, Stage

_STAGE_GROUPS = (
    (Stage.GERMINATED, Stage.TRAINING),
    (Stage.BLENDING,),
    (Stage.HOLDING,),
    (Stage.FOSSILIZED,),
    COOLING,
)
_STAGE_GROUP_ROWS = tuple(
    tuple(float(stage in group) for group in _STAGE_GROUPS) for stage in STAGE_ROWS
)
_BLEND_ALGORITHMS = (Algorithm.ADD, Algorithm.MULTIPLY, Algorithm.GATE)
_MIN_PRICE = 1e-4
NO_PRICE_FEATURE = -7.0


def signed_log(x: Tensor) -> Tensor:
    """`sign(x) ln(1 + |x|)`: odd, monotone, linear near 0.  Same shape."""
    return x.sign() * x.abs().log1p()


def measurement_features(signals: Signals) -> Tensor:
    """Features 1-25: histories, training, plateau, committed accuracy.  float32 [E, 25]."""
    single = (
        signals.best_acc / 100.0,
        signed_log(signals.train_loss) / 7.0,
        signals.train_acc / 100.0,
        signals.train_measured.float(),
        divide_ints(signals.plateau.clamp(max=10), 10),
        signals.stabilized.float(),
        divide_ints(signals.rollbacks.clamp(max=5), 5),
        signals.committed_acc / 100.0,
        _scaled_points(signals.clean_improvement),
        signals.clean_valid.float(),
    )
    history = (
        signed_log(signals.loss_history) / 7.0,
        signals.acc_history / 100.0,
        signals.history_valid.float(),
    )
    return torch.cat((*history, torch.stack(single, dim=-1)), dim=-1).float()


def size_features(slots: Slots, share: Tensor) -> Tensor:
    """Features 26-27: parameters of all seeds, and of the fossilized ones, over the host's.

    Shapes: slots [E], share float32 [E, S], parameters / host parameters -> float32 [E, 2].
    """
    fossil = share * (slots.stage == int(Stage.FOSSILIZED))
    return torch.log1p(torch.stack((share.sum(-1), fossil.sum(-1)), dim=-1))


def occupancy_features(slots: Slots, limits: Limits) -> Tensor:
    """Features 28-35: seeds, seeds left (a share, so at most 1), whether there is a limit, shares
    of stages.
    """
    total = slots.stage.shape[-1]
    count = occupied(slots.stage).sum(-1)
    limited = limits.max_seeds > 0
    left = (limits.max_seeds - count).clamp(0, total) if limited else torch.full_like(count, total)
    three = divide_ints(
        torch.stack((count, left, torch.full_like(count, total * int(limited))), dim=-1), total
    )
    shares = constant_table(_STAGE_GROUP_ROWS, torch.float32, slots.stage.device)[
        clamp_stage(slots.stage)
    ]
    return torch.cat((three, shares.sum(1) / total), dim=-1)


def feedback_features(signals: Signals) -> Tensor:
    """Features 41-51: the op of the last epoch, its outcome, and a rollback.  float32 [E, 11]."""
    op = _one_hot(signals.last_op, Op)
    outcome = _one_hot(signals.last_outcome, OUTCOMES)
    return torch.cat((op, outcome, signals.rolled_back.float().unsqueeze(-1)), dim=-1)


def instance_features(
    instance: Instance, classes: int, observed: tuple[str, ...] = INSTANCE_PARAMETERS
) -> Tensor:
    """The instance block, float32 [E, 8]; 0 where a parameter that is not observed would show.

    Args: classes: all classes of the task; observed: names of parameters.
    """
    # A price below 0 is invalid: its logarithm is not finite, which `observe` counts.
    free = instance.param_price.abs() < _MIN_PRICE
    price = choose(free, 1.0, instance.param_price)
    features = (
        instance.width,
        torch.log(instance.data_share),
        instance.label_noise,
        divide_ints(instance.classes, classes),
        instance.reach.float(),
        choose(free, NO_PRICE_FEATURE, torch.log(price / 0.1)),
        signed_log(instance.baseline_loss) / 7.0,
        torch.log10(instance.samples.clamp(min=1).float()) / 6.0,
    )
    block = torch.stack(features, dim=-1).float()
    shown = tuple(set(INSTANCE_SOURCES[feature.name]) <= set(observed) for feature in INSTANCE)
    return choose(constant_table(shown, torch.bool, block.device), block, 0.0)


def price_of_feature(feature: Tensor) -> Tensor:
    """Invert the feature of the price: float32 [...] -> float32 [...], a price, 0 for
    NO_PRICE_FEATURE.
    """
    return choose(feature > NO_PRICE_FEATURE, 0.1 * feature.exp(), 0.0)


def loss_of_feature(feature: Tensor) -> Tensor:
    """Invert the feature of a loss: float32 [...] -> float32 [...], nats."""
    return feature.sign() * (feature.abs() * 7.0).expm1()


def lifecycle_features(slots: Slots, enabled: tuple[bool, ...]) -> Tensor:
    """Slot features 0-19: stage, alpha and its controller, algorithm, tempo.  float32 [E, S,
    20].
    """
    seed = occupied(slots.stage)
    may_act = constant_table(enabled, torch.bool, seed.device).expand_as(seed)
    steps_left = (slots.alpha_steps - slots.alpha_done).clamp(0, 8) * (
        slots.alpha_mode != int(AlphaMode.HOLD)
    )
    present = seed.unsqueeze(-1)
    parts = (
        _one_hot(slots.stage, STAGES),
        torch.stack((may_act.float(), slots.alpha, choose(seed, slots.alpha_target, 0.0)), dim=-1),
        _one_hot(slots.alpha_mode, AlphaMode) * present,
        divide_ints(steps_left, 8).unsqueeze(-1),
        _one_hot(slots.algorithm, _BLEND_ALGORITHMS) * present,
        divide_ints(slots.tempo * seed, 8).unsqueeze(-1),
    )
    return torch.cat(parts, dim=-1).float()


def contribution_features(slots: Slots) -> Tensor:
    """Slot features 20-31: contribution, velocity, interaction, gradients, each with its flag.
    float32 [E, S, 12].
    """
    ratio = slots.gradient_ratio
    points = (slots.contribution, slots.velocity, slots.interaction_sum)
    contribution, velocity, interaction = _scaled_points(torch.stack(points)).unbind()
    features = (
        contribution,
        slots.contribution_valid.float(),
        divide_ints(slots.since_measured.clamp(max=10), 10),
        velocity,
        slots.velocity_valid.float(),
        interaction,
        slots.interaction_valid.float(),
        slots.gradient_health,
        slots.gradient_valid.float(),
        (slots.gradient_valid & slots.exploding).float(),
        torch.log1p(ratio.clamp(max=100.0)) + (ratio - ratio),
        slots.gradient_ratio_valid.float(),
    )
    return torch.stack(features, dim=-1).float()


def progress_features(
    slots: Slots, signals: Signals, share: Tensor, cost: Tensor, *, episode_length: int
) -> Tensor:
    """Slot features 32-37: improvements (0 while the env is not measured), clocks, size, cost of
    keeping the seed.

    Shapes: slots, signals [E], share, cost float32 [E, S], parameters / host parameters and the
    price of the parameters in points -> float32 [E, S, 6].
    """
    now = signals.val_acc.unsqueeze(-1)
    valid = signals.measured.unsqueeze(-1)
    then = torch.stack((slots.accuracy_at_stage_start, slots.accuracy_at_germination))
    features = (
        *choose(valid, _scaled_points(now - then), 0.0).unbind(),
        divide_ints(slots.epochs_in_stage.clamp(max=20), 20),
        divide_ints(slots.age.clamp(max=episode_length) * occupied(slots.stage), episode_length),
        torch.log1p(share),
        _scaled_points(cost),
    )
    return torch.stack(features, dim=-1).float()


def _scaled_points(x: Tensor) -> Tensor:
    """Points clamped to +-50, in tens.  Non-finite values stay non-finite; a clamp would make
    infinity 50.
    """
    return x.clamp(-50.0, 50.0) / 10.0 + (x - x)


def _one_hot(codes: Tensor, values) -> Tensor:
    """One-hot over the given codes, all 0 for any other code.  int64 [...] -> float32 [...,
    len(values)].
    """
    return (
        codes.unsqueeze(-1) == constant_table(tuple(map(int, values)), torch.int64, codes.device)
    ).float()
