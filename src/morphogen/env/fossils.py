"""Episodes that start with fossils: networks of a given form, trained from scratch."""

import torch
from torch import Tensor

from morphogen.env import phases
from morphogen.env.environment import Environment
from morphogen.env.phases import PolicyInputs
from morphogen.state.env import EnvState
from morphogen.state.tree_ops import masked_update, replace
from morphogen.vocab.blueprint import EMPTY
from morphogen.vocab.stage import Stage


def init_episode(env: Environment, episode: int) -> EnvState:
    """Return the fresh envs of an episode of their split, not yet measured."""
    return env.init_state(torch.full_like(env.keys[:, 0], episode + env.split.first_episode))


def start_with_fossils(
    env: Environment, episode: int, blueprint: Tensor, algorithm: Tensor
) -> tuple[EnvState, PolicyInputs]:
    """Start an episode with fossils, measured.  blueprint, algorithm int64 [E, S]."""
    setup = env.setup
    born = blueprint > 0
    state = place_fossils(init_episode(env, episode), blueprint, algorithm)
    coalitions = phases.requested_coalitions(state, env.keys, setup=setup)
    plan = env.read_plan(phases.count_pieces(state.slots, *coalitions, born, setup=setup), state)
    return env.start(phases.init_new_seeds(state, born, env.keys, plan, setup=setup), plan)


def place_fossils(state: EnvState, blueprint: Tensor, algorithm: Tensor) -> EnvState:
    """Place unmeasured fossils at alpha 1 in empty slots.

    Shapes: state [E]; blueprint int64 [E, S], -1 = unchanged; algorithm int64 [E, S] (`Algorithm`)
    -> EnvState [E].
    Promise: nothing but the named slots changes.  `steps.init_seeds` draws their parameters.
    """
    leaves = {"stage": int(Stage.FOSSILIZED), "previous_stage": int(Stage.HOLDING)}
    leaves |= dict.fromkeys(("epochs_in_stage", "previous_epochs_in_stage", "age"), 1)
    leaves |= dict.fromkeys(("blend_target", "alpha", "alpha_start", "alpha_target"), 1.0)
    kind = {"blueprint": blueprint, "algorithm": algorithm}
    return replace(state, slots=masked_update(state.slots, (blueprint > EMPTY, leaves | kind)))
