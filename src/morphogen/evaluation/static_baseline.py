"""Static-final: the networks that were grown, whole from the first minibatch on, in the worlds they were grown in."""

from contextlib import closing

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.device.transfers import Fences
from morphogen.engine import phases
from morphogen.engine.episodes import Array, Lives, lived, told
from morphogen.engine.epoch import World
from morphogen.engine.policies import arm_of
from morphogen.engine.setup import Setup
from morphogen.evaluation.schedule_search import Ground, held_out_grounds
from morphogen.nets import plan as plans
from morphogen.state.env import EnvState
from morphogen.steps.place_fossils import plant


def replay(setup: Setup, fences: Fences, *, kept: Array, algorithm: Array) -> Lives:
    """Train what held-out episodes ended with from scratch, for the same minibatches.

    Shapes: kept int [n, S], blueprint of each fossil, -1 none; algorithm int [n, S].  One `plan` crossing more than
    other lives take, for what is planted.
    """
    grounds = held_out_grounds(setup.spec, len(kept))
    rows = np.split(np.stack((kept, algorithm)), np.cumsum([len(one.tasks) for one in grounds])[:-1], axis=1)
    parts = [_trained(setup, fences, one, own) for one, own in zip(grounds, rows, strict=True)]
    return told(fences, parts)


def reached(lives: Lives, cost: Array) -> Array:
    """The first epoch by whose end so many parameter-epochs were spent; the last one where that never was.  int [n]."""
    enough = lives.cost >= cost
    return np.where(enough.any(axis=0), enough.argmax(axis=0), len(enough) - 1)


def _trained(setup: Setup, fences: Fences, ground: Ground, grown: Array) -> TensorDict:
    """Lives in which nothing is done.  grown int [2, n, S]."""
    control = arm_of("wait", setup).control
    world = World(setup, fences, instances=ground.purpose, envs=ground.tasks, control=control)
    blueprint, algorithm = torch.from_numpy(grown).to(setup.device).unbind()
    with closing(world), torch.no_grad():
        return lived(world, planted(world, ground.episode, blueprint, algorithm))


def planted(world: World, episode: int, blueprint: Tensor, algorithm: Tensor) -> EnvState:
    """The envs of an episode with fossils from the start, measured.  blueprint, algorithm int64 [E, S]."""
    setup = world.setup
    state = plant(world.born(episode), blueprint, algorithm)
    born = blueprint > 0
    counts = plans.plan_counts(state.slots, *phases.asked(state, world.key, setup=setup), born, net=setup.net)
    plan = plans.read_plan(world.fences.plan(counts), setup.net)
    return world.begin(phases.sown(state, born, world.key, plan, setup=setup), episode, plan)
