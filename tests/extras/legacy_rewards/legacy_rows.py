"""Rows of the legacy kernels and lives of envs as the legacy rules see them: by hand and as
strategies.
"""

from dataclasses import dataclass, fields

import torch
from hypothesis import strategies as st

from morphogen.extras.legacy_rewards.kernels import OptionalValue, SlotRows
from morphogen.rules.rewards.example_inputs import make_reward_inputs, make_slot_inputs
from morphogen.vocab.action import Op
from morphogen.vocab.stage import Stage

OPTIONAL = ("contribution", "uncommitted", "progress", "stage_gain")
REALS = (
    *("interaction_sum", "val_acc", "val_acc_delta", "effective_seed_params", "alpha_delta_sq_sum"),
    *("escrow_balance", "drip_scale"),
)
WHOLES = {
    **dict.fromkeys(
        ("previous_stage", "epochs_in_stage", "previous_epochs_in_stage", "age", "left"), 0
    ),
    **dict.fromkeys(("n_active_seeds", "n_fossilized", "n_contributing_fossilized"), 0),
    **{"op": int(Op.WAIT), "epoch": 1, "stage": int(Stage.DORMANT), "host_params": 1000},
}
SEEDS = (Stage.GERMINATED, Stage.TRAINING, Stage.BLENDING, Stage.HOLDING, Stage.FOSSILIZED)
POINTS = (-12.0, -0.6, -0.3, -0.125, 0.0, 0.05, 0.15, 0.5, 1.0, 2.5, 9.0, 30.0)
points = st.sampled_from(POINTS) | st.integers(-160, 160).map(lambda n: n / 8)
maybe_points = st.none() | points
shares = st.integers(0, 80).map(lambda n: n * 1.25)
few = st.integers(0, 12)
# contributions that mostly earn something
helpful = st.sampled_from((4.0, 1.0, 0.5, 9.0, -0.6, None))


def rows_of(count: int = 1, *, dtype: torch.dtype = torch.float64, last=False, **given) -> SlotRows:
    """Rows by hand; a value stands for all of them, None for what was not measured.  Empty slots
    unless given.
    """
    assert given.keys() <= {*OPTIONAL, *REALS, *WHOLES}, given.keys()

    def real(value) -> torch.Tensor:
        return torch.as_tensor(value, dtype=dtype).expand(count).clone()

    def maybe(value) -> OptionalValue:
        known = value is not None
        return OptionalValue(real(value if known else torch.nan), torch.full((count,), known))

    return SlotRows(
        last=torch.as_tensor(last).expand(count).clone(),
        **{
            name: torch.as_tensor(given.get(name, WHOLES[name])).expand(count).clone()
            for name in WHOLES
        },
        **{name: real(given.get(name, 0.0)) for name in REALS},
        **{name: maybe(given.get(name)) for name in OPTIONAL},
    )


@st.composite
def fields_of_a_row(draw, **given) -> dict:
    """Fields of a valid row: without a seed nothing is measured, and the uncommitted part is,
    whenever a seed is.
    """
    seed = draw(st.booleans()) if "stage" not in given else given["stage"] in SEEDS
    stage = (
        draw(st.sampled_from(SEEDS))
        if seed
        else draw(st.sampled_from((Stage.DORMANT, Stage.PRUNED)))
    )
    contribution = draw(maybe_points) if seed else None
    drawn = {
        "op": int(draw(st.sampled_from(Op))),
        "stage": int(stage),
        "previous_stage": int(draw(st.sampled_from(Stage))),
        **{name: draw(few) for name in ("epochs_in_stage", "previous_epochs_in_stage", "age")},
        "epoch": draw(st.integers(1, 60)),
        "left": draw(few),
        "contribution": contribution,
        "uncommitted": draw(maybe_points)
        if contribution is None and seed
        else draw(points)
        if seed
        else None,
        **{name: draw(maybe_points) if seed else None for name in ("progress", "stage_gain")},
        "interaction_sum": draw(points),
        "val_acc": draw(shares),
        "val_acc_delta": draw(points),
        "effective_seed_params": draw(st.sampled_from((0.0, 12.5, 3000.0, 1e6))),
        "alpha_delta_sq_sum": draw(st.sampled_from((0.0, 0.01, 1.0, 40.0))),
        "host_params": draw(st.sampled_from((1, 200, 5000))),
        **{
            name: draw(st.integers(0, 4))
            for name in ("n_active_seeds", "n_fossilized", "n_contributing_fossilized")
        },
        "escrow_balance": draw(st.sampled_from((-0.5, 0.0, 0.7, 3.0))),
        "drip_scale": draw(st.sampled_from((0.0, 0.01, 0.5))),
    }
    return {**drawn, "last": drawn["left"] == 0, **given}


def rows(**given):
    """One valid row; what is given is fixed."""
    return fields_of_a_row(**given).map(lambda found: rows_of(**found))


