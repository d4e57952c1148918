"""Compiled kernels against plain torch, which the other tests compare with loops over single networks."""

import importlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.small_states import normal

from morphogen import kernels
from morphogen.kernels import native
from morphogen.kernels.blend import BlendIndex, BlendSaved, BlendSizes
from morphogen.kernels.norm import NormFactors
from morphogen.kernels.perceptron import PerceptronParams
from morphogen.nets import ops

pytestmark = pytest.mark.skipif(not kernels.AVAILABLE, reason="installed without a C compiler: there are no kernels")
SHAPES = st.tuples(
    st.integers(1, 3), st.integers(1, 6), st.integers(1, 6), st.integers(1, 5), st.sampled_from([1, 3, 4, 8])
)
WIDE = (2, 2, 2, 40, 16)  # more channels than a piece has


def agree(ours, plain):
    """All results of two forms; those of plain torch are float64."""
    assert len(ours) == len(plain)
    for got, want in zip(ours, plain, strict=True):
        assert (got is None) == (want is None)
        if got is not None:
            torch.testing.assert_close(got.double(), want.double(), rtol=1e-4, atol=1e-4, equal_nan=True)


def doubled(given):
    """The same arguments in float64, for which there are no kernels."""
    if isinstance(given, torch.Tensor):
        return given.double() if given.is_floating_point() else given
    if isinstance(given, tuple) and hasattr(given, "_fields"):
        return type(given)(*map(doubled, given))
    return type(given)(map(doubled, given)) if isinstance(given, list | tuple) else given


