"""Slot states for tests: built by hand from the leaves that matter, or drawn, each slot one that can be reached."""

import torch
from hypothesis import strategies as st
from tensordict import TensorDict
from torch import Tensor

from morphogen.state import schema
from morphogen.state.env import EnvState, Slots
from morphogen.state.seeds import vacate
from morphogen.vocab.blueprint import CNN_BLUEPRINTS
from morphogen.vocab.limits import Limits
from morphogen.vocab.stage import ACTIVE, COOLING, OCCUPIED, AlphaMode, Stage

OPS = ("GERMINATE", "SET_ALPHA_TARGET", "PRUNE", "FOSSILIZE", "ADVANCE")  # may be disabled
STAGES = tuple(stage for stage in Stage if stage is not Stage.UNKNOWN)
LEAVES = {leaf.name: leaf for leaf in schema.SLOTS}
Row = dict[str, float | int | bool]


def make(rows: list[list[Row]], dtype: torch.dtype = torch.float32) -> Slots:
    """Slots from one dict of leaves per env and slot; a leaf that is not named has its empty value."""
    leaves = {}
    for name, leaf in LEAVES.items():
        values = [[row.get(name, leaf.empty) for row in env] for env in rows]
        leaves[name] = torch.tensor(values, dtype=dtype if leaf.dtype.is_floating_point else leaf.dtype)
    return Slots(**leaves, batch_size=[len(rows)])


def one(**leaves: float | int | bool) -> Slots:
    """A single env with a single slot."""
    return make([[leaves]])


def state(slots: Slots, accuracy: float | list[float] = 50.0, *, measured: bool = True, window: int = 20) -> EnvState:
    """Envs around the slots, two parameters a seed (no two alike), everything measured."""
    envs, count = slots.stage.shape
    names = tuple(f"r0c{i}" for i in range(count))
    sizes = schema.Sizes(envs, names, host_params=3, seed_params=(2,) * count, window=window, classes=4)
    whole = schema.init(sizes, torch.zeros(envs, 3, dtype=torch.int64), TensorDict({}, batch_size=[envs]))
    signals = whole.signals.replace(
        val_acc=torch.as_tensor(accuracy, dtype=torch.float32).expand(envs).clone(),
        val_loss=torch.ones(envs),
        measured=torch.full((envs,), measured),
    )
    rows = {name: seed_rows(envs, 1.0 + s) for s, name in enumerate(names)}
    return whole.replace(
        slots=slots,
        signals=signals,
        seeds=vacate(TensorDict(rows, batch_size=[envs]), (slots.stage >= 2) & (slots.stage <= 6)),
        host=whole.host.replace(params=torch.arange(3.0 * envs).view(envs, 3) + 1, momentum=torch.ones(envs, 3)),
        instance=whole.instance.replace(baseline_loss=torch.full((envs,), 2.3026)),
    )


def seed_rows(envs: int, value: float) -> TensorDict:
    row = value + 10.0 * torch.arange(envs, dtype=torch.float32)[:, None].expand(envs, 2)
    return TensorDict({"params": row.clone(), "momentum": -row}, batch_size=[envs])


def limits(slots: Slots, **knobs) -> Limits:
    """All slots enabled unless said otherwise."""
    return Limits(**{"topology": "cnn", "enabled": (True,) * slots.stage.shape[1], **knobs})


def close(slots: Slots) -> Slots:
    """What the end of a step does to the counters."""
    occupied = (slots.stage >= 2) & (slots.stage <= 6)
    return slots.replace(epochs_in_stage=slots.epochs_in_stage + (slots.stage != 1), age=slots.age + occupied)


def permute(part, order: list[int]):
    """The part with its slot axis (dim 1) in another order."""
    return part.apply(lambda leaf: leaf[:, order])


def same(a, b) -> bool:
    """Bit-equal trees of the same dtypes, NaN equal to itself."""
    keys = set(a.keys(True, True))
    return keys == set(b.keys(True, True)) and all(_equal(a.get(key), b.get(key)) for key in keys)


def _equal(x: Tensor, y: Tensor) -> bool:
    return x.dtype == y.dtype and torch.equal(x.nan_to_num(77.0), y.nan_to_num(77.0))


def differing(a: Slots, b: Slots) -> set[str]:
    """Names of the leaves that are not bit-equal."""
    return {name for name in LEAVES if not _equal(getattr(a, name), getattr(b, name))}


# --- strategies -------------------------------------------------------------------------------------------------------

points = st.integers(0, 400).map(lambda i: i / 4)
epochs = st.integers(1, 12)


