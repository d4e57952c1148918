"""Actions of all envs: int64 [E, 8] in the order of `vocab.action.Head`, or one leaf int64 [E] per
head.
"""

from typing import Unpack

import torch
from torch import Tensor

from morphogen.config.action_names import parse_action
from morphogen.config.keywords import HeadNames, OpName
from morphogen.env.action_tensors import to_heads, to_tensor
from morphogen.env.environment import Environment
from morphogen.env.phases import PolicyInputs, choose_actions
from morphogen.errors import ConfigError
from morphogen.policy.baselines import RandomPolicy
from morphogen.state.env import EnvState
from morphogen.vocab.action import HEADS, Op
from morphogen.vocab.text import format_value

__all__ = ["build", "random", "to_heads", "to_tensor", "wait"]

# numbers of draws: each has lanes of its own in the stream of the clock, of 2**34 in all
DRAWS = 2**24


def wait(env: Environment) -> Tensor:
    """Return the action that does nothing in every env, int64 [E, 8], on the device of the
    environment.

    Example:
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0)
        >>> before, _ = env.reset()
        >>> after, step = env.step(before, mg.actions.wait(env))
        >>> step.outcome.effective_op.tolist(), after.slots.stage.equal(before.slots.stage)
        ([0, 0], True)
    """
    return torch.zeros(env.envs, len(HEADS), dtype=torch.int64, device=env.device)


def build(env: Environment, op: OpName | Op, **heads: Unpack[HeadNames]) -> Tensor:
    """Build one action for all envs from the names of its values; `torch.where` joins actions of
    different envs.

    Args:
        op: an `Op` or its name, such as `GERMINATE`.
        heads: names of the values of the other heads that the op uses: `slot="r0c0"`,
            `blueprint="norm"`, `tempo="FAST"`; GERMINATE needs slot and blueprint, other ops but
            WAIT a slot.

    Returns: int64 [E, 8].
    Raises: ConfigError for names that the environment does not have, all at once.

    Example:
        >>> import morphogen as mg
        >>> env = mg.make("digits", envs=2)
        >>> mg.actions.build(env, "GERMINATE", slot="r0c1", blueprint="norm", tempo="FAST").tolist()
        [[1, 1, 3, 2, 0, 2, 0, 0], [1, 1, 3, 2, 0, 2, 0, 0]]
    """
    action = parse_action({"op": op.name if isinstance(op, Op) else op, **heads}, env.spec)
    return torch.tensor(action, device=env.device).repeat(env.envs, 1)


def random(env: Environment, state: EnvState, inputs: PolicyInputs, *, draw: int = 0) -> Tensor:
    """Draw a legal action per env, all equally likely.

    The same state and draw give the same action: a search that tries several actions of one state
    numbers them.

    Args:
        env: environment, whose keys seed the draw.
        state: EnvState [E], whose clock keys the draw.
        inputs: PolicyInputs [E], what a policy sees of the state.
        draw: number of the draw; another number gives another action.

    Returns: int64 [E, 8].
    Raises: ConfigError for another number than 0 .. 2**24 - 1.

    Example:
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0)
        >>> state, inputs = env.reset()
        >>> action = mg.actions.random(env, state, inputs)
        >>> (
        ...     action.equal(mg.actions.random(env, state, inputs)),
        ...     action.equal(mg.actions.random(env, state, inputs, draw=1)),
        ... )
        (True, False)
        >>> inputs.masks.op.gather(1, action[:, :1]).all().item()  # only legal ops
        True
    """
    if draw not in range(DRAWS):
        raise ConfigError(
            f"draw: expected an integer in 0 .. {DRAWS - 1}, got {format_value(draw)}"
        )
    policy = RandomPolicy()
    params = policy.init(env.keys[0])
    hidden = policy.initial_hidden(env.envs, device=env.device)
    choice = choose_actions(
        params, inputs, hidden, env.action_keys, state.clock, policy=policy, draw=draw
    )
    return choice.action
