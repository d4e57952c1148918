"""Factored distribution over actions: op, then its slot, then the values that the op uses; all
tabulated.

Every conditional is one row of a table, so any action can be scored and every entropy is exact.
The value heads are ten rows per slot (`ROWS`), one for each pair of head and op that uses it,
padded to the widest head.
"""

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from morphogen.kernels.elementwise import by_vectors
from morphogen.rules.legality import relevant_heads
from morphogen.state.decision import ActionMasks
from morphogen.state.tree_ops import Table, choose, constant_table, positions
from morphogen.vocab.action import HEADS, PLACEHOLDER, RELEVANT, SIZES, AlphaTarget, Head, Op

VALUE_HEADS = tuple(head for head in Head if head not in (Head.OP, Head.SLOT))
ROWS: tuple[tuple[Head, Op], ...] = tuple(
    (head, op) for head in VALUE_HEADS for op in Op if RELEVANT[op][head]
)
WIDTH = max(SIZES[head] for head in VALUE_HEADS)
LOGITS = sum(SIZES[head] for head, _ in ROWS)  # 48 value logits per slot
SCORES = len(Op) - 1  # one score per slot and op, except WAIT
# 38 lanes of noise before the lanes of the slots
LANES = sum(SIZES[head] for head in Head if head is not Head.SLOT)
ILLEGAL_LOG_PROB = -1e4  # log-prob of an illegal value: finite, so that an error shows as a number
_MASKED = -1e9
_SMALLEST_LOG = -87.0  # exp of it is a normal float32 below 1e-37
Floor = tuple[float, ...]  # smallest probability of a legal choice, per head
NO_FLOOR: Floor = (0.0,) * len(Head)


def noise_lanes(slots: int) -> int:
    """Return the lanes of Gumbel noise of one action: every head's values, the slots last."""
    return LANES + slots


def _padded_lanes(heads: Sequence[Head]) -> tuple[tuple[int, ...], ...]:
    """Position in a concatenation of the values of these heads, per head and padded lane; the end
    where padded.
    """
    sizes = [SIZES[head] for head in heads]
    ends = [*accumulate(sizes)]
    return tuple(
        tuple(end - size + lane if lane < size else ends[-1] for lane in range(WIDTH))
        for size, end in zip(sizes, ends, strict=True)
    )


_FLOOR_OF = tuple(int(head) for head, _ in ROWS)
_ROW_LANES = _padded_lanes([head for head, _ in ROWS])
# Outputs of the layer after the tables; padded lanes repeat the last logit, and are never legal.
_LEAF_ROWS = (
    *range(SCORES),
    *(SCORES + min(lane, LOGITS - 1) for lanes in _ROW_LANES for lane in lanes),
)
FULL_TARGET_OUTPUTS = tuple(  # outputs of the layer after the tables for "alpha target FULL"
    SCORES + lanes[AlphaTarget.FULL]
    for lanes, (head, _) in zip(_ROW_LANES, ROWS, strict=True)
    if head is Head.ALPHA_TARGET
)
_HEAD_LANES = _padded_lanes(VALUE_HEADS)
_MASK_LANES = tuple(_HEAD_LANES[VALUE_HEADS.index(head)] for head, _ in ROWS)
# Row of (op, value head); 0 where the op does not use the head.
_ROW_OF = tuple(
    tuple(ROWS.index((head, op)) if (head, op) in ROWS else 0 for head in VALUE_HEADS) for op in Op
)
_ROW_OP = tuple(tuple(float(op is owner) for op in Op) for _, owner in ROWS)
_ROW_VALUE_HEAD = tuple(tuple(float(head is owner) for head in VALUE_HEADS) for owner, _ in ROWS)
_USES_SLOT = tuple(float(RELEVANT[op][Head.SLOT]) for op in Op)