@st.composite
def slot_rows(draw, stages: tuple[Stage, ...] = STAGES) -> Row:
    """One slot as it can stand at the start of a step."""
    stage = draw(st.sampled_from(stages))
    row: Row = {"stage": int(stage)}
    if stage is Stage.DORMANT:
        return row
    row |= {
        "epochs_in_stage": draw(epochs),
        "blueprint": int(draw(st.sampled_from(CNN_BLUEPRINTS))),
        "algorithm": draw(st.integers(1, 3)),
        "tempo": draw(st.sampled_from((3, 5, 8))),
        "blend_target": draw(st.sampled_from((0.5, 0.7, 1.0))),
        "blend_curve": draw(st.sampled_from((1, 3))),
        "previous_stage": int(_BEFORE.get(stage, stage - 1)),
        "previous_epochs_in_stage": draw(st.integers(0, 12)),
    }
    row["age"] = row["epochs_in_stage"] + (0 if stage is Stage.GERMINATED else draw(st.integers(1, 12)))
    if stage in COOLING:
        return row
    row |= {"accuracy_at_germination": draw(points), "accuracy_at_stage_start": draw(points)}
    return row | draw(alphas(stage)) | (draw(measurements()) if stage in ACTIVE else {})


_BEFORE = {Stage.PRUNED: Stage.TRAINING, Stage.GERMINATED: Stage.DORMANT}


@st.composite
def alphas(draw, stage: Stage) -> Row:
    """Alpha and its controller as they can be in a stage: resting, on the way up, on the way out."""
    if stage in (Stage.GERMINATED, Stage.TRAINING):
        return {}
    rest = {"alpha": 1.0, "alpha_start": 0.0, "alpha_target": 1.0, "alpha_curve": 1, "alpha_steps": 5, "alpha_done": 5}
    if stage is not Stage.BLENDING:
        return {**rest, "alpha_start": 1.0}
    mode = draw(st.sampled_from(AlphaMode))
    steps, curve = draw(st.sampled_from((3, 5, 8))), draw(st.integers(1, 3))
    if mode is AlphaMode.HOLD:
        target = draw(st.sampled_from((0.5, 1.0)))
        return {**rest, "alpha": target, "alpha_target": target}
    done = draw(st.integers(0, steps - 1))
    start, target = (0.0, draw(st.sampled_from((0.5, 1.0)))) if mode is AlphaMode.UP else (1.0, 0.0)
    return {
        "alpha": start if done == 0 else (start + target) / 2,
        "alpha_start": start,
        "alpha_target": target,
        "alpha_mode": int(mode),
        "alpha_curve": curve,
        "alpha_steps": steps,
        "alpha_done": done,
    }


@st.composite
def measurements(draw) -> Row:
    """Gradient and contribution of a running seed, each measured or not."""
    row: Row = {}
    if draw(st.booleans()):
        row |= {"gradient_valid": True, "gradient_norm": 1.0, "exploding": draw(st.booleans())}
        row |= {"gradient_health": draw(st.sampled_from((0.0, 0.5, 0.75, 1.0)))}
    if draw(st.booleans()):
        row |= {"gradient_ratio_valid": True, "gradient_ratio": draw(st.sampled_from((0.0, 0.125, 1.0)))}
    if draw(st.booleans()):
        row |= {"contribution_valid": True, "contribution": draw(points) - 50}
    return row


@st.composite
def slot_states(draw, max_envs: int = 3, max_slots: int = 3, stages: tuple[Stage, ...] = STAGES) -> Slots:
    """A few envs with a few slots, each slot reachable by itself."""
    envs, count = draw(st.integers(1, max_envs)), draw(st.integers(1, max_slots))
    row = st.lists(slot_rows(stages), min_size=count, max_size=count)
    return make(draw(st.lists(row, min_size=envs, max_size=envs)))


@st.composite
def limits_for(draw, slots: Slots) -> Limits:
    """Any limits that fit the slots."""
    count = slots.stage.shape[1]
    enabled = draw(st.lists(st.booleans(), min_size=count, max_size=count).filter(any))
    return Limits(
        topology="cnn",
        enabled=tuple(enabled),
        max_seeds=draw(st.integers(0, count + 1)),
        min_prune_age=draw(st.integers(0, 8)),
        auto_forward=tuple(draw(st.sets(st.sampled_from(("G1", "G2", "G3"))))),
        disabled_ops=tuple(draw(st.sets(st.sampled_from(OPS), max_size=3))),
        blueprints=tuple(draw(st.sets(st.sampled_from([b.label for b in CNN_BLUEPRINTS]), max_size=3))),
    )


def actions(slots: Slots, low: int = -3, high: int = 14) -> st.SearchStrategy[Tensor]:
    """Any head indices, in range or not."""
    envs = slots.stage.shape[0]
    row = st.lists(st.integers(low, high), min_size=8, max_size=8)
    return st.lists(row, min_size=envs, max_size=envs).map(lambda rows: torch.tensor(rows, dtype=torch.int64))


__all__ = ["OCCUPIED", "STAGES", "actions", "limits_for", "make", "one", "slot_rows", "slot_states", "state"]
