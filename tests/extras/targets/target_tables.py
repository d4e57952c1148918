"""Made-up tables with targets that are no class labels, and tasks on them."""

import numpy as np
import torch
import torch.nn.functional as F
from support import small_states
from support.module_nets import Dense

import morphogen as mg

COUNT = 180
INPUTS = small_states.normal(COUNT, 6, seed=1)
WEIGHTS = small_states.normal(6, 3, seed=2)
NUMBERS = torch.tanh(INPUTS @ WEIGHTS) + 0.1 * small_states.normal(COUNT, 3, seed=3)
MARKS = (INPUTS @ WEIGHTS > 0.3).long()
CLASSES = np.arange(COUNT) % 3


def cubic(output, target):
    """Loss of a user."""
    return (output - target).abs().pow(3).mean(-1)


def closeness(output, target):
    """Score of a user."""
    return torch.exp(-(output - target).square().mean(-1))


def soft_labels(output, target):
    """Loss of a user for class labels: cross-entropy with smooth labels."""
    return F.cross_entropy(output, target, reduction="none", label_smoothing=0.1)


CASES = {  # loss: targets and the score
    "mse": (NUMBERS, None),
    "huber": (2.5 * NUMBERS, None),
    "bce_with_logits": (MARKS, None),
    cubic: (NUMBERS, closeness),
}


def name_of(loss):
    return getattr(loss, "__name__", loss).strip("<>")


def task(loss="mse", targets=NUMBERS, *, factory=Dense, score=None, **fields):
    """A task of a perceptron with three outputs."""
    data = mg.from_arrays(f"table-{name_of(loss)}", INPUTS, targets)
    return mg.TaskSpec(
        name=f"table-{name_of(loss)}",
        dataset=data,
        host=mg.host_from_module(factory),
        loss=loss,
        score=score,
        defaults={
            "data": {"minibatches": 3, "batch": 8},
            "episode_length": 6,
        },
        **fields,
    )
