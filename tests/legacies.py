"""Rows of the legacy kernels put together by hand."""

import torch

from morphogen.rules.rewards.legacy.rows import Maybe, Rows
from morphogen.vocab.action import Op
from morphogen.vocab.stage import Stage

OPTIONAL = ("contribution", "uncommitted", "progress", "stage_gain")
REALS = (
    *("interaction_sum", "val_acc", "val_acc_delta", "effective_seed_params", "alpha_delta_sq_sum"),
    *("escrow_balance", "drip_scale"),
)
WHOLES = {
    **dict.fromkeys(("previous_stage", "epochs_in_stage", "previous_epochs_in_stage", "age", "left"), 0),
    **dict.fromkeys(("n_active_seeds", "n_fossilized", "n_contributing_fossilized"), 0),
    **{"op": int(Op.WAIT), "epoch": 1, "stage": int(Stage.DORMANT), "host_params": 1000},
}


def rows_of(count: int = 1, *, dtype: torch.dtype = torch.float64, last=False, **fields) -> Rows:
    """Rows by hand; a number stands for all of them, None for what was not measured.  Empty slots unless given."""
    assert fields.keys() <= {*OPTIONAL, *REALS, *WHOLES}, fields.keys()

    def whole(name: str) -> torch.Tensor:
        return torch.as_tensor(fields.get(name, WHOLES[name])).expand(count).clone()

    def real(value) -> torch.Tensor:
        return torch.as_tensor(value, dtype=dtype).expand(count).clone()

    def maybe(value) -> Maybe:
        known = value is not None
        return Maybe(real(value if known else torch.nan), torch.full((count,), known))

    return Rows(
        last=torch.as_tensor(last).expand(count).clone(),
        **{name: whole(name) for name in WHOLES},
        **{name: real(fields.get(name, 0.0)) for name in REALS},
        **{name: maybe(fields.get(name)) for name in OPTIONAL},
    )
