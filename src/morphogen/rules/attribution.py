"""Contribution of each seed: coalitions to evaluate, values from their accuracies, detectors of
false credit.

A player is a slot that is blended with alpha > 0.  A coalition is a bit set over slots: bit s set =
the player in slot s is on (its present alpha), else off (alpha 0).  An env with up to four players
has all its coalitions evaluated; one with more is sampled by permutations; an epoch may be skipped.
Columns of `[E, K]`:

    exact    k: the players at the positions of k's bits are off; position j is slot j, or the j-th
             player if S > 4
    sampled  0 all on, 1 all off, 2+s slot s off, 2+S committed, then the S-1 proper prefixes of
    each of 2P orders skipped  0 all on, 1 committed
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from morphogen.rules.shapley_values import interactions, marginals, shapley
from morphogen.rules.stages import blended
from morphogen.state.env import Slots
from morphogen.state.measure import Attribution
from morphogen.state.tree_ops import choose, expand_mask, positions, unsafe_new
from morphogen.vocab.reward import (
    CRITICAL_CONTRIBUTION,
    RANSOM_CONTRIBUTION,
    RANSOM_HARM,
    RATIO_LIMIT,
)
from morphogen.vocab.stage import Stage

MAX_EXACT_PLAYERS = 4  # players up to which every coalition is evaluated


class CoalitionValues(NamedTuple):
    """Accuracies and shares by one method; entries of slots without a player are arbitrary but
    finite.
    """

    host_acc: Tensor  # [E], all off
    committed_acc: Tensor  # [E], only the fossilized on
    leave_one_out: Tensor  # [E, S], all on but this one
    shapley: Tensor  # [E, S]
    interaction: Tensor  # [E, S, S]
    acc_table: Tensor  # [E, 2^N], accuracy with exactly the positions of the column's bits on


def players(slots: Slots) -> Tensor:
    """Mask of the seeds that can be switched off: blended, alpha > 0.

    Shapes: slots [E] -> bool [E, S].

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> slots = mg.make("tiny", envs=1, seed=0).reset()[0].slots
        >>> stage = torch.tensor([[mg.Stage.BLENDING, mg.Stage.TRAINING]])
        >>> mg.rules.players(slots.replace(stage=stage, alpha=torch.tensor([[0.5, 0.0]]))).tolist()
        [[True, False]]
    """
    return blended(slots.stage) & (slots.alpha > 0)


def configuration_count(slots: int, pairs: int) -> int:
    """Return K, the largest number of configurations for an env with this number of slots."""
    return 2**slots if slots <= MAX_EXACT_PLAYERS else 3 + slots + 2 * pairs * (slots - 1)


def is_measured_epoch(epoch: Tensor, *, every: int, episode_length: int) -> Tensor | None:
    """Epochs that are not skipped: every n-th and the last; None for all.

    Shapes: epoch int64 [E], completed before it -> bool [E].
    """
    if every == 1:
        return None
    done = epoch + 1
    return (done % every == 0) | (done >= episode_length)


def coalitions(
    slots: Slots, noise: Tensor | None, *, pairs: int, full: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Coalitions of every env and a mask of those to evaluate.

    Shapes: slots [E]; noise float32 [E, P, S] in [0, 1), P = `pairs`, a random order a row, None
    for S <= 4; full bool [E], False where the epoch is skipped (None: nowhere) -> (coalition int64,
    evaluated bool) [E, K].
    Promise: column 0 is all on and evaluated; a column that is not evaluated is all on. Source of
    the sampled columns, every order with its reverse: Mitchell, Cooper, Frank and Holmes, Sampling
    Permutations for Shapley Value Estimation, 2022.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> slots = mg.make("tiny", envs=1, seed=0).reset()[0].slots
        >>> slots = slots.replace(
        ...     stage=torch.full((1, 2), int(mg.Stage.HOLDING)), alpha=torch.ones(1, 2)
        ... )
        >>> coalition, evaluated = mg.rules.coalitions(slots, torch.zeros(1, 1, 2), pairs=1)
        >>> coalition.tolist()  # both, only slot 1, only slot 0, none
        [[3, 2, 1, 0]]
    """
    live = players(slots)
    fossils = live & (slots.stage == int(Stage.FOSSILIZED))
    column = positions(configuration_count(live.shape[-1], pairs), live.device)
    position = _table_position(live)
    off = column.unsqueeze(-1) >> position.unsqueeze(1) & 1  # [E, K, S]
    coalition = _bits(live.unsqueeze(1) & (off == 0))
    evaluated = column & ~_bits(live, position).unsqueeze(-1) == 0
    if live.shape[-1] > MAX_EXACT_PLAYERS:
        if noise is None:
            raise ValueError(f"noise: expected random orders of {live.shape[-1]} slots, got None")
        many = _is_sampled(live).unsqueeze(-1)
        sampled, needed = _sampled_columns(live, fossils, noise)
        coalition = torch.where(many, sampled, coalition)
        evaluated = torch.where(many, needed, evaluated)
    if full is not None:
        committed = _bits(fossils).unsqueeze(-1).expand_as(coalition)
        needed = (column == 0) | (column == 1) & live.any(-1, keepdim=True)
        coalition = torch.where(full.unsqueeze(-1) | (column == 0), coalition, committed)
        evaluated = torch.where(full.unsqueeze(-1), evaluated, needed)
    return torch.where(evaluated, coalition, _bits(live).unsqueeze(-1)), evaluated


