"""One epoch of all envs: the only place that holds the order of its phases.

Training, evaluation and every baseline run through `run_epoch`.  The steps inside a phase are in `engine.phases`.
"""

from functools import partial
from typing import NamedTuple

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.engine.phases import ActPhase, ScorePhase, TrainPhase, act_phase, train_phase
from morphogen.engine.vector_env import VectorEnv
from morphogen.nets.policy import Policy
from morphogen.state.env import EnvState
from morphogen.state.tree_ops import expand_mask


class Epoch(NamedTuple):
    """Results of one epoch, by phase.  All tensors reside on the device."""

    before: EnvState
    act: ActPhase
    train: TrainPhase
    score: ScorePhase


def run_epoch(env: VectorEnv, state: EnvState, policy: Policy, params: TensorDict, hidden: TensorDict) -> Epoch:
    """Run one epoch of all envs: act, plan, train, validate, score.

    Args: state and hidden [E], as the epoch before left them; params of the policy.
    Returns: an Epoch; `score.after` is the state for the next epoch.  The host waits once, for the sizes of the plan.
    """
    setup, mark = env.setup, env.timer.mark
    mark("head")
    act_unit = env.compiled.unit("head", partial(act_phase, setup=setup, policy=policy, control=env.control))
    act = act_unit(state, params, hidden, env.key)
    mark("plan_wait")
    plan, units = env.fit_plan(env.read_plan(act.counts))
    trained, metrics = train_phase(act, env.key, plan, unit=units.train, feed=env.feed, setup=setup, mark=mark)
    mark("validate")
    validation = units.validate(trained, setup.dataset.validation(), act.coalition, act.evaluated)
    mark("tail")
    score = units.score(trained, act.outcome, validation, metrics, state)
    return Epoch(state, act, TrainPhase(metrics, validation), score)


def reset_hidden(hidden: TensorDict, terminated: Tensor) -> TensorDict:
    """Return the policy's memory for the next epoch: zeros where a segment ended.  hidden [E], terminated bool [E]."""
    return hidden.apply(lambda leaf: torch.where(expand_mask(terminated, leaf), torch.zeros_like(leaf), leaf))
