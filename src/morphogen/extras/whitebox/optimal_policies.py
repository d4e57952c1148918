"""The best policies of the white-box tasks, with the inputs of a trained policy."""

from dataclasses import dataclass

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.extras.whitebox import growth_plan
from morphogen.extras.whitebox.formula import GAIN_POINTS, best_blueprint, seed_gain
from morphogen.extras.whitebox.growth_plan import (
    BLENDED_CODES,
    KINDS,
    MOVES,
    PlanSpec,
    SeedStep,
    seed_code,
)
from morphogen.policy.baselines import (
    ParameterFree,
    action_of_heads,
    deterministic_output,
    most_urgent_op,
)
from morphogen.rules.counts import parameter_price
from morphogen.rules.features import price_of_feature
from morphogen.state.decision import ActionMasks, ActOutput, Observation
from morphogen.state.tree_ops import choose, constant_table
from morphogen.vocab.action import PLACEHOLDER, AlphaSpeed, Head, Op, Tempo
from morphogen.vocab.observation import ENV, INSTANCE, SLOT, column_index

_ENV = column_index(ENV)
_TASK = column_index(INSTANCE)
_SLOT = column_index(SLOT)
_COOLING_STAGES = ("pruned", "embargoed", "resetting")  # in the order of their codes
# Op and blueprint of the moves of a slot.
_MOVE_OPS = (*(int(Op.GERMINATE) for _ in KINDS), int(Op.ADVANCE), int(Op.PRUNE))
_MOVE_KINDS = (*KINDS, 0, 0)


