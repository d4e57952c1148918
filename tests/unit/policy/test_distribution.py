"""The factored distribution: enumerated by hand, against TorchRL, and at its extremes."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.made_up_rollouts import FLOOR, batched, masks, source, tables
from torchrl.modules import MaskedCategorical

from morphogen.policy import distribution as d
from morphogen.policy.distribution import NO_FLOOR, LogitTables
from morphogen.state import rng

# Written out by hand: which columns an op uses, beside its own.
USED = {0: (), 1: (1, 2, 3, 4, 5), 2: (1, 3, 5, 6, 7), 3: (1, 6, 7), 4: (1,), 5: (1,)}
PLACEHOLDERS = (0, 0, 0, 2, 1, 2, 0, 0)
SIZES = {2: 13, 3: 4, 4: 3, 5: 3, 6: 4, 7: 5}
NAMES = {
    2: "blueprint",
    3: "style",
    4: "tempo",
    5: "alpha_target",
    6: "alpha_speed",
    7: "alpha_curve",
}


def build(slots=3, seed=0, scale=2.0, floor=FLOOR, share=0.6, lead=(1,)):
    legal = d.build_support(masks(*lead, slots=slots, seed=seed, share=share))
    return d.normalise_tables(tables(*lead, slots=slots, seed=seed, scale=scale), legal, floor)


def complete_actions(mask, slots: int) -> torch.Tensor:
    """All legal complete actions of env 0, one row each."""
    rows = []
    for op, used in USED.items():
        for slot in range(slots) if op else (0,):
            if (op and not mask.slot[0, op, slot]) or not mask.op[0, op]:
                continue
            choices = [
                [v for v in range(SIZES[k]) if getattr(mask, NAMES[k])[0, v]]
                if k in used
                else [PLACEHOLDERS[k]]
                for k in range(2, 8)
            ]
            rows += [(op, slot, *values) for values in itertools.product(*choices)]
    return torch.tensor(rows)


def spread(dist, count: int):
    """The distribution of env 0 for `count` rows."""
    wide = lambda t: LogitTables(*(x.expand(count, *x.shape[1:]) for x in t))
    return dist._replace(
        floored=wide(dist.floored), raw=wide(dist.raw), support=batched(dist.support, count)
    )


def assert_legal(mask, action):
    """Every choice of an action int64 [E, 8] is legal; unused heads hold placeholders."""
    for row, (op, slot, *values) in enumerate(action.tolist()):
        assert mask.op[row, op]
        assert not op or mask.slot[row, op, slot]
        for k, v in enumerate(values, start=2):
            assert getattr(mask, NAMES[k])[row, v] if k in USED[op] else v == PLACEHOLDERS[k]


settings = {
    "slots": st.integers(1, 6),
    "seed": st.integers(0, 10_000),
    "scale": st.sampled_from((0.0, 1.0, 5.0, 50.0)),
    "floor": st.sampled_from((FLOOR, NO_FLOOR, (0.05,) + (0.03,) * 7)),
}


@given(**settings)
def test_the_probabilities_of_all_complete_actions_sum_to_one_and_give_the_entropy(
    slots, seed, scale, floor
):
    dist = build(slots, seed, scale, floor)
    actions = complete_actions(masks(1, slots=slots, seed=seed), slots)
    log_p = d.head_log_prob(spread(dist, len(actions)), actions).sum(-1).double()
    assert log_p.exp().sum().item() == pytest.approx(1.0, abs=1e-5)
    entropy = d.action_entropy(dist).item()
    assert entropy == pytest.approx(
        -(log_p.exp() * log_p).sum().item(), abs=2e-5 * max(1.0, entropy)
    )
    assert -1e-6 <= entropy <= math.log(len(actions)) + 1e-5


@given(
    slots=st.integers(1, 4),
    seed=st.integers(0, 999),
    bad=st.sampled_from((math.nan, math.inf, -math.inf)),
    floor=st.sampled_from((FLOOR, NO_FLOOR)),
    share=st.sampled_from((0.02, 0.5, 1.0)),
    greedy=st.booleans(),
)
def test_nan_logits_give_legal_actions_with_nan_log_probs(slots, seed, bad, floor, share, greedy):
    """Some logits or all: the noise alone decides among legal values, and the log-probability is
    NaN.
    """
    envs, draw = 16, source(seed)
    legal = masks(envs, slots=slots, seed=seed)
    broken = [
        torch.where(torch.rand(x.shape, generator=draw) < share, bad, x)
        for x in tables(envs, slots=slots)
    ]
    dist = d.normalise_tables(LogitTables(*broken), d.build_support(legal), floor)
    noise = torch.randn(envs, d.noise_lanes(slots), generator=draw) * (0 if greedy else 5)
    action = d.sample_action(dist, noise)[0]
    assert_legal(legal, action)
    op = action[:, 0]
    if share == 1.0:
        assert torch.equal(op, torch.where(legal.op, noise[:, :6], -math.inf).argmax(-1))
    if share == 1.0 and bad != -math.inf:
        assert not d.head_log_prob(dist, action)[legal.op.sum(-1) > 1].isfinite().all(-1).any()


@given(
    st.lists(st.floats(-1e4, 1e4, width=32), min_size=2, max_size=9),
    st.integers(1, 2**9 - 1),
    st.sampled_from((0.0, 0.005, 0.05)),
)
def test_every_legal_value_keeps_its_floor_at_any_logits(logits, bits, floor):
    n = len(logits)
    legal = torch.tensor([bool(bits >> i & 1) for i in range(n)])
    legal[0] |= ~legal.any()
    mixed, plain = d.categorical(torch.tensor(logits), legal, torch.tensor([floor]))
    count, p = int(legal.sum()), mixed.exp()
    assert (p[legal] >= floor * (1 - 1e-5)).all()
    assert p[legal].max() <= 1 - (count - 1) * floor + 1e-6
    assert p[legal].sum().item() == pytest.approx(1.0, abs=1e-5)
    expected = torch.softmax(
        torch.where(legal, torch.tensor(logits, dtype=torch.float64), -torch.inf), 0
    )
    assert torch.allclose(plain.exp().double(), expected, atol=1e-5)
    if count == 1:
        assert mixed[legal].item() == plain[legal].item() == 0.0
    if floor == 0.0:
        assert torch.equal(mixed[legal], plain[legal])
        assert (plain.exp()[~legal] == 0).all()


@given(st.integers(0, 1000), st.sampled_from((1.0, 1e4)))
def test_gradients_are_finite_at_extreme_logits_and_for_rows_with_one_or_no_legal_value(
    seed, scale
):
    legal = d.build_support(masks(2, seed=seed, share=0.2))
    leaves = [x.requires_grad_() for x in tables(2, seed=seed, scale=scale)]
    dist = d.normalise_tables(LogitTables(*leaves), legal, FLOOR)
    action = d.sample_action(dist, torch.zeros(2, 41))[0]
    parts = d.head_log_prob(dist, action), d.action_entropy(dist), d.head_diversity(dist)[0]
    total = sum(part.sum() for part in parts)
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(total, leaves))


def test_difference_11_a_value_below_the_floor_still_gets_gradient():
    logits = torch.tensor([8.0, -4.0, 0.0])
    legal, floor = torch.ones(3, dtype=torch.bool), torch.tensor([0.01])
    mixed, plain = d.categorical(logits, legal, floor)
    assert plain[1].exp() < 0.01 < mixed[1].exp()
    grad = torch.func.grad(lambda z: d.categorical(z, legal, floor)[0][1])(logits)
    assert (grad != 0).all()


def test_difference_11_the_entropy_moves_every_head_of_every_legal_op_chosen_or_not():
    logits = tables(1, slots=2, scale=1.0)
    legal = d.build_support(masks(1, slots=2, share=1.1))
    for measure in (d.action_entropy, lambda dist: d.head_diversity(dist)[0].sum()):
        leaves = [x.requires_grad_() for x in logits]
        total = measure(d.normalise_tables(LogitTables(*leaves), legal, FLOOR)).sum()
        grads = torch.autograd.grad(total, leaves)
        assert (grads[0] != 0).all()
        assert (grads[1][:, 1:] != 0).all()
        inside = legal.value.unsqueeze(1).expand_as(grads[2])
        assert (grads[2][inside] != 0).all()
        assert (grads[2][~inside] == 0).all()


@given(st.integers(0, 1000), st.integers(1, 5))
def test_the_bonus_is_bounded_and_pays_no_op_for_having_many_choices(seed, slots):
    logits = tables(1, slots=slots, seed=seed)
    legal = d.build_support(masks(1, slots=slots, seed=seed))
    value, reach = d.head_diversity(d.normalise_tables(logits, legal, FLOOR))
    assert (value >= -1e-6).all()
    assert (value <= reach + 1e-5).all()
    assert (reach <= 1 + 1e-5).all()

    def bonus(op):
        return d.head_diversity(d.normalise_tables(logits._replace(op=op), legal, FLOOR))[0].sum()

    def of_op(op):
        masked = torch.where(legal.op, op, -1e9).log_softmax(-1)
        return -(masked.exp() * masked).sum() / max(math.log(int(legal.op.sum())), 1e-9)

    got, want = torch.func.grad(bonus)(logits.op), torch.func.grad(of_op)(logits.op)
    if legal.op.sum() > 1:
        assert torch.allclose(got, want, atol=1e-6)


def test_zero_noise_is_the_mode_and_ties_go_to_the_lowest_index():
    dist = build(lead=(5,))
    best = d.sample_action(dist, torch.zeros(5, 41))[0]
    assert torch.equal(best[:, 0], torch.where(dist.support.op, dist.floored.op, -1e9).argmax(-1))
    even = d.normalise_tables(
        LogitTables(*(torch.zeros_like(x) for x in tables(1))),
        d.build_support(masks(1, share=1.1)),
        FLOOR,
    )
    assert d.sample_action(even, torch.zeros(1, 41))[0].tolist() == [list(PLACEHOLDERS)]


def test_frequencies_match_the_probabilities():
    count = 100_000
    dist = spread(build(slots=2, seed=3, scale=1.0), count)
    keys = rng.env_keys(5, 0, count)
    action = d.sample_action(dist, rng.gumbel(rng.stream(keys, rng.Purpose.ACTION), 40))[0]
    expected = dist.floored.op[0].exp() * count
    result = torch.bincount(action[:, 0], minlength=6).double()
    legal = dist.support.op[0]
    assert (result[~legal] == 0).all()
    # chi-square, at most 5 degrees
    assert ((result - expected)[legal].square() / expected[legal]).sum() < 25.0


@given(st.integers(0, 500))
def test_an_irrelevant_column_changes_no_log_prob(seed):
    dist = build(lead=(16,), seed=seed)
    action = d.sample_action(dist, torch.randn(16, 41, generator=source(seed)))[0]
    before, other = d.head_log_prob(dist, action), action.clone()
    for row in range(16):
        for head in set(range(1, 8)) - set(USED[int(action[row, 0])]):
            other[row, head] = (other[row, head] + 1) % 3
    assert torch.equal(d.head_log_prob(dist, other), before)


def test_without_floor_each_conditional_is_the_masked_categorical_of_torchrl():
    dist, logits = build(lead=(8,), floor=NO_FLOOR), tables(8)
    theirs = MaskedCategorical(logits=logits.op, mask=dist.support.op)
    legal = dist.support.op
    want = torch.stack([theirs.log_prob(torch.full((8,), op)) for op in range(6)], dim=-1)
    assert torch.allclose(dist.floored.op[legal], want[legal], atol=1e-6)


@given(st.integers(0, 500))
def test_a_sample_comes_with_the_entropies_of_its_conditionals(seed):
    dist = build(seed=seed)
    action, entropy = d.sample_action(dist, torch.randn(1, 41, generator=source(seed)))
    for head, size in {0: 6, 1: 3, **SIZES}.items():
        values = action.repeat(size, 1)
        values[:, head] = torch.arange(size)
        log_p = d.head_log_prob(spread(dist, size), values)[:, head].double()
        used = head == 0 or head in USED[int(action[0, 0])]
        expected = -(log_p.exp() * log_p).sum().item() if used else 0.0
        assert entropy[0, head].item() == pytest.approx(expected, abs=1e-5)
