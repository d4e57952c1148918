"""Policies that do not learn: random, waiting, a heuristic for every stage, and the optimum of the white-box task."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.spec import RunSpec
from morphogen.errors import ConfigError
from morphogen.nets import distribution
from morphogen.rules.counts import parameter_price
from morphogen.rules.features import NO_PRICE_FEATURE
from morphogen.rules.legality import action_count
from morphogen.rules.whitebox import best_blueprint, seed_gain
from morphogen.state.decision import ActionMasks, ActOutput, Observation
from morphogen.state.tree_ops import choose, constant_table, get_leaf, replace
from morphogen.vocab.action import HEADS, PLACEHOLDER, Head, Op, Tempo
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.field_docs import document_fields
from morphogen.vocab.limits import Limits
from morphogen.vocab.observation import ENV, INSTANCE, SLOT, column_index
from morphogen.vocab.purpose import Purpose

DEFAULT_ROTATIONS = (  # of CNN hosts, of transformer hosts
    ("conv_light", "conv_heavy", "attention", "norm", "depthwise"),
    ("norm", "lora", "mlp_small", "attention", "lora_large"),
)
_ENV, _SLOT, _TASK = column_index(ENV), column_index(SLOT), column_index(INSTANCE)
_OP_PRIORITY = {Op.FOSSILIZE: 0, Op.PRUNE: 1, Op.ADVANCE: 2}  # the op that an env executes
_ALPHA_FULL = 1.0 - 1e-6
_RANSOM_CONTRIBUTION = 0.1  # points: a contribution above it under a falling accuracy is a hostage, not a gain


def blueprint_rotation(limits: Limits, names: tuple[str, ...] = ()) -> tuple[int, ...]:
    """Codes of the blueprints in rotation: `names` reduced to the allowed ones, or the default, or all allowed."""
    codes = {name: code for code, name in enumerate(limits.kinds) if name}
    for name in names:
        if name not in codes:
            raise ConfigError(f"rotation: expected names of {', '.join(codes)}, got {name!r}")
    default = next((names for names in DEFAULT_ROTATIONS if codes.keys() >= set(names)), ())
    rotation = tuple(codes[name] for name in names or default if codes[name] in limits.allowed_blueprints)
    if names and not rotation:
        allowed = ", ".join(limits.kinds[code] for code in limits.allowed_blueprints)
        raise ConfigError(f"rotation: expected at least one of {allowed}, got {list(names)}")
    return rotation or limits.allowed_blueprints


class ParameterFree:
    """Base of policies without parameters and, by default, without memory."""

    purpose: ClassVar[Purpose] = Purpose.BASELINE

    def init(self, key: Tensor) -> TensorDict:
        """Return an empty tree of parameters."""
        return TensorDict({}, batch_size=[], device=key.device)

    def initial_hidden(self, envs: int, *, device: torch.device | str = "cpu") -> TensorDict:
        """Return an empty memory."""
        return TensorDict({}, batch_size=[envs], device=device)


@document_fields
@dataclass(frozen=True)
class HeuristicPolicy(ParameterFree):
    """Policy of hand-written rules: germinates on plateaus, prunes what drops or is stuck, keeps what contributes.

    Reads raw observations and masks; its memory lives in `hidden`, so a rollback clears it.

    Args:
        rotation: codes of the blueprints, in the order in which they are germinated.
        episode_length: epochs of an episode.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> policy = mg.learn.HeuristicPolicy(rotation=(mg.Blueprint.CONV_LIGHT, mg.Blueprint.NORM), episode_length=8)
        >>> penalty = torch.zeros(1, 13)
        >>> penalty[0, mg.Blueprint.CONV_LIGHT] = 4.0  # two of them were pruned
        >>> place, code = policy.next_blueprint(penalty, start=torch.tensor([0]))
        >>> mg.Blueprint(int(code)).name
        'NORM'
    """

    rotation: tuple[int, ...]
    episode_length: int
    min_training_epochs: int = 10
    min_contribution: float = 0.5  # points of contribution
    min_epochs_in_stage: int = 5  # epochs in a stage
    max_epochs_in_stage: int = 20  # epochs in a stage, the most that an observation shows
    max_drop: float = -2.0  # points since the stage began
    min_plateau: int = 3  # epochs
    first_germination_epoch: int = 5  # epoch of the first germination
    decay: float = 0.5  # of penalties, per epoch
    min_penalty: float = 0.1  # penalties below are dropped
    penalty: float = 2.0  # for a pruned seed's blueprint
    skip_penalty: float = 3.0  # penalty from which a blueprint is passed over

    def initial_hidden(self, envs: int, *, device: torch.device | str = "cpu") -> TensorDict:
        """Penalty per blueprint float32 [E, 13] and the next place in the rotation int64 [E]: 0."""
        penalty = torch.zeros(envs, len(Blueprint), dtype=torch.float32, device=device)
        place = torch.zeros(envs, dtype=torch.int64, device=device)
        return TensorDict({"penalty": penalty, "next": place}, batch_size=[envs], device=device)

    def act(
        self, params: TensorDict, obs: Observation, masks: ActionMasks, hidden: TensorDict, noise: Tensor
    ) -> ActOutput:
        """Choose the most urgent legal op, else GERMINATE if due, else WAIT.  The noise is not used."""
        penalty, start = get_leaf(hidden, "penalty") * self.decay, get_leaf(hidden, "next")
        penalty = choose(penalty < self.min_penalty, 0.0, penalty)
        op, slot = most_urgent_op(self.requested_ops(obs.slots), masks)
        grow = (op == int(Op.WAIT)) & masks.op[:, int(Op.GERMINATE)] & self.should_germinate(obs.env)
        op = choose(grow, int(Op.GERMINATE), op)
        slot = torch.where(grow, masks.slot[:, int(Op.GERMINATE)].int().argmax(-1), slot)
        place, blueprint = self.next_blueprint(penalty, start)
        held = obs.blueprints.gather(1, slot.unsqueeze(1)).squeeze(1).clamp(min=0)
        blame = F.one_hot(held, penalty.shape[-1]) * (op == int(Op.PRUNE)).unsqueeze(-1)
        following = torch.where(grow, (place + 1) % len(self.rotation), start)
        after = replace(hidden, penalty=penalty.add(blame, alpha=self.penalty), next=following)
        action = action_of_heads({Head.OP: op, Head.SLOT: slot, Head.BLUEPRINT: choose(grow, blueprint, 0)})
        return deterministic_output(action, masks, after)

    def requested_ops(self, slots: Tensor) -> Tensor:
        """Requested op of each slot: the first rule that fits.  slots float32 [E, S, 46] raw -> op int64 [E, S]."""
        stages = ("germinated", "training", "blending", "holding")
        on = {name: slots[..., _SLOT[f"stage.{name}"]] > 0 for name in stages}
        rest = on["blending"] & (slots[..., _SLOT["alpha_mode.hold"]] > 0)
        epochs = (slots[..., _SLOT["epochs_in_stage"]] * 20.0).round()
        points = ("stage_improvement", "age_improvement", "contribution")
        gain, since_birth, worth = (slots[..., _SLOT[name]] * 10.0 for name in points)
        measured = slots[..., _SLOT["contribution_valid"]] > 0
        patient = epochs >= self.min_epochs_in_stage
        rules = (
            (on["germinated"], Op.ADVANCE),
            ((on["training"] | on["holding"] | rest) & (epochs >= self.max_epochs_in_stage), Op.PRUNE),
            ((on["training"] | on["blending"]) & patient & (gain < self.max_drop), Op.PRUNE),
            (on["training"] & (epochs >= self.min_training_epochs), Op.ADVANCE),
            (rest & (slots[..., _SLOT["alpha"]] >= _ALPHA_FULL), Op.ADVANCE),
            (on["holding"] & ~measured, Op.WAIT),
            (on["holding"] & (worth > _RANSOM_CONTRIBUTION) & (since_birth < 0), Op.PRUNE),
            (on["holding"] & (worth >= self.min_contribution), Op.FOSSILIZE),
            (on["holding"] & patient, Op.PRUNE),
        )
        wish = torch.zeros_like(epochs, dtype=torch.int64)
        for applies, op in reversed(rules):
            wish = choose(applies, int(op), wish)
        return wish

    def should_germinate(self, env: Tensor) -> Tensor:
        """Mask of envs whose host is stable, on a plateau, not new.  env float32 [E, 52] raw -> bool [E]."""
        epoch = (env[:, _ENV["progress"]] * self.episode_length).round()
        plateau = (env[:, _ENV["plateau"]] * 10.0).round()
        late = epoch >= self.first_germination_epoch
        return (env[:, _ENV["stabilized"]] > 0) & (plateau >= self.min_plateau) & late

    def next_blueprint(self, penalty: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        """Choose the next blueprint: the first from `start` below the skip penalty, else the least penalised.

        Shapes: penalty float32 [E, 13], start int64 [E] -> place int64 [E], code int64 [E].
        """
        codes = constant_table(self.rotation, torch.int64, penalty.device)
        size = len(self.rotation)
        penalties = penalty[:, codes]
        order = (torch.arange(size, device=penalty.device) + start.unsqueeze(-1)) % size
        free = penalties.gather(1, order) < self.skip_penalty
        first = order.gather(1, free.int().argmax(-1, keepdim=True)).squeeze(1)
        place = torch.where(free.any(-1), first, penalties.argmin(-1))
        return place, codes[place]


def most_urgent_op(requested: Tensor, masks: ActionMasks) -> tuple[Tensor, Tensor]:
    """Most urgent legal op of each env, else WAIT, and its slot, the lowest of equals.  [E, S] -> int64 [E] each."""
    slots = requested.shape[1]
    legal = masks.slot.gather(1, requested.unsqueeze(1)).squeeze(1) & (requested != int(Op.WAIT))
    ranks = constant_table(tuple(_OP_PRIORITY.get(op, len(_OP_PRIORITY)) for op in Op), torch.int64, requested.device)
    order = ranks[requested] * slots + torch.arange(slots, device=requested.device)
    key = choose(legal, order, len(Op) * slots)
    slot = choose(legal.any(-1), key.argmin(-1), 0)
    return choose(legal.any(-1), requested.gather(1, slot.unsqueeze(1)).squeeze(1), int(Op.WAIT)), slot


def action_of_heads(columns: dict[Head, Tensor]) -> Tensor:
    """Build actions from the columns of some heads, int64 [E]; placeholders in the others.  -> int64 [E, 8]."""
    op = columns[Head.OP]
    action = constant_table(PLACEHOLDER, torch.int64, op.device).repeat(op.shape[0], 1)
    return torch.stack([columns.get(head, action[:, head]) for head in Head], dim=-1)


def deterministic_output(action: Tensor, masks: ActionMasks, hidden: TensorDict) -> ActOutput:
    """Build the output of a policy without probabilities.  action int64 [E, 8]."""
    count = action_count(masks)
    nothing = torch.zeros(action.shape[0], len(HEADS), dtype=torch.float32, device=action.device)
    return ActOutput(
        action=action,
        log_prob=nothing,
        value=nothing[:, 0],
        hidden=hidden,
        op_prob=F.one_hot(action[:, 0], masks.op.shape[-1]).float(),
        entropy=nothing,
        choices=count,
        forced=count == 1,
        batch_size=masks.batch_size,
    )


def _copy_with(out: Any, **leaves: Tensor) -> ActOutput:
    """Exchange leaves in a copy, which is not locked: a graph distinguishes locked parts."""
    return out.replace(**leaves)


@dataclass(frozen=True)
class RandomPolicy(ParameterFree):
    """Policy that is uniform over the legal ops, then over their legal slots, then over the values.

    Under a control, which leaves one legal action, it acts as declared.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> _, seen = mg.make("whitebox", envs=1, seed=0).reset()
        >>> policy, noise = mg.learn.RandomPolicy(), torch.zeros(1, 38 + 2)
        >>> out = policy.act(policy.init(noise), seen.observation, seen.masks, policy.initial_hidden(1), noise)
        >>> out.op_prob  # WAIT and GERMINATE are legal
        tensor([[0.5000, 0.5000, 0.0000, 0.0000, 0.0000, 0.0000]])
    """

    def act(
        self, params: TensorDict, obs: Observation, masks: ActionMasks, hidden: TensorDict, noise: Tensor
    ) -> ActOutput:
        """Sample a legal action.  noise float32 [E, 38 + S], standard Gumbel."""
        legal, device = distribution.build_support(masks), noise.device
        values = (*legal.slot.shape[:-2], legal.slot.shape[-1], len(distribution.ROWS), distribution.WIDTH)
        shapes = legal.op.shape, legal.slot.shape, values
        even = (torch.zeros(shape, dtype=torch.float32, device=device) for shape in shapes)
        lookups = distribution.build_lookups(distribution.NO_FLOOR, device)
        dist = distribution.normalise_tables(distribution.LogitTables(*even), legal, lookups)
        sample = distribution.sample_action(dist, noise)
        out = deterministic_output(sample.action, masks, hidden)
        return _copy_with(out, op_prob=dist.floored.op.exp(), entropy=sample.entropy)


def build_random(spec: RunSpec, limits: Limits) -> RandomPolicy:
    """Build the policy of uniform legal choices."""
    del spec, limits
    return RandomPolicy()


def build_heuristic(spec: RunSpec, limits: Limits) -> HeuristicPolicy:
    """Build the hand-written rules for the limits and gates of a resolved spec."""
    lifecycle = spec.lifecycle
    least = 0.5 if lifecycle.permissive_gates else max(0.5, lifecycle.min_contribution)
    rotation, patience = blueprint_rotation(limits), lifecycle.min_training_epochs
    length = spec.episode_length or 1
    return HeuristicPolicy(rotation, length, min_training_epochs=patience, min_contribution=least)


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
        onward = choose(move[Op.ADVANCE], int(Op.ADVANCE), int(Op.WAIT))
        op, slot = most_urgent_op(choose(move[Op.FOSSILIZE], int(Op.FOSSILIZE), onward), masks)
        kind, cheapest, pays = self.best_germination(obs, move[Op.GERMINATE])
        grow = (op == int(Op.WAIT)) & pays & masks.blueprint.gather(1, kind.unsqueeze(-1)).squeeze(-1)
        columns = {
            Head.OP: choose(grow, int(Op.GERMINATE), op),
            Head.SLOT: torch.where(grow, cheapest, slot),
            Head.BLUEPRINT: choose(grow, kind, 0),
            Head.TEMPO: choose(grow, int(Tempo.FAST), PLACEHOLDER[Head.TEMPO]),
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
        price = choose(price > NO_PRICE_FEATURE, 0.1 * price.exp(), 0.0)
        costs = choose(free, parameter_price(sizes, price, param_budget=self.param_budget), torch.inf)
        worth = seed_gain(width, noise, kind.unsqueeze(-1), epoch.unsqueeze(-1)).squeeze(-1)
        alone = (obs.blueprints < 0).all(-1)
        return kind, costs.argmin(-1), alone & (epoch <= self.last_germination_epoch) & (worth > costs.amin(-1))