@dataclass(frozen=True)
class OptimalPolicy(ParameterFree):
    """Policy that germinates the best blueprint in the cheapest slot as soon as it pays, and
    fossilizes it.

    Reads observations and masks only, and has no memory.
    """

    counts: tuple[tuple[int, ...], ...]  # [S][13] parameters
    param_budget: int
    episode_length: int
    last_germination_epoch: int  # the last epoch from which a germinated seed can still be kept

    def act(
        self,
        params: TensorDict,
        obs: Observation,
        masks: ActionMasks,
        hidden: TensorDict,
        noise: Tensor,
    ) -> ActOutput:
        """Choose the action that leads to the largest network value.  The noise is not used."""
        move = {op: masks.slot[:, int(op)] for op in (Op.GERMINATE, Op.FOSSILIZE, Op.ADVANCE)}
        onward = choose(move[Op.ADVANCE], int(Op.ADVANCE), int(Op.WAIT))
        op, slot = most_urgent_op(choose(move[Op.FOSSILIZE], int(Op.FOSSILIZE), onward), masks)
        kind, cheapest, pays = self.best_germination(obs, move[Op.GERMINATE])
        grow = (
            (op == int(Op.WAIT)) & pays & masks.blueprint.gather(1, kind.unsqueeze(-1)).squeeze(-1)
        )
        columns = {
            Head.OP: choose(grow, int(Op.GERMINATE), op),
            Head.SLOT: torch.where(grow, cheapest, slot),
            Head.BLUEPRINT: choose(grow, kind, 0),
            Head.TEMPO: choose(grow, int(Tempo.FAST), PLACEHOLDER[int(Head.TEMPO)]),
        }
        return deterministic_output(action_of_heads(columns), masks, hidden)

    def best_germination(self, obs: Observation, free: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Candidates to germinate now, their slots, and whether they pay.

        Shapes: free bool [E, S], slots that may take a seed -> blueprint int64 [E], slot int64 [E],
        pays bool [E].
        """
        width, noise, price = (
            obs.instance[:, _TASK[name]] for name in ("width", "label_noise", "param_price")
        )
        price = price_of_feature(price)
        epoch = (obs.env[:, _ENV["progress"]] * self.episode_length).round().to(torch.int64)
        kind = best_blueprint(width)
        sizes = constant_table(self.counts, torch.int64, kind.device)[:, kind].T
        costs = choose(
            free, parameter_price(sizes, price, param_budget=self.param_budget), torch.inf
        )
        gain = seed_gain(width, noise, kind.unsqueeze(-1), epoch.unsqueeze(-1)).squeeze(-1)
        alone = (obs.blueprints < 0).all(-1)
        return (
            kind,
            costs.argmin(-1),
            alone & (epoch <= self.last_germination_epoch) & (gain > costs.amin(-1)),
        )


@dataclass(frozen=True)
class PlannedPolicy(ParameterFree):
    """Policy that follows the best plan of a white-box world with regimes (`growth_plan`).

    Reads the price, the last accuracy, from which it knows the last view, and the slots; it has no
    memory.
    """

    plan: PlanSpec

    def act(
        self,
        params: TensorDict,
        obs: Observation,
        masks: ActionMasks,
        hidden: TensorDict,
        noise: Tensor,
    ) -> ActOutput:
        """Choose the best move of the epoch.  The noise is not used."""
        epoch = (obs.env[:, _ENV["progress"]] * self.plan.horizon).round().to(torch.int64)
        codes = self.slot_codes(obs)
        base = growth_plan.CODES ** torch.arange(codes.shape[1], device=epoch.device)
        moves = growth_plan.best_moves(
            price_of_feature(obs.instance[:, _TASK["param_price"]]), self.plan
        )
        env = torch.arange(len(epoch), device=epoch.device)
        move = moves[
            epoch.clamp(max=self.plan.horizon - 1),
            env,
            self.last_view(obs, codes),
            (codes * base).sum(-1),
        ]
        place = (move - 1).clamp_min(0)
        kind = place % MOVES
        ops, blueprints = (
            constant_table(row, torch.int64, epoch.device)[kind] for row in (_MOVE_OPS, _MOVE_KINDS)
        )
        grow = ops == int(Op.GERMINATE)
        columns = {
            Head.OP: choose(move > 0, ops, int(Op.WAIT)),
            Head.SLOT: place // MOVES,
            Head.BLUEPRINT: blueprints,
            Head.TEMPO: choose(grow, int(Tempo.FAST), PLACEHOLDER[int(Head.TEMPO)]),
            Head.ALPHA_SPEED: torch.full_like(move, int(AlphaSpeed.INSTANT)),
        }
        return deterministic_output(action_of_heads(columns), masks, hidden)

    def slot_codes(self, obs: Observation) -> Tensor:
        """Codes of the slots, for the rules of plans.  obs [E] -> int64 [E, S]."""
        on = {
            name: obs.slots[..., _SLOT[f"stage.{name}"]] > 0
            for name in ("training", "blending", *_COOLING_STAGES)
        }
        alpha = obs.slots[..., _SLOT["alpha"]]
        step = choose(alpha < 0.5, int(SeedStep.STARTED), int(SeedStep.RISING))
        step = choose(on["blending"] & (alpha < growth_plan.FULL), step, int(SeedStep.BLENDED))
        step = choose(on["training"], int(SeedStep.TRAINING), step)
        code = torch.zeros_like(step)
        for place, kind in enumerate(KINDS):
            code = choose(obs.blueprints == kind, seed_code(place, SeedStep.TRAINING) + step, code)
        for place, name in enumerate(_COOLING_STAGES):
            code = choose(on[name], growth_plan.COOLING + place, code)
        return code

    def last_view(self, obs: Observation, codes: Tensor) -> Tensor:
        """View of the last epoch: the one whose accuracy with these slots is nearest to the
        measured one.
        """
        full = constant_table(BLENDED_CODES, torch.int64, codes.device)
        helps = (codes.unsqueeze(-1) == full).any(1)
        points = (
            growth_plan.view_points(torch.arange(len(KINDS), device=codes.device))
            + GAIN_POINTS * helps
        )
        measured = 100.0 * obs.env[:, _ENV["acc_history.4"]].unsqueeze(-1)
        return (points - measured).abs().argmin(-1)
