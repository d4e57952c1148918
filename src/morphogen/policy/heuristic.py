"""Rules that a practitioner would write: grow where a host stands still, at a low price; prune
seeds that cost more than they add.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.heuristic_spec import HeuristicSpec
from morphogen.config.parts import BLUEPRINTS
from morphogen.config.spec import RunSpec, find_host, param_budget, pick_slots
from morphogen.config.task import TASKS
from morphogen.errors import ConfigError
from morphogen.policy.baselines import (
    ParameterFree,
    action_of_heads,
    deterministic_output,
    most_urgent_op,
)
from morphogen.rules.counts import parameter_price
from morphogen.rules.features import loss_of_feature, price_of_feature
from morphogen.state.decision import ActionMasks, ActOutput, Observation
from morphogen.state.tree_ops import choose, constant_table, get_leaf, replace
from morphogen.vocab.action import PLACEHOLDER, Head, Op, Tempo
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.limits import Limits
from morphogen.vocab.objective import DELIVERED
from morphogen.vocab.observation import ENV, INSTANCE, NEWEST_HISTORY_FLAG, SLOT, column_index

_ENV = column_index(ENV)
_SLOT = column_index(SLOT)
_TASK = column_index(INSTANCE)
_ALPHA_FULL = 1.0 - 1e-6
# the most that an observation shows: a seed that trains for so long is stuck
MAX_EPOCHS_IN_STAGE = 20


class SeedChoice(NamedTuple):
    """Seed that each env may germinate."""

    possible: Tensor  # bool [E]
    slot: Tensor  # int64 [E]
    blueprint: Tensor  # int64 [E]


@dataclass(frozen=True)
class HeuristicPolicy(ParameterFree):
    """Policy of threshold rules, which reads raw observations and masks.

    A seed is germinated once the host stands still, or has fallen below its best, if it costs
    little enough; it is moved on as soon as that is legal, pruned if it is worth less than its
    price for a while, else kept.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=1, seed=0)
        >>> policy = mg.build_arm("heuristic", env.setup).policy
        >>> _, inputs = env.reset()
        >>> choice = policy.choose_seed(inputs.observation, inputs.masks)
        >>> choice.possible.tolist(), mg.Blueprint(int(choice.blueprint)).name
        ([True], 'CONV_HEAVY')
    """

    rotation: tuple[int, ...]
    """Codes of blueprints in order of preference."""
    counts: tuple[tuple[int, ...], ...]
    """[S][13] parameters of every blueprint in every slot."""
    param_budget: int
    """Parameters that have the price of the instance."""
    episode_length: int
    """Epochs."""
    spec: HeuristicSpec = HeuristicSpec()  # noqa: RUF009 (frozen)
    min_training_epochs: int = 10
    places: tuple[int, ...] = ()
    """Slots in order of preference; () = all, in order."""
    keeps: bool = True
    """Fossilizes what is worth its price, for the value of the delivered network."""

    def initial_hidden(self, envs: int, *, device: torch.device | str = "cpu") -> TensorDict:
        """Consecutive measurements in which each seed was not worth its price, int64 [E, S]: 0."""
        weak = torch.zeros(envs, len(self.counts), dtype=torch.int64, device=device)
        return TensorDict({"weak": weak}, batch_size=[envs], device=device)

    def act(
        self,
        params: TensorDict,
        obs: Observation,
        masks: ActionMasks,
        hidden: TensorDict,
        noise: Tensor,
    ) -> ActOutput:
        """Choose the most urgent legal op, else GERMINATE if due, else WAIT.  The noise is not
        used.
        """
        weak = self.count_weak(obs.slots, get_leaf(hidden, "weak"))
        op, slot = most_urgent_op(self.requested_ops(obs.slots, weak), masks)
        choice = self.choose_seed(obs, masks)
        due = self.should_germinate(obs.env) & self.has_room(obs.slots)
        grow = (op == int(Op.WAIT)) & choice.possible & due
        columns = {
            Head.OP: choose(grow, int(Op.GERMINATE), op),
            Head.SLOT: torch.where(grow, choice.slot, slot),
            Head.BLUEPRINT: choose(grow, choice.blueprint, 0),
            Head.TEMPO: choose(grow, int(Tempo.FAST), PLACEHOLDER[int(Head.TEMPO)]),
        }
        return deterministic_output(action_of_heads(columns), masks, replace(hidden, weak=weak))

    def count_weak(self, slots: Tensor, before: Tensor) -> Tensor:
        """Count consecutive measurements in which a held seed was not worth its price.

        Shapes: slots float32 [E, S, 46] raw, before int64 [E, S] -> int64 [E, S]; 0 where no seed
        is held.
        """
        held = slots[..., _SLOT["stage.holding"]] > 0
        measured = slots[..., _SLOT["contribution_valid"]] > 0
        after = choose(
            measured & (self.net_worth(slots) >= self.spec.min_worth), 0, before + measured
        )
        return choose(held, after, 0)

    def net_worth(self, slots: Tensor) -> Tensor:
        """Contribution of each seed less its price, in points.  slots float32 [E, S, 46] raw ->
        float32 [E, S].
        """
        return (slots[..., _SLOT["contribution"]] - slots[..., _SLOT["cost"]]) * 10.0

    def requested_ops(self, slots: Tensor, weak: Tensor) -> Tensor:
        """Requested op of each slot: the first rule that fits.

        Shapes: slots float32 [E, S, 46] raw, weak int64 [E, S] -> op int64 [E, S].
        """
        stages = ("germinated", "training", "blending", "holding")
        on = {name: slots[..., _SLOT[f"stage.{name}"]] > 0 for name in stages}
        rest = on["blending"] & (slots[..., _SLOT["alpha_mode.hold"]] > 0)
        epochs = (slots[..., _SLOT["epochs_in_stage"]] * 20.0).round()
        measured = slots[..., _SLOT["contribution_valid"]] > 0
        rules = [
            (on["germinated"], Op.ADVANCE),
            (on["training"] & (epochs >= MAX_EPOCHS_IN_STAGE), Op.PRUNE),
            (on["training"] & (epochs >= self.min_training_epochs), Op.ADVANCE),
            (rest & (slots[..., _SLOT["alpha"]] >= _ALPHA_FULL), Op.ADVANCE),
            (on["holding"] & (weak >= self.spec.patience), Op.PRUNE),
        ]
        if self.keeps:
            rules.append(
                (
                    on["holding"] & measured & (self.net_worth(slots) >= self.spec.min_worth),
                    Op.FOSSILIZE,
                )
            )
        wish = torch.zeros_like(epochs, dtype=torch.int64)
        for applies, op in reversed(rules):
            wish = choose(applies, int(op), wish)
        return wish

    def should_germinate(self, env: Tensor) -> Tensor:
        """Mask of envs whose host stands still or has fallen, and neither is new nor does well.

        Shapes: env float32 [E, 52] raw -> bool [E].
        """
        epoch = (env[:, _ENV["progress"]] * self.episode_length).round()
        due = (env[:, _ENV["plateau"]] * 10.0).round() >= self.spec.min_plateau
        if self.spec.min_fall is not None:
            fall = (env[:, _ENV["best_acc"]] - env[:, _ENV["acc_history.4"]]) * 100.0
            due = due | ((fall >= self.spec.min_fall) & (env[:, _ENV[NEWEST_HISTORY_FLAG]] > 0))
        if self.spec.min_loss is not None:
            due = due & (loss_of_feature(env[:, _ENV["train_loss"]]) >= self.spec.min_loss)
        return due & (epoch >= self.spec.first_epoch)

    def has_room(self, slots: Tensor) -> Tensor:
        """Mask of envs with fewer seeds than `max_seeds`.  slots float32 [E, S, 46] raw -> bool
        [E].
        """
        seeds = slots[..., _SLOT["has_seed"]].sum(-1)
        return seeds < (self.spec.max_seeds or math.inf)

    def choose_seed(self, obs: Observation, masks: ActionMasks) -> SeedChoice:
        """Choose the first blueprint in order that some free slot can have at a price that is low
        enough.

        The slot is the first one in order that can have it.
        """
        price = price_of_feature(obs.instance[:, _TASK["param_price"]])
        codes = constant_table(self.rotation, torch.int64, price.device)
        sizes = constant_table(self.counts, torch.int64, price.device)[:, codes]  # [S, K]
        costs = parameter_price(sizes.flatten(), price, param_budget=self.param_budget) / 100.0
        living = obs.slots[..., _SLOT["cost"]].sum(-1, keepdim=True) / 10.0
        cheap = (living + costs <= self.spec.max_cost).view(len(price), *sizes.shape)
        fits = (
            cheap
            & masks.slot[:, int(Op.GERMINATE)].unsqueeze(-1)
            & masks.blueprint[:, codes].unsqueeze(1)
        )
        places = constant_table(
            self.places or tuple(range(len(self.counts))), torch.int64, price.device
        )
        fits = fits[:, places]
        kind = fits.any(1).int().argmax(-1)
        place = fits[torch.arange(len(price), device=price.device), :, kind].int().argmax(-1)
        return SeedChoice(fits.flatten(1).any(-1), places[place], codes[kind])


def blueprint_order(spec: RunSpec, limits: Limits) -> tuple[int, ...]:
    """Return codes of blueprints in order of preference: those that the spec names, or all, the
    largest first.

    Raises: ConfigError if the run allows none of the named ones.
    """
    codes = {
        name: code for code, name in enumerate(limits.kinds) if code in limits.allowed_blueprints
    }
    sizes = {code: max(row[code] for row in _seed_sizes(spec, limits)) for code in codes.values()}
    named = spec.heuristic.blueprints
    order = tuple(codes[name] for name in named if name in codes)
    if named and not order:
        raise ConfigError(
            f"heuristic.blueprints: expected at least one of {', '.join(codes)}, got {list(named)}"
        )
    return order or tuple(sorted(codes.values(), key=lambda code: -sizes[code]))


def slot_order(spec: RunSpec) -> tuple[int, ...]:
    """Return places of slots in order of preference: those that `heuristic.slots` names, or all.

    Raises: ConfigError if the run lacks one of the named ones.
    """
    named = spec.heuristic.slots
    if set(named) - set(spec.slots):
        raise ConfigError(
            f"heuristic.slots: expected names out of {', '.join(spec.slots)}, got {list(named)}"
        )
    return tuple(map(spec.slots.index, named or spec.slots))


def _seed_sizes(spec: RunSpec, limits: Limits) -> tuple[tuple[int, ...], ...]:
    """Parameters of every blueprint code in every slot of a run; 0 for a code without a
    blueprint.
    """
    host = find_host(spec)
    codes = range(len(Blueprint))
    names = {code: limits.kinds[code] for code in limits.allowed_blueprints}
    parts = {code: BLUEPRINTS[host.module_name(name)] for code, name in names.items()}
    return tuple(
        tuple(parts[code].params(slot.channels) if code in parts else 0 for code in codes)
        for slot in pick_slots(spec)
    )


def build_heuristic(spec: RunSpec, limits: Limits) -> HeuristicPolicy:
    """Build the rules for the limits, the gates and the thresholds of a resolved spec."""
    return HeuristicPolicy(
        rotation=blueprint_order(spec, limits),
        counts=_seed_sizes(spec, limits),
        param_budget=param_budget(spec),
        episode_length=spec.episode_length or 1,
        spec=spec.heuristic,
        min_training_epochs=spec.lifecycle.min_training_epochs,
        places=slot_order(spec),
        keeps=TASKS[spec.task].objective == DELIVERED,
    )
