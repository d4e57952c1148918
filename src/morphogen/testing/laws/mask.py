"""Laws of a mask: legal choices of every env, and at least one.  An example is slots [E]."""

from typing import Any

import torch
from torch import Tensor

from morphogen.rules.legality import legal as legal_slots
from morphogen.state.env import Slots
from morphogen.testing.laws.step import Subject
from morphogen.vocab.action import Op
from morphogen.vocab.limits import Limits
from morphogen.vocab.stage import Stage


def shapes(subject: Subject, slots: Slots) -> str:
    """It is bool [E, 6, S], ops in the order of `Op`."""
    envs, count = slots.stage.shape
    allowed: Any = subject(slots)
    tensor = isinstance(allowed, Tensor)
    found = f"{allowed.dtype} {list(allowed.shape)}" if tensor else type(allowed).__name__
    wanted = f"{torch.bool} {[envs, len(Op), count]}"
    return "" if found == wanted else f"returns {found}, not {wanted}"


def choice(subject: Subject, slots: Slots) -> str:
    """Every env has at least one op with a slot."""
    idle = ~subject(slots).flatten(1).any(-1)
    return (
        f"leaves env {int(idle.int().argmax())} no op: every env needs one, such as WAIT"
        if idle.any()
        else ""
    )


def legal(subject: Subject, slots: Slots, *, limits: Limits) -> str:
    """It allows nothing that `rules.legal` forbids."""
    wrong = (subject(slots) & ~legal_slots(slots, limits)).nonzero()
    if not len(wrong):
        return ""
    env, op, slot = wrong[0].tolist()
    stage = Stage(int(slots.stage[env, slot])).name
    return f"allows what is illegal: {Op(op).name} in slot {slot} of env {env}, which is {stage}"
