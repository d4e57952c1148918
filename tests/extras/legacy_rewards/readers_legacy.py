"""Readers of golden rows: the legacy reward kernels and their parts."""

from collections.abc import Callable

import torch
from readers_measure import near

from morphogen.extras.legacy_rewards import kernels as parts
from morphogen.extras.legacy_rewards.kernels import (
    OptionalValue,
    SlotRows,
    basic_reward,
    escrow_reward,
    rent_and_shock_inputs,
    shaped_reward,
    simplified_reward,
)
from morphogen.extras.legacy_rewards.settings import LegacyRewardSpec
from morphogen.vocab.action import Op
from morphogen.vocab.stage import Stage

GAMMA = 0.995
KERNELS = {
    "shaped": shaped_reward,
    "escrow": escrow_reward,
    "simplified": simplified_reward,
    "basic": basic_reward,
    "basic_plus": basic_reward,
}
SEED = (
    "stage",
    "previous_stage",
    "epochs_in_stage",
    "previous_epochs_in_stage",
    "age",
    "interaction_sum",
)
PLAIN = (
    *(
        "epoch",
        "val_acc",
        "val_acc_delta",
        "host_params",
        "effective_seed_params",
        "alpha_delta_sq_sum",
    ),
    *("n_active_seeds", "n_fossilized", "n_contributing_fossilized", "escrow_balance"),
)


REALS = (
    "interaction_sum",
    "val_acc",
    "val_acc_delta",
    "effective_seed_params",
    "alpha_delta_sq_sum",
    "escrow_balance",
    "drip_scale",
)
OPTIONAL = ("contribution", "uncommitted", "progress", "stage_gain")
COUNTS = {  # by their values in an empty slot
    **dict.fromkeys(("previous_stage", "epochs_in_stage", "previous_epochs_in_stage", "age"), 0),
    **dict.fromkeys(("left", "n_active_seeds", "n_fossilized", "n_contributing_fossilized"), 0),
    "op": int(Op.WAIT),
    "epoch": 1,
    "stage": int(Stage.DORMANT),
    "host_params": 1000,
}


def rows_of(*, dtype: torch.dtype, last: bool = False, **given) -> SlotRows:
    """One row; None stands for what was not measured.  An empty slot unless given."""

    def maybe(value) -> OptionalValue:
        known = value is not None
        return OptionalValue(
            torch.tensor([value if known else torch.nan], dtype=dtype), torch.tensor([known])
        )

    return SlotRows(
        last=torch.tensor([last]),
        **{name: torch.tensor([given.get(name, value)]) for name, value in COUNTS.items()},
        **{name: torch.tensor([given.get(name, 0.0)], dtype=dtype) for name in REALS},
        **{name: maybe(given.get(name)) for name in OPTIONAL},
    )


def close(got: torch.Tensor, want, name: str = "") -> None:
    """Equal to the recorded number in the precision of the result."""
    try:
        near(got, want, exact=1e-9, single=1e-5)
    except AssertionError as error:
        raise AssertionError(f"{name}: {error}") from None


def spec_of(rule: str, config: dict) -> LegacyRewardSpec:
    """The constants of a row: the defaults of its rule and what the row changes."""
    fraction = {"drip_fraction": 0.7 if rule == "basic_plus" else 0.0}
    return LegacyRewardSpec(
        **fraction | {name: value for name, value in config.items() if name != "gamma"}
    )


def fields_of(given: dict) -> dict:
    """The inputs of a row as fields of `legacies.rows_of`: one slot in column 0, open drip records
    beside it.
    """
    seed = given["seed"] or {}
    start, accuracy = (
        given.get("acc_at_germination"),
        given.get("stable_val_acc", given.get("val_acc")),
    )
    fields = {name: given[name] for name in PLAIN if name in given}
    fields |= {name: seed[name] for name in SEED if name in seed}
    fields |= {name: int(Stage[seed[name]]) for name in ("stage", "previous_stage") if name in seed}
    return fields | {
        "op": int(Op[given["op"]]),
        "last": given["epoch"] == given["horizon"],
        "left": given["horizon"] - given["epoch"],
        "contribution": given.get("contribution"),
        "uncommitted": seed.get("uncommitted_improvement"),
        "stage_gain": seed.get("stage_improvement"),
        "progress": None if start is None or not seed else accuracy - start,
    }