class LogitTables(NamedTuple):
    """Logits of every conditional, float32.  `[...]` is any leading shape, S the number of
    slots.
    """

    op: Tensor
    """[..., 6]."""
    slot: Tensor
    """[..., 6, S]."""
    value: Tensor
    """[..., S, 10, 13]."""


class Support(NamedTuple):
    """Legal values, in the shape of the tables."""

    op: Tensor  # bool [..., 6]
    slot: Tensor  # bool [..., 6, S]
    value: Tensor  # bool [..., 10, 13]


class FactoredCategorical(NamedTuple):
    """Log-probabilities of every conditional: with the floor (for acting) and without."""

    floored: LogitTables
    raw: LogitTables
    support: Support


def _value_rows(op: Tensor) -> Tensor:
    """Return the row of every value head that an op uses.  int64 [...] -> int64 [..., 6]."""
    return constant_table(_ROW_OF, torch.int64, op.device)[op]


def build_support(masks: ActionMasks) -> Support:
    """Return masks in the shape of the tables.  masks [...]."""
    parts = [getattr(masks, name) for name in HEADS[2:]]
    padding = torch.zeros_like(parts[0][..., :1])
    lanes = constant_table(_MASK_LANES, torch.int64, padding.device)
    value = torch.cat((*parts, padding), dim=-1)[..., lanes]
    return Support(masks.op, masks.slot, value)


def masked_logmeanexp(scores: Tensor, legal: Tensor) -> Tensor:
    """Soft maximum of the scores over the legal slots, `log mean exp`; 0 without a legal slot.
    [..., S] -> [...].
    """
    top = torch.logsumexp(choose(legal, scores, _MASKED), dim=-1)
    return choose(legal.any(-1), top - legal.sum(-1, dtype=top.dtype).clamp(min=1.0).log(), 0.0)


def categorical(logits: Tensor, legal: Tensor, floor: Tensor) -> tuple[Tensor, Tensor]:
    """Return log-probabilities with floor `f`, `p' = (1 - n f) p + f` on the n legal values, and
    without, last axis.

    Shapes: logits [..., n], legal bool broadcasts to it, floor to [..., 1] -> two of [..., n].
    Promise: exactly 0 for a single legal value; where illegal, -1e4 with the floor, and probability
    0 without, if another value is legal; finite values and gradients, always.
    """
    count = legal.sum(-1, keepdim=True).clamp(min=1)
    log_p = torch.log_softmax(choose(legal, logits, _MASKED), dim=-1)
    floored = _log_add_exp(torch.log1p(-count * floor) + log_p, floor.log())
    single = legal & (count == 1)
    return choose(single, 0.0, choose(legal, floored, ILLEGAL_LOG_PROB)), log_p


def _log_add_exp(x: Tensor, y: Tensor) -> Tensor:
    """`log(exp(x) + exp(y))`; y broadcasts to x.  Where y is one number, torch computes x by
    vectors.
    """
    if y.numel() > 1 or x.shape[0] == 1:
        return torch.logaddexp(x, y)
    return by_vectors(partial(torch.logaddexp, other=y.flatten()), x)


def build_tables(op: Tensor, outputs: Tensor, legal: Support) -> LogitTables:
    """Build the tables of logits from the outputs of a network.

    An op's logit is raised by the soft maximum over its legal slots, so that a high score of one
    slot raises the op.
    Shapes: op [..., 6]; outputs [..., S, 53]: scores of the five ops that use a slot, then the 48
    value logits in the order of `ROWS`; legal: masks, the `legal` of `NetworkInputs` -> tables
    [...].

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> _, inputs = mg.make("tiny", envs=1, seed=0).reset()
        >>> legal = mg.policy.distribution.build_support(inputs.masks)
        >>> outputs = torch.zeros(1, 2, 53)
        >>> outputs[:, 1, 0] = 4.0  # a high score of GERMINATE in slot 1
        >>> tables = mg.policy.build_tables(torch.zeros(1, 6), outputs, legal)
        >>> tables.op[0, :2], tables.slot[0, mg.Op.GERMINATE]
        (tensor([0.0000, 3.3250]), tensor([0., 4.]))
    """
    return split_outputs(op, outputs.index_select(-1, padded_outputs(op.device)), legal)


