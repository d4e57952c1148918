"""Laws of policy networks and learners, on rollouts of the task `tiny`."""

from functools import cache
from typing import Any, NamedTuple

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.spec import RunSpec
from morphogen.env.environment import Environment, open_environment
from morphogen.env.episodes import Rollout, first_carry, run_epoch
from morphogen.env.part_check import draw_normal
from morphogen.env.policy_check import policy_fault, synthetic_inputs
from morphogen.env.setup import build_setup
from morphogen.policy.policy import NetworkPolicy
from morphogen.ppo.learner import Learner, Round
from morphogen.state import rng
from morphogen.state.decision import ActOutput
from morphogen.state.tree_ops import clear_rows
from morphogen.testing.builders.tree_equality import tree_form, trees_equal
from morphogen.testing.laws.search import name_laws
from morphogen.testing.laws.step import (
    Subject,
    check_one_graph,
    host,
    neighbours,
    over_rows,
    repeats,
    writes,
)

ENVS = 4
TOLERANCE = 1e-4
KEY = rng.env_keys(0, 0, 1)[0]  # of initial parameters


@cache
def tiny_environment(slots: tuple[str, ...] = ("r0c0", "r1c0")) -> Environment:
    """Open a small environment."""
    spec = RunSpec(task="tiny", envs=ENVS, slots=slots, ppo={"minibatches": 2, "epochs": 1})
    return open_environment(build_setup(spec))


def play_rollout(policy: NetworkPolicy, params: TensorDict) -> TensorDict:
    """Play an episode and return its rows [T, E]; every env starts a new segment in the middle of
    it.
    """
    env = tiny_environment()
    rollout = Rollout(env.horizon, envs=env.envs, slots=len(env.net.slots))
    carry = first_carry(env, policy)
    with torch.no_grad():
        for t in range(env.horizon):
            carry, epoch = run_epoch(env, policy, params, carry)
            rollout.write(t, epoch)
            start = carry.segment | (t == env.horizon // 2)
            carry = carry._replace(memory=clear_rows(start, carry.memory), segment=start)
    return rollout.rows


def act_rows(policy: NetworkPolicy) -> tuple[Subject, list[Any]]:
    """Return the value and the memory after an action, and made-up observations.

    The action may flip on a rounding error.
    """

    def call(*args: Any) -> tuple[Tensor, TensorDict]:
        out: ActOutput = policy.act(*args)
        return out.value, out.hidden

    *args, noise = policy.init(KEY), *synthetic_inputs(policy, tiny_environment().setup, ENVS)
    subject = Subject(call, type(policy.network).__name__, tolerance=TOLERANCE)
    return subject, [(*args, noise), (*args, 0.5 * noise)]


def has_value_layer(policy: NetworkPolicy) -> str:
    """Its parameters are float32 and hold the last layer of the value."""
    network = policy.network
    params = network.init(KEY)
    layer = network.value_layer
    wanted = {f"{layer}.weight", f"{layer}.bias"}
    if not wanted <= params.keys():
        names = ", ".join(sorted(wanted))
        return f"value_layer: expected {names} among the parameters, got {', '.join(params)}"
    for name, leaf in params.items():
        if leaf.dtype != torch.float32:
            return f"parameters: expected torch.float32, got {leaf.dtype} for {name}"
    return ""


def takes_any_slots(policy: NetworkPolicy) -> str:
    """It acts with one slot and with several, and its values are finite."""
    for slots in (("r0c0",), ("r0c0", "r1c0"), ("r0c0", "r0c1", "r1c0")):
        if fault := policy_fault(policy, tiny_environment(slots).setup):
            return f"with {len(slots)} slots: {fault}"
    return ""


def unrolls_like_steps(policy: NetworkPolicy) -> str:
    """Scoring a rollout gives the log-probabilities and values of acting, row by row."""
    params = policy.init(KEY)
    rollout = play_rollout(policy, params)
    scores = policy.evaluate(params, rollout)
    for name in ("log_prob", "value"):
        gap = float((getattr(scores, name) - rollout[name]).abs().max())
        if not gap <= TOLERANCE:
            return f"unroll differs from step: {name} by up to {gap:.3g}"
    return ""


def graph(policy: NetworkPolicy) -> str:
    """It compiles to one graph."""
    check_one_graph(*act_rows(policy), backend="eager")
    return ""


NETWORK_LAWS = name_laws(
    has_value_layer,
    takes_any_slots,
    *(over_rows(act_rows, law) for law in (host, writes, repeats, neighbours)),
    unrolls_like_steps,
    graph,
)


class UpdateArgs(NamedTuple):
    """State of a learner, and a rollout [T, E] under it."""

    state: TensorDict
    rollout: TensorDict


class Lesson(NamedTuple):
    """A learner, and the policy that it trains."""

    learner: Learner
    policy: NetworkPolicy

    def start(self) -> UpdateArgs:
        """Return the initial state and a rollout under it, with random rewards."""
        state = self.learner.init(self.policy, KEY, spec=tiny_environment().spec)
        rollout = play_rollout(self.policy, state.get("params"))
        return UpdateArgs(state, rollout.replace(reward=draw_normal(*rollout.shape)))

    def update(self, state: Any, rollout: TensorDict) -> tuple[Any, Any]:
        """Update once."""
        training = Round(tiny_environment().spec, 0)
        return self.learner.update(state, rollout, policy=self.policy, round=training)

    def rows(self) -> tuple[Subject, list[Any]]:
        """Return `update` and an example."""
        return Subject(self.update, "update"), [self.start()]

    def updated_net(self, args: UpdateArgs) -> Any:
        """Return the parameters of the network after an update."""
        return self.update(*args)[0].get("params")["net"]


def keeps_tree(lesson: Lesson) -> str:
    """The state has the same leaves after an update, and metrics are numbers."""
    args = lesson.start()
    after, metrics = lesson.update(*args)
    changed = tree_form(args.state)[0] ^ tree_form(after)[0]
    if changed:
        place = min(changed)[0]
        return f"state: expected the same leaves after an update, got another one at {place}"
    for name, value in metrics.items():
        if not isinstance(value, Tensor) or value.dim():
            return f"metrics: expected 0-d tensors, got {value!a:.40} for {name}"
    return ""


def moves_policy(lesson: Lesson) -> str:
    """An update changes the network."""
    args = lesson.start()
    still = trees_equal(args.state.get("params")["net"], lesson.updated_net(args))
    return "leaves the network as it is" if still else ""


def survives_nan(lesson: Lesson) -> str:
    """An invalid reward in one env leaves the network finite."""
    args = lesson.start()
    reward = args.rollout["reward"].clone()
    reward[0, 0] = torch.nan
    net = lesson.updated_net(args._replace(rollout=args.rollout.replace(reward=reward)))
    finite = all(bool(leaf.isfinite().all()) for leaf in net.values())
    return "" if finite else "lets NaN in the reward of one env into the network"


LEARNER_LAWS = name_laws(
    keeps_tree,
    over_rows(Lesson.rows, writes),
    over_rows(Lesson.rows, repeats),
    moves_policy,
    survives_nan,
)
