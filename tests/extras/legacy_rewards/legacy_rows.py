"""Rows of the legacy kernels and lives of envs as the legacy rules see them: by hand and as
strategies.
"""

import torch
from hypothesis import strategies as st

from morphogen.extras.legacy_rewards.kernels import OptionalValue, SlotRows
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
