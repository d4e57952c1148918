"""State of PPO between updates: policy, optimiser, and the running scale of returns."""

from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.policy.policy import NetworkPolicy, get_branch
from morphogen.ppo.advantage import discounted_sum
from morphogen.ppo.exchange import ALONE, Exchange
from morphogen.ppo.moments import sum_parts
from morphogen.state.tree_ops import FrozenTree, TensorDictField, choose, get_leaves, replace

SCALE_DECAY = 0.9  # of the running moments, per round
MIN_SCALE = 0.05  # of the scale, in reward units


class ScaleState(FrozenTree):
    """Decayed first and second moment of discounted returns.  batch_size []."""

    first: Tensor
    """float64 [], sum of weights times the mean."""
    second: Tensor
    """float64 []."""
    rounds: Tensor
    """int64 []."""


def init_scale(device: torch.device | str = "cpu") -> ScaleState:
    """Return the initial state: scale 1."""
    zero = torch.zeros((), dtype=torch.float64, device=device)
    return ScaleState(
        first=zero, second=zero.clone(), rounds=zero.to(torch.int64), batch_size=[], device=device
    )


def running_mean(state: ScaleState) -> Tensor:
    """Mean of the returns seen, in reward units: float64 []; 0 before the first round."""
    return state.first / _total_weight(state)


def return_scale(state: ScaleState) -> Tensor:
    """Reward units in one return unit: float64 [], >= 0.05; 1 before the first round."""
    mean = running_mean(state)
    variance = (state.second / _total_weight(state) - mean.square()).clamp_min(0.0)
    return choose(state.rounds > 0, variance.sqrt().clamp_min(MIN_SCALE), 1.0)


def rescale_rewards(
    state: ScaleState,
    reward: Tensor,
    terminated: Tensor,
    gamma: float,
    executed: Tensor,
    *,
    kind: str = "running",
    exchange: Exchange = ALONE,
) -> tuple[ScaleState, Tensor, Tensor]:
    """Update the scale with the returns of one round and divide the rewards by it.

    Shapes: reward, terminated [T, E]; executed bool [E] or [T, E], False for envs that do not count
    -> (state, reward / scale [T, E], value_factor []): values predicted in the old unit are
    multiplied by the factor.
    Promise: signs, zeros and ratios of rewards are kept; a round without a counted row leaves the
    state unchanged.
    `kind`: "running", or "fixed" for scale 1 and a state that never changes; `exchange`: with the
    processes that hold the other rows of the round.
    """
    if kind == "fixed":
        return state, reward, torch.ones_like(reward[0, 0])
    counts = executed.expand_as(reward)
    known = choose(counts, reward, 0.0)
    returns = discounted_sum(known.to(torch.float64), terminated, factor=gamma)
    sums = {
        "number": counts.sum(),
        "first": choose(counts, returns, 0.0).sum(),
        "second": choose(counts, returns.square(), 0.0).sum(),
    }
    total = sum_parts(exchange, sums)
    number = total["number"]
    counted = number > 0

    def decay(name: str) -> Tensor:
        before: Tensor = getattr(state, name)
        mean = total[name] / number.clamp_min(1)
        return torch.where(counted, SCALE_DECAY * before + (1 - SCALE_DECAY) * mean, before)

    learned = replace(
        state,
        first=decay("first"),
        second=decay("second"),
        rounds=state.rounds + counted.to(torch.int64),
    )
    unit = return_scale(learned)
    factor = choose(state.rounds > 0, return_scale(state) / unit, 1.0)
    return learned, (known / unit).to(reward.dtype), factor.to(reward.dtype)


def _total_weight(state: ScaleState) -> Tensor:
    """Sum of the weights of the moments: `1 - 0.9 ** rounds`, 1 before the first round."""
    return choose(state.rounds > 0, 1.0 - SCALE_DECAY ** state.rounds.to(torch.float64), 1.0)


class PpoState(FrozenTree):
    """Policy, optimiser and scales of PPO between updates.  batch_size []."""

    params: TensorDictField
    """Of the policy: net, observation, value_offset."""
    optimiser: TensorDictField
    """M, v float32 like net; step int64 []."""
    return_scale: ScaleState
    rounds: Tensor
    """int64 [], updates done."""
    skip_streak: Tensor
    """int64 [], consecutive rounds without an applied step."""


def init_ppo(policy: NetworkPolicy, key: Tensor) -> PpoState:
    """Initialise a policy, its optimiser and the scale of its returns.

    Shapes: key int64 [3], of the run -> state without batch size.

    Example:
        >>> import morphogen as mg
        >>> policy = mg.NetworkPolicy(mg.LstmNetwork(hidden=16))
        >>> state = mg.ppo.init_ppo(policy, mg.rng.env_keys(0, 0, 1)[0])
        >>> sorted(state.params.keys()), sorted(state.optimiser.keys())
        (['net', 'observation', 'value_offset'], ['m', 'step', 'v'])
    """
    params = policy.init(key)
    zero = torch.zeros((), dtype=torch.int64, device=key.device)
    net = get_leaves(get_branch(params, "net"))
    optimiser: dict[str, Any] = {"step": zero}
    for moment in ("m", "v"):
        optimiser[moment] = {name: leaf.new_zeros(leaf.shape) for name, leaf in net.items()}
    return PpoState(
        params=params,
        optimiser=TensorDict(optimiser, batch_size=[], device=key.device),
        return_scale=init_scale(key.device),
        rounds=zero.clone(),
        skip_streak=zero.clone(),
        batch_size=[],
        device=key.device,
    )
