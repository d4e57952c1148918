"""Static-final: the networks that were grown, whole from the first minibatch on, in the worlds they were grown in."""

from contextlib import closing

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.device.transfers import Transfers
from morphogen.engine import phases
from morphogen.engine.episodes import Array, EpisodeTraces, fetch_traces, rollout_on_device
from morphogen.engine.policies import build_arm
from morphogen.engine.setup import Setup
from morphogen.engine.vector_env import VectorEnv
from morphogen.evaluation.schedule_search import InstanceSet, held_out_instance_sets
from morphogen.nets import plan as plans
from morphogen.state.env import EnvState
from morphogen.steps.reset import place_fossils


def train_static_baseline(
    setup: Setup, transfers: Transfers, *, fossil_blueprint: Array, algorithm: Array
) -> EpisodeTraces:
    """Train what held-out episodes ended with from scratch, for the same minibatches.

    Shapes: kept int [n, S], blueprint of each fossil, -1 none; algorithm int [n, S].  One `plan` crossing more than
    other lives take, for what is planted.
    """
    grounds = held_out_instance_sets(setup.spec, len(fossil_blueprint))
    rows = np.split(
        np.stack((fossil_blueprint, algorithm)), np.cumsum([len(one.tasks) for one in grounds])[:-1], axis=1
    )
    parts = [_train_from_fossils(setup, transfers, one, own) for one, own in zip(grounds, rows, strict=True)]
    return fetch_traces(transfers, parts)


def first_epoch_at_cost(traces: EpisodeTraces, cost: Array) -> Array:
    """The first epoch by whose end so many parameter-epochs were spent; the last one where that never was.  int [n]."""
    enough = traces.cost >= cost
    return np.where(enough.any(axis=0), enough.argmax(axis=0), len(enough) - 1)


def _train_from_fossils(setup: Setup, transfers: Transfers, instances: InstanceSet, fossils: Array) -> TensorDict:
    """Lives in which nothing is done.  grown int [2, n, S]."""
    control = build_arm("wait", setup).control
    world = VectorEnv(setup, transfers, instances=instances.purpose, envs=instances.tasks, control=control)
    blueprint, algorithm = torch.from_numpy(fossils).to(setup.device).unbind()
    with closing(world), torch.no_grad():
        return rollout_on_device(world, start_with_fossils(world, instances.episode, blueprint, algorithm))


def start_with_fossils(world: VectorEnv, episode: int, blueprint: Tensor, algorithm: Tensor) -> EnvState:
    """The envs of an episode with fossils from the start, measured.  blueprint, algorithm int64 [E, S]."""
    setup = world.setup
    state = place_fossils(world.init_state(episode), blueprint, algorithm)
    born = blueprint > 0
    counts = plans.plan_counts(
        state.slots, *phases.requested_coalitions(state, world.key, setup=setup), born, net=setup.net
    )
    plan = world.read_plan(counts)
    return world.start_episode(phases.init_new_seeds(state, born, world.key, plan, setup=setup), episode, plan)
