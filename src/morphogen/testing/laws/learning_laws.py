"""Laws of policy networks and learners, on rollouts of the task `tiny`."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.spec import RunSpec
from morphogen.env.environment import Environment, open_environment
from morphogen.env.episodes import Rollout, first_carry, run_epoch
from morphogen.env.part_check import draw_normal
from morphogen.env.policy_check import synthetic_inputs
from morphogen.env.setup import build_setup
from morphogen.policy.policy import NetworkPolicy
from morphogen.ppo.learner import Learner, Round
from morphogen.state import rng
from morphogen.state.decision import ActOutput
from morphogen.state.tree_ops import clear_rows
from morphogen.testing.builders.tree_equality import tree_form, trees_equal
from morphogen.testing.laws.part_laws import STEP_LAWS, graph, over_rows
from morphogen.testing.laws.search import name_laws
from morphogen.testing.laws.step import Subject, repeats, writes

ENVS = 4
TOLERANCE = 1e-4
KEY = rng.env_keys(0, 0, 1)[0]  # of initial parameters


@cache
def tiny_environment(slots: tuple[str, ...] = ("r0c0", "r1c0")) -> Environment:
    """Open a small environment."""
    spec = RunSpec(task="tiny", envs=ENVS, slots=slots, ppo={"minibatches": 2, "epochs": 1})
    return open_environment(build_setup(spec))


def play_rollout(env: Environment, policy: NetworkPolicy, params: TensorDict) -> TensorDict:
    """Play an episode and return its rows [T, E]; every env starts a new segment in the middle of
    it.
    """
    rollout = Rollout(env.horizon, envs=env.envs, slots=len(env.net.slots))
    carry = first_carry(env, policy)
    with torch.no_grad():
        for t in range(env.horizon):
            carry, epoch = run_epoch(env, policy, params, carry)
            rollout.write(t, epoch)
            start = carry.segment | (t == env.horizon // 2)
            carry = carry._replace(memory=clear_rows(start, carry.memory), segment=start)
    return rollout.rows


@dataclass(frozen=True, slots=True)
class NetworkSubject:
    """A policy around a network, in an environment."""

    policy: NetworkPolicy
    env: Environment

    def act_args(self) -> tuple[Any, ...]:
        """Return the arguments of `NetworkPolicy.act` on made-up observations."""
        return self.policy.init(KEY), *synthetic_inputs(self.policy, self.env.setup, ENVS)

    def run(self, *args: Any) -> tuple[Tensor, TensorDict]:
        """Return the value [E] and the memory after an action; the action may flip on a rounding
        error.
        """
        out: ActOutput = self.policy.act(*args)
        return out.value, out.hidden

    def rows(self) -> tuple[Subject, list[Any]]:
        """Return `run` and examples."""
        subject = Subject(self.run, type(self.policy.network).__name__, tolerance=TOLERANCE)
        *args, noise = self.act_args()
        return subject, [(*args, noise), (*args, 0.5 * noise)]


def has_value_layer(subject: NetworkSubject) -> str:
    """Its parameters are float32 and hold the last layer of the value."""
    network = subject.policy.network
    params = network.init(KEY)
    layer = network.value_layer
    missing = [name for name in (f"{layer}.weight", f"{layer}.bias") if name not in params]
    if missing:
        wanted = f"expected {', '.join(missing)} among the parameters"
        return f"value_layer: {wanted}, got {', '.join(params)}"
    for name, leaf in params.items():
        if leaf.dtype != torch.float32:
            return f"parameters: expected torch.float32, got {leaf.dtype} for {name}"
    return ""


def takes_any_slots(subject: NetworkSubject) -> str:
    """It acts with one slot and with several, and its values are finite."""
    for slots in (("r0c0",), ("r0c0", "r1c0"), ("r0c0", "r0c1", "r1c0")):
        out = subject.policy.act(*replace(subject, env=tiny_environment(slots)).act_args())
        finite = out.value.isfinite().all() & out.log_prob.isfinite().all()
        if out.action.shape != (ENVS, 8) or not finite:
            given = out.value.tolist()
            return f"expected finite outputs with {len(slots)} slots, got value {given}"
    return ""


def unrolls_like_steps(subject: NetworkSubject) -> str:
    """Scoring a rollout gives the log-probabilities and values of acting, row by row."""
    params = subject.policy.init(KEY)
    rollout = play_rollout(subject.env, subject.policy, params)
    scores = subject.policy.evaluate(params, rollout)
    for name in ("log_prob", "value"):
        gap = float((getattr(scores, name) - rollout[name]).abs().max())
        if not gap <= TOLERANCE:
            return f"unroll differs from step: {name} by up to {gap:.3g}"
    return ""


NETWORK_LAWS = name_laws(has_value_layer, takes_any_slots, *STEP_LAWS, unrolls_like_steps, graph)


class UpdateArgs(NamedTuple):
    """State of a learner, and a rollout [T, E] under it."""

    state: TensorDict
    rollout: TensorDict


@dataclass(frozen=True, slots=True)
class LearnerSubject:
    """A learner with a policy, in an environment."""

    learner: Learner
    policy: NetworkPolicy
    env: Environment

    def start(self) -> UpdateArgs:
        """Return the initial state and a rollout under it, with random rewards."""
        state = self.learner.init(self.policy, KEY, spec=self.env.spec)
        rollout = play_rollout(self.env, self.policy, state.get("params"))
        return UpdateArgs(state, rollout.replace(reward=draw_normal(*rollout.shape)))

    def run(self, state: Any, rollout: TensorDict) -> tuple[Any, Any]:
        """Update once."""
        return self.learner.update(
            state, rollout, policy=self.policy, round=Round(self.env.spec, 0)
        )

    def rows(self) -> tuple[Subject, list[Any]]:
        """Return `run` and an example."""
        return Subject(self.run, "update"), [self.start()]

    def updated_net(self, args: UpdateArgs) -> Any:
        """Return the parameters of the network after an update."""
        return self.run(*args)[0].get("params")["net"]


def keeps_tree(subject: LearnerSubject) -> str:
    """The state has the same leaves after an update, and metrics are numbers."""
    args = subject.start()
    after, metrics = subject.run(*args)
    changed = tree_form(args.state)[0] ^ tree_form(after)[0]
    if changed:
        place = min(changed)[0]
        return f"state: expected the same leaves after an update, got another one at {place}"
    for name, value in metrics.items():
        if not isinstance(value, Tensor) or value.dim():
            return f"metrics: expected 0-d tensors, got {value!a:.40} for {name}"
    return ""


def moves_policy(subject: LearnerSubject) -> str:
    """An update changes the network."""
    args = subject.start()
    still = trees_equal(args.state.get("params")["net"], subject.updated_net(args))
    return "leaves the network as it is" if still else ""


def survives_nan(subject: LearnerSubject) -> str:
    """An invalid reward in one env leaves the network finite."""
    args = subject.start()
    reward = args.rollout["reward"].clone()
    reward[0, 0] = torch.nan
    net = subject.updated_net(args._replace(rollout=args.rollout.replace(reward=reward)))
    finite = all(bool(leaf.isfinite().all()) for leaf in net.values())
    return "" if finite else "lets NaN in the reward of one env into the network"


LEARNER_LAWS = name_laws(
    keeps_tree, over_rows(writes), over_rows(repeats), moves_policy, survives_nan
)
