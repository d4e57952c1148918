"""The environment for Gymnasium: a vector environment with NumPy arrays.

Importing this module registers `morphogen/TASK-v0` for every task, with a vector entry point:

    import gymnasium
    import morphogen.adapters.gymnasium_env
    envs = gymnasium.make_vec("morphogen/digits-v0", num_envs=8)

or, without the import, `gymnasium.make_vec("morphogen.adapters.gymnasium_env:morphogen/digits-v0", num_envs=8)`.
"""

from functools import partial
from typing import Any, Unpack

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from tensordict import TensorDict

from morphogen.adapters.torchrl_env import flatten_inputs
from morphogen.config.spec import RunSpec
from morphogen.config.task import TASKS
from morphogen.engine.make import MakeFields, make
from morphogen.engine.phases import PolicyInputs
from morphogen.errors import ConfigError
from morphogen.state.env import EnvState
from morphogen.vocab.action import SIZES, Head, Op
from morphogen.vocab.blueprint import EMPTY, Blueprint
from morphogen.vocab.observation import ENV, INSTANCE, SLOT
from morphogen.vocab.text import format_value

Array = np.ndarray[Any, Any]
Seen = dict[str, Any]


class GymnasiumEnv(VectorEnv[Seen, Array, Array]):
    """Gymnasium vector environment: one step is one epoch of all envs.

    Observations are a dictionary: `observation` float32 [E, 52 + 46 S], `instance` float32 [E, 8], `blueprints`
    int64 [E, S], -1 for an empty slot, and `mask` with the legal choices per head, int8; that of slot per op.
    Actions int64 [E, 8] in the order of `mg.Head`; an illegal action does nothing.  `info` holds `outcome`, a number of
    `mg.Outcome`, and `network_value` of every env.

    `autoreset_mode`: SAME_STEP begins the next episode in the step that ends one, and puts the last observation into
    `info["final_obs"]`; DISABLED leaves it to `reset(options={"reset_mask": bool [E]})`.  An env that the governor
    rolled back has `terminated` True and goes on from its restored state.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        task: str | RunSpec = "digits",
        seed: int = 0,
        autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP,
        **fields: Unpack[MakeFields],
    ) -> None:
        """Build the environment; `fields` as in `engine.make`.

        Raises: ConfigError for settings out of range, and for another mode of resets.
        """
        modes = (AutoresetMode.SAME_STEP, AutoresetMode.DISABLED)
        if autoreset_mode not in modes:
            raise ConfigError(f"autoreset_mode: expected SAME_STEP or DISABLED, got {autoreset_mode}")
        self.functional = make(task, envs=num_envs, seed=seed, **fields)
        self._state: EnvState | None = None
        self.num_envs, self.metadata = num_envs, {"autoreset_mode": autoreset_mode}
        slots = len(self.functional.net.slots)
        sizes = {head.label: SIZES.get(head, slots) for head in Head}
        masks = {label: (size,) for label, size in sizes.items()} | {"slot": (len(Op), slots)}
        real = partial(spaces.Box, -np.inf, np.inf, dtype=np.float32)
        self.single_observation_space = spaces.Dict(
            {
                "observation": real(shape=(len(ENV) + len(SLOT) * slots,)),
                "instance": real(shape=(len(INSTANCE),)),
                "blueprints": spaces.Box(EMPTY, max(Blueprint), shape=(slots,), dtype=np.int64),
                "mask": spaces.Dict({name: spaces.MultiBinary(shape) for name, shape in masks.items()}),
            }
        )
        self.single_action_space = spaces.MultiDiscrete(list(sizes.values()))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    @property
    def state(self) -> EnvState:
        """State [E] of the last step or reset.  Raises ResetNeeded before the first reset."""
        if self._state is None:
            raise gymnasium.error.ResetNeeded("the environment has no state: call reset before step")
        return self._state

    @state.setter
    def state(self, state: EnvState) -> None:
        self._state = state

    @torch.no_grad()
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Seen, dict[str, Any]]:
        """Begin an episode: the first one of a seed, the next one without a seed, or of the envs in `reset_mask`."""
        super().reset(seed=seed)
        unknown = sorted({*(options or {})} - {"reset_mask"})
        if unknown:
            raise ConfigError(f"options: expected reset_mask, got {', '.join(map(format_value, unknown))}")
        rows = (options or {}).get("reset_mask")
        if seed is not None:
            self.functional, self._state = self.functional.with_seed(seed), None
        if self._state is None:
            self.state, seen = self.functional.reset()
        else:
            chosen = np.ones(self.num_envs, dtype=bool) if rows is None else np.asarray(rows)
            if chosen.shape != (self.num_envs,) or chosen.dtype != bool:
                raise ConfigError(
                    f"options.reset_mask: expected bool [{self.num_envs}], got {chosen.dtype} {list(chosen.shape)}"
                )
            self.state, seen = self.functional.restart(self.state, self._rows_to_restart(self.state, chosen))
        return self._fetch(seen)

    @torch.no_grad()
    def step(self, actions: Array) -> tuple[Seen, Array, Array, Array, dict[str, Any]]:
        """Run one epoch.  actions int64 [E, 8] -> observations, reward, terminated, truncated [E], info."""
        env, state, given = self.functional, self.state, np.asarray(actions)
        if not np.issubdtype(given.dtype, np.integer):
            raise ConfigError(f"actions: expected integers [{self.num_envs}, {len(Head)}], got {given.dtype}")
        action = env.transfers.upload("actions", given.astype(np.int64))
        self.state, step = env.step(state, action)
        facts = {"outcome": step.outcome.outcome, "network_value": step.score.network_value}
        seen, rest = self._fetch(step.seen, reward=step.reward, terminated=step.terminated, **facts)
        ended, info = rest["terminated"], {name: rest[name] for name in facts}
        if ended.any() and self.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP:
            info["final_obs"], info["_final_obs"] = seen, ended.copy()
            self.state, fresh = env.restart(self.state, self._rows_to_restart(self.state, ended))
            seen, _ = self._fetch(fresh)
        return seen, rest["reward"], ended, np.zeros_like(ended), info

    def close_extras(self, **_: Any) -> None:
        """Stop prefetching streamed data."""
        self.functional.close()

    def _rows_to_restart(self, state: EnvState, rows: Array) -> torch.Tensor:
        """Envs out of `rows` that begin an episode: an env that was rolled back before its horizon goes on."""
        goes_on = state.signals.rolled_back & (state.clock.epoch < self.functional.horizon)
        return self.functional.transfers.upload("actions", rows) & ~goes_on

    def _fetch(self, seen: PolicyInputs, **leaves: torch.Tensor) -> tuple[Seen, dict[str, Any]]:
        """Read the inputs of a policy and more leaves in one transfer: (observations, the other leaves)."""
        tree = TensorDict({**flatten_inputs(seen), **leaves}, batch_size=[self.num_envs])
        arrays = self.functional.transfers.read("arrays", tree)
        names = {f"mask.{head.label}": head.label for head in Head}
        masks = {label: arrays[name].astype(np.int8) for name, label in names.items()}
        known = {name: arrays[name].copy() for name in ("observation", "instance", "blueprints")}
        return {**known, "mask": masks}, {name: arrays[name].copy() for name in leaves}


for _task in TASKS:
    gymnasium.register(
        id=f"morphogen/{_task}-v0", vector_entry_point=partial(GymnasiumEnv, task=_task), disable_env_checker=True
    )
