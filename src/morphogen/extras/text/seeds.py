"""Blueprints of transformer hosts: deltas on the residual stream, exactly 0 at birth."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from morphogen.extras.text.attention import causal_attention
from morphogen.extras.text.standardise import spread, standardise
from morphogen.hosts import sequences
from morphogen.hosts.layout import Leaves, ParamLeaf, fan_in_leaf
from morphogen.hosts.seed_module import SeedModule
from morphogen.kernels.elementwise import gelu
from morphogen.kernels.linear import place_linear
from morphogen.vocab.slot import SlotSpec

HEADS = 4  # of attention
Delta = Callable[[Leaves, Tensor], Tensor]  # parameters [R, *shape], x [R, B, n, d] -> like x


@dataclass(frozen=True, slots=True)
class TokenBlueprint(SeedModule):
    """A blueprint of the package for features [B, n, R, d], and for dense ones, [B, R, d]."""

    name: str
    sizes: Callable[[int], tuple[ParamLeaf, ...]]
    compute: Delta
    fits: tuple[str, ...] = ("dense", "sequences")

    def leaves(self, channels: int) -> tuple[ParamLeaf, ...]:
        """Return the parameters of one seed."""
        return self.sizes(channels)

    def delta(self, params: Leaves, x: Tensor) -> Tensor:
        """Return the deltas of R seeds.  x [B, n, R, d] or [B, R, d] -> like x."""
        if x.dim() == 3:
            return self.delta(params, x.unsqueeze(1)).squeeze(1)
        return sequences.rows_innermost(self.compute(params, sequences.rows_outermost(x)))

    def macs(self, slot: SlotSpec) -> int:
        """Multiply-accumulates of one seed for one sample, all its tokens."""
        length = math.prod(slot.size)
        matrices = [leaf for leaf in self.leaves(slot.channels) if len(leaf.shape) == 2]
        attends = any(leaf.name == "qkv" for leaf in matrices)
        return length * (sum(leaf.size for leaf in matrices) + 2 * length * slot.channels * attends)


def _linear_leaves(
    names: tuple[str, str], inputs: int, outputs: int
) -> tuple[ParamLeaf, ParamLeaf]:
    """Weight and bias of a linear layer."""
    return fan_in_leaf(names[0], (outputs, inputs), inputs), fan_in_leaf(
        names[1], (outputs,), inputs
    )


def _norm_leaves(d: int) -> tuple[ParamLeaf, ...]:
    return ParamLeaf("w", (1,)), ParamLeaf("gain", (d,), fill=1.0), ParamLeaf("bias", (d,))


def _norm(p: Leaves, x: Tensor) -> Tensor:
    gain, bias = (spread(p[name], x.shape[1:3].numel()).view(x.shape) for name in ("gain", "bias"))
    weight = torch.tanh(p["w"]).expand(-1, x.shape[-1])
    difference = standardise(x) * gain + bias - x
    return difference * spread(weight, x.shape[1:3].numel()).view(x.shape)


def _attention_leaves(d: int) -> tuple[ParamLeaf, ...]:
    zero = ParamLeaf("out", (d, d)), ParamLeaf("out_bias", (d,))
    return (*_linear_leaves(("qkv", "qkv_bias"), d, 3 * d), *zero)


def _attention(p: Leaves, x: Tensor) -> Tensor:
    attended = causal_attention(place_linear(x, p["qkv"], p["qkv_bias"]), HEADS)
    return place_linear(attended, p["out"], p["out_bias"])


def _flex_attention(p: Leaves, x: Tensor) -> Tensor:
    """Attention through FlexAttention where a graph of a GPU is compiled, which is where it has a
    kernel.
    """
    if not (x.is_cuda and torch.compiler.is_compiling()):
        return _attention(p, x)
    return flexible_attention(p, x)


def flexible_attention(p: Leaves, x: Tensor) -> Tensor:
    """Compute the delta of attention through FlexAttention.  x [R, B, n, d] -> like x."""
    length = x.shape[2]
    qkv = place_linear(x, p["qkv"], p["qkv_bias"])
    parts = torch.unflatten(qkv.flatten(0, 1), -1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
    mask = create_block_mask(_sees, None, None, length, length, device=x.device.type)
    queries, keys, values = (part.contiguous() for part in parts.unbind(0))
    out = flex_attention(queries, keys, values, block_mask=mask)
    assert isinstance(out, Tensor)  # nothing else is asked for
    return place_linear(out.transpose(1, 2).flatten(2).view(x.shape), p["out"], p["out_bias"])


def _sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return key <= query


def _lora_leaves(inner: int) -> Callable[[int], tuple[ParamLeaf, ...]]:
    return lambda d: (fan_in_leaf("down", (inner, d), d), ParamLeaf("up", (d, inner)))


def _lora(p: Leaves, x: Tensor) -> Tensor:
    return place_linear(place_linear(x, p["down"]), p["up"])


def _mlp_leaves(factor: int) -> Callable[[int], tuple[ParamLeaf, ...]]:
    def leaves(d: int) -> tuple[ParamLeaf, ...]:
        zero = ParamLeaf("down", (d, factor * d)), ParamLeaf("down_bias", (d,))
        return (*_linear_leaves(("up", "up_bias"), d, factor * d), *zero)

    return leaves


def _mlp(p: Leaves, x: Tensor) -> Tensor:
    hidden = gelu(place_linear(x, p["up"], p["up_bias"]))
    return place_linear(hidden, p["down"], p["down_bias"])


TOKEN_ATTENTION = TokenBlueprint("attention", _attention_leaves, _attention, ("sequences",))
TOKEN_NORM = TokenBlueprint("norm", _norm_leaves, _norm)
LORA = TokenBlueprint("lora", _lora_leaves(8), _lora)
LORA_LARGE = TokenBlueprint("lora_large", _lora_leaves(32), _lora)
MLP_SMALL = TokenBlueprint("mlp_small", _mlp_leaves(2), _mlp)
MLP = TokenBlueprint("mlp", _mlp_leaves(4), _mlp)
FLEX_ATTENTION = TokenBlueprint("flex_attention", _attention_leaves, _flex_attention, ())
