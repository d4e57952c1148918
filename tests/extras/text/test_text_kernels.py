"""Kernels of attention and of layer normalisation against plain torch."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.plain_torch import agree, leaf, results
from support.small_states import normal

from morphogen import kernels
from morphogen.extras.text.attention import causal_attention
from morphogen.extras.text.standardise import standardise

pytestmark = pytest.mark.skipif(
    not kernels.AVAILABLE, reason="installed without a C compiler: there are no kernels"
)


@given(
    st.lists(st.integers(0, 130), max_size=3),
    st.sampled_from([1, 2, 15, 16, 17, 64, 128]),
    st.integers(1, 3),
    st.integers(1, 32),
)
def test_attention_equals_plain_torch(reach, length, heads, size):
    """Of two samples in each of some networks with a reach, or of two without."""
    limits = torch.tensor(reach) if reach else None
    qkv = leaf(max(1, len(reach)), 2, length, 3 * heads * size)
    agree(lambda x: causal_attention(x, heads, reach=limits), qkv)


def test_a_broken_token_is_seen_by_none_before_it():
    qkv = normal(1, 1, 20, 24)
    qkv[:, :, 17:] = float("nan")
    out = causal_attention(qkv, 2)
    assert torch.isfinite(out[:, :, :17]).all()
    assert torch.isnan(out[:, :, 17:]).all()


@given(st.integers(1, 40), st.integers(1, 70))
def test_rows_are_standardised_as_by_plain_torch(rows, size):
    ramp = torch.linspace(-3, 3, size)  # keeps the variance away from 0
    agree(standardise, (ramp + normal(rows, 2, size) / 2).requires_grad_())


def test_a_broken_row_breaks_no_other():
    x = normal(4, 24)
    x[1, 3] = float("nan")
    both = torch.stack(results(standardise, x.requires_grad_()))
    assert torch.isfinite(both).all(-1).all(0).tolist() == [True, False, True, True]
