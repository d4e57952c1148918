"""Optimal policy of the white-box task, a function of the observation."""

from dataclasses import dataclass

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.learn.heuristic import ParameterFree, action_of_heads, deterministic_output, most_urgent_op
from morphogen.rules.counts import parameter_price
from morphogen.rules.features import NO_PRICE_FEATURE
from morphogen.rules.whitebox import best_blueprint, seed_gain
from morphogen.state.decision import ActionMasks, ActOutput, Observation
from morphogen.state.tree_ops import constant_table
from morphogen.vocab.action import PLACEHOLDER, Head, Op, Tempo
from morphogen.vocab.observation import ENV, INSTANCE, column_index

_ENV, _TASK = column_index(ENV), column_index(INSTANCE)


@dataclass(frozen=True)
class OptimalPolicy(ParameterFree):
    """Policy that germinates the best blueprint in the cheapest slot as soon as it pays, and fossilizes it.

    Reads observations and masks only, and has no memory.
    """

    counts: tuple[tuple[int, ...], ...]  # [S][13] parameters
    param_budget: int
    episode_length: int
    last_germination_epoch: int  # the last epoch from which a germinated seed can still be kept

    def act(
        self, params: TensorDict, obs: Observation, masks: ActionMasks, hidden: TensorDict, noise: Tensor
    ) -> ActOutput:
        """Choose the action that leads to the largest network value.  The noise is not used."""
        move = {op: masks.slot[:, int(op)] for op in (Op.GERMINATE, Op.FOSSILIZE, Op.ADVANCE)}
        onward = torch.where(move[Op.ADVANCE], int(Op.ADVANCE), int(Op.WAIT))
        op, slot = most_urgent_op(torch.where(move[Op.FOSSILIZE], int(Op.FOSSILIZE), onward), masks)
        kind, cheapest, pays = self.best_germination(obs, move[Op.GERMINATE])
        grow = (op == int(Op.WAIT)) & pays & masks.blueprint.gather(1, kind.unsqueeze(-1)).squeeze(-1)
        columns = {
            Head.OP: torch.where(grow, int(Op.GERMINATE), op),
            Head.SLOT: torch.where(grow, cheapest, slot),
            Head.BLUEPRINT: torch.where(grow, kind, 0),
            Head.TEMPO: torch.where(grow, int(Tempo.FAST), PLACEHOLDER[Head.TEMPO]),
        }
        return deterministic_output(action_of_heads(columns), masks, hidden)

    def best_germination(self, obs: Observation, free: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Candidates to germinate now, their slots, and whether they pay.

        Shapes: free bool [E, S], slots that may take a seed -> blueprint int64 [E], slot int64 [E], pays bool [E].
        """
        width, noise, price = (obs.instance[:, _TASK[name]] for name in ("width", "label_noise", "param_price"))
        epoch = (obs.env[:, _ENV["progress"]] * self.episode_length).round().to(torch.int64)
        kind = best_blueprint(width)
        sizes = constant_table(self.counts, torch.int64, kind.device)[:, kind].T
        price = torch.where(price > NO_PRICE_FEATURE, 0.1 * price.exp(), 0.0)
        costs = torch.where(free, parameter_price(sizes, price, param_budget=self.param_budget), torch.inf)
        worth = seed_gain(width, noise, kind.unsqueeze(-1), epoch.unsqueeze(-1)).squeeze(-1)
        alone = (obs.blueprints < 0).all(-1)
        return kind, costs.argmin(-1), alone & (epoch <= self.last_germination_epoch) & (worth > costs.amin(-1))