def attribution(
    accuracy: Tensor,
    coalition: Tensor,
    evaluated: Tensor,
    slots: Slots,
    *,
    full: Tensor | None = None,
) -> Attribution:
    """Attribution of the accuracies of an epoch to the seeds.

    Shapes: accuracy [E, K], points; coalition int64 and evaluated bool [E, K], from `coalitions` of
    the same slots; full bool [E] as there -> Attribution [E], in the dtype of `accuracy`.
    """
    live = players(slots)
    # no players: nothing is skipped
    measured = torch.ones_like(live[:, 0]) if full is None else full | ~live.any(-1)
    accuracy = torch.where(evaluated, accuracy, accuracy[:, :1])
    sampled = _is_sampled(live)
    worth = _exact_values(accuracy, live, slots.stage == int(Stage.FOSSILIZED), sampled)
    if live.shape[-1] > MAX_EXACT_PLAYERS:
        pairs = zip(worth, _sampled_values(accuracy, coalition, live), strict=True)
        worth = CoalitionValues(*(torch.where(expand_mask(sampled, a), b, a) for a, b in pairs))
    worth = worth._replace(committed_acc=torch.where(measured, worth.committed_acc, accuracy[:, 1]))
    val_acc = accuracy[:, 0]
    judged = live & measured.unsqueeze(-1)
    exact = measured & ~sampled
    known = judged & exact.unsqueeze(-1)
    interaction = choose(known.unsqueeze(-1) & known.unsqueeze(-2), worth.interaction, 0.0)
    return unsafe_new(
        Attribution,
        slots,
        val_acc=val_acc,
        committed_acc=worth.committed_acc,
        host_acc=choose(measured, worth.host_acc, 0.0),
        clean_improvement=choose(measured, val_acc - worth.host_acc, 0.0),
        uncommitted_improvement=val_acc - worth.committed_acc,
        contribution=choose(judged, val_acc.unsqueeze(-1) - worth.leave_one_out, 0.0),
        contribution_valid=judged,
        shapley=choose(judged, worth.shapley, 0.0),
        interaction=interaction,
        interaction_sum=interaction.sum(-1),
        boost_received=interaction.amax(-1),  # at least the 0 of the diagonal
        interaction_valid=known,
        acc_table=choose(exact.unsqueeze(-1), worth.acc_table, 0.0),
        measured=measured,
        exact=exact,
        forwards=evaluated.sum(-1),
    )


def _is_sampled(live: Tensor) -> Tensor:
    return live.sum(-1) > MAX_EXACT_PLAYERS


def _bits(members: Tensor, position: Tensor | None = None) -> Tensor:
    """Bit set of a mask over slots, or over distinct positions of slots.  bool [..., S] -> int64
    [...].
    """
    position = positions(members.shape[-1], members.device) if position is None else position
    return (members.to(torch.int64) << position).sum(-1)


def _table_position(live: Tensor) -> Tensor:
    """Position of each slot in the table of the exact method: int64 [E, S]; only read where the
    slot is a player.
    """
    if live.shape[-1] <= MAX_EXACT_PLAYERS:
        return positions(live.shape[-1], live.device).expand_as(live)
    return (live.cumsum(-1) - 1).clamp(0, MAX_EXACT_PLAYERS - 1)


