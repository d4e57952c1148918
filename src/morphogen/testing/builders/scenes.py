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

from morphogen.hosts.optim import SGD, Optimizer
from morphogen.rules.stages import occupied
from morphogen.state import rng, schema
from morphogen.state.env import EnvState, Slots
from morphogen.state.tree_ops import zero_empty_slots
from morphogen.vocab.limits import Limits

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


def make_sizes(
    envs: int, slots: int, *, window: int = 20, optimizer: Optimizer = SGD
) -> schema.Sizes:
    """Sizes of a minimal state: three host parameters, two per seed."""
    names = tuple(f"r0c{i}" for i in range(slots))
    return schema.Sizes(
        envs,
        names,
        host_params=3,
        seed_params=(2,) * slots,
        window=window,
        classes=CLASSES,
        moments=optimizer.moments,
        counts=optimizer.counts,
    )


def make_state(
    slots: Slots,
    accuracy: float | Sequence[float] = 50.0,
    *,
    measured: bool = True,
    epoch: int = 0,
    window: int = 20,
    phi: float = 0.0,
    optimizer: Optimizer = SGD,
) -> EnvState:
    """Build envs around slots, with two distinct parameters per seed; `phi`: ledger of the core
    reward rules.
    """
    envs, count = slots.stage.shape
    ledger = TensorDict({"phi": _full(envs, phi)}, batch_size=[envs])
    state = schema.empty_state(
        make_sizes(envs, count, window=window, optimizer=optimizer),
        rng.env_keys(7, 0, envs),
        ledger,
    )
    valid = torch.full((envs,), measured, device="cpu")
    known = torch.as_tensor(accuracy, dtype=torch.float32, device="cpu").expand(envs)
    rows = {
        name: make_seed_rows(envs, 1.0 + s, optimizer) for s, name in enumerate(state.seeds.keys())
    }
    seeds = TensorDict(rows, batch_size=[envs])
    return state.replace(
        slots=slots,
        signals=state.signals.replace(
            val_acc=known * valid, val_loss=valid.float(), measured=valid
        ),
        seeds=zero_empty_slots(seeds, occupied(slots.stage)),
        host=state.host.replace(
            params=torch.arange(3 * envs, dtype=torch.float32, device="cpu").view(envs, 3) + 1,
            momentum=torch.ones(envs, 3, dtype=torch.float32, device="cpu"),
            adaptive=state.host.adaptive.apply(torch.ones_like),
        ),
        instance=state.instance.replace(
            baseline_loss=_full(envs, BASELINE_LOSS),
            param_price=_full(envs, 0.1),
            classes=torch.full((envs,), CLASSES, device="cpu"),
        ),
        clock=state.clock.replace(epoch=state.clock.epoch + epoch),
    )


def _full(envs: int, value: float) -> Tensor:
    return torch.full((envs,), value, dtype=torch.float32, device="cpu")


def make_seed_rows(envs: int, value: float, optimizer: Optimizer = SGD) -> TensorDict:
    """Build parameters and optimiser state of the seeds in one slot, distinct in every env."""
    row = value + 10.0 * torch.arange(envs, dtype=torch.float32, device="cpu")[:, None].expand(
        envs, 2
    )
    leaves = {"params": row.clone()}
    leaves |= {name: (2 * i - 1) * row for i, name in enumerate(optimizer.moments)}
    leaves |= {name: row[:, :1].clone() for name in optimizer.counts}
    return TensorDict(leaves, batch_size=[envs])


def make_limits(slots: Slots, **fields: Any) -> Limits:
    """Build limits for slots; default: all enabled."""
    return Limits(**{"enabled": (True,) * slots.stage.shape[1], **fields})
