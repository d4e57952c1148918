"""White box as a task kind: nothing is trained, the accuracy of an env is a formula."""

from typing import Any

from torch import Tensor

from morphogen.config.spec import RunSpec
from morphogen.device.transfers import Transfers
from morphogen.env.environment import Environment
from morphogen.env.phases import ActPhase
from morphogen.env.setup import Setup
from morphogen.env.task_kind import Array, TaskKind
from morphogen.extras.regimes.image_view import View
from morphogen.extras.whitebox.formula_steps import skip_training, validate_by_formula
from morphogen.extras.whitebox.growth_plan import KINDS
from morphogen.extras.whitebox.optimum import optimal_returns, optimum_faults
from morphogen.hosts.net import Net
from morphogen.hosts.plan import EpochPlan
from morphogen.state.env import EnvState
from morphogen.state.measure import TrainMetrics, Validation

FORMULA_VIEWS = tuple(View)[: len(KINDS)]  # views that the formula distinguishes


class WhiteboxKind(TaskKind):
    """Accuracy by formula, and a known optimum."""

    samples = False

    def activation_bytes(self, spec: RunSpec, net: Net, samples: int) -> int:
        """Return 0: a formula has no activations."""
        return 0

    def train(
        self, env: Environment, act: ActPhase, plan: EpochPlan
    ) -> tuple[EnvState, TrainMetrics]:
        """Train nothing; every active seed has full health."""
        return skip_training(act.ticked)

    def validate(
        self, env: Environment, state: EnvState, requested: tuple[Tensor, Tensor], plan: EpochPlan
    ) -> Validation:
        """Return the accuracy of each coalition by formula."""
        return validate_by_formula(state, *requested, by_view=env.setup.process.changes)

    def faults(self, spec: RunSpec) -> list[str]:
        """Describe views and classes of regimes that the formula does not know."""
        regime: Any = getattr(spec, "regime", None)
        if regime is None:
            return []
        known = ", ".join(view.label for view in FORMULA_VIEWS)
        where = "alone where accuracy is a formula"
        faults = [
            f"regime.views: expected {known} {where}, got {view.label}"
            for view in regime.views.used
            if view not in FORMULA_VIEWS
        ]
        if regime.classes is not None:
            got = list(regime.classes)
            faults.append(f"regime.classes: expected null where accuracy is a formula, got {got}")
        if not regime.hazard and regime.views.used != (View.PLAIN,):
            faults.append(f"regime.views: expected plain {where} and regime.hazard is 0")
        return faults

    def rivals(self, setup: Setup) -> tuple[str, ...]:
        """Return the best policy, where it is known."""
        return () if optimum_faults(setup.spec) else ("optimal",)

    def best_returns(self, setup: Setup, transfers: Transfers, episodes: int) -> Array | None:
        """Return the optimum of each instance, where it is known."""
        return None if optimum_faults(setup.spec) else optimal_returns(setup, transfers, episodes)


WHITEBOX_KIND = WhiteboxKind()
