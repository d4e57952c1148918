"""Episodes that start with fossils: networks of a given form, trained from scratch."""

import torch
from torch import Tensor

from morphogen.env.environment import Environment
from morphogen.env.phases import PolicyInputs
from morphogen.state.env import EnvState
from morphogen.steps.reset_step import place_fossils


def init_episode(env: Environment, episode: int) -> EnvState:
    """Return the fresh envs of an episode of their split, not yet measured."""
    return env.init_state(torch.full_like(env.keys[:, 0], episode + env.split.first_episode))


def start_with_fossils(
    env: Environment, episode: int, blueprint: Tensor, algorithm: Tensor
) -> tuple[EnvState, PolicyInputs]:
    """Start an episode with fossils, measured.  blueprint, algorithm int64 [E, S]."""
    state = place_fossils(init_episode(env, episode), blueprint, algorithm)
    return env.start(state, blueprint > 0)