def padded_outputs(device: torch.device) -> Tensor:
    """Return the outputs of a slot in the order of the tables, padded.  -> int64 [5 + 130]."""
    return constant_table(_LEAF_ROWS, torch.int64, device)


def split_outputs(op: Tensor, outputs: Tensor, legal: Support) -> LogitTables:
    """Build the tables from outputs in the order of `padded_outputs`, [..., S, 5 + 130]."""
    slot = F.pad(outputs[..., :SCORES].mT, (0, 0, 1, 0))  # [..., 6, S], row of WAIT 0
    value = torch.unflatten(outputs[..., SCORES:], -1, (len(ROWS), WIDTH))
    return LogitTables(op + masked_logmeanexp(slot, legal.slot), slot, value)


def normalise_tables(tables: LogitTables, legal: Support, floor: Floor) -> FactoredCategorical:
    """Normalise the logits of all tables."""
    masks = legal.op, legal.slot, legal.value.unsqueeze(-3)
    floors = (floor[:1], (floor[1:2],), tuple([(floor[head],) for head in _FLOOR_OF]))
    pairs = [
        categorical(logits, mask, _table_like(least, logits))
        for logits, mask, least in zip(tables, masks, floors, strict=True)
    ]
    floored, raw = (LogitTables(*part) for part in zip(*pairs, strict=True))
    return FactoredCategorical(floored, raw, legal)


