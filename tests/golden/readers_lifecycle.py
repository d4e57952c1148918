"""Readers of the golden rows on alpha, transitions, gates and masks."""

import torch
from support.manual_gates import by_hand
from support.topologies import KINDS

from morphogen.rules.gates import check_gate, gate_before
from morphogen.rules.legality import action_masks
from morphogen.rules.stages import advance_ramp, retarget, transition
from morphogen.testing.builders.scenes import make_slots
from morphogen.vocab.action import HEADS, RELEVANT, Op
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.limits import Limits
from morphogen.vocab.stage import TRANSITIONS, AlphaMode, Check, Curve, Gate, Stage

HERE = torch.ones(1, 1, dtype=torch.bool)

# names in the recorded rows
GATES = {"NONE": "NONE", "G1": "TRAIN", "G2": "BLEND", "G3": "HOLD", "G5": "FOSSILIZE"}


def alpha(row: dict, dtype: torch.dtype) -> None:
    """From HOLD: retarget, then as many ticks as there are values."""
    tolerance = 1e-5 if dtype is torch.float32 else 1e-12
    slots = make_slots(
        [[{"stage": Stage.BLENDING, "alpha": row["start"], "alpha_target": row["start"]}]], dtype
    )
    for leg in row["legs"]:
        shape = torch.tensor([[Curve[leg["curve"]]]])
        steps, steepness = torch.tensor([[leg["steps"]]]), leg["steepness"]
        slots = retarget(slots, HERE, leg["target"], steps=steps, shape=shape, steepness=steepness)
        alphas, modes = [slots.alpha.item()], [slots.alpha_mode.item()]
        for _ in leg["alpha"]:
            slots = advance_ramp(slots, HERE)
            alphas, modes = [*alphas, slots.alpha.item()], [*modes, slots.alpha_mode.item()]
        _close(alphas, [leg["alpha_after_retarget"], *leg["alpha"]], tolerance)
        assert modes == [AlphaMode[name] for name in (leg["mode_after_retarget"], *leg["mode"])]


def _close(found: list[float], wanted: list[float], tolerance: float) -> None:
    worst = max(abs(a - b) for a, b in zip(found, wanted, strict=True))
    assert worst <= tolerance, f"{found} differs from {wanted} by {worst}"


def transitions(row: dict, dtype: torch.dtype) -> None:
    """The three kinds of rows."""
    {"matrix": _matrix, "walk": _walk, "gate": _gate}[row["kind"]](row, dtype)


def _matrix(row: dict, dtype: torch.dtype) -> None:
    here = Stage[row["stage"]]
    assert [to.name for to in Stage if to in TRANSITIONS[here]] == sorted(
        row["legal_targets"], key=lambda n: Stage[n]
    )
    for to in Stage:
        after = transition(
            make_slots([[{"stage": here}]], dtype),
            HERE,
            torch.tensor([[to]]),
            torch.zeros(1, dtype=dtype),
        )
        assert after.stage.item() == (to if to.name in row["legal_targets"] else here)


def _walk(row: dict, dtype: torch.dtype) -> None:
    slots = make_slots(
        [[{"stage": Stage[row["start"]], "epochs_in_stage": row["start_epochs_in_stage"]}]], dtype
    )
    for i, to in enumerate(row["try"]):
        slots = slots.replace(epochs_in_stage=slots.epochs_in_stage + row["epochs_before"][i])
        before = slots.stage.item()
        slots = transition(slots, HERE, torch.tensor([[Stage[to]]]), torch.zeros(1, dtype=dtype))
        assert (slots.stage.item() != before) == row["ok"][i]
        assert Stage(slots.stage.item()).name == row["stage"][i]
        assert Stage(slots.previous_stage.item()).name == row["previous_stage"][i]
        assert slots.epochs_in_stage.item() == row["epochs_in_stage"][i]
        assert slots.previous_epochs_in_stage.item() == row["previous_epochs_in_stage"][i]


def _gate(row: dict, dtype: torch.dtype) -> None:
    aside = {
        "id",
        "kind",
        "permissive",
        "target",
        "accuracy",
        "gate",
        "checks_pass",
        "legal",
        "passed",
        "failed",
    }
    leaves = {name: value for name, value in row.items() if name not in aside}
    leaves |= {"stage": Stage[row["stage"]], "alpha_mode": AlphaMode[row["alpha_mode"]]}
    target = torch.tensor([[Stage[row["target"]]]])
    accuracy = torch.tensor([row["accuracy"]], dtype=dtype)
    spec = by_hand(permissive_gates=row["permissive"])
    passed, failed = check_gate(make_slots([[leaves]], dtype), accuracy, target, spec=spec)
    bits = [check.name.lower() for check in Check if int(failed.item()) >> check & 1]
    assert Gate(gate_before(target).item()).name == GATES[row["gate"]]
    assert sorted(set(bits) - {"illegal_transition"}) == sorted(row["failed"])
    assert ("illegal_transition" not in bits) == row["legal"]
    assert (not row["failed"]) == row["checks_pass"]
    assert passed.item() == row["passed"]


def masks(row: dict, dtype: torch.dtype) -> None:
    """Legal ops and slots, allowed blueprints, available heads: exactly."""
    given, wanted = row["inputs"], row["outputs"]
    columns = zip(given["stage"], given["age"], given["alpha_mode"], strict=True)
    slots = [
        {"stage": Stage[s], "age": age, "alpha_mode": AlphaMode[mode]} for s, age, mode in columns
    ]
    limits = Limits(
        kinds=KINDS[given["topology"]],
        enabled=tuple(given["enabled"]),
        max_seeds=given["max_seeds"],
        auto_forward=tuple(GATES[name] for name in given["auto_forward"]),
    )
    found = action_masks(make_slots([slots], dtype), limits)
    assert [op.name for op in Op if found.op[0, op]] == wanted["op"]
    legal = {op.name: [s for s in range(len(slots)) if found.slot[0, op, s]] for op in Op}
    assert legal == wanted["legal"]
    assert [b.label for b in Blueprint if found.blueprint[0, b]] == wanted["blueprint"]
    allowed = [op for op in Op if found.op[0, op]]
    used = [head for i, head in enumerate(HEADS) if not i or any(RELEVANT[op][i] for op in allowed)]
    assert used == wanted["available"]


READERS = {"alpha": alpha, "transitions": transitions, "masks": masks}
