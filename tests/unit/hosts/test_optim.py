"""Steps of AdamW of rows against `torch.optim`, and gradients."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from support.small_states import normal
from torch import nn

from morphogen.hosts.optim import (
    OPTIMIZERS,
    Live,
    Rates,
    grad_and_value,
)


def test_both_ways_to_a_gradient_agree_bit_for_bit():
    def objective(leaves):
        return (leaves[0].sin() * leaves[1]).sum(), leaves[0].detach().sum()

    leaves = (normal(3, 4), normal(3, 4, seed=1), normal(2, seed=2))
    result, beside = grad_and_value(objective, leaves)
    expected, other = torch.func.grad(objective, has_aux=True)(leaves)
    assert all(torch.equal(a, b) for a, b in zip(result, expected, strict=True))
    assert torch.equal(beside, other)
    assert not any(leaf.requires_grad for leaf in leaves)


def rows_step(params, state, grads, live, lr, decay=0.0):
    """A step of AdamW of hosts."""
    mask = live.unsqueeze(-1)
    adamw_of_rows = OPTIMIZERS["adamw"].step
    return adamw_of_rows(params, grads, state, Live(mask, mask, lambda x: x), Rates(lr, 0.9, decay))


def no_state(params):
    return torch.zeros_like(params), torch.zeros_like(params), params.new_zeros(len(params), 1)


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=6))
def test_adamw_of_rows_equals_torch_adamw_per_row_whatever_steps_are_not_taken(taken):
    """The gradient of a step that is not taken is not a number, and the step counts for nothing."""
    params = normal(3, 5).double()
    state, rows = no_state(params), [nn.Parameter(row.clone()) for row in params]
    plain = [torch.optim.AdamW([row], lr=0.01, weight_decay=0.1) for row in rows]
    for step, live in enumerate(taken):
        grads = normal(3, 5, seed=step).double()
        mask = torch.tensor(live)
        params, state = rows_step(
            params,
            state,
            torch.where(mask.unsqueeze(-1), grads, torch.nan),
            mask,
            lr=torch.full((3, 1), 0.01, dtype=torch.float64),
            decay=0.1,
        )
        for row, grad, optimiser, moves in zip(rows, grads, plain, live, strict=True):
            row.grad = grad
            if moves:
                optimiser.step()
    expected = torch.stack([row.detach() for row in rows])
    torch.testing.assert_close(params, expected, rtol=1e-12, atol=1e-12)
    assert state[2].flatten().tolist() == [sum(row) for row in zip(*taken, strict=True)]


def test_the_first_steps_of_adamw_are_exact_in_single_precision():
    params, grads = torch.ones(2, 3), torch.full((2, 3), 0.1)
    live = torch.tensor([True, False])
    after, state = rows_step(params, no_state(params), grads, live, lr=1.0)
    assert after[0].abs().max() < 2e-7
    assert after[1].tolist() == [1, 1, 1]
    assert not any(leaf[1].any() for leaf in state)