def sample_action(dist: FactoredCategorical, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Sample an action by the Gumbel maximum; zero noise gives the greedy one.

    Shapes: noise float32 [..., 38 + S] -> action int64 [..., 8]; entropy float32 [..., 8], nats, of
    the conditional that each value was drawn from, 0 where the op does not use the head.
    Promise: every choice is legal; where log-probabilities are NaN the noise alone decides.
    """
    lanes = noise.unsqueeze(-2).split_with_sizes(
        [SIZES[Head.OP], LANES - SIZES[Head.OP], noise.shape[-1] - LANES], dim=-1
    )
    op = _draw(dist.floored.op.unsqueeze(-2), dist.support.op.unsqueeze(-2), lanes[0])
    slots = _gather_rows(dist.floored.slot, op[0])
    slot = _draw(slots, _gather_rows(dist.support.slot, op[0]), lanes[2])
    rows = _value_rows(op[0].squeeze(-1))
    table = _gather_rows(dist.floored.value.flatten(-2), slot[0]).squeeze(-2)
    values = _gather_rows(torch.unflatten(table, -1, (len(ROWS), WIDTH)), rows)
    pad_noise = constant_table(_HEAD_LANES, torch.int64, rows.device)
    value_noise = F.pad(lanes[1].squeeze(-2), (0, 1))[..., pad_noise]
    value = _draw(values, _gather_rows(dist.support.value, rows), value_noise)
    action, entropy = (torch.cat(heads, dim=-1) for heads in zip(op, slot, value, strict=True))
    relevant = relevant_heads(op[0].squeeze(-1))
    placeholder = constant_table(PLACEHOLDER, torch.int64, rows.device)
    return torch.where(relevant, action, placeholder), choose(relevant, entropy, 0.0)


def _draw(log_p: Tensor, legal: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Draw from conditionals [..., k, n].  -> value int64, entropy, [..., k] each."""
    finite = log_p.nan_to_num(nan=0.0, neginf=ILLEGAL_LOG_PROB)
    return choose(legal, finite + noise, -torch.inf).argmax(-1), _entropy(log_p)


def head_log_prob(dist: FactoredCategorical, action: Tensor) -> Tensor:
    """Log-probability of each head's value given earlier heads; 0 where irrelevant.  int64 [..., 8]
    -> [..., 8].
    """
    op = action[..., 0].clamp(0, dist.floored.op.shape[-1] - 1)
    slot = action[..., 1].clamp(0, dist.floored.slot.shape[-1] - 1)
    rows = _value_rows(op)
    value = _pick(dist.floored.value.flatten(-2).mT, slot)  # [..., 130]
    parts = (
        _pick(dist.floored.op, op, keepdim=True),
        _pick(_pick(dist.floored.slot.mT, op), slot, keepdim=True),
        _pick(value.unsqueeze(-2), rows * WIDTH + action[..., 2:].clamp(0, WIDTH - 1)),
    )
    return choose(relevant_heads(op), torch.cat(parts, dim=-1), 0.0)


def action_entropy(dist: FactoredCategorical) -> Tensor:
    """Exact entropy of the complete action, nats.  [...]."""
    op, slot, value = dist.floored
    of_op = _entropy(value) @ _table_like(_ROW_OP, value)  # [..., S, 6]
    below = (slot.exp() * of_op.mT).sum(-1) + _entropy(slot) * _table_like(_USES_SLOT, slot)
    return _entropy(op) + (op.exp() * below).sum(-1)


def head_diversity(dist: FactoredCategorical) -> tuple[Tensor, Tensor]:
    """Normalised entropy of each head over all (op, slot) that use it, weighted by their
    probability.

    Shapes: -> two float32 [..., 8]: `sum P Hn` and `sum P` over (op, slot) where the head has a
    choice.  `Hn` is the entropy of the raw conditional over its maximum; P, the probability of (op,
    slot), has no gradient.
    """
    op = dist.floored.op.detach().exp()
    reach = op * _table_like(_USES_SLOT, op)
    # [..., S, 10]
    deep = (op.unsqueeze(-1) * dist.floored.slot.detach().exp()).mT @ _table_like(_ROW_OP, op).mT
    legal = dist.support.op, dist.support.slot, dist.support.value.unsqueeze(-3)
    counts = [mask.sum(-1, dtype=op.dtype) for mask in legal]
    norm = [_entropy(p) / n.clamp(min=2.0).log() for p, n in zip(dist.raw, counts, strict=True)]
    choice = [(n > 1).to(op.dtype) for n in counts]
    sums: list[Tensor] = []
    for of_op, of_slot, of_value in (norm, choice):
        slot = (reach * of_slot).sum(-1, keepdim=True)
        value = (deep * of_value).sum(-2) @ _table_like(_ROW_VALUE_HEAD, op)
        sums.append(torch.cat((of_op.unsqueeze(-1), slot, value), dim=-1))
    return sums[0], sums[1]


def _table_like(values: Table, like: Tensor) -> Tensor:
    return constant_table(values, like.dtype, like.device)


def _entropy(log_p: Tensor) -> Tensor:
    return -(_exp(log_p) * log_p).sum(-1)


def _exp(log_p: Tensor) -> Tensor:
    """`log_p.exp()`, exactly 0 where it would be below 1e-37: a CPU takes far longer for such
    powers.
    """
    return F.threshold(log_p.clamp(min=_SMALLEST_LOG).exp(), 1e-37, 0.0)


def _gather_rows(rows: Tensor, index: Tensor) -> Tensor:
    """Gather several rows per leading position: rows [..., R, n], index int64 [..., k] -> [..., k,
    n].
    """
    return rows.gather(-2, index.unsqueeze(-1).expand(*index.shape, rows.shape[-1]))


def _pick(values: Tensor, index: Tensor, *, keepdim: bool = False) -> Tensor:
    """Select entries of the last axis, like `gather`, whose gradient adds in any order on a GPU.

    Shapes: index int64 [...]; values [..., n] -> [...], or [..., m, n] -> [..., m], for [..., 1, n]
    with an index each.
    """
    index = index.reshape(index.shape + (1,) * (values.dim() - index.dim()))
    lane = positions(values.shape[-1], values.device)
    return choose(index == lane, values, 0.0).sum(-1, keepdim=keepdim)
