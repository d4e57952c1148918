"""Compiled kernels against plain torch, which the other tests compare with loops over single
networks.
"""

import importlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.compiled import compile_complete
from support.plain_torch import agree, leaf
from support.small_states import noise, normal
from support.stacked_rows import threads

from morphogen import kernels
from morphogen.kernels import Form, form_of, native
from morphogen.kernels.blend import blend, build_seed_index
from morphogen.kernels.conv import stacked_conv
from morphogen.kernels.norm import NormBlock, batch_norm, group_norm, masked_group_norm
from morphogen.kernels.pool import max_pool2d

pytestmark = pytest.mark.skipif(
    not kernels.AVAILABLE, reason="installed without a C compiler: there are no kernels"
)
SHAPES = st.tuples(
    st.integers(1, 3),
    st.integers(1, 6),
    st.integers(1, 6),
    st.integers(1, 5),
    st.sampled_from([1, 3, 4, 8]),
)
FLAGS = st.tuples(st.booleans(), st.booleans(), st.booleans())


def normalised(groups, relu=True):
    def run(x, gain, bias, scale):
        return group_norm([NormBlock(x, gain, bias, scale, relu)], groups=groups)[0]

    return run


@given(SHAPES, FLAGS, st.booleans())
def test_normalisation_equals_plain_torch(shape, some, relu):
    *_, rows, channels = shape
    gained, scaled, needs_grad = some
    x = normal(*shape).requires_grad_(needs_grad)
    gain = leaf(rows, channels, seed=1) if gained else None
    scale = leaf(rows, channels, seed=3) if scaled else None
    groups = 2 if channels % 2 == 0 else 1
    agree(normalised(groups, relu), x, gain, leaf(rows, channels, seed=2), scale)


