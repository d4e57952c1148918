"""Compiled convolutions against plain torch in float64, which `test_layers.py` compares with loops."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.plain_torch import agree, leaf, results
from support.small_states import normal

from morphogen import kernels
from morphogen.kernels import Form
from morphogen.kernels.conv import stacked_conv

pytestmark = pytest.mark.skipif(
    not kernels.CAN_CONVOLVE, reason="no extension, or a processor without AVX2"
)
CHANNELS = st.tuples(
    st.sampled_from([1, 2, 3, 4, 8, 16, 24, 32]), st.sampled_from([4, 8, 16, 32, 48, 64])
)
SIDES = st.tuples(st.integers(1, 17), st.integers(1, 17))


@given(
    st.integers(1, 9), SIDES, st.integers(1, 5), CHANNELS, st.sampled_from([1, 3, 5]), st.booleans()
)
def test_a_convolution_is_that_of_plain_torch(samples, sides, rows, channels, kernel, needs_grad):
    inputs, outputs = channels
    x = normal(samples, *sides, rows, inputs).requires_grad_(needs_grad)
    weight = leaf(rows, outputs, inputs, kernel, kernel, seed=1)
    assert kernels.form_of("conv", x, weight) is Form.KERNEL
    agree(stacked_conv, x, weight)


@pytest.mark.parametrize(("shape", "outputs"), [
    ((3, 8, 8, 70, 4), 4),
    ((3, 8, 8, 37, 8), 8),
    ((3, 8, 8, 9, 32), 32),
    ((1, 136, 128, 3, 16), 16),  # planes that fill the cache
])  # fmt: skip
def test_many_networks_are_worked_on_in_bundles(shape, outputs):
    agree(stacked_conv, leaf(*shape), leaf(shape[3], outputs, shape[4], 3, 3, seed=1))


@pytest.mark.parametrize("kernel", [1, 3])
def test_a_slice_of_networks_is_read_where_it_lies(kernel):
    x, weight = normal(2, 8, 8, 5, 8)[..., 1:4, :], leaf(3, 8, 8, kernel, kernel, seed=1)
    ours, joint = (
        results(stacked_conv, own.requires_grad_(), weight) for own in (x, x.contiguous())
    )
    assert all(map(torch.equal, ours, joint))


@pytest.mark.parametrize(
    ("inputs", "outputs", "kernel"), [(3, 8, 3), (1, 4, 1), (8, 8, 1), (2, 4, 3), (16, 32, 3)]
)
def test_a_network_that_is_not_finite_stays_alone(inputs, outputs, kernel):
    x, weight = normal(2, 4, 4, 3, inputs), normal(3, outputs, inputs, kernel, kernel, seed=1)
    broken, wrong = x.clone(), weight.clone()
    broken[:, :, :, 1], wrong[1] = torch.nan, torch.inf
    ours = results(stacked_conv, x.requires_grad_(), weight.requires_grad_())
    other = results(stacked_conv, broken.requires_grad_(), wrong.requires_grad_())
    for one, two, axis in zip(ours, other, (3, 3, 0), strict=True):
        assert all(torch.equal(one.select(axis, r), two.select(axis, r)) for r in (0, 2))


@pytest.mark.parametrize(("x", "weight"), [
    ((2, 8, 8, 2, 8), (2, 5, 8, 3, 3)),  # channels that come out
    ((2, 8, 8, 2, 8), (2, 8, 8, 2, 2)),  # no centre
    ((2, 8, 8, 1, 8), (2, 8, 8, 3, 3)),  # seen by all
    ((2, 8, 8, 2, 8), (2, 8, 1, 3, 3)),  # every channel alone
])  # fmt: skip
def test_shapes_without_a_kernel_are_left_to_torch(x, weight):
    x, weight = normal(*x), normal(*weight, seed=1)
    assert kernels.form_of("conv", x, weight) is Form.ORDERED
    assert kernels.form_of("conv", x.double(), weight) is Form.TORCH


@pytest.mark.parametrize(("weight", "form"), [
    ((2, 8, 8, 1, 1), Form.MATRIX),
    ((2, 8, 8, 3, 3), Form.TORCH),
    ((2, 8, 1, 3, 3), Form.TORCH),  # every channel alone
])  # fmt: skip
def test_without_kernels_a_convolution_of_single_pixels_is_a_product_of_matrices(weight, form):
    x, weight = normal(2, 8, 8, 2, 8).to("meta"), normal(*weight, seed=1).to("meta")
    assert kernels.form_of("conv", x, weight) is form
    assert stacked_conv(x, weight).shape == (2, 8, 8, 2, 8)