@dataclass
class Life:
    """A slot in a life that is drawn: the leaves of `SlotInputs`, as numbers."""

    op: int = int(Op.WAIT)
    stage: int = int(Stage.DORMANT)
    previous_stage: int = 0
    epochs_in_stage: int = 0
    previous_epochs_in_stage: int = 0
    age: int = 0
    contribution: float = 0.0
    contribution_valid: bool = False
    accuracy_at_germination: float = 0.0
    accuracy_at_stage_start: float = 0.0
    interaction_sum: float = 0.0
    alpha: float = 0.0
    params: int = 0
    next_stage: int = int(Stage.DORMANT)
    next_contribution: float = 0.0
    next_contribution_valid: bool = False

    def close(self, accuracy: float, contribution: float | None) -> "Life":
        """The slot that the next step finds."""
        stage, seed = Stage(self.next_stage), self.next_stage in SEEDS
        if not seed:
            return Life(stage=int(stage), previous_stage=self.stage)
        moved, born = (
            self.next_stage != self.stage,
            self.next_stage == Stage.GERMINATED != self.stage,
        )
        shown = contribution is not None and stage >= Stage.BLENDING
        return Life(
            stage=int(stage),
            previous_stage=self.stage if moved else self.previous_stage,
            epochs_in_stage=1 if moved else self.epochs_in_stage + 1,
            previous_epochs_in_stage=self.epochs_in_stage
            if moved
            else self.previous_epochs_in_stage,
            age=1 if born else self.age + 1,
            contribution=contribution if shown else 0.0,
            contribution_valid=shown,
            accuracy_at_germination=accuracy if born else self.accuracy_at_germination,
            accuracy_at_stage_start=accuracy if moved else self.accuracy_at_stage_start,
            interaction_sum=(contribution or 0.0) / 2 if shown else 0.0,
            alpha=0.0 if stage < Stage.BLENDING else 0.5 if stage == Stage.BLENDING else 1.0,
            params=self.params or 300,
        )


UP = {
    stage: after
    for stage, after in zip(SEEDS, (*SEEDS[1:], None), strict=True)
    if after is not None
}


def choices(slot: Life) -> list[Op]:
    """Ops that a slot allows."""
    stage = Stage(slot.stage)
    if stage is Stage.DORMANT:
        return [Op.GERMINATE]
    if stage in (Stage.GERMINATED, Stage.TRAINING):
        return [Op.ADVANCE, Op.PRUNE]
    kept = {Stage.BLENDING: [Op.ADVANCE], Stage.HOLDING: [Op.FOSSILIZE]}.get(stage, [])
    return [*kept, Op.PRUNE, Op.SET_ALPHA_TARGET] if kept else []


def follow(slot: Life, op: Op) -> Stage:
    """The stage after an op."""
    if op in (Op.ADVANCE, Op.FOSSILIZE):
        return UP[Stage(slot.stage)]
    after = {
        Op.GERMINATE: Stage.GERMINATED,
        Op.PRUNE: Stage.PRUNED,
        Op.SET_ALPHA_TARGET: Stage.BLENDING,
    }
    return after.get(op, Stage.DORMANT if slot.stage == Stage.PRUNED else Stage(slot.stage))


@st.composite
def settled(draw, stage: Stage, credit) -> Life:
    """A slot that has been in a stage for a while."""
    shown, alpha = (
        stage >= Stage.BLENDING,
        {Stage.BLENDING: 0.5, Stage.HOLDING: 1.0, Stage.FOSSILIZED: 1.0},
    )
    return Life(
        stage=int(stage),
        previous_stage=int(stage) - 1,
        epochs_in_stage=6,
        age=9,
        contribution=(draw(credit) or 0.0) if shown else 0.0,
        contribution_valid=shown,
        accuracy_at_germination=draw(shares) / 8,
        accuracy_at_stage_start=draw(shares),
        alpha=alpha.get(stage, 0.0),
        params=300,
    )


@st.composite
def lives(
    draw, *, steps: int | None = None, start=None, rollbacks: bool = False, credit=maybe_points
):
    """Inputs of consecutive steps of one env whose slots live as slots do; the last step is the
    horizon.

    `rollbacks`: one of the steps may be rolled back; `credit`: what contributions are drawn from.
    """
    count, places = draw(st.integers(1, 4)) if steps is None else steps, 3
    lost_at = draw(st.none() | st.integers(0, count - 1)) if rollbacks else None
    slots = [draw(settled(stage, credit)) for stage in start or []]
    slots += [Life() for _ in range(places - len(slots))]
    accuracy, found = draw(shares), []
    for t in range(count):
        back = t == lost_at
        where = draw(st.integers(0, places - 1))
        op = draw(st.sampled_from([Op.WAIT, *choices(slots[where])]))
        for place, slot in enumerate(slots):
            slot.op = int(op if place == where else Op.WAIT)
            slot.next_stage = int(follow(slot, Op(slot.op)))
            faded = (
                slot.op == Op.WAIT and slot.stage == Stage.BLENDING and draw(st.integers(0, 3)) == 0
            )
            lost = faded or (back and slot.stage in SEEDS and slot.stage != Stage.FOSSILIZED)
            slot.next_stage = int(Stage.PRUNED) if lost else slot.next_stage
        after, worth = draw(shares), [draw(credit) for _ in slots]
        closed = [slot.close(accuracy, q) for slot, q in zip(slots, worth, strict=True)]
        for slot, then in zip(slots, closed, strict=True):
            slot.next_contribution, slot.next_contribution_valid = (
                then.contribution,
                then.contribution_valid,
            )
        leaves = {one.name: [[getattr(slot, one.name) for slot in slots]] for one in fields(Life)}
        pairs = torch.tensor([[draw(points) for _ in slots] for _ in slots], dtype=torch.float64)
        found.append(
            make_reward_inputs(
                horizon=t == count - 1,
                rolled_back=back,
                op=int(op),
                op_executed=True,
                epoch=t + 1,
                host_params=1000,
                val_acc=accuracy,
                stable_val_acc=accuracy / 2,
                uncommitted_improvement=draw(points),
                next_val_acc=after,
                clean_valid=draw(st.booleans()),
                interaction=pairs + pairs.T,
                slots=make_slot_inputs(
                    1, places, **{name: torch.tensor(rows) for name, rows in leaves.items()}
                ),
            )
        )
        accuracy, slots = after, closed
    return found
