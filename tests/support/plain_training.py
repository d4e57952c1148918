"""Training of exported networks by torch alone, and comparison with the parameters of an env."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn


def own_parameters(module: nn.Module) -> list[Tensor]:
    """Parameters of the host, without its slots."""
    return [x for name, x in module.named_parameters() if not name.startswith("slots.")]


def build_optimiser(module: Any, spec: Any) -> torch.optim.Optimizer:
    """An optimiser of torch with a group for the host and one for each seed."""
    own = {"lr": spec.lr, "weight_decay": spec.weight_decay}
    groups: list[dict[str, Any]] = [{"params": own_parameters(module), **own}]
    groups += [{"params": slot.parameters()} for slot in module.slots.values()]
    if spec.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=spec.seed_lr, weight_decay=0)
    return torch.optim.SGD(groups, lr=spec.seed_lr, momentum=spec.momentum)


def take_step(optimiser: torch.optim.Optimizer, loss: Tensor, spec: Any) -> None:
    """Step along the gradients of a loss, clipped group by group."""
    optimiser.zero_grad()
    loss.backward()
    for group in optimiser.param_groups:
        nn.utils.clip_grad_norm_(group["params"], spec.max_grad_norm)
    optimiser.step()


def flat(parameters: Iterable[Tensor]) -> Tensor:
    """Parameters in one tensor."""
    parts = [x.detach().flatten() for x in parameters]
    return torch.cat([torch.zeros(0).double(), *parts])


def assert_equal_parameters(state: Any, i: int, module: Any, **near: float) -> None:
    """Compare the parameters of a module with the parameters of an env."""
    torch.testing.assert_close(flat(own_parameters(module)), state.host.params[i], **near)
    for name, slot in module.slots.items():
        row = state.seeds[name, "params"][i]
        body, gate = (flat(part.parameters() if part else ()) for part in (slot.seed, slot.gate))
        torch.testing.assert_close(body, row[: len(body)], **near)
        torch.testing.assert_close(gate, row[len(row) - len(gate) :], **near)
