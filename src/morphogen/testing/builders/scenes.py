"""Small states by hand: slots from single leaves, envs around slots, measurements.

For single cases; laws of all states use the states that `strategies` draws.

    import torch
    from morphogen.rules.legality import legal
    from morphogen.testing.builders import scenes
    from morphogen.vocab.action import Op
    from morphogen.vocab.stage import Stage

    slots = scenes.make_slots(
        [[{"stage": Stage.TRAINING, "age": 4}], [{"stage": Stage.TRAINING, "age": 5}]]
    )
    assert legal(slots, scenes.make_limits(slots))[:, Op.PRUNE, 0].tolist() == [False, True]
    state = scenes.make_state(slots, accuracy=[40.0, 60.0], epoch=3)
    assert torch.equal(state.slots.stage, slots.stage)
"""

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.state import rng, schema
from morphogen.state.env import EnvState, Slots
from morphogen.state.measure import Attribution, TrainMetrics, Validation
from morphogen.state.tree_ops import zero_empty_slots
from morphogen.vocab.limits import Limits
from morphogen.vocab.stage import BLENDED, COOLING, OCCUPIED, AlphaMode, Stage

SLOT_LEAVES = {leaf.name: leaf for leaf in schema.SLOTS}
Row = dict[str, float | int | bool]
CLASSES = 10
BASELINE_LOSS = 2.3


def make_slots(rows: Sequence[Sequence[Row]], dtype: torch.dtype = torch.float32) -> Slots:
    """Build slots from one dict of leaves per env and slot; other leaves have their empty
    values.
    """
    leaves = {}
    for name, leaf in SLOT_LEAVES.items():
        values = [[row.get(name, leaf.empty) for row in env] for env in rows]
        leaves[name] = torch.tensor(
            values, dtype=dtype if leaf.dtype.is_floating_point else leaf.dtype, device="cpu"
        )
    return Slots(**leaves, batch_size=[len(rows)])


def make_slot(**leaves: float | int | bool) -> Slots:
    """Build one env with one slot."""
    return make_slots([[leaves]])


def slots_by_stage(
    stages: Sequence[Sequence[Stage]], alphas: Sequence[Sequence[float]] | None = None, **leaves
) -> Slots:
    """Build slots from stages, one row per env; alpha is 1 in blended slots by default; `leaves`
    [E, S] by name.
    """
    slots = make_slots(
        [
            [{"stage": int(stage), "alpha": float(stage in BLENDED)} for stage in env]
            for env in stages
        ]
    )
    columns = leaves if alphas is None else {"alpha": alphas, **leaves}
    return slots.replace(**{name: _as_leaf(value) for name, value in columns.items()})


def make_sizes(envs: int, slots: int, *, window: int = 20) -> schema.Sizes:
    """Sizes of a minimal state: three host parameters, two per seed."""
    names = tuple(f"r0c{i}" for i in range(slots))
    return schema.Sizes(
        envs, names, host_params=3, seed_params=(2,) * slots, window=window, classes=CLASSES
    )


def make_state(
    slots: Slots,
    accuracy: float | Sequence[float] = 50.0,
    *,
    measured: bool = True,
    epoch: int = 0,
    window: int = 20,
    phi: float = 0.0,
    price: float = 0.1,
) -> EnvState:
    """Build envs around slots, with two distinct parameters per seed; `phi`: ledger of the core
    reward rules.
    """
    envs, count = slots.stage.shape
    ledger = TensorDict({"phi": _full(envs, phi)}, batch_size=[envs])
    state = schema.empty_state(
        make_sizes(envs, count, window=window), rng.env_keys(7, 0, envs), ledger
    )
    valid = torch.full((envs,), measured, device="cpu")
    known = torch.as_tensor(accuracy, dtype=torch.float32, device="cpu").expand(envs)
    rows = {name: make_seed_rows(envs, 1.0 + s) for s, name in enumerate(state.seeds.keys())}
    seeds = TensorDict(rows, batch_size=[envs])
    filled = (slots.stage >= OCCUPIED[0]) & (slots.stage <= OCCUPIED[-1])
    return state.replace(
        slots=slots,
        signals=state.signals.replace(
            val_acc=known * valid, val_loss=valid.float(), measured=valid
        ),
        seeds=zero_empty_slots(seeds, filled),
        host=state.host.replace(
            params=torch.arange(3 * envs, dtype=torch.float32, device="cpu").view(envs, 3) + 1,
            momentum=torch.ones(envs, 3, dtype=torch.float32, device="cpu"),
        ),
        instance=state.instance.replace(
            baseline_loss=_full(envs, BASELINE_LOSS),
            param_price=_full(envs, price),
            classes=torch.full((envs,), CLASSES, device="cpu"),
        ),
        clock=state.clock.replace(epoch=state.clock.epoch + epoch),
    )


