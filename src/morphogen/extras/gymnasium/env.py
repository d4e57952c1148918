"""The environment for Gymnasium: a vector environment, and a single one, with NumPy arrays.

Importing this module registers `morphogen/TASK-v0` for every task:

    import gymnasium
    import morphogen.extras.gymnasium.env
    envs = gymnasium.make_vec("morphogen/digits-v0", num_envs=8)  # `GymnasiumEnv`
    env = gymnasium.make("morphogen/digits-v0")  # `GymnasiumSingleEnv`

or, without the import, `gymnasium.make("morphogen.extras.gymnasium.env:morphogen/digits-v0")`.
Without either, Gymnasium answers `NamespaceNotFound`.
"""

from functools import partial
from typing import Any, Unpack

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, iterate
from tensordict import TensorDict

from morphogen.config.spec import RunSpec
from morphogen.config.task import TASKS
from morphogen.env.action_tensors import check_form, to_tensor
from morphogen.env.flat_inputs import flatten_inputs, head_sizes, mask_shapes
from morphogen.env.make import MakeFields, make
from morphogen.env.phases import PolicyInputs
from morphogen.state import tree_ops
from morphogen.state.env import EnvState
from morphogen.vocab.action import RELEVANT, Head, Op, Outcome
from morphogen.vocab.blueprint import EMPTY, Blueprint
from morphogen.vocab.observation import ENV, FEATURE_LIMIT, INSTANCE, SLOT

Array = np.ndarray[Any, Any]
Seen = dict[str, Any]
_CONTENTS = len(Blueprint) + 1  # of a slot: empty, or one of the blueprints
_SLOT_OPS = [int(op) for op in Op if RELEVANT[op][Head.SLOT]]
_RESULTS = {
    "reward": np.float32,
    "terminated": np.bool_,
    "outcome": np.int64,
    "network_value": np.float32,
}


