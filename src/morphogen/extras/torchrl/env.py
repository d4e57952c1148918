"""The environment for TorchRL: specs and a TensorDict around the functional environment."""

from typing import Any, Unpack, cast

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.data import (  # pyright: ignore[reportMissingTypeStubs]
    Binary,
    Categorical,
    Composite,
    Unbounded,
)
from torchrl.envs import EnvBase  # pyright: ignore[reportMissingTypeStubs]

from morphogen.config.spec import RunSpec
from morphogen.config.task import TaskSpec
from morphogen.env.environment import Environment
from morphogen.env.flat_inputs import flatten_inputs, head_sizes, mask_shapes
from morphogen.env.make import MakeFields, make
from morphogen.state.env import EnvState
from morphogen.vocab.observation import ENV, INSTANCE, SLOT


class MorphogenEnv(EnvBase):
    """TorchRL environment: one step is one epoch of all envs, with one transfer between device and
    host.

    Keys of its TensorDicts, batch size [E]:
        observation: float32 [E, 52 + 46 S], features of the env, then of each slot.
        instance: float32 [E, 8], features of the task of the env.
        blueprints: int64 [E, S], blueprint of the seed in each slot, -1 without one.
        mask: legal choices, bool; op [E, 6], slot [E, 6, S] per op, and one leaf per other head.
        action: int64 [E] for each of the eight heads; an illegal action does nothing.
        reward: float32 [E, 1], not normalised.
        done, terminated, truncated: bool [E, 1]; truncated is always False.

    Reset: an env begins its next episode, except one that the governor rolled back in the last step
    before the horizon, which goes on from its restored state.  A reset by mask leaves the other
    envs as they are, bit for bit. A step past the horizon leaves an env as it is: reward 0, done
    True.  `set_seed` selects other hosts, tasks and batches; actions come from the caller.
    `functional` is the environment within, with `horizon`, `net` and `spec`.

    Args:
        env: of `make`; `make_env` does both.

    Source: A. Bou et al., TorchRL: A data-driven decision-making library for PyTorch (2023).

    Example:
        >>> import morphogen as mg
        >>> env = mg.MorphogenEnv(mg.make("tiny", envs=2, seed=0))
        >>> start = env.reset()
        >>> start["observation"].shape, start["mask", "op"].shape, env.state.clock.epoch.tolist()
        (torch.Size([2, 144]), torch.Size([2, 6]), [0, 0])
    """

    def __init__(self, env: Environment) -> None:
        cast(Any, super()).__init__(device=env.device, batch_size=torch.Size([env.envs]))
        self.functional = env
        self._state: EnvState | None = None
        envs = env.envs
        slots = len(env.net.slots)

        def group(leaves: dict[str, Any]) -> Composite:
            return Composite(leaves, shape=self.batch_size, device=env.device)

        self.observation_spec = group(
            {
                "observation": Unbounded(
                    torch.Size((envs, len(ENV) + len(SLOT) * slots)), device=env.device
                ),
                "instance": Unbounded(torch.Size((envs, len(INSTANCE))), device=env.device),
                "blueprints": Unbounded(
                    torch.Size((envs, slots)), dtype=torch.int64, device=env.device
                ),
                "mask": group(
                    {
                        name: Binary(
                            shape=torch.Size((envs, *shape)), dtype=torch.bool, device=env.device
                        )
                        for name, shape in mask_shapes(slots).items()
                    }
                ),
            }
        )
        heads = {
            name: Categorical(size, shape=self.batch_size, dtype=torch.int64, device=env.device)
            for name, size in head_sizes(slots).items()
        }
        self.action_spec = group({"action": group(heads)})
        column = torch.Size((envs, 1))
        self.reward_spec = Unbounded(column, device=env.device)
        flags = ("done", "terminated", "truncated")
        self.done_spec = group(
            {name: Binary(shape=column, dtype=torch.bool, device=env.device) for name in flags}
        )

    @property
    def state(self) -> EnvState:
        """State [E] of the last step or reset, from which the next step starts.

        It may be set to another state [E] of the same networks.  Raises RuntimeError before the
        first reset.
        """
        if self._state is None:
            raise RuntimeError("the environment has no state: call reset before step")
        return self._state

    @state.setter
    def state(self, state: EnvState) -> None:
        self._state = state

    def _reset(self, tensordict: TensorDictBase | None = None, **_: Any) -> TensorDictBase:
        env = self.functional
        state = self._state
        requested: Tensor | None = (
            None if tensordict is None else cast(Any, tensordict).get("_reset", None)
        )
        with torch.no_grad():
            if state is None:
                self._state, inputs = env.reset()
            else:
                goes_on = state.signals.rolled_back & (state.clock.epoch < env.horizon)
                rows = (
                    torch.ones_like(goes_on) if requested is None else requested.view(-1) & ~goes_on
                )
                self._state, inputs = env.restart(state, rows)
        leaves = {**flatten_inputs(inputs), **self._flags(torch.zeros_like(inputs.missed))}
        return TensorDict(leaves, self.batch_size, device=self.device)

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        with torch.no_grad():
            self._state, step = self.functional.step(
                self.state, cast(TensorDictBase, tensordict["action"])
            )
        leaves = {
            **flatten_inputs(step.inputs),
            "reward": step.reward.unsqueeze(-1),
            **self._flags(step.terminated),
        }
        return TensorDict(leaves, self.batch_size, device=self.device)

    def _set_seed(self, seed: int | None) -> None:
        if seed is not None:
            self.functional = self.functional.with_seed(seed)
            self._state = None

    def _flags(self, terminated: Tensor) -> dict[str, Tensor]:
        end = terminated.unsqueeze(-1)
        return {"done": end, "terminated": end.clone(), "truncated": torch.zeros_like(end)}

    def close(self, *, raise_if_closed: bool = True) -> None:
        """Stop prefetching streamed data."""
        self.functional.close()
        super().close(raise_if_closed=raise_if_closed)


def make_env(
    task: str | TaskSpec | RunSpec = "digits",
    /,
    *,
    envs: int | None = None,
    seed: int | None = None,
    **fields: Unpack[MakeFields],
) -> MorphogenEnv:
    """Build a TorchRL environment.

    Args: as in `make`.

    Returns: an environment with batch size [E]; `env.functional` is the result of `make`, with its
    `horizon` and `net`.
    Raises: as `make`.

    Example:
        >>> import morphogen as mg
        >>> env = mg.make_env("tiny", envs=2, seed=0)
        >>> rolled = env.rollout(3)
        >>> rolled.shape, rolled["next", "reward"].shape
        (torch.Size([2, 3]), torch.Size([2, 3, 1]))
    """
    return MorphogenEnv(make(task, envs=envs, seed=seed, **fields))
