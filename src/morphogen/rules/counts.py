"""Number of parameters in use, from static tables: freezing, alpha and stage change nothing."""

import torch
from torch import Tensor

from morphogen.rules.stages import occupied
from morphogen.state.env import Slots
from morphogen.state.tree_ops import choose, constant_table
from morphogen.vocab.stage import Algorithm


def used_channels(width: Tensor, channels: int | Tensor) -> Tensor:
    """Channels in use, `ceil(width C - 1e-6)`, at least 1.  width float, share; they broadcast ->
    int64 [...].
    """
    return torch.ceil(width.double() * channels - 1e-6).clamp(min=1.0).to(torch.int64)


def seed_params(
    slots: Slots, counts: tuple[tuple[int, ...], ...], gate_counts: tuple[int, ...]
) -> Tensor:
    """Parameters of each seed, with its gate network under GATE; 0 without a seed.

    Shapes: slots [E]; counts [S][13], parameters of every blueprint code, and gate_counts [S]
    (`Net.counts`, `Net.gate_counts`) -> int64 [E, S].

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=1, seed=0)
        >>> slots = env.reset()[0].slots
        >>> stage, kind = (
        ...     torch.tensor([[mg.Stage.TRAINING, mg.Stage.DORMANT]]),
        ...     torch.tensor([[mg.Blueprint.NORM, -1]]),
        ... )
        >>> slots = slots.replace(stage=stage, blueprint=kind)
        >>> mg.rules.seed_params(slots, env.net.counts, env.net.gate_counts).tolist()
        [[9, 0]]
    """
    if not counts:  # a table without rows has no second axis
        return torch.zeros_like(slots.stage)
    device = slots.stage.device
    slot = constant_table(tuple(range(len(counts))), torch.int64, device)
    seed = constant_table(counts, torch.int64, device)[slot, slots.blueprint.clamp(min=0)]
    gate = (slots.algorithm == int(Algorithm.GATE)) * constant_table(
        gate_counts, torch.int64, device
    )
    return choose(occupied(slots.stage), seed + gate, 0)


def parameter_price(params: Tensor, price: Tensor, *, param_budget: int) -> Tensor:
    """Cost of parameters in points of accuracy, linear.

    Shapes: params int64 [E, N] or [N]; price float32 [E], a share of 100 points for `param_budget`
    parameters -> float32 [E, N].

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> mg.rules.parameter_price(
        ...     torch.tensor([0, 150, 300]), torch.tensor([0.5]), param_budget=300
        ... ).tolist()
        [[0.0, 25.0, 50.0]]
    """
    return 100.0 * price.unsqueeze(-1) * params / param_budget