class GymnasiumEnv(VectorEnv[Seen, Array, Array]):
    """Gymnasium vector environment: one step is one epoch of all envs.

    Observations are a dictionary: `observation` float32 [E, 52 + 46 S], `instance` float32 [E, 8],
    `blueprints` int64 [E, S], -1 for an empty slot, and `mask` with the legal choices per head,
    int8; the mask of slot per op. Actions int64 [E, 8] in the order of `mg.Head`; an illegal action
    does nothing.  `action_masks` returns the masks as a policy over `MultiDiscrete` takes them;
    `join_masks` lists the columns.  `info` holds `outcome`, a number of `mg.Outcome`, and
    `network_value` of every env.

    `autoreset_mode`, a member of Gymnasium's `AutoresetMode` or its text:

    - NEXT_STEP, "NextStep": the step after the last one of an episode ignores the action and begins
      the next episode; its reward is 0, its outcome ENDED.
    - SAME_STEP, "SameStep": the last step of an episode begins the next one, and puts the last
      observation of every env that ended into `info["final_obs"]`.
    - DISABLED, "Disabled": `reset(options={"reset_mask": bool [E]})` begins episodes; a step before
      it raises.

    An env that the governor rolled back has `terminated` True; its next episode is the rest of this
    one, from its restored state.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        task: str | RunSpec = "digits",
        seed: int = 0,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        **fields: Unpack[MakeFields],
    ) -> None:
        """Build the environment; `fields` as in `env.make`.

        render_mode: has no effect, because nothing is drawn.
        Raises: ConfigError for settings out of range, ValueError for another mode of resets.
        """
        del render_mode
        mode = AutoresetMode(autoreset_mode)
        self.functional = make(task, envs=num_envs, seed=seed, **fields)
        num_envs = self.functional.envs
        self._state: EnvState | None = None
        self._masks: dict[str, Array] | None = None  # of the last observations
        # the last step ended an episode, and none has begun since
        self._ended = np.zeros(num_envs, dtype=bool)
        self.num_envs, self.metadata = num_envs, {"autoreset_mode": mode}
        slots = len(self.functional.net.slots)
        real = partial(spaces.Box, -FEATURE_LIMIT, FEATURE_LIMIT, dtype=np.float32)
        self.single_observation_space = spaces.Dict(
            {
                "observation": real(shape=(len(ENV) + len(SLOT) * slots,)),
                "instance": real(shape=(len(INSTANCE),)),
                "blueprints": spaces.Box(EMPTY, max(Blueprint), shape=(slots,), dtype=np.int64),
                "mask": spaces.Dict(
                    {name: spaces.MultiBinary(shape) for name, shape in mask_shapes(slots).items()}
                ),
            }
        )
        self.single_action_space = spaces.MultiDiscrete(list(head_sizes(slots).values()))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    @property
    def state(self) -> EnvState:
        """State [E] of the last step or reset.  Raises ResetNeeded before the first reset."""
        if self._state is None:
            raise gymnasium.error.ResetNeeded(
                "the environment has no state: call reset before step"
            )
        return self._state

    @state.setter
    def state(self, state: EnvState) -> None:
        self._state, self._ended = state, np.zeros_like(self._ended)

    @torch.no_grad()
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Seen, dict[str, Any]]:
        """Begin an episode: the first one of a seed, the next one without a seed, or of the envs in
        `reset_mask`.
        """
        super().reset(seed=seed)
        rows = (options or {}).get("reset_mask")
        if seed is not None:
            self.functional = self.functional.with_seed(seed)
            self._state = None
        if self._state is None:
            self.state, seen = self.functional.reset()
        else:
            chosen = np.ones(self.num_envs, dtype=bool) if rows is None else np.asarray(rows)
            check_form(
                "options.reset_mask",
                torch.as_tensor(chosen, device="cpu"),
                torch.bool,
                (self.num_envs,),
            )
            self._state, seen = self._restart(chosen)
            self._ended = self._ended & ~chosen
        return self._fetch(seen, {})

    @torch.no_grad()
    def step(self, actions: Array) -> tuple[Seen, Array, Array, Array, dict[str, Any]]:
        """Run one epoch.  actions int64 [E, 8] -> observations, reward, terminated, truncated [E],
        info.

        Raises: ResetNeeded for envs that have ended, in the mode DISABLED; ConfigError for actions
        of another shape, TypeError for other numbers than integers.
        """
        mode = self.metadata["autoreset_mode"]
        if mode is AutoresetMode.DISABLED and self._ended.any():
            raise gymnasium.error.ResetNeeded(
                f"envs {np.flatnonzero(self._ended).tolist()} have ended: call reset before "
                "step, for them alone with "
                'options={"reset_mask": terminated}'
            )
        given = np.asarray(actions).astype(np.int64, casting="safe")
        action = to_tensor(self.functional.transfers.upload("actions", given), self.num_envs)
        seen, results = self._advance(action)
        ended = results["terminated"]
        info = {name: results[name] for name in ("outcome", "network_value")}
        self._ended = ended.copy()
        if mode is AutoresetMode.SAME_STEP and ended.any():
            rows = zip(iterate(self.observation_space, seen), ended, strict=True)
            final = [row if has_ended else None for row, has_ended in rows]
            info["final_obs"] = np.array(final, dtype=object)
            info["_final_obs"] = ended.copy()
            state, fresh = self._restart(ended)
            self.state = state
            seen, _ = self._fetch(fresh, {})
        return seen, results["reward"], ended, np.zeros_like(ended), info

    def _advance(self, action: torch.Tensor) -> tuple[Seen, dict[str, Array]]:
        """Run one epoch of all envs but those that have ended: they begin their next episode.
        action int64 [E, 8].
        """
        env = self.functional
        state = self.state
        begun = self._ended
        if begun.all():
            self._state, seen = self._restart(begun)
            results = {
                name: np.zeros(self.num_envs, dtype=dtype) for name, dtype in _RESULTS.items()
            }
            observed, _ = self._fetch(seen, {})
        else:
            after, step = env.step(state, action)
            seen = step.inputs
            leaves = {
                "reward": step.reward,
                "terminated": step.terminated,
                "outcome": step.outcome.outcome,
                "network_value": step.score.network_value,
            }
            if begun.any():
                after = tree_ops.select(self._upload_rows(begun), self._restart(begun)[0], after)
                seen = env.observe(after)
            self._state = after
            observed, results = self._fetch(seen, leaves)
            for leaf in results.values():
                leaf[begun] = 0
        results["outcome"][begun] = Outcome.ENDED
        return observed, results

    def action_masks(self) -> Array:
        """Legal choices of all heads, bool [E, 38 + S]; see `join_masks`.  Raises ResetNeeded
        before the first reset.
        """
        if self._masks is None:
            raise gymnasium.error.ResetNeeded(
                "the environment has no masks: call reset before action_masks"
            )
        return join_masks(self._masks)

    def close_extras(self, **_: Any) -> None:
        """Stop prefetching streamed data."""
        self.functional.close()

    def _restart(self, rows: Array) -> tuple[EnvState, PolicyInputs]:
        """Begin the next episode of some envs; one rolled back before its horizon continues.  rows
        bool [E].
        """
        env = self.functional
        state = self.state
        continues = state.signals.rolled_back & (state.clock.epoch < env.horizon)
        return env.restart(state, self._upload_rows(rows) & ~continues)

    def _upload_rows(self, rows: Array) -> torch.Tensor:
        return self.functional.transfers.upload("actions", rows)

    def _fetch(
        self, seen: PolicyInputs, leaves: dict[str, torch.Tensor]
    ) -> tuple[Seen, dict[str, Any]]:
        """Read the inputs of a policy and more leaves in one transfer: (observations, the other
        leaves).
        """
        tree = TensorDict({**flatten_inputs(seen), **leaves}, batch_size=[self.num_envs])
        arrays = self.functional.transfers.read("arrays", tree)
        names = {f"mask.{head.label}": head.label for head in Head}
        masks = {label: arrays[name].astype(np.int8) for name, label in names.items()}
        self._masks = masks
        known = {name: arrays[name].copy() for name in ("observation", "instance", "blueprints")}
        return {**known, "mask": masks}, {name: arrays[name].copy() for name in leaves}


class GymnasiumSingleEnv(gymnasium.Env[Array, Array]):
    """Gymnasium environment: one host, with flat observations, as algorithms for a `Box` want them.

    Observation float32 [60 + 60 S]: the columns `observation`, then `instance` of `GymnasiumEnv`,
    then one-hot what each slot holds, nothing or one of the 13 blueprints.  Action int64 [8] in the
    order of `mg.Head`; `action_masks` returns the legal choices.  `info` holds `outcome` and
    `network_value`.

    A step of an env that has ended raises.  `reset` begins the next episode, with a seed the first
    one of that seed; an env that the governor rolled back continues from its restored state.
    """

    def __init__(
        self,
        *,
        task: str | RunSpec = "digits",
        seed: int = 0,
        render_mode: str | None = None,
        **fields: Any,
    ) -> None:
        """Build the environment; `fields` as in `env.make`.

        render_mode: has no effect, because nothing is drawn.  Stable-Baselines3 asks for
        "rgb_array" of every id.
        Raises: ConfigError for settings out of range.
        """
        del render_mode
        self.vector = GymnasiumEnv(
            1, task=task, seed=seed, autoreset_mode=AutoresetMode.DISABLED, **fields
        )
        self.observation_space = flat_space(self.vector)
        self.action_space = self.vector.single_action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Begin an episode: the first one of a seed, or the next one."""
        super().reset(seed=seed)
        seen, _ = self.vector.reset(seed=seed, options=options)
        return flatten_seen(seen)[0], {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Run one epoch.  action int64 [8] -> observation, reward, terminated, truncated, info.

        Raises: ResetNeeded after the end of an episode.
        """
        seen, reward, terminated, _, info = self.vector.step(np.asarray(action)[None])
        values = {name: leaf.item() for name, leaf in info.items()}
        return flatten_seen(seen)[0], reward.item(), terminated.item(), False, values

    def action_masks(self) -> Array:
        """Legal choices of all heads, bool [38 + S]; see `join_masks`.  Raises ResetNeeded before
        the first reset.
        """
        return self.vector.action_masks()[0]

    def close(self) -> None:
        """Stop prefetching streamed data."""
        self.vector.close()


def flat_space(env: GymnasiumEnv) -> spaces.Box:
    """Space of one row of `flatten_seen`."""
    columns = len(ENV) + len(INSTANCE) + (len(SLOT) + _CONTENTS) * len(env.functional.net.slots)
    return spaces.Box(-FEATURE_LIMIT, FEATURE_LIMIT, shape=(columns,), dtype=np.float32)


def flatten_seen(seen: Seen) -> Array:
    """Flatten observations of `GymnasiumEnv`: float32 [..., 60 + 60 S], for all envs or one.

    Columns: `observation`, `instance`, then for each slot 14 that hold a single 1: empty, or one of
    the blueprints.
    """
    contents = np.eye(_CONTENTS, dtype=np.float32)[seen["blueprints"] - EMPTY]
    flat = contents.reshape(*contents.shape[:-2], -1)
    return np.concatenate((seen["observation"], seen["instance"], flat), axis=-1)


def join_masks(mask: dict[str, Array]) -> Array:
    """Join the masks of all heads for a policy that draws every head for itself, bool [E, 38 + S].

    Columns in the order of `mg.Head`: op 6, slot S, blueprint 13, style 4, tempo 3, alpha target 3,
    alpha speed 4, alpha curve 5.  A slot is legal if some legal op may address it; a pair that is
    not legal does nothing.  All slots are legal if the env may only wait.
    """
    slots = np.any(mask["slot"][:, _SLOT_OPS], axis=1)
    legal = {**mask, Head.SLOT.label: slots | ~np.any(slots, axis=1, keepdims=True)}
    return np.concatenate([legal[head.label] for head in Head], axis=1).astype(bool)


for _task in TASKS:
    gymnasium.register(
        id=f"morphogen/{_task}-v0",
        entry_point=f"{__name__}:GymnasiumSingleEnv",
        vector_entry_point=f"{__name__}:GymnasiumEnv",
        kwargs={"task": _task},
        disable_env_checker=True,
    )
