"""Learners: the training of a policy from complete rounds; the protocol, and PPO."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, NamedTuple

import torch
from tensordict import TensorDict
from torch import Tensor
from typing_extensions import TypeVar

from morphogen.config.spec import RunSpec
from morphogen.policy.policy import NetworkPolicy
from morphogen.ppo.coefficients import coefficients_at
from morphogen.ppo.exchange import ALONE, Exchange
from morphogen.ppo.ppo_state import PpoState, init_ppo
from morphogen.ppo.update import minibatch_indices, update_ppo
from morphogen.state import rng
from morphogen.state.loops import Repeat, repeat
from morphogen.state.tree_ops import get_leaf
from morphogen.vocab.purpose import Purpose

State = TypeVar("State", default=Any)  # of a learner, a TensorDict or TensorClass


class Round(NamedTuple):
    """Circumstances of an update.

    Example:
        >>> import morphogen as mg
        >>> mg.Round(mg.resolve(mg.RunSpec(preset="smoke")), number=3).number
        3
    """

    spec: RunSpec
    """Resolved."""
    number: int
    """From 0."""
    exchange: Exchange = ALONE
    """With the processes that hold the rows of other envs, if any."""
    repeat: Repeat = repeat
    """Runs a loop over a state, such as from a graph."""
    siblings: int = 1
    """Consecutive envs that play the same world."""


class Learner(ABC, Generic[State]):
    """Training of a policy by rounds.

    A learner of your own derives from this class and holds no state: `init` builds it, `update`
    returns the next one. The state is a TensorDict or a TensorClass without batch size, with the
    parameters of the policy under `params`; its tree is the same in every round, so that it can be
    saved and restored.  `Learner[State]` names its type.

    Promises that `morphogen.testing.laws.check_learner` checks: an update writes to nothing,
    repeats itself, keeps the form of the state, survives NaN in an env, and changes the parameters.

    Example:
        >>> from tensordict import TensorDict
        >>> import morphogen as mg
        >>> class Shrink(mg.Learner):  # moves all parameters of the network towards 0
        ...     name = "shrink"
        ...
        ...     def init(self, policy, key, *, spec):
        ...         return TensorDict({"params": policy.init(key)})
        ...
        ...     def update(self, state, rollout, *, policy, round):
        ...         params = state["params"]
        ...         return TensorDict({"params": params.replace(net=params["net"] * 0.9)}), {}
        >>> policy, learner = mg.NetworkPolicy(mg.LstmNetwork(hidden=8)), Shrink()
        >>> state = learner.init(policy, mg.rng.env_keys(0, 0, 1)[0], spec=None)
        >>> after, metrics = learner.update(state, None, policy=policy, round=None)
        >>> round(float(after["params", "net", "core.norm.weight"][0]), 2)  # 1.0 before
        0.9
    """

    name: str
    # whether `update` takes a part of the rows, and sums by `round.exchange`
    reduces: ClassVar[bool] = False

    def demonstrations(self, spec: RunSpec) -> int:
        """Rounds at the start of a run in which the policy `heuristic` acts, for `update` to
        imitate it; 0 = none.
        """
        del spec
        return 0

    @abstractmethod
    def init(self, policy: NetworkPolicy, key: Tensor, *, spec: RunSpec) -> State:
        """Return the state before the first round.  key int64 [3], of the run; spec resolved."""

    @abstractmethod
    def update(
        self, state: State, rollout: TensorDict, *, policy: NetworkPolicy, round: Round
    ) -> tuple[State, dict[str, Tensor] | TensorDict]:
        """Train the policy on one round.

        Reads no value on the host, and draws from keyed streams (`state.rng`) alone, so that runs
        can be repeated.

        Args:
            state: of `init`, or of the round before.
            rollout: rows [T, E] of `env.episodes.Rollout`: observation, masks, action, log_prob,
                value, reward, terminated, reset_before and more.  Of a learner that `reduces`, the
                rows may hold some envs only: it sums over all processes by `round.exchange`, and
                its state is the same in all of them.
            policy: the network with its distribution; `policy.evaluate(params, rollout)` scores the
            actions again.
            round: config, number of the round, and the exchange with other processes.

        Returns: the next state, and metrics: 0-d tensors by the names of the event `PpoUpdated`,
        all optional.
        """


class PpoLearner(Learner[PpoState]):
    """Proximal policy optimisation on complete episodes (`ppo.update`), under the settings `ppo.*`.

    Source: Schulman et al., Proximal Policy Optimization Algorithms, 2017.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0, ppo={"epochs": 1, "minibatches": 1})
        >>> learner, policy = mg.PpoLearner(), mg.NetworkPolicy(mg.LstmNetwork(hidden=8))
        >>> state, rollout = (
        ...     learner.init(policy, env.keys[0], spec=env.spec),
        ...     mg.Rollout(1, envs=2, slots=2),
        ... )
        >>> carry, epoch = mg.run_epoch(env, policy, state.params, mg.first_carry(env, policy))
        >>> rollout.write(0, epoch)
        >>> after, metrics = learner.update(
        ...     state, rollout.rows, policy=policy, round=mg.Round(env.spec, number=0)
        ... )
        >>> float(metrics["steps_done"]), int(after.rounds)
        (1.0, 1)
    """

    name = "ppo"
    reduces = True

    def init(self, policy: NetworkPolicy, key: Tensor, *, spec: RunSpec) -> PpoState:
        """Return policy, optimiser and scales.  key int64 [3]."""
        del spec
        return init_ppo(policy, key)

    def demonstrations(self, spec: RunSpec) -> int:
        """Rounds of imitation, `ppo.imitation_rounds`."""
        return spec.ppo.imitation_rounds

    def update(
        self, state: PpoState, rollout: TensorDict, *, policy: NetworkPolicy, round: Round
    ) -> tuple[PpoState, TensorDict]:
        """Run the minibatch steps of a round; of a demonstration, more of them.  rollout [T, E]."""
        spec = round.spec
        weights = coefficients_at(round.spec.ppo, round.number)
        passes = spec.ppo.epochs * (IMITATION_PASSES if weights.imitation else 1)
        device = get_leaf(rollout, "action").device
        return update_ppo(
            state,
            score_demonstration(policy, state.params, rollout) if weights.imitation else rollout,
            draw_minibatches(spec, round.number, device, passes=passes, exchange=round.exchange),
            weights,
            policy=policy,
            spec=spec.ppo,
            return_scale=spec.reward.return_scale,
            siblings=round.siblings,
            repeat=round.repeat,
            exchange=round.exchange,
        )


PPO = PpoLearner()
IMITATION_PASSES = 3  # passes over a round of demonstrations, per pass over another one


def score_demonstration(
    policy: NetworkPolicy, params: TensorDict, rollout: TensorDict
) -> TensorDict:
    """Return rows of another policy with the log-probabilities and the values that this one gives
    them.  [T, E].
    """
    with torch.no_grad():
        scores = policy.evaluate(params, rollout)
    rows: Any = rollout.copy()
    return rows.update({"log_prob": scores.log_prob, "value": scores.value})


def draw_minibatches(
    spec: RunSpec,
    round: int,
    device: torch.device,
    *,
    passes: int | None = None,
    exchange: Exchange = ALONE,
) -> Tensor:
    """Draw the envs of each minibatch of each pass, K = `passes` or `ppo.epochs`: int64 [K, n, E /
    n].

    With an exchange between W processes the same envs are drawn for any W; each gets its part of
    each minibatch, [K, n, E / (n W)], counted from its first env.  E / W has to be a multiple of n.
    """
    n = spec.ppo.minibatches or 1
    own = exchange.own(spec.envs // n)
    blocks = rng.env_keys(spec.seed, own.start, len(own), device)
    epoch = torch.arange(passes or spec.ppo.epochs, device=device).unsqueeze(-1)
    stream = rng.stream(blocks, Purpose.PPO_MINIBATCH, round=round, epoch=epoch)
    return minibatch_indices(rng.uniform(stream, n))
