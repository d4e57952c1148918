"""Laws of policy networks and learners from outside, on rollouts of the task `tiny`."""

from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from morphogen.config.spec import RunSpec
from morphogen.engine.environment import Environment, open_environment
from morphogen.engine.episodes import Rollout, reset_hidden, run_epoch
from morphogen.engine.part_laws import Law, draw_normal, trace_graph
from morphogen.engine.setup import build_setup
from morphogen.learn.learner import Learner, Round
from morphogen.nets.distribution import noise_lanes
from morphogen.nets.policy import NetworkPolicy
from morphogen.state import rng

ENVS, TOLERANCE = 4, 1e-4


def tiny_environment(slots: tuple[str, ...] = ("r0c0", "r1c0")) -> Environment:
    """Open a small environment."""
    settings: dict[str, Any] = {"envs": ENVS, "slots": slots, "ppo": {"minibatches": 2, "epochs": 1}}
    return open_environment(build_setup(RunSpec(task="tiny", **settings)))


def play_rollout(env: Environment, policy: NetworkPolicy, params: TensorDict) -> TensorDict:
    """Play an episode and return its rows [T, E]; every env starts a new segment in the middle of it."""
    rollout = Rollout(env.horizon, envs=env.envs, slots=len(env.net.slots))
    (state, seen), hidden = env.reset(), policy.initial_hidden(env.envs)
    start = torch.ones(env.envs, dtype=torch.bool, device="cpu")
    with torch.no_grad():
        for t in range(env.horizon):
            epoch = run_epoch(env, state, seen, policy, params=params, hidden=hidden)
            rollout.write(t, epoch, start)
            start = epoch.step.terminated | (t == env.horizon // 2)
            state, seen, hidden = epoch.after, epoch.step.seen, reset_hidden(epoch.choice.hidden, start)
    return rollout.rows


@dataclass(frozen=True, slots=True)
class NetworkSubject:
    """A policy around a network, in an environment."""

    policy: NetworkPolicy
    env: Environment

    @property
    def key(self) -> Tensor:
        """Key of the initial parameters, int64 [3]."""
        return rng.env_keys(0, 0, 1)[0]

    def act(self, device: str = "cpu", row: int | None = None) -> Any:
        """Act once in fresh envs, or in a single one of them."""
        _, seen = self.env.reset()
        rows = slice(None) if row is None else slice(row, row + 1)
        obs, masks = (cast(Any, part)[rows].to(device) for part in (seen.observation, seen.masks))
        params = self.policy.init(self.key.to(device))
        hidden = self.policy.initial_hidden(len(obs), device=device)
        noise = torch.zeros(len(obs), noise_lanes(masks.slot.shape[-1]), dtype=torch.float32, device=device)
        return self.policy.act(params, obs, masks, hidden, noise)


def has_value_layer(subject: NetworkSubject) -> str:
    """Its parameters are float32 and hold the last layer of the value."""
    params, layer = subject.policy.network.init(subject.key), subject.policy.network.value_layer
    missing = [name for name in (f"{layer}.weight", f"{layer}.bias") if name not in params]
    if missing:
        return f"value_layer: expected {', '.join(missing)} among the parameters, got {', '.join(params)}"
    other = [name for name, leaf in params.items() if leaf.dtype != torch.float32]
    return f"parameters: expected torch.float32, got {params[other[0]].dtype} for {other[0]}" if other else ""


def takes_any_slots(subject: NetworkSubject) -> str:
    """It acts with one slot and with several, and its values are finite."""
    for slots in (("r0c0",), ("r0c0", "r1c0"), ("r0c0", "r0c1", "r1c0")):
        out = replace(subject, env=tiny_environment(slots)).act()
        if out.action.shape != (ENVS, 8) or not (out.value.isfinite().all() and out.log_prob.isfinite().all()):
            return f"expected finite outputs with {len(slots)} slots, got value {out.value.tolist()}"
    return ""


def separates_envs(subject: NetworkSubject) -> str:
    """An env does not see its neighbours."""
    together = subject.act()
    for row in range(ENVS):
        if not torch.allclose(subject.act(row=row).value[0], together.value[row], atol=TOLERANCE):
            return f"sees its neighbours: env {row} alone differs from env {row} among others"
    return ""


def unrolls_like_steps(subject: NetworkSubject) -> str:
    """Scoring a rollout gives the log-probabilities and values of acting, row by row."""
    params = subject.policy.init(subject.key)
    rollout = play_rollout(subject.env, subject.policy, params)
    again = subject.policy.evaluate(params, rollout)
    for name, one, other in (
        ("log_prob", again.log_prob, rollout["log_prob"]),
        ("value", again.value, rollout["value"]),
    ):
        gap = float((one - other).abs().max())
        if not gap <= TOLERANCE:
            return f"unroll differs from step: {name} by up to {gap:.3g}"
    return ""


def acts_on_meta(subject: NetworkSubject) -> str:
    """It reads no value on the host: it acts on the meta device."""
    out = subject.act("meta")
    return "" if out.value.device.type == "meta" else f"makes tensors on {out.value.device} for inputs on meta"


def acts_in_one_graph(subject: NetworkSubject) -> str:
    """It compiles to one graph."""
    policy, (_, seen) = subject.policy, subject.env.reset()
    params, hidden = policy.init(subject.key), policy.initial_hidden(ENVS)
    noise = torch.zeros(ENVS, noise_lanes(seen.masks.slot.shape[-1]), dtype=torch.float32, device="cpu")
    return trace_graph(policy.act, params, seen.observation, seen.masks, hidden, noise)


NETWORK_LAWS: dict[str, Law] = {
    law.__name__: law
    for law in (
        *(has_value_layer, takes_any_slots, separates_envs),
        *(unrolls_like_steps, acts_on_meta, acts_in_one_graph),
    )
}


@dataclass(frozen=True, slots=True)
class LearnerSubject:
    """A learner with a policy, in an environment."""

    learner: Learner
    policy: NetworkPolicy
    env: Environment

    def start(self) -> tuple[Any, TensorDict]:
        """Return the initial state and a rollout under it, paid at random."""
        state = self.learner.init(self.policy, rng.env_keys(0, 0, 1)[0], spec=self.env.spec)
        rollout = play_rollout(self.env, self.policy, state.get("params"))
        return state, rollout.replace(reward=draw_normal(*rollout.shape))

    def update(self, state: Any, rollout: TensorDict) -> tuple[Any, Any]:
        """Update once."""
        return self.learner.update(state, rollout, policy=self.policy, round=Round(self.env.spec, 0))


def _leaves(tree: TensorDictBase) -> dict[str, Tensor]:
    return {str(name): leaf for name, leaf in tree.items(True, True)}


def _same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    pairs = ((one[name], other[name]) for name in one)
    return one.keys() == other.keys() and all(torch.equal(a, b) for a, b in pairs)


def keeps_tree(subject: LearnerSubject) -> str:
    """The state has the same leaves after an update, and metrics are numbers."""
    state, rollout = subject.start()
    after, metrics = subject.update(state, rollout)
    had, has = ({n: (leaf.dtype, leaf.shape) for n, leaf in _leaves(tree).items()} for tree in (state, after))
    if had != has:
        changed = sorted(name for name in had.keys() | has.keys() if had.get(name) != has.get(name))
        return f"state: expected the same leaves after an update, got others at {', '.join(changed[:3])}"
    wrong = [name for name, value in metrics.items() if not isinstance(value, Tensor) or value.dim()]
    return f"metrics: expected 0-d tensors, got {metrics[wrong[0]]!a:.40} for {wrong[0]}" if wrong else ""


def writes_nothing(subject: LearnerSubject) -> str:
    """It writes to neither its state nor the rollout."""
    state, rollout = subject.start()
    copies = [{name: leaf.clone() for name, leaf in _leaves(tree).items()} for tree in (state, rollout)]
    subject.update(state, rollout)
    pairs = zip((state, rollout), copies, strict=True)
    changed = [not _same(_leaves(tree), copy) for tree, copy in pairs]
    return "writes to its state" if changed[0] else "writes to the rollout" if changed[1] else ""


def repeats_itself(subject: LearnerSubject) -> str:
    """The same state and rollout give the same result."""
    start = subject.start()
    one, other = (_leaves(subject.update(*start)[0]) for _ in range(2))
    return "" if _same(one, other) else "gives another state the second time"


def moves_policy(subject: LearnerSubject) -> str:
    """An update changes the network."""
    state, rollout = subject.start()
    before, after = state.get("params")["net"], subject.update(state, rollout)[0].get("params")["net"]
    return "leaves the network as it is" if _same(_leaves(before), _leaves(after)) else ""


def survives_nan(subject: LearnerSubject) -> str:
    """An invalid reward in one env leaves the network finite."""
    state, rollout = subject.start()
    reward = rollout["reward"].clone()
    reward[0, 0] = torch.nan
    after, _ = subject.update(state, rollout.replace(reward=reward))
    finite = all(bool(leaf.isfinite().all()) for leaf in after.get("params")["net"].values())
    return "" if finite else "lets NaN in the reward of one env into the network"


LEARNER_LAWS: dict[str, Law] = {
    law.__name__: law for law in (keeps_tree, writes_nothing, repeats_itself, moves_policy, survives_nan)
}