def _full(envs: int, value: float) -> Tensor:
    return torch.full((envs,), value, dtype=torch.float32, device="cpu")


def _as_leaf(value: Any) -> Tensor:
    """Return numbers as a leaf of a state, with float32 for Python's floats; a tensor stays as it
    is.
    """
    leaf = torch.as_tensor(value, device="cpu")
    return leaf.to(torch.float32) if leaf.is_floating_point() and leaf is not value else leaf


def make_seed_rows(envs: int, value: float) -> TensorDict:
    """Build parameters and momentum of the seeds in one slot, distinct in every env."""
    row = value + 10.0 * torch.arange(envs, dtype=torch.float32, device="cpu")[:, None].expand(
        envs, 2
    )
    return TensorDict({"params": row.clone(), "momentum": -row}, batch_size=[envs])


def make_limits(slots: Slots, **fields: Any) -> Limits:
    """Build limits for slots; default: all enabled."""
    return Limits(**{"enabled": (True,) * slots.stage.shape[1], **fields})


def advance_counters(slots: Slots) -> Slots:
    """Advance the counters as the end of an epoch does."""
    held = (slots.stage >= OCCUPIED[0]) & (slots.stage <= OCCUPIED[-1])
    return slots.replace(
        epochs_in_stage=slots.epochs_in_stage + (slots.stage != Stage.DORMANT), age=slots.age + held
    )


def make_validation(
    loss: Sequence[float] | Tensor, accuracy: Sequence[float], *, columns: int = 1
) -> Validation:
    """Build a validation of envs in which only coalition 0 was evaluated."""
    envs = len(accuracy)
    first = torch.arange(columns, device="cpu").expand(envs, columns) == 0
    return Validation(
        loss=torch.as_tensor(loss, dtype=torch.float32, device="cpu"),
        accuracy=torch.where(
            first, torch.tensor(accuracy, dtype=torch.float32, device="cpu")[:, None], 0.0
        ),
        coalition=torch.zeros(envs, columns, dtype=torch.int64, device="cpu"),
        evaluated=first.clone(),
        batch_size=[envs],
    )


def make_train_metrics(skipped: Sequence[int], overflowed: Sequence[int] = ()) -> TrainMetrics:
    """Build training metrics from the numbers of skipped minibatches of each env; default: none
    overflowed.
    """
    envs = len(skipped)
    leaves: dict[str, Any] = {
        name: _full(envs, 0.0) for name in ("loss", "accuracy", "host_gradient_norm")
    }
    yes = torch.ones(envs, dtype=torch.bool, device="cpu")
    leaves |= {
        "skipped": torch.tensor(skipped, device="cpu"),
        "overflowed": torch.tensor(overflowed or [0] * envs, device="cpu"),
    }
    leaves["host_layer_norm"] = torch.zeros(envs, 0, dtype=torch.float32, device="cpu")
    return TrainMetrics(**leaves, valid=yes, seed_skipped=~yes, batch_size=[envs])