def _exact_values(
    accuracy: Tensor, live: Tensor, fossil: Tensor, sampled: Tensor
) -> CoalitionValues:
    bits = min(live.shape[-1], MAX_EXACT_PLAYERS)
    position = _table_position(live)
    everyone = 2**bits - 1
    column = positions(2**bits, live.device)
    seats = choose(sampled, 0, _bits(live, position)).unsqueeze(-1)
    # a position without a player makes no difference
    values = accuracy.gather(1, (everyone ^ column) & seats)
    uncommitted = choose(sampled, 0, _bits(live & ~fossil, position)).unsqueeze(-1)
    rows = interactions(values, bits).gather(1, position.unsqueeze(-1).expand(-1, -1, bits))
    return CoalitionValues(
        host_acc=values[:, 0],
        committed_acc=accuracy.gather(1, uncommitted).squeeze(-1),
        leave_one_out=accuracy.gather(1, torch.ones_like(position) << position),
        shapley=shapley(values, bits).gather(1, position),
        interaction=rows.gather(2, position.unsqueeze(1).expand(-1, position.shape[1], -1)),
        acc_table=values,
    )


def _sampled_columns(live: Tensor, fossil: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    slots = live.shape[-1]
    players_of = live.unsqueeze(1)
    order = choose(players_of, noise, 2.0).argsort(dim=-1, stable=True)  # the players first
    place = order.argsort(dim=-1)
    mirrored = live.sum(-1)[:, None, None] - 1 - place
    # [E, 2P, S], each order and its reverse
    places = torch.stack((place, mirrored), dim=2).flatten(1, 2)
    length = torch.arange(1, slots, device=live.device)
    prefixes = live[:, None, None, :] & (places.unsqueeze(2) < length[:, None])  # [E, 2P, S-1, S]
    proper = (length < live.sum(-1, keepdim=True)).unsqueeze(1).expand(prefixes.shape[:3])
    alone = torch.eye(slots, dtype=torch.bool, device=live.device)
    named = torch.stack((live, torch.zeros_like(live)), dim=1)
    sets = torch.cat(
        (named, players_of & ~alone, fossil.unsqueeze(1), prefixes.flatten(1, 2)), dim=1
    )
    always = torch.ones_like(live[:, :1])
    return _bits(sets), torch.cat((always, always, live, always, proper.flatten(1, 2)), dim=1)


def _sampled_values(accuracy: Tensor, coalition: Tensor, live: Tensor) -> CoalitionValues:
    envs, slots = live.shape
    column = positions(accuracy.shape[1], accuracy.device)
    prefixes = torch.unflatten(column[3 + slots :], 0, (-1, slots - 1))
    # columns along each order, from all off to all on
    along = F.pad(F.pad(prefixes, (1, 0), value=1), (0, 1), value=0)  # [2P, S+1]
    members = (coalition[:, along].unsqueeze(-1) >> positions(slots, live.device) & 1).bool()
    return CoalitionValues(
        host_acc=accuracy[:, 1],
        committed_acc=accuracy[:, 2 + slots],
        leave_one_out=accuracy[:, 2 : 2 + slots],
        shapley=marginals(accuracy[:, along], members[:, :, 1:] & ~members[:, :, :-1]),
        interaction=torch.zeros_like(accuracy[:, :1]).unsqueeze(-1).expand(envs, slots, slots),
        acc_table=accuracy[:, : 2**MAX_EXACT_PLAYERS],
    )


class Detection(NamedTuple):
    """Verdicts of the detectors on each slot.  Reported only; no reward depends on them."""

    fired: Tensor  # bool [E, S, 2], in the order of `vocab.reward.DETECTORS`
    # float32 [E, S], contribution over uncommitted improvement; 0 where the first did not fire
    ratio: Tensor
    critical: Tensor  # bool [E, S], the second fired for a seed of a full point


def detect_false_credit(slots: Slots, uncommitted_improvement: Tensor) -> Detection:
    """Detect inflated credit and ransom.

    Shapes: slots [E]; uncommitted_improvement float32 [E], points, all on minus only the fossilized
    on.
    Promise: neither fires outside BLENDING and HOLDING or without a valid contribution, nor both
    for one slot.
    """
    deciding = (slots.stage == int(Stage.BLENDING)) | (slots.stage == int(Stage.HOLDING))
    judged = deciding & slots.contribution_valid
    contribution = choose(judged, slots.contribution, 0.0)
    improvement = uncommitted_improvement.unsqueeze(-1)
    helped = judged & (contribution > 0) & (improvement > 0)
    ratio = choose(helped, contribution, 0.0) / choose(helped, improvement, 1.0)
    inflated = helped & (ratio >= RATIO_LIMIT)
    ransom = judged & (contribution > RANSOM_CONTRIBUTION) & (improvement < RANSOM_HARM)
    return Detection(
        fired=torch.stack((inflated, ransom), dim=-1),
        ratio=choose(inflated, ratio, 0.0),
        critical=ransom & (contribution >= CRITICAL_CONTRIBUTION),
    )
