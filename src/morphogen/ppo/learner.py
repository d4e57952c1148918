"""Protocol of learners: the training of a policy from complete rounds."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, NamedTuple

from tensordict import TensorDict
from torch import Tensor
from typing_extensions import TypeVar

from morphogen.config.spec import RunSpec
from morphogen.policy.policy import NetworkPolicy
from morphogen.ppo.exchange import ALONE, Exchange
from morphogen.state.loops import Repeat, repeat

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
