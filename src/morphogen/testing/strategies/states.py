"""Complete envs around drawn slots: signals, clock, governor."""

from collections.abc import Sequence
from typing import Any, cast

import torch
from hypothesis import strategies as st

from morphogen.hosts.optim import SGD, Optimizer
from morphogen.state import schema
from morphogen.state.env import EnvState, Signals
from morphogen.steps.govern_step import first_snapshot
from morphogen.testing.builders.scenes import make_state
from morphogen.testing.strategies.slots import STAGES, points, slot_states
from morphogen.vocab.action import Op
from morphogen.vocab.observation import OUTCOMES
from morphogen.vocab.stage import Stage

losses = st.sampled_from((0.5, 1.0, 2.25, 0.0, 4.5, 11.0))
_ENV_SIGNALS = {
    "plateau": st.sampled_from((0, 1, 9, 10, 30)),
    "stabilized": st.booleans(),
    "last_op": st.integers(-1, max(Op)),
    "last_outcome": st.integers(-1, max(OUTCOMES)),
    "rolled_back": st.booleans(),
    "rollbacks": st.sampled_from((0, 1, 5, 9)),
}


@st.composite
def _signal_fields(draw: st.DrawFn) -> dict[str, Any]:
    """Draw the signals of one env; values without their flag are 0."""
    row: dict[str, Any] = draw(st.fixed_dictionaries(_ENV_SIGNALS))
    known = draw(st.lists(st.tuples(losses, points), max_size=schema.HISTORY))
    history = [(0.0, 0.0)] * (schema.HISTORY - len(known)) + known
    row["history_valid"] = [False] * (schema.HISTORY - len(known)) + [True] * len(known)
    row["loss_history"] = [loss for loss, _ in history]
    row["acc_history"] = [accuracy for _, accuracy in history]
    if known:
        loss, accuracy = known[-1]
        row |= {"measured": True, "val_loss": loss, "val_acc": accuracy}
        row["committed_acc"] = draw(points)
        row["best_acc"] = max(row["acc_history"])
        row["best_loss"] = min(loss for loss, _ in known)
    if draw(st.booleans()):
        row |= {"train_measured": True, "train_loss": draw(losses), "train_acc": draw(points)}
    if draw(st.booleans()):
        row |= {"clean_valid": True, "clean_improvement": draw(points) - 50.0}
    return row


@st.composite
def signals(draw: st.DrawFn, envs: int) -> Signals:
    """Draw the signals of several envs independently; values without their flag are 0.

    Returns: a strategy of `Signals` [E].

    Example:
        >>> from hypothesis import given, settings
        >>> import morphogen as mg
        >>> from morphogen.testing import strategies
        >>> @settings(max_examples=5, deadline=None, database=None)
        ... @given(strategies.signals(envs=2))
        ... def test_unmeasured_losses_are_zero(signals):
        ...     assert (signals.val_loss[~signals.measured] == 0).all()
        >>> test_unmeasured_losses_are_zero()
    """
    rows = [draw(_signal_fields()) for _ in range(envs)]
    leaves: Any = {
        leaf.name: torch.tensor(
            [row.get(leaf.name, leaf.empty) for row in rows], dtype=leaf.dtype, device="cpu"
        )
        for leaf in schema.SIGNALS
    }
    return Signals(**leaves, batch_size=[envs])


@st.composite
def env_states(
    draw: st.DrawFn,
    max_envs: int = 3,
    max_slots: int = 3,
    *,
    min_envs: int = 1,
    min_slots: int = 1,
    stages: Sequence[Stage] = STAGES,
    optimizer: Optimizer = SGD,
) -> EnvState:
    """Draw a few envs before epoch 0 .. 19, two parameters per seed; the snapshot is drawn
    separately.

    Args: as in `slot_states`; optimizer: of hosts and seeds, whose state the envs hold.

    Returns: a strategy of `EnvState` [E].

    Example:
        >>> from hypothesis import given, settings
        >>> import morphogen as mg
        >>> from morphogen.testing import strategies
        >>> @settings(max_examples=5, deadline=None, database=None)
        ... @given(strategies.env_states(max_envs=2))
        ... def test_a_tick_keeps_alpha_a_share(state):
        ...     after, _ = mg.steps.tick(state, lifecycle=mg.LifecycleSpec())
        ...     assert ((after.slots.alpha >= 0) & (after.slots.alpha <= 1)).all()
        >>> test_a_tick_keeps_alpha_a_share()
    """
    slots = draw(
        slot_states(max_envs, max_slots, min_envs=min_envs, min_slots=min_slots, stages=stages)
    )
    envs, count = slots.stage.shape

    def each(values: st.SearchStrategy[float], kind: torch.dtype) -> torch.Tensor:
        return torch.tensor(
            draw(st.lists(values, min_size=envs, max_size=envs)), dtype=kind, device="cpu"
        )

    then = draw(slot_states(envs, count, min_envs=envs, min_slots=count))
    state = cast(Any, first_snapshot(make_state(then, window=4, optimizer=optimizer)))
    now = cast(Any, make_state(slots, window=4, optimizer=optimizer))
    epoch = each(st.sampled_from((0, 1, 10, 18, 19)), torch.int64)
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