def factors(rows, channels, groups, *, some):
    """Factors of a normalisation; `some`: presence of gain, which a channel mask needs, channel mask and scale."""
    mask = (torch.arange(channels) < torch.tensor([[channels], [1 + channels // 2]])[torch.arange(rows) % 2]).float()
    gain, bias, scale = (normal(rows, channels, seed=seed) for seed in (1, 2, 3))
    gain = gain * mask if some[1] else gain if some[0] else None
    share = torch.full((rows, groups), 1 / max(1, channels // groups))
    return NormFactors(gain, bias, mask if some[1] else None, share, scale if some[2] else None)


@given(SHAPES, st.tuples(st.booleans(), st.booleans(), st.booleans()), st.sampled_from([0.0, -0.5, float("-inf")]))
def test_normalisation_is_that_of_plain_torch(shape, some, floor):
    _, height, width, rows, channels = shape
    groups = 2 if channels % 2 == 0 else 1
    by = factors(rows, channels, groups, some=some)
    by = by._replace(inverse_count=None if by.channel_mask is None else by.inverse_count / (height * width))
    x = normal(*shape) if by.channel_mask is None else normal(*shape) * by.channel_mask
    grad = normal(*shape, seed=7)
    out, stats, nothing = kernels.norm(x, by, groups, floor=floor)
    wide, *saved = kernels.norm(doubled(x), doubled(by), groups, floor=floor)
    agree([out], [wide])
    assert nothing is None
    for needs_grad in (True, False):
        grads = kernels.norm_backward(grad, x, by, stats, floor=floor, needs_input_grad=needs_grad)
        plain = kernels.norm_backward(
            doubled(grad), saved[1], doubled(by), saved[0], floor=floor, needs_input_grad=needs_grad
        )
        agree(grads, plain)


def test_normalisation_of_many_channels_and_of_a_slice_of_rows():
    for x in (normal(*WIDE), normal(2, 3, 3, 5, 4)[..., 1:4, :], normal(2, 3, 3, 5, 4)[:, ::2]):
        by = factors(*x.shape[3:], 2, some=(True, False, True))._replace(inverse_count=None)
        agree([kernels.norm(x, by, 2, floor=0.0)[0]], [kernels.norm(doubled(x), doubled(by), 2, floor=0.0)[0]])


def scene(shape, *, gated, multiplied, seed=0):
    """A blend: features, blocks, index, spans and gates.  Every second row has a seed."""
    samples, height, width, rows, channels = shape
    sizes = [1 + rows // 2, rows - 1 - rows // 2] if rows > 1 else [1]
    blocks = [3 * normal(samples, height, width, size, channels, seed=seed + n) for n, size in enumerate(sizes)]
    spans = ((0, sizes[0]),) if multiplied else ()
    home, heard = torch.arange(rows).flip(0), torch.arange(rows).flip(0).clone()
    heard[::2] = rows
    product = torch.where(heard < sizes[0], heard, sizes[0]) if multiplied else torch.zeros_like(heard)
    factor = normal(samples, rows, seed=8) if gated else normal(rows, seed=8)
    gates = torch.tensor([rows - 1, 0]) if gated else None
    return normal(*shape, seed=9), blocks, BlendIndex(home, heard, product, factor), spans, gates


def both_ways(features, blocks, where, spans, gates, *, pooled):
    """Results of a blend, forward and backward."""
    out, turned, argmax = kernels.blend(features, blocks, where, spans, pooled=pooled)
    mask = BlendSaved(features if spans else None, blocks if gates is not None else (), turned, gates, argmax)
    of = BlendSizes(spans, [block.shape[-2] for block in blocks], features.shape[1:-2])
    grad = normal(*out.shape, seed=5).to(out.dtype)
    grads = kernels.blend_backward(grad, mask, where, of)
    return [out, turned, grads.features, grads.sums, *grads.blocks]


@given(SHAPES, st.booleans(), st.booleans(), st.booleans())
def test_blending_is_that_of_plain_torch(shape, gated, multiplied, pooled):
    if pooled and min(shape[1:3]) < 2:
        shape = (shape[0], 2, 3, *shape[3:])
    given = scene(shape, gated=gated, multiplied=multiplied)
    agree(both_ways(*given, pooled=pooled), both_ways(*doubled(given), pooled=pooled))


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("rows", [130, 1100])  # a pair of pixels fills a piece; a single one is more than a piece
def test_blending_of_many_rows_is_that_of_plain_torch(rows, pooled):
    given = scene((2, 4, 6, rows, 16), gated=True, multiplied=True)
    agree(both_ways(*given, pooled=pooled), both_ways(*doubled(given), pooled=pooled))


def test_a_broken_delta_without_a_row_is_invisible():
    features, blocks, where, spans, _ = scene((2, 2, 2, 4, 4), gated=False, multiplied=True)
    for block in blocks:
        block.fill_(torch.nan)
    out, *_ = kernels.blend(features, blocks, where, spans)
    assert torch.equal(out[..., ::2, :], features[..., ::2, :])
    assert out[..., 1::2, :].isnan().all()


@given(st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=64))
def test_the_tanh_of_a_blend_is_exact_to_a_few_units_in_the_last_place(values):
    deltas = torch.tensor([*values, 0.0, 1e-20, -1e-20, torch.inf, -torch.inf]).view(1, 1, 1, 1, -1)
    heard = torch.zeros(1, dtype=torch.int64)
    _, turned, _ = kernels.blend(
        torch.ones_like(deltas), [deltas], BlendIndex(heard, heard, heard, torch.ones(1)), ((0, 1),)
    )
    assert turned is not None
    torch.testing.assert_close(turned.double(), torch.tanh(deltas.double()), rtol=6e-7, atol=1e-37)


@given(SHAPES, st.booleans())
def test_pooling_is_that_of_plain_torch(shape, broken):
    samples, height, width, rows, channels = shape
    x = normal(samples, height + 1, width + 1, rows, channels).mul(2).round()  # many equals
    if broken:
        x[:, 1:2, 0] = torch.nan
    out, argmax = kernels.pool(x)
    wide, there = kernels.pool(doubled(x))
    grad = normal(*out.shape, seed=3)
    agree([out], [wide])
    agree(
        [kernels.pool_backward(grad, argmax, x.shape[1:3])], [kernels.pool_backward(doubled(grad), there, x.shape[1:3])]
    )


@given(SHAPES, st.lists(st.integers(0, 4), max_size=7))
def test_rows_are_taken_bit_for_bit(shape, chosen):
    x = normal(*shape)
    x[0, 0, 0] = float("nan")
    rows = torch.tensor(chosen, dtype=torch.int64) % shape[3]
    one, *parts = (
        kernels.take_rows(x, rows),
        *kernels.take_row_blocks(x, rows, [len(chosen) // 2, len(chosen) - len(chosen) // 2]),
    )
    expected = x[..., rows, :]
    assert torch.equal(one.view(torch.int32), expected.contiguous().view(torch.int32))
    assert torch.equal(torch.cat(parts, -2).view(torch.int32), one.view(torch.int32))


@given(st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 4), st.integers(1, 9), st.integers(1, 9)))
def test_channels_are_turned_innermost_bit_for_bit(shape):
    x = normal(*shape)
    assert torch.equal(kernels.channels_innermost(x), x.permute(1, 3, 4, 0, 2))


def test_no_result_depends_on_the_number_of_threads():
    given, threads = scene((8, 16, 16, 9, 8), gated=True, multiplied=True), torch.get_num_threads()
    result = []
    for count in (1, 2):
        torch.set_num_threads(count)
        result.append(both_ways(*given, pooled=True))
    torch.set_num_threads(threads)
    assert all(torch.equal(one, two) for one, two in zip(*result, strict=True))


def test_large_results_are_written_past_the_cache_and_equal():
    shape = (4, 32, 32, 104, 8)  # 13 MiB
    given = scene(shape, gated=True, multiplied=True)
    by = factors(*shape[3:], 2, some=(True, True, True))
    x, joint = (
        given[0],
        [
            *both_ways(*given, pooled=True),
            *both_ways(*given, pooled=False),
            kernels.norm(given[0], by, 2, floor=0.0)[0],
        ],
    )
    for b in range(shape[0]):  # one sample is small
        own = BlendIndex(*given[2][:3], given[2].factor[b : b + 1])
        blocks = [block[b : b + 1] for block in given[1]]
        out, *_ = kernels.blend(x[b : b + 1], blocks, own, given[3], pooled=True)
        flat, *_ = kernels.blend(x[b : b + 1], blocks, own, given[3])
        assert torch.equal(joint[0][b : b + 1], out)
        assert torch.equal(joint[5 + len(blocks) - 1][b : b + 1], flat)
        assert torch.equal(joint[-1][b : b + 1], kernels.norm(x[b : b + 1], by, 2, floor=0.0)[0])


@pytest.mark.parametrize("rows", [1, 3, 65, 130])  # pieces hold 64 of them, or fewer where threads share them
def test_a_batch_as_one_sample_is_normalised_alike_by_any_threads_and_beside_any_network(rows):
    x, bias, threads = normal(1, 80, 8, 130, 8), normal(130, 8, seed=1), torch.get_num_threads()

    def results(count):
        own, by = x[..., :count, :].contiguous(), NormFactors(None, bias[:count], None, None, None)
        out, stats, _ = kernels.norm(own, by, 8, floor=0.0)
        grads = kernels.norm_backward(own.tanh(), own, by, stats, floor=0.0, needs_input_grad=True)
        return out, grads[0], grads[1].unsqueeze(0)

    found = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        found.append(results(rows))
    torch.set_num_threads(threads)
    for every in zip(*found, results(130), strict=True):
        assert all(torch.equal(every[0], other[..., :rows, :]) for other in every[1:])


def test_tensors_without_a_kernel_are_computed_by_torch(monkeypatch):
    x, weight = normal(2, 4, 4, 3, 8), normal(3, 8, seed=1)
    (ours,) = ops.group_norm([ops.NormBlock(x, weight, weight, floor=0.0)], groups=2)
    monkeypatch.setattr(native, "AVAILABLE", False)
    (plain,) = ops.group_norm([ops.NormBlock(x, weight, weight, floor=0.0)], groups=2)
    torch.testing.assert_close(plain, ours)
    for other in (x.to("meta"), x.double(), x.bfloat16(), normal(1, 1, 1, 1, native.MAX_CHANNELS + 1)):
        assert not native.has_kernel(other)


def test_a_missing_extension_loads_as_none(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    assert native._load_extension() is None


@pytest.mark.skipif(not kernels.AVAILABLE, reason="the extension is not compiled")
@given(
    st.lists(st.integers(0, 130), max_size=3),
    st.sampled_from([1, 2, 15, 16, 17, 64, 128]),
    st.integers(1, 3),
    st.integers(1, 32),
)
def test_attention_is_that_of_plain_torch(reach, length, heads, size):
    """Of two samples in each of some networks with a reach, or of two without."""
    samples = 2 * max(1, len(reach))
    qkv, grad = normal(samples, length, 3, heads, size), normal(samples, length, heads, size, seed=1)
    limits = torch.tensor(reach) if reach else None
    out, logs = kernels.attention(qkv, limits)
    back = kernels.attention_backward(grad, qkv, out, logs, limits)
    ahead = torch.arange(length).unsqueeze(-1) - torch.arange(length)
    unseen = (ahead < 0) | (ahead > torch.tensor(reach or [length]).repeat_interleave(2)[-samples:, None, None, None])

    def plain(qkv):
        queries, keys, values = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        scores = (queries @ keys.mT / size**0.5).masked_fill(unseen, float("-inf"))
        return (scores.softmax(-1) @ values).transpose(1, 2), scores.logsumexp(-1)

    expected, vjp, *_ = torch.func.vjp(plain, qkv.double())
    agree((out, logs, back), (*expected, *vjp((grad.double(), torch.zeros_like(expected[1])))))


@pytest.mark.skipif(not kernels.AVAILABLE, reason="the extension is not compiled")
def test_a_broken_token_is_seen_by_none_before_it():
    qkv = normal(1, 20, 3, 2, 4)
    qkv[:, 17:] = float("nan")
    out, _ = kernels.attention(qkv)
    assert torch.isfinite(out[:, :17]).all()
    assert torch.isnan(out[:, 17:]).all()


@given(st.integers(1, 40), st.integers(1, 70))
def test_rows_are_standardised_as_by_plain_torch(rows, size):
    x, grad = 3 * normal(rows, 2, size) + 1, normal(rows, 2, size, seed=1)
    ours = kernels.standardise(x)

    def plain(x):
        return torch.nn.functional.layer_norm(x, (size,))

    expected, vjp, *_ = torch.func.vjp(plain, x.double())
    stats = x.double().mean(-1, keepdim=True), (x.double().var(-1, correction=0, keepdim=True) + 1e-5).rsqrt()
    agree((*ours, kernels.standardise_backward(grad, x, *ours)), (expected, *stats, *vjp(grad.double())))


def test_a_broken_row_breaks_no_other():
    x = normal(4, 24)
    x[1, 3] = float("nan")
    ours = kernels.standardise(x)
    back = kernels.standardise_backward(normal(4, 24, seed=1), x, *ours)
    assert torch.isfinite(torch.stack((ours[0], back))).all(-1).all(0).tolist() == [True, False, True, True]


@pytest.mark.parametrize(("name", "args", "message"), [
    ("standardise", (0,), "takes 8 arguments, was given 1"),
    ("pool", (), "takes 7 numbers, was given 0"),
    ("norm", (0,), "takes 16 arguments, was given 1"),
    ("norm_backward", (0,), "takes 17 arguments, was given 1"),
    ("innermost", (1, 2, 3, 4, 5, "x"), "int"),
])  # fmt: skip
def test_wrong_arguments_of_a_kernel_are_refused(name, args, message):
    with pytest.raises(TypeError, match=message):
        getattr(native._native, name)(*args)


def test_indices_out_of_range_are_refused_before_a_read():
    x, weight = normal(2, 2, 2, 3, 4), normal(3, 4)
    for rows in ([3], [-1]):
        with pytest.raises(IndexError, match=r"out of range; want 0 to 2"):
            kernels.take_rows(x, torch.tensor(rows))
    with pytest.raises(TypeError, match=r"expected one of torch\.float32, .*got torch\.float64"):
        kernels.norm(x, NormFactors(weight.double(), weight, None, None, None), 2, floor=0.0)
    features, blocks, where, spans, _ = scene((2, 2, 2, 3, 4), gated=False, multiplied=False)
    for wrong in (where._replace(seed_row=where.seed_row + 1), where._replace(source=where.source + 4)):
        with pytest.raises(IndexError, match="out of range"):
            kernels.blend(features, blocks, wrong, spans)


def test_declared_shapes_equal_the_results():
    by = factors(3, 8, 2, some=(True, True, True))
    x = normal(2, 4, 4, 3, 8)
    args = (x, *by, 2, 0.0)
    out, result = torch.ops.morphogen.norm(*args)
    torch.library.opcheck(torch.ops.morphogen.norm.default, args, test_utils=("test_schema", "test_faketensor"))
    back = (normal(*out.shape, seed=1), x, *by, result, 0.0, True)
    torch.library.opcheck(
        torch.ops.morphogen.norm_backward.default, back, test_utils=("test_schema", "test_faketensor")
    )
    rows = torch.tensor([2, 0, 1])
    for name, told in (
        ("take", (x, rows)),
        ("take_blocks", (x, rows, [1, 2])),
        ("pool", (x,)),
        ("channels_innermost", (x,)),
    ):
        op = getattr(torch.ops.morphogen, name).default
        torch.library.opcheck(op, told, test_utils=("test_schema", "test_faketensor"))


@given(
    st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(1, 9)),
    st.integers(1, 4),
    st.integers(1, 8),
    st.booleans(),
)
def test_a_perceptron_is_that_of_plain_torch(shape, hidden, outputs, biased):
    rows, inputs = shape[1:]
    bias = normal(rows, hidden, seed=2) if biased else None
    by = PerceptronParams(
        normal(rows, hidden, inputs, seed=1), bias, normal(rows, outputs, hidden, seed=3), normal(rows, outputs)
    )
    x, grad = normal(*shape, seed=4), normal(*shape[:2], outputs, seed=5)
    result, expected = kernels.perceptron(x, by), kernels.perceptron(doubled(x), doubled(by))
    agree(result, expected)
    learned = kernels.perceptron_backward(grad, x, result[1], by)
    agree(learned, kernels.perceptron_backward(doubled(grad), doubled(x), expected[1], doubled(by)))


@given(st.integers(1, 9), st.integers(1, 40), st.sampled_from([1, 4, 8, 24]))
def test_the_sums_and_the_normalisation_of_a_network_do_not_depend_on_those_beside_it(rows, samples, channels):
    x, bias = normal(samples, 3, 2, 9, channels), normal(9, channels, seed=1)

    def results(count):
        own, factors = x[..., :count, :].contiguous(), NormFactors(None, bias[:count], None, None, bias[:count])
        out, stats, _ = kernels.norm(own, factors, 1, floor=0.0)
        grads = kernels.norm_backward(own.tanh(), own, factors, stats, floor=0.0, needs_input_grad=True)
        return out, grads[0], grads[1].unsqueeze(0), kernels.column_sums(own.flatten(1, 2))

    for alone, beside in zip(results(rows), results(9), strict=True):
        assert torch.equal(alone, beside[..., :rows, :])
