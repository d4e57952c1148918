"""Complete envs around drawn slots: signals, clock, governor."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from hypothesis import strategies as st

from morphogen.state import schema
from morphogen.state.env import EnvState, Signals, Slots
from morphogen.steps.govern import first_snapshot
from morphogen.testing.builders.scenes import make_state
from morphogen.testing.strategies.slots import STAGES, points, slot_states
from morphogen.vocab.action import Op, Outcome
from morphogen.vocab.stage import Stage

EPISODE_LENGTH = 20  # default, in epochs
losses = st.sampled_from((0.5, 1.0, 2.25, 0.0, 4.5, 11.0))
_HISTORY = schema.HISTORY
_SIGNALS = {leaf.name: leaf for leaf in schema.SIGNALS}


@st.composite
def _signal_fields(draw: Any) -> dict[str, Any]:
    """Draw the signals of one env; values without their flag are 0."""
    row: dict[str, Any] = {"plateau": draw(st.sampled_from((0, 1, 9, 10, 30))), "stabilized": draw(st.booleans())}
    row |= {"last_op": draw(st.integers(-1, max(Op))), "last_outcome": draw(st.integers(-1, max(Outcome)))}
    row |= {"rolled_back": draw(st.booleans()), "rollbacks": draw(st.sampled_from((0, 1, 5, 9)))}
    known = draw(st.integers(0, _HISTORY))
    valid = [False] * (_HISTORY - known) + [True] * known
    history = [(draw(losses), draw(points)) if yes else (0.0, 0.0) for yes in valid]
    row |= {"history_valid": valid, "loss_history": [a for a, _ in history], "acc_history": [b for _, b in history]}
    if known:
        loss, accuracy = history[-1]
        row |= {"measured": True, "val_loss": loss, "val_acc": accuracy, "committed_acc": draw(points)}
        row |= {"best_acc": max(b for _, b in history), "best_loss": min(a for a, _ in history[-known:])}
    if draw(st.booleans()):
        row |= {"train_measured": True, "train_loss": draw(losses), "train_acc": draw(points)}
    if draw(st.booleans()):
        row |= {"clean_valid": True, "clean_improvement": draw(points) - 50.0}
    return row


@st.composite
def signals(draw: Any, envs: int) -> Signals:
    """Draw the signals of several envs independently."""
    rows = draw(st.lists(_signal_fields(), min_size=envs, max_size=envs))
    leaves = {}
    for name, leaf in _SIGNALS.items():
        empty = [leaf.empty] * _HISTORY if leaf.shape else leaf.empty
        leaves[name] = torch.tensor([row.get(name, empty) for row in rows], dtype=leaf.dtype)
    return Signals(**leaves, batch_size=[envs])


@st.composite
def env_states(
    draw: Any,
    max_envs: int = 3,
    max_slots: int = 3,
    *,
    min_envs: int = 1,
    min_slots: int = 1,
    stages: Sequence[Stage] = STAGES,
    length: int = EPISODE_LENGTH,
) -> EnvState:
    """Draw a few envs before epoch 0 .. `length` - 1, two parameters per seed; the snapshot is drawn separately."""
    bounds = {"min_envs": min_envs, "min_slots": min_slots, "stages": stages}
    slots = draw(slot_states(max_envs, max_slots, **bounds))
    return draw(states_around(slots, length=length))


@st.composite
def states_around(draw: Any, slots: Slots, *, length: int = EPISODE_LENGTH) -> EnvState:
    """Draw envs around given slots."""
    envs, count = slots.stage.shape
    then = draw(slot_states(envs, count, min_envs=envs, min_slots=count))
    state = first_snapshot(make_state(then, window=4))
    now = make_state(slots, window=4)
    each = _draw_per_env(draw, envs)
    epoch = each(st.sampled_from((0, 1, length // 2, length - 2, length - 1)), torch.int64)
    return state.replace(
        slots=slots,
        seeds=now.seeds,
        signals=draw(signals(envs)),
        ledger=now.ledger.replace({"phi": each(points, torch.float32) / 100 - 0.5}),
        clock=now.clock.replace(epoch=epoch),
        instance=now.instance.replace(
            param_price=each(st.sampled_from((0.1, 0.0, 1.0)), torch.float32),
            width=each(st.sampled_from((1.0, 0.5, 0.1)), torch.float32),
        ),
        governor=state.governor.replace(
            count=each(st.sampled_from((0, 1, 3, 4, 9)), torch.int64),
            streak=each(st.integers(0, 2), torch.int64),
            window=torch.stack([each(losses, torch.float32) for _ in range(4)], dim=-1),
        ),
    )


def _draw_per_env(draw: Any, envs: int) -> Callable[[st.SearchStrategy, torch.dtype], torch.Tensor]:
    """Return a function that draws one value per env, as a tensor."""
    return lambda values, kind: torch.tensor(draw(st.lists(values, min_size=envs, max_size=envs)), dtype=kind)
