"""Rules that a practitioner would write: grow where a host stands still, at a low price; prune
seeds that cost more than they add.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.heuristic_spec import HeuristicSpec
from morphogen.config.spec import RunSpec, find_host, param_budget, pick_slots
from morphogen.config.task import TASKS
from morphogen.errors import ConfigError
from morphogen.hosts.net import Net
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
        measured = _slot(slots, "contribution_valid") > 0
        after = choose(self.pays(slots), 0, before + measured)
        return choose(_slot(slots, "stage.holding") > 0, after, 0)

    def pays(self, slots: Tensor) -> Tensor:
        """Mask of seeds whose measured contribution is worth their price.  slots float32 [E, S, 46]
        raw -> bool [E, S].
        """
        points = (_slot(slots, "contribution") - _slot(slots, "cost")) * 10.0
        return (_slot(slots, "contribution_valid") > 0) & (points >= self.spec.min_worth)

    def requested_ops(self, slots: Tensor, weak: Tensor) -> Tensor:
        """Requested op of each slot: the first rule that fits.

        Shapes: slots float32 [E, S, 46] raw, weak int64 [E, S] -> op int64 [E, S].
        """
        training = _slot(slots, "stage.training") > 0
        holding = _slot(slots, "stage.holding") > 0
        rest = (_slot(slots, "stage.blending") > 0) & (_slot(slots, "alpha_mode.hold") > 0)
        epochs = (_slot(slots, "epochs_in_stage") * 20.0).round()
        rules = [
            (_slot(slots, "stage.germinated") > 0, Op.ADVANCE),
            (training & (epochs >= MAX_EPOCHS_IN_STAGE), Op.PRUNE),
            (training & (epochs >= self.min_training_epochs), Op.ADVANCE),
            (rest & (_slot(slots, "alpha") >= _ALPHA_FULL), Op.ADVANCE),
            (holding & (weak >= self.spec.patience), Op.PRUNE),
        ]
        if self.keeps:
            rules.append((holding & self.pays(slots), Op.FOSSILIZE))
        wish = torch.zeros_like(epochs, dtype=torch.int64)
        for applies, op in reversed(rules):
            wish = choose(applies, int(op), wish)
        return wish

    def should_germinate(self, env: Tensor) -> Tensor:
        """Mask of envs whose host stands still or has fallen, and neither is new nor does well.

        Shapes: env float32 [E, 52] raw -> bool [E].
        """
        epoch = (_env(env, "progress") * self.episode_length).round()
        due = (_env(env, "plateau") * 10.0).round() >= self.spec.min_plateau
        if self.spec.min_fall is not None:
            fall = (_env(env, "best_acc") - _env(env, "acc_history.4")) * 100.0
            due = due | ((fall >= self.spec.min_fall) & (_env(env, NEWEST_HISTORY_FLAG) > 0))
        if self.spec.min_loss is not None:
            due = due & (loss_of_feature(_env(env, "train_loss")) >= self.spec.min_loss)
        return due & (epoch >= self.spec.first_epoch)

    def has_room(self, slots: Tensor) -> Tensor:
        """Mask of envs with fewer seeds than `max_seeds`.  slots float32 [E, S, 46] raw -> bool
        [E].
        """
        return _slot(slots, "has_seed").sum(-1) < (self.spec.max_seeds or math.inf)

    def choose_seed(self, obs: Observation, masks: ActionMasks) -> SeedChoice:
        """Choose the first blueprint in order that some free slot can have at a price that is low
        enough.

        The slot is the first one in order that can have it.
        """
        price = price_of_feature(obs.instance[:, _TASK["param_price"]])
        table = partial(constant_table, dtype=torch.int64, device=price.device)
        codes = table(self.rotation)
        places = table(self.places or tuple(range(len(self.counts))))
        sizes = table(self.counts)[places][:, codes]
        costs = parameter_price(sizes.flatten(), price, param_budget=self.param_budget) / 100.0
        living = _slot(obs.slots, "cost").sum(-1, keepdim=True) / 10.0
        cheap = (living + costs <= self.spec.max_cost).view(len(price), *sizes.shape)
        free = masks.slot[:, int(Op.GERMINATE)][:, places].unsqueeze(-1)
        fits = (cheap & free & masks.blueprint[:, codes].unsqueeze(1)).mT.flatten(1)
        first = fits.int().argmax(-1)  # by blueprints, then slots
        kind = first // len(places)
        place = first % len(places)
        return SeedChoice(fits.any(-1), places[place], codes[kind])


def _slot(slots: Tensor, feature: str) -> Tensor:
    return slots[..., _SLOT[feature]]


def _env(env: Tensor, feature: str) -> Tensor:
    return env[:, _ENV[feature]]


def build_heuristic(spec: RunSpec, limits: Limits) -> HeuristicPolicy:
    """Build the rules for the limits, the gates and the thresholds of a resolved spec.

    Blueprints and slots are those that the spec names, in their order, or else all, the largest
    blueprint first.
    Raises: ConfigError if the run allows none of the named blueprints, or lacks a named slot.
    """
    named = spec.heuristic
    counts = Net(find_host(spec), pick_slots(spec), limits.kinds).counts
    codes = {
        name: code for code, name in enumerate(limits.kinds) if code in limits.allowed_blueprints
    }
    largest = sorted(codes.values(), key=lambda code: -max(row[code] for row in counts))
    rotation = [codes[name] for name in named.blueprints if name in codes]
    if named.blueprints and not rotation:
        raise ConfigError(
            f"heuristic.blueprints: expected at least one of {', '.join(codes)}, got "
            f"{list(named.blueprints)}"
        )
    if set(named.slots) - set(spec.slots):
        raise ConfigError(
            f"heuristic.slots: expected names out of {', '.join(spec.slots)}, got "
            f"{list(named.slots)}"
        )
    return HeuristicPolicy(
        rotation=tuple(rotation or largest),
        counts=counts,
        param_budget=param_budget(spec),
        episode_length=spec.episode_length or 1,
        spec=named,
        min_training_epochs=spec.lifecycle.min_training_epochs,
        places=tuple(map(spec.slots.index, named.slots or spec.slots)),
        keeps=TASKS[spec.task].objective == DELIVERED,
    )
