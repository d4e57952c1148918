"""The environment for Stable-Baselines3: a `VecEnv` with flat observations and action masks.

    from sb3_contrib import MaskablePPO
    from morphogen.extras.sb3.vec_env import MorphogenVecEnv
    model = MaskablePPO("MlpPolicy", MorphogenVecEnv(16, task="tiny"), n_steps=8).learn(10_000)

Needs the extra `sb3`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.vec_env import VecEnv

from morphogen.config.spec import RunSpec
from morphogen.errors import ConfigError
from morphogen.extras.gymnasium.env import (
    Array,
    GymnasiumEnv,
    flat_space,
    flatten_seen,
)
from morphogen.vocab.text import format_value

Indices = None | int | Sequence[int]


class MorphogenVecEnv(VecEnv):
    """Vector environment for Stable-Baselines3: one step is one epoch of all envs.

    Observations float32 [E, 60 + 60 S] and actions int64 [E, 8] are rows of `GymnasiumSingleEnv`,
    so a model plays there too.  `action_masks` returns the legal choices, for `MaskablePPO` of
    sb3-contrib.  An env that ends begins its next episode in the same step; its `info` holds
    `terminal_observation`.  Every `info` holds `outcome`, a number of `mg.Outcome`, and
    `network_value`.
    """

    render_mode = None

    def __init__(
        self, num_envs: int = 1, *, task: str | RunSpec = "digits", seed: int = 0, **fields: Any
    ) -> None:
        """Build the environment; `fields` as in `env.make`.  Raises: ConfigError for settings out
        of range.
        """
        self.vector = GymnasiumEnv(
            num_envs, task=task, seed=seed, autoreset_mode=AutoresetMode.SAME_STEP, **fields
        )
        self._actions: Array | None = None
        super().__init__(
            self.vector.num_envs, flat_space(self.vector), self.vector.single_action_space
        )

    def reset(self) -> Array:
        """Begin an episode: the first one after `seed`, else the next one."""
        seen, _ = self.vector.reset(seed=self._seeds[0])
        self._reset_seeds()
        return flatten_seen(seen)

    def step_async(self, actions: Array) -> None:
        """Keep the actions int64 [E, 8] for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> tuple[Array, Array, Array, list[dict[str, Any]]]:
        """Run one epoch -> observations, reward float32 [E], ends bool [E], a dictionary per
        env.
        """
        if self._actions is None:
            raise RuntimeError("no actions are kept: call step_async before step_wait")
        seen, reward, ended, _, results = self.vector.step(self._actions)
        names = ("outcome", "network_value")
        infos: list[dict[str, Any]] = [
            {name: results[name][env].item() for name in names} for env in range(len(ended))
        ]
        for env in np.flatnonzero(ended):
            infos[env]["terminal_observation"] = flatten_seen(results["final_obs"][env])
        return flatten_seen(seen), reward, ended, infos

    def action_masks(self) -> Array:
        """Legal choices of all heads, bool [E, 38 + S]; see `gymnasium.env.join_masks`."""
        return self.vector.action_masks()

    def close(self) -> None:
        """Stop prefetching streamed data."""
        self.vector.close()

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """Return an attribute, which all envs share, once per env."""
        return [getattr(self, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Refuse: envs share their attributes.  Raises: ConfigError."""
        raise ConfigError(
            f"set_attr: expected no attribute of a single env, got {format_value(attr_name)}"
        )

    def env_method(
        self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Return the rows of `action_masks`.  Raises: ConfigError for any other method."""
        if method_name != "action_masks":
            raise ConfigError(f"env_method: expected action_masks, got {format_value(method_name)}")
        return [self.action_masks()[env] for env in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: Any, indices: Indices = None) -> list[bool]:
        """Return False for every env."""
        return [False for _ in self._get_indices(indices)]