def make_attribution(
    accuracy: Sequence[float],
    *,
    clean=None,
    contribution=None,
    slots: int = 3,
    measured: bool = True,
) -> Attribution:
    """Build an attribution of envs without fossils; default: no contributions."""
    val = _as_leaf(accuracy)
    envs = len(accuracy)
    flat = torch.zeros_like(val)
    wide = torch.zeros(envs, slots, dtype=torch.float32, device="cpu")
    credit = wide if contribution is None else _as_leaf(contribution)
    return Attribution(
        val_acc=val.clone(),
        committed_acc=val.clone(),
        host_acc=val.clone(),
        clean_improvement=flat if clean is None else _as_leaf(clean),
        uncommitted_improvement=flat,
        contribution=credit,
        contribution_valid=credit != 0,
        shapley=credit.clone(),
        interaction=torch.zeros(envs, slots, slots, dtype=torch.float32, device="cpu"),
        interaction_sum=wide,
        boost_received=wide,
        interaction_valid=wide.bool(),
        acc_table=val.unsqueeze(-1).expand(-1, 2**slots).clone(),
        measured=torch.full((envs,), measured, device="cpu"),
        exact=torch.full((envs,), measured, device="cpu"),
        forwards=torch.ones(envs, dtype=torch.int64, device="cpu"),
        batch_size=[envs],
    )


_COUNTERS = (
    "epochs_in_stage",
    "previous_epochs_in_stage",
    "age",
    "alpha_steps",
    "alpha_done",
    "since_measured",
)
_ZERO_UNLESS = {  # flag -> values that are 0 without it
    "gradient_valid": ("gradient_norm", "gradient_health", "vanishing", "exploding"),
    "gradient_ratio_valid": ("gradient_ratio",),
    "contribution_valid": ("contribution", "velocity_valid", "since_measured"),
    "velocity_valid": ("velocity",),
    "interaction_valid": ("interaction_sum", "boost_received"),
    "accuracy_at_blending_valid": ("accuracy_at_blending",),
}


def broken_invariants(slots: Slots) -> list[str]:
    """List the invariants that some slot breaks at the start of a step, by name."""
    stage = slots.stage
    alpha = slots.alpha
    moving = slots.alpha_mode != int(AlphaMode.HOLD)
    blends = stage == int(Stage.BLENDING)
    held = (stage == int(Stage.HOLDING)) | (stage == int(Stage.FOSSILIZED))
    empty = stage == int(Stage.DORMANT)
    cools = torch.isin(stage, torch.tensor(COOLING, device="cpu"))
    invariants = {  # name -> bool [E, S]
        "a known stage": (stage >= int(Stage.DORMANT)) & (stage <= int(Stage.RESETTING)),
        "counters from 0 on": torch.stack([getattr(slots, name) >= 0 for name in _COUNTERS]),
        "alpha in 0 .. 1": (alpha >= 0) & (alpha <= 1),
        "alpha 0 where nothing is blended": (alpha == 0) | blends | held,
        "held at alpha 1": (alpha == 1) | ~held,
        "alpha moves in BLENDING only": blends | ~moving,
        "ramps no longer than they are": slots.alpha_done <= slots.alpha_steps,
        "an unfinished ramp moves": moving | (slots.alpha_done == slots.alpha_steps) | ~blends,
        "a blueprint iff not empty": (slots.blueprint == SLOT_LEAVES["blueprint"].empty) == empty,
        "an epoch in its stage iff not empty": (slots.epochs_in_stage >= 1) != empty,
        "no younger than in its stage": (slots.age >= slots.epochs_in_stage) | cools | empty,
        "contributions of blended seeds only": blends | held | ~slots.contribution_valid,
    }
    for name, leaf in SLOT_LEAVES.items():
        invariants[f"empty slots with an empty {name}"] = (
            getattr(slots, name) == leaf.empty
        ) | ~empty
    for flag, name in ((flag, name) for flag, names in _ZERO_UNLESS.items() for name in names):
        invariants[f"{name} 0 unless {flag}"] = (getattr(slots, name) == 0) | getattr(slots, flag)
    return [name for name, holds in invariants.items() if not bool(holds.all())]