# Two numbers alone may be so close to each other that their gradients are mostly rounding.
@given(SHAPES.filter(lambda shape: shape[1] * shape[2] > 1), st.booleans())
def test_normalisation_of_unmasked_channels_equals_plain_torch(shape, relu):
    _, height, width, rows, channels = shape
    groups = 2 if channels % 2 == 0 else 1
    width_of = torch.tensor([channels, 1 + channels // 2])[torch.arange(rows) % 2]
    mask = (torch.arange(channels) < width_of.unsqueeze(-1)).float()
    share = torch.full((rows, groups), groups / (channels * height * width))

    def run(x, gain, bias):
        own = {"channel_mask": mask.to(x.dtype), "inverse_count": share.to(x.dtype), "relu": relu}
        return masked_group_norm(x * own["channel_mask"], gain * mask, bias * mask, **own)

    agree(run, leaf(*shape), leaf(rows, channels, seed=1), leaf(rows, channels, seed=2))


def test_normalisation_of_many_channels_and_of_a_slice_of_rows():
    wide = (2, 2, 2, 40, 16)  # more channels than a piece has
    for x in (normal(*wide), normal(2, 3, 3, 5, 4)[..., 1:4, :], normal(2, 3, 3, 5, 4)[:, ::2]):
        factors = [leaf(*x.shape[3:], seed=seed) for seed in (1, 2, 3)]
        agree(normalised(2), x.requires_grad_(), *factors)


def scene(shape, *, gated, multiplied, pooled=False):
    """A blend and its arguments.  Seeds are in the reverse order of the rows; seeds of even
    rows are silent.
    """
    samples, height, width, rows, channels = shape
    sizes = [1 + rows // 2, rows - 1 - rows // 2] if rows > 1 else [1]
    deltas = [
        normal(samples, height, width, size, channels, seed=n).mul(3)
        for n, size in enumerate(sizes)
    ]
    spans = ((0, sizes[0]),) if multiplied else ()
    row = torch.arange(rows).flip(0)
    alpha = (0.1 + noise(rows, seed=8)).masked_fill(row % 2 == 0, 0.0)
    gates = torch.arange(rows - 1, sizes[0] - 1 if multiplied else -1, -1)
    seeds = build_seed_index(row, alpha, row % 4 == 0, gates, count=rows)

    def run(features, openness, *deltas):
        return blend(features, deltas, seeds, multiplied=spans, openness=openness, pooled=pooled)

    openness = noise(samples, len(gates), seed=9).requires_grad_() if gated else None
    return run, leaf(*shape, seed=9), openness, *(delta.requires_grad_() for delta in deltas)


@given(SHAPES, st.booleans(), st.booleans(), st.booleans())
def test_blending_equals_plain_torch(shape, gated, multiplied, pooled):
    if pooled and min(shape[1:3]) < 2:
        shape = (shape[0], 2, 3, *shape[3:])
    agree(*scene(shape, gated=gated, multiplied=multiplied, pooled=pooled))


@pytest.mark.parametrize("pooled", [False, True])
# a pair of pixels fills a piece; a single one is more than a piece
@pytest.mark.parametrize("rows", [130, 1100])
def test_blending_of_many_rows_equals_plain_torch(rows, pooled):
    agree(*scene((2, 2, 4, rows, 16), gated=True, multiplied=True, pooled=pooled))


@given(st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=64))
def test_the_tanh_of_a_blend_is_exact_to_a_few_units_in_the_last_place(values):
    deltas = torch.tensor([*values, 0.0, 1e-20, -1e-20, torch.inf, -torch.inf]).view(1, 1, 1, 1, -1)
    row = torch.zeros(1, dtype=torch.int64)
    index = row, torch.ones(1), row, [0, 1]
    _, tanh, _ = torch.ops.morphogen.blend(torch.ones_like(deltas), [deltas], *index, False)
    torch.testing.assert_close(tanh.double(), torch.tanh(deltas.double()), rtol=6e-7, atol=1e-37)


@given(SHAPES, st.booleans())
def test_pooling_equals_plain_torch(shape, broken):
    samples, height, width, rows, channels = shape
    x = normal(samples, height + 1, width + 1, rows, channels).mul(2).round()  # many equals
    if broken:
        x[:, 1:2, 0] = torch.nan
    agree(max_pool2d, x.requires_grad_())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_compiler_takes_gradients_of_the_arguments_of_kernels():
    run, *leaves = scene((2, 4, 4, 5, 8), gated=True, multiplied=True)
    weight = leaf(5, 8, 8, 3, 3, seed=4)

    def total(weight, features, *rest):
        pooled = max_pool2d(stacked_conv(features, weight))
        gain, bias = weight[..., 0, 0, 0], weight[..., 1, 1, 1]
        [normed] = group_norm([NormBlock(pooled, gain, bias, None, True)], groups=2)
        return run(features, *rest).square().sum() + normed.square().sum()

    inputs = [x.detach() for x in (weight, *leaves) if x is not None]
    grad = torch.func.grad(total, argnums=tuple(range(len(inputs))))
    for found, expected in zip(compile_complete(grad)(*inputs), grad(*inputs), strict=True):
        assert expected.abs().max() > 0
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("pooled", [True, False])
def test_large_blends_are_written_past_the_cache_and_equal(pooled):
    shape = (4, 32, 32, 104, 8)  # 13 MiB
    run, features, _, *deltas = scene(shape, gated=False, multiplied=True, pooled=pooled)
    joint = run(features, None, *deltas)
    for b in range(shape[0]):  # one sample is small
        assert torch.equal(
            joint[b : b + 1],
            run(features[b : b + 1], None, *(delta[b : b + 1] for delta in deltas)),
        )


def test_large_normalisations_are_written_past_the_cache_and_equal():
    x, bias = normal(4, 32, 32, 104, 8), normal(104, 8, seed=1)
    joint = normalised(2)(x, None, bias, None)
    for b in range(len(x)):
        assert torch.equal(joint[b : b + 1], normalised(2)(x[b : b + 1], None, bias, None))


# pieces hold 64 of them, or fewer where threads share them
@pytest.mark.parametrize("rows", [1, 3, 65, 130])
def test_a_batch_as_one_sample_is_normalised_alike_by_any_threads_and_beside_any_network(rows):
    x, gain, bias = normal(20, 4, 8, 130, 8), normal(130, 8, seed=1), normal(130, 8, seed=2)
    weights = normal(*x.shape, seed=3)

    def alone(count):
        leaves = [
            part.contiguous().requires_grad_()
            for part in (x[..., :count, :], gain[:count], bias[:count])
        ]
        out = batch_norm(*leaves, relu=True)
        return out, *torch.autograd.grad(out, leaves, weights[..., :count, :])

    found = []
    for count in (1, 2, 3):
        with threads(count):
            found.append(alone(rows))
    for every in zip(*found, alone(130), strict=True):
        assert all(torch.equal(every[0], other[..., :rows, :]) for other in every[1:])


def test_tensors_without_a_kernel_are_computed_by_torch(monkeypatch):
    x, weight = normal(2, 4, 4, 3, 8), normal(3, 8, seed=1)
    ours = normalised(2)(x, weight, weight, None)
    monkeypatch.setattr(kernels, "AVAILABLE", False)
    torch.testing.assert_close(normalised(2)(x, weight, weight, None), ours)
    monkeypatch.undo()
    for other in (
        x.to("meta"),
        x.double(),
        x.bfloat16(),
        normal(1, 1, 1, 1, kernels.MAX_CHANNELS + 1),
    ):
        assert form_of("norm", other) is Form.TORCH


def test_a_missing_extension_loads_as_none(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    assert native._load_extension() is None


@pytest.mark.parametrize(("name", "args", "message"), [
    ("standardise", (0,), "takes 8 arguments, was given 1"),
    ("pool", (), "takes 7 numbers, was given 0"),
    ("norm", (0,), "takes 16 arguments, was given 1"),
    ("norm_backward", (0,), "takes 17 arguments, was given 1"),
    ("pool", (1, 2, 3, 4, 5, 6, "x"), "int"),
])  # fmt: skip
def test_wrong_arguments_of_a_kernel_are_refused(name, args, message):
    with pytest.raises(TypeError, match=message):
        getattr(native._native, name)(*args)


def test_indices_out_of_range_are_refused_before_a_read():
    x, weight = normal(2, 2, 2, 3, 4), normal(3, 4)
    with pytest.raises(TypeError, match=r"expected one of torch\.float32, .*got torch\.float64"):
        normalised(2)(x, weight.double(), weight, None)
    row = torch.arange(3)
    seeds = build_seed_index(row, torch.ones(3), row < 0, row, count=3)
    for wrong in (seeds._replace(rows=row + 1), seeds._replace(source=row + 4)):
        with pytest.raises(IndexError, match=r"out of range; want 0 to \d"):
            blend(x, [normal(2, 2, 2, 3, 4)], wrong)


def test_declared_shapes_equal_the_results():
    x, factor = normal(2, 4, 4, 3, 8), normal(3, 8, seed=1)
    norm_args = x, factor, factor, torch.ones(3, 8), torch.full((3, 2), 1 / 64), factor, 2, True
    out, stats = torch.ops.morphogen.norm(*norm_args)
    cases = {
        "norm": norm_args,
        "norm_backward": (normal(*out.shape, seed=1), *norm_args[:6], stats, True, True),
        "pool": (x,),
    }
    if kernels.CAN_CONVOLVE:
        convolution = x, normal(3, 8, 8, 3, 3, seed=1)
        cases |= {
            "conv": convolution,
            "conv_backward": (normal(*x.shape, seed=2), *convolution, True),
        }
    for name, args in cases.items():
        op = getattr(torch.ops.morphogen, name).default
        torch.library.opcheck(op, args, test_utils=("test_schema", "test_faketensor"))
