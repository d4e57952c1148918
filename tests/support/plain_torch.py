"""Values and gradients of kernels, compared with plain torch in float64; blends of simple scenes."""

import torch
from support.small_states import normal

from morphogen.kernels.blend import blend, build_seed_index


def results(function, *args):
    """Value of a function of tensors or None, and the gradients of all arguments that need one."""
    out = function(*args)
    leaves = [arg for arg in args if arg is not None and arg.requires_grad]
    weights = normal(*out.shape, seed=99).to(out.dtype)
    return out, *torch.autograd.grad(out, leaves, weights)


def leaf(*shape, seed=0):
    return normal(*shape, seed=seed).requires_grad_()


def doubled(arg):
    """Return the argument in float64, for which there are no kernels."""
    return None if arg is None else arg.detach().double().requires_grad_(arg.requires_grad)


def agree(function, *args):
    """Compare values and gradients with plain torch, which computes in float64."""
    for ours, plain in zip(
        results(function, *args), results(function, *map(doubled, args)), strict=True
    ):
        size = max([10.0, *plain.detach().nan_to_num().abs().flatten().tolist()])
        torch.testing.assert_close(
            ours.double(), plain, rtol=1e-4, atol=1e-5 * size, equal_nan=True
        )


def blend_rows(features, delta, alpha, training, *, algorithm="add", openness=None):
    """Blend a delta into every row of the features, all by one algorithm."""
    rows = torch.arange(features.shape[-2], device=features.device)
    gates = rows if algorithm == "gate" else rows[:0]
    seeds = build_seed_index(rows, alpha, training, gates, count=len(rows))
    spans = ((0, len(rows)),) if algorithm == "multiply" else ()
    openness = openness if algorithm == "gate" else None
    return blend(features, [delta], seeds, multiplied=spans, openness=openness)