def read_kernel(row: dict, dtype: torch.dtype) -> None:
    rule, given, outputs = row["rule"], row["inputs"], row["outputs"]
    kernel, spec = KERNELS[rule], spec_of(rule, row["config"])
    gamma = row["config"].get("gamma", GAMMA)
    paid = kernel(rows_of(dtype=dtype, **fields_of(given)), spec=spec, gamma=gamma)
    components = dict(paid.components)
    for record in given.get("drip", ()):
        other = rows_of(
            dtype=dtype, drip_scale=record["scale"], contribution=record["contribution"]
        )
        components["drip"] = (
            components["drip"] + kernel(other, spec=spec, gamma=gamma).components["drip"]
        )
    for name, want in outputs.get("components", {}).items():
        close(components[name], [want], name)
    close(torch.stack([*components.values()]).sum(0), [outputs["total"]], "total")
    assert components.keys() - outputs.get("components", components).keys() <= {"terminal"}
    for name, want in outputs.get("diagnostics", {}).items():
        close(paid.ledger[name], [want], name)
    for name, want in outputs.get("ledger", {}).items():
        close(paid.ledger[name], [want or 0.0], name)


def read_rent_and_shock(given: dict, outputs: dict, dtype: torch.dtype) -> None:
    slots = given["slots"]
    stage = torch.tensor([[int(Stage[slot["stage"] or "DORMANT"]) for slot in slots]])
    alpha, was = (
        torch.tensor([[slot[name] for slot in slots]], dtype=dtype)
        for name in ("alpha", "prev_alpha")
    )
    params, before = (
        torch.tensor([[slot[name] for slot in slots]]) for name in ("seed_params", "prev_params")
    )
    spec = LegacyRewardSpec(
        host_params_floor=given["host_params_floor"],
        slot_rent_ratio=given["slot_rent_ratio"],
        drip_fraction=0.0,
    )
    host = torch.tensor([given["host_params"]])
    used, moved, next_alpha, next_params = rent_and_shock_inputs(
        (stage, alpha, params), (was, before), host_params=host, spec=spec
    )
    close(used, [outputs["effective_seed_params"]], "effective_seed_params")
    close(moved, [outputs["alpha_delta_sq_sum"]], "alpha_delta_sq_sum")
    close(next_alpha, [outputs["next_prev_alpha"]], "next_prev_alpha")
    assert next_params.tolist() == [outputs["next_prev_params"]]


def read_part(row: dict, dtype: torch.dtype) -> None:
    name, given, outputs = row["rule"], row["inputs"], row["outputs"]
    if name in WHOLE:
        WHOLE[name](given, outputs, dtype)
        return
    seed = given.get("seed") or {}
    reals = {
        key: torch.tensor([value], dtype=dtype)
        for key, value in given.items()
        if isinstance(value, int | float)
    }
    reals |= {
        key: torch.tensor([value], dtype=dtype)
        for key, value in seed.items()
        if isinstance(value, int | float)
    }
    stages = {
        key: torch.tensor([int(Stage[value])])
        for key, value in seed.items()
        if key.endswith("stage") and isinstance(value, str)
    }
    empty = {"stage": torch.tensor([int(Stage.DORMANT)]), "age": torch.zeros(1, dtype=dtype)}
    empty |= {"epochs_in_stage": torch.zeros(1, dtype=dtype)}
    maybes = {
        key: OptionalValue(
            reals.get(key, torch.full((1,), torch.nan, dtype=dtype)), torch.tensor([key in reals])
        )
        for key in ("contribution", "uncommitted_improvement")
    }
    spec = spec_of("", row["config"])
    close(PARTS[name](empty | reals | stages | maybes, given, spec), [outputs["value"]], name)


WHOLE = {"rent_and_shock_inputs": read_rent_and_shock}
PARTS: dict[str, Callable[[dict, dict, LegacyRewardSpec], torch.Tensor]] = {
    "stage_pbrs": lambda x, _, spec: parts.stage_pbrs(
        x["stage"],
        x["epochs_in_stage"],
        x["previous_stage"],
        x["previous_epochs_in_stage"],
        spec=spec,
        gamma=GAMMA,
    ),
    "prune_shaping": lambda x, *_: parts.prune_shaping(x["stage"], x["age"], x["contribution"]),
    "fossilize_shaping": lambda x, *_: parts.fossilize_shaping(
        x["stage"], x["epochs_in_stage"], x["contribution"], x["uncommitted_improvement"]
    ),
    "hindsight_credit": lambda x, given, _: parts.hindsight_credit(
        x["boost"], x["improvement"], weight=given["weight"]
    ),
    "synergy": lambda x, *_: parts.synergy(x["interaction_sum"]),
    "timing_discount": lambda x, given, _: parts.timing_discount(
        x["germination_epoch"],
        spec=LegacyRewardSpec(
            warmup_epochs=given["warmup_epochs"], warmup_floor=given["warmup_floor"]
        ),
    ),
    "combine": lambda x, given, _: parts.combine(
        x["progress"], x["contribution"].value, how=given["combine"]
    ),
    "drip": lambda x, given, _: parts.drip(
        x["scale"],
        x["contribution"].value,
        cap=given["drip_cap"],
        negative_ratio=given["drip_negative_ratio"],
    ),
}
READERS: dict[str, Callable[[dict, torch.dtype], None]] = {
    **{f"rewards_{rule}": read_kernel for rule in KERNELS},
    "rewards_parts": read_part,
}
