"""Task kind: training and validation of the envs of a task."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from morphogen.config.spec import RunSpec
from morphogen.device.transfers import Transfers
from morphogen.hosts.net import Net
from morphogen.hosts.plan import EpochPlan
from morphogen.state.env import EnvState
from morphogen.state.measure import TrainMetrics, Validation

if TYPE_CHECKING:
    from morphogen.env.environment import Environment
    from morphogen.env.phases import ActPhase
    from morphogen.env.setup import Setup

Array = np.ndarray[Any, Any]


class TaskKind(ABC):
    """Training and validation of the envs of a task; `TaskSpec.kind` names it
    (`config.parts.KINDS`).

    The default is `env.trained_networks`.
    """

    samples = True  # the accuracy of an env is measured on samples, so that it has a test split

    @abstractmethod
    def activation_bytes(self, spec: RunSpec, net: Net, samples: int) -> int:
        """Return the bytes of activations of one env at the peak of an epoch; 0: it has none.

        Args: spec: resolved; samples: size of the validation split.
        """

    @abstractmethod
    def train(
        self, env: "Environment", act: "ActPhase", plan: EpochPlan
    ) -> tuple[EnvState, TrainMetrics]:
        """Train the envs for an epoch.  act: the epoch up to its plan."""

    @abstractmethod
    def validate(
        self, env: "Environment", state: EnvState, requested: tuple[Tensor, Tensor], plan: EpochPlan
    ) -> Validation:
        """Measure coalitions of the seeds of each env.

        Shapes: state [E]; requested: coalition int64 [E, K], evaluated bool [E, K] -> Validation
        [E].
        """

    def faults(self, spec: RunSpec) -> list[str]:
        """Describe settings of a resolved spec that do not fit the kind, a line each."""
        return []

    def rivals(self, setup: "Setup") -> tuple[str, ...]:
        """Return names of policies that every evaluation plays in addition to the usual rivals."""
        return ()

    def best_returns(self, setup: "Setup", transfers: Transfers, episodes: int) -> Array | None:
        """Return the highest return on each held-out instance of an evaluation: float [episodes].

        None: it is not known.
        """
        return None
