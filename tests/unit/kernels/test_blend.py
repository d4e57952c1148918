"""Blending of a delta into the host: values and gradients for every stage and algorithm."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.plain_torch import blend_rows
from support.small_states import noise, normal

from morphogen.kernels.blend import blend, build_seed_index

SHAPE = (3, 2, 2, 2, 2)  # samples, height, width, rows, channels
ALPHAS = st.floats(0.0, 1.0, width=32)


def _run(algorithm, *, alpha, training, seed=0):
    """y, h, d, g and the gradients of <G, y> with respect to them."""
    h, d = normal(*SHAPE, seed=seed).double(), normal(*SHAPE, seed=seed + 1).double()
    g, out_grad = noise(3, 2, seed=seed + 2).double(), normal(*SHAPE, seed=seed + 3).double()
    a, t = torch.tensor([alpha, alpha]), torch.tensor([training, training])

    def objective(h, d, g):
        y = blend_rows(h, d, a, t, algorithm=algorithm, openness=g)
        return (out_grad * y).sum(), y

    grads, y = torch.func.grad(objective, argnums=(0, 1, 2), has_aux=True)(h, d, g)
    return y, (h, d, g), grads, out_grad


@given(ALPHAS)
def test_add_has_a_direct_path_of_factor_one_and_passes_alpha_to_the_seed(alpha):
    y, (h, d, _), (dh, dd, _), out_grad = _run("add", alpha=alpha, training=False)
    torch.testing.assert_close(y, h + alpha * d)
    torch.testing.assert_close(dh, out_grad)
    torch.testing.assert_close(dd, alpha * out_grad)


def test_difference_01_at_alpha_one_the_layers_upstream_keep_their_whole_gradient():
    _, _, (dh, _, _), out_grad = _run("add", alpha=1.0, training=False)
    assert torch.equal(dh, out_grad)


@given(ALPHAS)
def test_multiply_scales_host_and_seed_gradients_by_the_table(alpha):
    y, (h, d, _), (dh, dd, _), out_grad = _run("multiply", alpha=alpha, training=False)
    torch.testing.assert_close(y, h * (1 + alpha * torch.tanh(d)))
    torch.testing.assert_close(dh, out_grad * (1 + alpha * torch.tanh(d)))
    torch.testing.assert_close(dd, alpha * out_grad * h / torch.cosh(d) ** 2)


@given(ALPHAS)
def test_gate_weighs_the_delta_and_learns_from_it(alpha):
    y, (h, d, g), (dh, dd, dg), out_grad = _run("gate", alpha=alpha, training=False)
    open_ = g.view(3, 1, 1, 2, 1)
    torch.testing.assert_close(y, h + alpha * open_ * d)
    torch.testing.assert_close(dh, out_grad)
    torch.testing.assert_close(dd, alpha * open_ * out_grad)
    torch.testing.assert_close(dg, alpha * (out_grad * d).sum((1, 2, 4)))


def test_a_gate_learns_nothing_while_its_seed_is_silent():
    _, _, (_, _, dg), _ = _run("gate", alpha=0.5, training=True)
    assert torch.equal(dg, torch.zeros_like(dg))


@pytest.mark.parametrize("algorithm", ["add", "multiply"])
def test_in_training_the_value_is_the_hosts_and_the_seed_learns_its_full_effect(algorithm):
    y, (h, d, _), (dh, dd, _), out_grad = _run(algorithm, alpha=0.0, training=True)
    assert torch.equal(y, h)
    assert torch.equal(dh, out_grad)
    torch.testing.assert_close(
        dd, out_grad * h / torch.cosh(d) ** 2 if algorithm == "multiply" else out_grad
    )


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
@pytest.mark.parametrize("algorithm", ["add", "multiply"])
@pytest.mark.parametrize("training", [True, False])
def test_difference_05_an_incubating_or_silent_seed_that_is_broken_is_invisible(
    algorithm, training, poison
):
    h, out_grad = normal(*SHAPE), normal(*SHAPE, seed=3)
    d = torch.full(SHAPE, poison)
    a, t = torch.zeros(2), torch.tensor([training, training])

    def objective(h):
        y = blend_rows(h, d, a, t, algorithm=algorithm)
        return (out_grad * y).sum(), y

    dh, y = torch.func.grad(objective, has_aux=True)(h)
    assert torch.equal(y, h)
    assert torch.equal(dh, out_grad)


def test_seeds_of_every_kind_are_blended_at_once_wherever_they_are():
    h, d = normal(3, 2, 7, 2).double(), normal(3, 2, 6, 2, seed=1).double()
    alpha = torch.tensor([0.25, 0.75, 0.5, 1.0, 0.0, 0.4])
    training = torch.tensor([False, False, False, False, False, True])
    rows, spans = torch.tensor([4, 2, 0, 1, 6, 5]), ((1, 2), (3, 4))
    seeds = build_seed_index(rows, alpha, training, torch.tensor([2, 0]), count=7)
    openness = noise(3, 2).double()  # of the third and first seed
    blocks = [d[..., :2, :].contiguous(), d[..., 2:, :].contiguous()]
    y = blend(h, blocks, seeds, multiplied=spans, openness=openness)
    expected = h.clone()
    expected[..., 4, :] += 0.25 * openness[:, 1:, None] * d[..., 0, :]
    expected[..., 2, :] *= 1 + 0.75 * torch.tanh(d[..., 1, :])
    expected[..., 0, :] += 0.5 * openness[:, :1, None] * d[..., 2, :]
    expected[..., 1, :] *= 1 + torch.tanh(d[..., 3, :])
    torch.testing.assert_close(y, expected)
    assert torch.equal(y[..., [3, 5, 6], :], h[..., [3, 5, 6], :])
