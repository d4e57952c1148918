"""Epochs of an environment under a policy: one epoch, episodes with their traces, and rows for the
update.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.compat import copy_each
from morphogen.device.transfers import Transfers
from morphogen.env.environment import Environment
from morphogen.env.flat_inputs import mask_shapes
from morphogen.env.phases import PolicyInputs, Step, choose_actions
from morphogen.policy.baselines import RandomPolicy
from morphogen.policy.policy import Policy
from morphogen.ppo.exchange import ALONE, Exchange
from morphogen.state.decision import ActionMasks, ActOutput, Observation
from morphogen.state.env import EnvState
from morphogen.state.tree_ops import choose, clear_rows, get_leaf
from morphogen.vocab.action import Head
from morphogen.vocab.blueprint import EMPTY
from morphogen.vocab.observation import ENV, INSTANCE, SLOT
from morphogen.vocab.stage import Stage
from morphogen.vocab.text import short_repr

Array = np.ndarray[Any, Any]
# a row per epoch
EPOCH_TRACES = ("network_value", "committed_acc", "accuracy", "trained_params", "missed", "action")


@dataclass(frozen=True, slots=True)
class EpisodeTraces:
    """One column per episode.  Accuracies in points; `running_value` turns `network_value` into
    values of episodes.
    """

    network_value: Array  # float [T, n]
    committed_acc: Array  # float [T, n]
    accuracy: Array  # float [T + 1, n], with all blended seeds; row 0 is before the first epoch
    trained_params: Array  # int [T, n], parameters of host and seeds that the epoch trained
    missed: Array  # bool [T, n], the schedule declared an illegal action
    action: Array  # int [T, n, 8], chosen
    host_params: Array  # int [n]
    fossil_params: Array  # int [n], at the end
    fossil_blueprint: Array  # int [n, S], blueprint of the fossil; -1 without one
    algorithm: Array  # int [n, S], blending of the fossil; 0 without one
    rollbacks: Array  # int [n]

    @property
    def cost(self) -> Array:
        """Parameter-epochs up to the end of each epoch, int [T, n]."""
        return self.trained_params.cumsum(axis=0)


@short_repr
class Carry(NamedTuple):
    """State that an epoch hands to the next, [E]; an episode is a loop over it."""

    state: EnvState
    """[E]."""
    inputs: PolicyInputs
    """[E], of `state`."""
    memory: TensorDict
    """[E], of the policy; 0 where a segment starts."""
    segment: Tensor
    """bool [E], envs that start a segment."""


@short_repr
class Epoch(NamedTuple):
    """Results of `run_epoch`: one epoch of all envs under a policy."""

    carry: Carry
    """[E], before the epoch."""
    choice: ActOutput
    """[E], actions, log-probabilities, values, and the memory after the choice."""
    after: EnvState
    """[E], the state that the next epoch starts from."""
    step: Step
    """Outcome, reward, and the next inputs of the policy."""

    @property
    def before(self) -> EnvState:
        """State that the epoch started from, [E]."""
        return self.carry.state

    @property
    def inputs(self) -> PolicyInputs:
        """Inputs of the policy before the epoch, [E]."""
        return self.carry.inputs


def first_carry(env: Environment, policy: Policy, episode: int = 0) -> Carry:
    """Reset the envs; every env starts a segment with an empty memory.

    Args: environment, policy that will choose, number of the episode as of `Environment.reset`.

    Example:
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0)
        >>> carry = mg.first_carry(env, mg.build_arm("random", env.setup).policy)
        >>> carry.state.clock.epoch.tolist(), carry.segment.tolist()
        ([0, 0], [True, True])
    """
    state, inputs = env.reset(episode)
    memory = policy.initial_hidden(env.envs, device=env.device)
    segment = torch.ones(env.envs, dtype=torch.bool, device=env.device)
    return Carry(state, inputs, memory, segment)


def run_epoch(
    env: Environment, policy: Policy, params: TensorDict, carry: Carry
) -> tuple[Carry, Epoch]:
    """Choose an action per env, then step.

    Args:
        env: environment, whose keys seed the noise of the policy.
        policy: policy that chooses.
        params: parameters of the policy, without batch size.
        carry: of `first_carry` or of the epoch before.

    Returns: the carry of the next epoch, and the epoch; its reward float32 [E] is
        `Epoch.step.reward`.

    Example:
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0)
        >>> arm = mg.build_arm("random", env.setup)
        >>> carry = mg.first_carry(env, arm.policy)
        >>> carry, epoch = mg.run_epoch(env, arm.policy, arm.params, carry)
        >>> epoch.choice.action.shape, carry.segment.tolist()
        (torch.Size([2, 8]), [False, False])
    """
    env.timer.mark("head")
    choose = env.compiled.unit("act", partial(choose_actions, policy=policy), policy)
    state, inputs, memory, _ = carry
    choice = choose(params, inputs, memory, env.action_keys, state.clock)
    after, step = env.advance(state, choice.action, facts=inputs.facts)
    memory = clear_rows(step.terminated, choice.hidden)
    following = Carry(after, step.inputs, memory, step.terminated)
    return following, Epoch(carry, choice, after, step)


def run_episodes(
    env: Environment,
    state: EnvState,
    inputs: PolicyInputs,
    policy: Policy | None = None,
    params: TensorDict | None = None,
    *,
    ended: Callable[[EnvState], None] | None = None,
) -> TensorDict:
    """Run an episode from its start; the traces stay on the device, for `fetch_traces`.

    Without a policy, actions follow the control of the environment.  ended: receives the state
    [E] after the last epoch.
    """
    policy = RandomPolicy() if policy is None else policy
    params = policy.init(env.keys[0]) if params is None else params
    memory = policy.initial_hidden(env.envs, device=env.device)
    carry = Carry(state, inputs, memory, torch.ones_like(inputs.missed))
    rows: list[dict[str, Tensor]] = []
    before = state.signals.val_acc
    sizes = {}
    with torch.no_grad():
        for _ in range(env.horizon):
            missed = carry.inputs.missed
            carry, epoch = run_epoch(env, policy, params, carry)
            step = epoch.step
            state = carry.state
            rows.append(
                {
                    "network_value": step.score.network_value,
                    "committed_acc": state.signals.committed_acc,
                    "accuracy": state.signals.val_acc,
                    "missed": missed,
                    "action": epoch.choice.action,
                    "trained_params": step.host_params + step.seed_params.sum(-1),
                }
            )
            sizes = {"host_params": step.host_params, "fossil_params": step.score.fossil_params}
            del epoch, step  # with the states within it, before the next one allocates its own
    traces = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    traces["accuracy"] = torch.cat((before.unsqueeze(0), traces["accuracy"]))
    if ended is not None:
        ended(state)
    fossil = state.slots.stage == int(Stage.FOSSILIZED)
    final = {
        **sizes,
        "fossil_blueprint": choose(fossil, state.slots.blueprint, EMPTY),
        "algorithm": choose(fossil, state.slots.algorithm, 0),
        "rollbacks": state.signals.rollbacks,
    }
    return TensorDict({**traces, **final}, batch_size=[])


def fetch_traces(
    transfers: Transfers,
    parts: Sequence[TensorDict],
    *,
    exchange: Exchange = ALONE,
    counts: Sequence[int] = (),
    episodes: int | None = None,
) -> EpisodeTraces:
    """Fetch the traces of groups of episodes, in order; one `result` crossing.

    Args:
        parts: episodes of each group that were played here.
        exchange: with the processes that play the other episodes.
        counts: number of episodes of each group, in all processes.
        episodes: number of first ones to return; None: all.
    """
    axes = {field.name: int(field.name in EPOCH_TRACES) for field in fields(EpisodeTraces)}
    rows = {
        name: torch.cat([get_leaf(part, name).movedim(axis, 0) for part in parts])
        for name, axis in axes.items()
    }
    own = transfers.read("result", TensorDict(rows, batch_size=[]))
    every = exchange.join_episodes(own, counts)
    first = {name: np.moveaxis(every[name][:episodes], 0, axis) for name, axis in axes.items()}
    return EpisodeTraces(**{name: np.ascontiguousarray(array) for name, array in first.items()})


class Rollout:
    """Rows of a round for the update of a policy, allocated once and overwritten in every round.

    Leaves of `rows`, a TensorDict [T, E]; sizes beyond [T, E]:
        observation, masks: leaves of `Observation` and `ActionMasks`.
        action: int64 [8], indices; log_prob: float32 [8], nats.
        value, reward: float32, not normalised; next_value: float32, 0.
        terminated, reset_before, forced: bool, ends and starts of segments, steps without a choice;
        truncated: False.
        contribution: float32 [S], points, 0 where `contribution_valid`, bool [S], is False.

    Args:
        length: rows T, the epochs of an episode.
        envs, slots: numbers E and S.
        device: of the rows.

    Example:
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0)
        >>> arm = mg.build_arm("random", env.setup)
        >>> carry = mg.first_carry(env, arm.policy)
        >>> carry, epoch = mg.run_epoch(env, arm.policy, arm.params, carry)
        >>> rollout = mg.Rollout(env.horizon, envs=2, slots=2)
        >>> rollout.write(0, epoch)
        >>> rollout.rows.batch_size, rollout.rows["action"][0].equal(epoch.choice.action)
        (torch.Size([8, 2]), True)
    """

    def __init__(
        self, length: int, *, envs: int, slots: int, device: torch.device | str = "cpu"
    ) -> None:
        row = cast(Any, _empty_row(envs, slots)).to(device)
        self.rows: TensorDict = row.expand(length, envs).clone()
        # Views of every row, by name or path of names.
        self._leaves: list[dict[Any, Tensor]] = [
            dict(row.items(True, True)) for row in cast(Any, self.rows).unbind(0)
        ]

    def write(self, t: int, epoch: Epoch) -> None:
        """Overwrite row t, counted from 0."""
        choice = epoch.choice
        score = epoch.step.score
        measured = epoch.step.measured
        fresh = measured.contribution_valid & ~epoch.step.report.rolled_back.unsqueeze(-1)
        parts = {"observation": epoch.inputs.observation, "masks": epoch.inputs.masks}
        row = {(part, name): leaf for part, tree in parts.items() for name, leaf in tree.items()}
        row |= {
            "action": choice.action,
            "log_prob": choice.log_prob,
            "value": choice.value,
            "forced": choice.forced,
            "reward": score.reward,
            "terminated": score.terminated,
            "reset_before": epoch.carry.segment,
            "truncated": torch.zeros_like(score.terminated),
            "next_value": torch.zeros_like(score.reward),
            "contribution": choose(fresh, measured.contribution, 0.0),
            "contribution_valid": fresh,
        }
        leaves = self._leaves[t]
        copy_each([leaves[name] for name in row], [*row.values()])


def _empty_row(envs: int, slots: int) -> TensorDict:
    """Return a row of zeros."""
    real = torch.float32
    integer = torch.int64
    flag = torch.bool

    def zeros(dtype: torch.dtype, *shape: int) -> Tensor:
        return torch.zeros(envs, *shape, dtype=dtype, device="cpu")

    observation = Observation(
        env=zeros(real, len(ENV)),
        instance=zeros(real, len(INSTANCE)),
        slots=zeros(real, slots, len(SLOT)),
        blueprints=zeros(integer, slots),
        finite=zeros(flag),
        nonfinite=zeros(integer),
        batch_size=[envs],
    )
    heads: dict[str, Any] = {
        head: zeros(flag, *shape) for head, shape in mask_shapes(slots).items()
    }
    masks = ActionMasks(**heads, batch_size=[envs])
    row = {
        "observation": observation,
        "masks": masks,
        "action": zeros(integer, len(Head)),
        "log_prob": zeros(real, len(Head)),
        **{name: zeros(real) for name in ("value", "reward", "next_value")},
        **{name: zeros(flag) for name in ("terminated", "truncated", "reset_before", "forced")},
        "contribution": zeros(real, slots),
        "contribution_valid": zeros(flag, slots),
    }
    return TensorDict(row, batch_size=[envs])
