"""Actions of all envs: int64 [E, 8] in the order of `vocab.action.Head`, or one leaf int64 [E] per head."""

from typing import TYPE_CHECKING, Any, cast

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from morphogen.engine.phases import PolicyInputs, choose_actions
from morphogen.errors import ConfigError
from morphogen.learn.baselines import RandomPolicy
from morphogen.state.env import EnvState
from morphogen.vocab.action import HEADS

if TYPE_CHECKING:
    from morphogen.engine.environment import Environment


def to_tensor(action: Tensor | TensorDictBase) -> Tensor:
    """Return an action as int64 [E, 8]; other leaves than the heads, such as log-probabilities, have no effect.

    Raises: ConfigError for other shapes, and for a TensorDict without one of the heads.
    """
    if isinstance(action, TensorDictBase):
        names: list[str] = list(cast(Any, action).keys())
        if not set(HEADS) <= set(names):
            raise ConfigError(f"action: expected the heads {', '.join(HEADS)}, got {', '.join(map(str, names))}")
        action = torch.stack([cast(Tensor, action[head]) for head in HEADS], dim=-1)
    if action.ndim != 2 or action.shape[1] != len(HEADS) or action.dtype != torch.int64:
        raise ConfigError(f"action: expected int64 [E, {len(HEADS)}], got {action.dtype} {list(action.shape)}")
    return action


def to_heads(action: Tensor) -> TensorDict:
    """Return an action int64 [E, 8] as a TensorDict [E] with one leaf int64 [E] per head."""
    return TensorDict(dict(zip(HEADS, action.unbind(-1), strict=True)), batch_size=action.shape[:-1])


def wait(env: "Environment") -> Tensor:
    """Return the action that does nothing, int64 [E, 8]."""
    return torch.zeros(env.envs, len(HEADS), dtype=torch.int64, device=env.device)


def random(env: "Environment", state: EnvState, seen: PolicyInputs) -> Tensor:
    """Draw a legal action per env, int64 [E, 8], from the clock of the state: equal states give equal actions."""
    policy = RandomPolicy()
    params, hidden = policy.init(env.keys[0]), policy.initial_hidden(env.envs, device=env.device)
    return choose_actions(params, seen, hidden, env.keys, state.clock, policy=policy).action
