"""The steps of a slot in order: they never read the device, keep dtypes and shapes, and agree with
single steps.
"""

from typing import Any

import pytest
import torch

from morphogen.config.groups import GovernorSpec, LifecycleSpec
from morphogen.rules.decoding import decode
from morphogen.rules.legality import action_count, action_masks, used_heads
from morphogen.state.measure import TrainMetrics, Validation
from morphogen.steps.apply import apply_action
from morphogen.steps.govern_step import first_snapshot, govern
from morphogen.steps.tick_step import tick
from morphogen.testing.builders.scenes import make_slots, make_state
from morphogen.vocab.action import Op
from morphogen.vocab.limits import Limits
from morphogen.vocab.stage import AlphaMode, Stage

LIFE = LifecycleSpec(auto_forward=("TRAIN", "HOLD"), permissive_gates=False)
WATCH = GovernorSpec()
ALLOW = Limits(enabled=(True, True), max_seeds=2, auto_forward=("TRAIN", "HOLD"))
FADING = {"stage": Stage.BLENDING, "age": 9, "epochs_in_stage": 2, "alpha": 0.5, "alpha_start": 1.0}
FADING |= {"alpha_mode": AlphaMode.DOWN, "alpha_curve": 2, "alpha_steps": 3, "alpha_done": 1}
HELD = {"stage": Stage.HOLDING, "age": 20, "epochs_in_stage": 2, "alpha": 1.0, "alpha_target": 1.0}


def epoch(now, heads, validation, train):
    """Everything of an epoch that this floor of the building does, in order."""
    masks = action_masks(now.slots, ALLOW)
    counts = used_heads(masks), action_count(masks), action_count(masks) == 1
    spec = decode(heads, now.slots, ALLOW)
    now, outcome = apply_action(now, spec, lifecycle=LIFE)
    now, report = tick(now, lifecycle=LIFE)
    now, verdict = govern(now, validation, train, spec=WATCH, minibatches=3)
    return now, counts, (outcome, report, verdict)


def inputs():
    now = first_snapshot(
        make_state(
            make_slots(
                [[{}, FADING], [HELD, {}], [{"stage": Stage.EMBARGOED, "epochs_in_stage": 5}, {}]]
            )
        )
    )
    heads = torch.tensor(
        [[Op.GERMINATE, 0, 1, 0, 1, 2, 0, 0], [Op.PRUNE, 0, 0, 0, 0, 0, 2, 1], [0] * 8]
    )
    zeros = torch.zeros(3)
    validation = Validation(
        loss=torch.tensor([1.0, float("nan"), 9.0]),
        accuracy=torch.zeros(3, 1),
        coalition=torch.zeros(3, 1, dtype=torch.int64),
        evaluated=torch.ones(3, 1, dtype=torch.bool),
        batch_size=[3],
    )
    train = TrainMetrics(
        loss=zeros,
        accuracy=zeros,
        valid=zeros == 0,
        skipped=torch.tensor([0, 3, 3]),
        overflowed=torch.zeros(3, dtype=torch.int64),
        host_gradient_norm=zeros,
        host_layer_norm=torch.zeros(3, 0),
        seed_skipped=zeros > 0,
        batch_size=[3],
    )
    return now, heads, validation, train


def test_no_step_ever_asks_the_host():
    """On the meta device there are no values: reading one raises."""
    now, _, (outcome, report, verdict) = epoch(*(part.to("meta") for part in inputs()))
    tensors = [leaf for part in (now, outcome, report, verdict) for leaf in part.values(True, True)]
    assert {leaf.device.type for leaf in tensors} == {"meta"}


def cast(tree, dtype) -> Any:
    """The tree with its real leaves in another precision."""
    return tree.apply(lambda leaf: leaf.to(dtype) if leaf.is_floating_point() else leaf)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_leaf_keeps_its_dtype_and_shape(dtype):
    now, heads, validation, train = inputs()
    before = cast(now, dtype)
    after, _, _ = epoch(before, heads, cast(validation, dtype), train)
    for key in before.keys(True, True):
        assert (after.get(key).dtype, after.get(key).shape) == (
            before.get(key).dtype,
            before.get(key).shape,
        ), key
