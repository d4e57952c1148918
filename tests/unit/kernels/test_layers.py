"""Layers over R networks against a loop over single ones, in value and gradient."""

from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from support.small_states import normal

from morphogen.kernels import Form, conv
from morphogen.kernels.conv import stacked_conv
from morphogen.kernels.linear import linear
from morphogen.kernels.norm import NormBlock, batch_norm, group_norm, masked_group_norm
from morphogen.kernels.pool import max_pool2d
from morphogen.kernels.take import images_innermost

SHAPES = st.tuples(
    st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.integers(1, 7), st.integers(1, 7)
)


def _close(ours, plain, inputs):
    """Values and gradients of two forms agree."""
    torch.testing.assert_close(ours, plain, rtol=1e-9, atol=1e-9)
    out_grad = normal(*plain.shape, seed=9).double()
    result, expected = (
        torch.autograd.grad((y * out_grad).sum(), inputs, retain_graph=True) for y in (ours, plain)
    )
    for got, want in zip(result, expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-8, atol=1e-8)


def _leaf(*shape, seed=0):
    return normal(*shape, seed=seed).double().requires_grad_(True)


def _rows(x):
    """The images of every row, as torch takes them.  x [B, H, W, R, C] -> R times [B, C, H, W]."""
    return [row.permute(0, 3, 1, 2) for row in x.unbind(3)]


def _stacked(parts):
    """The inverse of `_rows`."""
    return torch.stack([part.permute(0, 2, 3, 1) for part in parts], 3)


@given(
    SHAPES,
    st.sampled_from([1, 3, 5]),
    st.sampled_from([Form.TORCH, Form.ORDERED, Form.MATRIX]),
    st.sampled_from(["own", "shared", "depthwise"]),
)
def test_a_convolution_is_a_loop_in_whatever_form_it_is_computed(shape, kernel, form, kind):
    samples, rows, channels, height, width = shape
    groups = channels if kind == "depthwise" else 1
    x = _leaf(samples, height, width, 1 if kind == "shared" else rows, channels)
    outputs = channels if kind == "depthwise" else 2
    weight = _leaf(rows, outputs, channels // groups, kernel, kernel, seed=1)
    images = _rows(x) * (rows if kind == "shared" else 1)
    own = {"padding": kernel // 2, "groups": groups}
    parts = [F.conv2d(xr, weight[r], **own) for r, xr in enumerate(images)]
    with mock.patch.object(conv, "form_of", return_value=form):
        _close(stacked_conv(x, weight), _stacked(parts), (x, weight))


def test_a_linear_layer_of_rows_is_a_loop():
    x, weight, bias = _leaf(3, 5, 4), _leaf(3, 2, 4, seed=1), _leaf(3, 2, seed=2)
    parts = [F.linear(x[r], weight[r], bias[r]) for r in range(3)]
    _close(linear(x, weight, bias), torch.stack(parts), (x, weight, bias))


@given(SHAPES)
def test_pooling_takes_the_maximum_of_every_two_by_two(shape):
    x = _leaf(shape[0], 2 + shape[3], 2 + shape[4], shape[1], shape[2])
    _close(max_pool2d(x), _stacked([F.max_pool2d(xr, 2) for xr in _rows(x)]), (x,))


@pytest.mark.parametrize("gained", [True, False])
def test_group_norm_of_rows_is_a_loop(gained):
    x, gain, bias = _leaf(3, 3, 3, 2, 8), _leaf(2, 8, seed=1), _leaf(2, 8, seed=2)
    own = [gain[r] if gained else torch.ones(8).double() for r in range(2)]
    plain = _stacked([F.group_norm(xr, 4, own[r], bias[r]) for r, xr in enumerate(_rows(x))])
    (ours,) = group_norm([NormBlock(x, gain if gained else None, bias)], groups=4)
    _close(ours, plain, (x, gain, bias) if gained else (x, bias))


def test_blocks_are_normalised_as_if_they_were_alone():
    one, two = _leaf(3, 3, 3, 2, 8), _leaf(3, 3, 3, 1, 8, seed=1)
    bias, scale = _leaf(1, 8, seed=2), _leaf(1, 8, seed=3)
    blocks = [
        NormBlock(one, None, normal(2, 8).double()),
        NormBlock(two, None, bias, scale, relu=True),
    ]
    _, ours = group_norm(blocks, groups=2)
    plain = scale[0].view(-1, 1, 1) * F.relu(
        F.group_norm(_rows(two)[0], 2, torch.ones(8).double(), bias[0])
    )
    _close(ours, _stacked([plain]), (two, bias, scale))


def _kept(counts, channels, groups, size):
    """Masks and shares of envs that keep so many channels."""
    mask = (torch.arange(channels) < torch.tensor(counts).unsqueeze(-1)).double()
    many = mask.unflatten(-1, (groups, -1)).sum(-1) * size
    return mask, torch.where(many > 0, 1 / many.clamp(min=1), 0.0)


@given(
    st.lists(st.integers(1, 8), min_size=1, max_size=4),
    st.sampled_from([1, 2, 4]),
    st.integers(1, 4),
)
def test_kept_group_norm_uses_the_kept_channels_of_each_group(counts, groups, side):
    rows, size = len(counts), 8 // groups
    mask, share = _kept(counts, 8, groups, side * side)
    x, gain, bias = _leaf(2, side, side, rows, 8), _leaf(rows, 8, seed=1), _leaf(rows, 8, seed=2)
    ours = masked_group_norm(
        x * mask, gain * mask, bias * mask, channel_mask=mask, inverse_count=share
    )
    plain = torch.zeros_like(x)
    for r, (keep, own) in enumerate(zip(counts, _rows(x), strict=True)):
        for first in range(0, keep, size):
            here = slice(first, min(first + size, keep))
            part = F.group_norm(own[:, here], 1, gain[r, here], bias[r, here])
            plain[..., r, here] = part.permute(0, 2, 3, 1)
    _close(ours, plain, (x, gain, bias))


def test_kept_group_norm_keeps_its_precision_far_from_zero():
    x = 100 + normal(2, 6, 6, 1, 4)
    mask, share = torch.ones(1, 4), torch.full((1, 1), 1 / 144)
    ours = masked_group_norm(x, mask, 0 * mask, channel_mask=mask, inverse_count=share)
    plain = _stacked([F.group_norm(xr, 1) for xr in _rows(x.double())])
    torch.testing.assert_close(ours.double(), plain, rtol=0, atol=1e-4)


def test_batch_norm_normalises_with_its_own_minibatch():
    x, gain, bias = _leaf(4, 3, 3, 2, 3), _leaf(2, 3, seed=1), _leaf(2, 3, seed=2)
    mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2), correction=0)
    plain = (x - mean) / (var + 1e-5).sqrt() * gain + bias
    _close(batch_norm(x, gain, bias), plain, (x, gain, bias))


def test_images_come_with_their_channels_innermost():
    shared, own = normal(2, 3, 4, 4), normal(5, 2, 3, 4, 4)
    assert torch.equal(images_innermost(shared), _stacked([shared]))
    assert torch.equal(images_innermost(own), _stacked(own.unbind()))
