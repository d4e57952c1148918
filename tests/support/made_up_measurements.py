"""Made-up slots, and results of training, validation and attribution."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from morphogen.state.env import Slots
from morphogen.state.measure import Attribution, TrainMetrics, Validation
from morphogen.testing.builders.scenes import make_slots
from morphogen.vocab.stage import BLENDED, Stage


def slots_by_stage(
    stages: Sequence[Sequence[Stage]], alphas: Sequence[Sequence[float]] | None = None, **leaves
) -> Slots:
    """Slots in these stages, one row per env; alpha is 1 in blended slots by default; `leaves` [E,
    S] by name.
    """
    rows = [
        [{"stage": int(stage), "alpha": float(stage in BLENDED)} for stage in env] for env in stages
    ]
    columns = leaves if alphas is None else {"alpha": alphas, **leaves}
    return make_slots(rows).replace({name: torch.as_tensor(x) for name, x in columns.items()})


def make_validation(
    loss: Sequence[float] | Tensor, accuracy: Sequence[float], *, columns: int = 1
) -> Validation:
    """A validation of envs in which only coalition 0 was evaluated."""
    envs = len(accuracy)
    first = torch.arange(columns).expand(envs, columns) == 0
    return Validation(
        loss=torch.as_tensor(loss, dtype=torch.float32),
        accuracy=torch.where(first, torch.tensor(accuracy, dtype=torch.float32)[:, None], 0.0),
        coalition=torch.zeros(envs, columns, dtype=torch.int64),
        evaluated=first.clone(),
        batch_size=[envs],
    )


def make_train_metrics(skipped: Sequence[int], overflowed: Sequence[int] = ()) -> TrainMetrics:
    """Training metrics with the numbers of skipped minibatches of each env; default: none
    overflowed.
    """
    envs = len(skipped)
    leaves: dict[str, Any] = {
        name: torch.zeros(envs) for name in ("loss", "accuracy", "host_gradient_norm")
    }
    yes = torch.ones(envs, dtype=torch.bool)
    leaves |= {
        "skipped": torch.tensor(skipped),
        "overflowed": torch.tensor(overflowed or [0] * envs),
    }
    return TrainMetrics(**leaves, valid=yes, seed_skipped=~yes, batch_size=[envs])


def make_attribution(
    accuracy: Sequence[float],
    *,
    clean=None,
    contribution=None,
    slots: int = 3,
    measured: bool = True,
) -> Attribution:
    """An attribution of envs without fossils; default: no contributions."""
    val = torch.tensor(accuracy)
    envs = len(accuracy)
    flat = torch.zeros_like(val)
    wide = torch.zeros(envs, slots, dtype=torch.float32)
    credit = wide if contribution is None else torch.tensor(contribution)
    return Attribution(
        val_acc=val.clone(),
        committed_acc=val.clone(),
        host_acc=val.clone(),
        clean_improvement=flat if clean is None else torch.tensor(clean),
        uncommitted_improvement=flat,
        contribution=credit,
        contribution_valid=credit != 0,
        shapley=credit.clone(),
        interaction=torch.zeros(envs, slots, slots, dtype=torch.float32),
        interaction_sum=wide,
        boost_received=wide,
        interaction_valid=wide.bool(),
        acc_table=val.unsqueeze(-1).expand(-1, 2**slots).clone(),
        measured=torch.full((envs,), measured),
        exact=torch.full((envs,), measured),
        forwards=torch.ones(envs, dtype=torch.int64),
        batch_size=[envs],
    )
