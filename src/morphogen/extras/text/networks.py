"""Transformer hosts, R at once: causal language models with tied embeddings."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from morphogen.extras.text.attention import causal_attention
from morphogen.extras.text.dropout import drop_values
from morphogen.extras.text.host import TransformerSpec
from morphogen.extras.text.standardise import normed_linear, spread
from morphogen.hosts import sequences
from morphogen.hosts.host_networks import HostRows
from morphogen.hosts.layout import ParamLayout, ParamLeaf
from morphogen.kernels.elementwise import gelu
from morphogen.kernels.linear import place_linear
from morphogen.state.env import Instance


def _norm_leaves(name: str, d: int) -> tuple[ParamLeaf, ParamLeaf]:
    return ParamLeaf(f"{name}.weight", (d,), fill=1.0), ParamLeaf(f"{name}.bias", (d,))


def _linear_leaves(name: str, shape: tuple[int, int], scale: int) -> tuple[ParamLeaf, ParamLeaf]:
    """Weight and bias of a linear layer; `scale`: 1 / variance of the weights."""
    weight = ParamLeaf(f"{name}.weight", shape, std=scale**-0.5)
    return weight, ParamLeaf(f"{name}.bias", shape[:1])


@dataclass(frozen=True, slots=True)
class TransformerNetworks:
    """`HostNetworks` of a transformer: a stage is a segment of layers; the first one embeds the
    tokens.
    """

    host: TransformerSpec

    def layout(self) -> ParamLayout:
        """Return the parameters of one host, in storage order.

        Initial weights are normal.  Logits have the deviation 1/2 at any width, so that an
        untrained host is at chance; a layer halves the variance of its inputs, and what is added to
        the stream shrinks with the number of layers.
        """
        host = self.host
        d = host.width
        depth = 2 * host.layers
        tables = (("token.weight", host.vocabulary), ("position.weight", host.block))
        leaves = [ParamLeaf(name, (entries, d), std=0.5 * d**-0.5) for name, entries in tables]
        for i in range(host.layers):
            leaves += [
                *_norm_leaves(f"layers.{i}.norm1", d),
                *_linear_leaves(f"layers.{i}.attention.qkv", (3 * d, d), 2 * d),
                *_linear_leaves(f"layers.{i}.attention.out", (d, d), 2 * d * depth),
                *_norm_leaves(f"layers.{i}.norm2", d),
                *_linear_leaves(f"layers.{i}.perceptron.up", (4 * d, d), 2 * d),
                *_linear_leaves(f"layers.{i}.perceptron.down", (d, 4 * d), 8 * d * depth),
            ]
        return ParamLayout((*leaves, *_norm_leaves("norm", d)))

    def masks(self, instance: Instance, like: Tensor) -> tuple[Tensor, ...]:
        """Return the tokens back that attention sees in each env, int64 [E]; nothing if instances
        do not vary them.
        """
        return (instance.reach,) if self.host.reach else ()

    def embed(self, inputs: Tensor) -> Tensor:
        """Return token numbers as features of one channel.  int64 [E, B, n], or [B, n] -> [B, n, E
        or 1, 1].
        """
        own = inputs if inputs.dim() > 2 else inputs.unsqueeze(0)
        return sequences.rows_innermost(own.unsqueeze(-1))

    def stage(self, i: int, x: Tensor, rows: HostRows) -> Tensor:
        """Compute the layers of segment i.  x [B, n, R, d]; before the first one [B, n, R or 1, 1]
        -> [B, n, R, d].
        """
        z = sequences.rows_outermost(x)
        z = z if i else self._embeddings(z.squeeze(-1), rows)
        count = self.host.layers // self.host.segments
        for layer in range(i * count, (i + 1) * count):
            z = self._layer(layer, z, rows)
        return sequences.rows_innermost(z)

    def head(self, x: Tensor, rows: HostRows) -> Tensor:
        """Return logits of the next tokens.  x [B, n, R, d] -> [R, B, n, vocabulary]."""
        gain, bias, token = (
            rows.pick(rows.leaves[name]) for name in ("norm.weight", "norm.bias", "token.weight")
        )
        return normed_linear(sequences.rows_outermost(x), gain, bias, token)

    def params_in_use(self, instance: Instance) -> Tensor:
        """Return all parameters.  int64 [E]."""
        return self.host.params_in_use(instance)

    def _embeddings(self, ids: Tensor, rows: HostRows) -> Tensor:
        """Return tokens and their positions as vectors.  ids int64 [R or 1, B, n] -> [R, B, n,
        d].
        """
        tables = ("token.weight", "position.weight")
        token, position = (rows.pick(rows.leaves[name]) for name in tables)
        samples, length = ids.shape[1:]
        first = torch.arange(token.shape[0], device=ids.device) * self.host.vocabulary
        x = F.embedding(ids + first.view(-1, 1, 1), token.flatten(0, 1))
        return self._drop(0, rows)(
            x + spread(position[:, :length].flatten(1), samples).view(x.shape)
        )

    def _drop(self, place: int, rows: HostRows) -> Callable[[Tensor], Tensor]:
        """Return the dropout of a place in the pass: 0 after the embedding, then three in every
        layer.
        """
        if rows.dropout is None:
            return lambda x: x
        return partial(drop_values, streams=rows.dropout, share=self.host.dropout, place=place)

    def _layer(self, i: int, z: Tensor, rows: HostRows) -> Tensor:
        """Attention, and the perceptron after it, both added to the stream.  z [R, B, n, d] -> [R,
        B, n, d].
        """

        def layer(name: str) -> tuple[Tensor, Tensor]:
            weight = rows.pick(rows.leaves[f"layers.{i}.{name}.weight"])
            return weight, rows.pick(rows.leaves[f"layers.{i}.{name}.bias"])

        qkv = normed_linear(z, *layer("norm1"), *layer("attention.qkv"))
        weights, *branches = (self._drop(3 * i + place, rows) for place in (1, 2, 3))
        reach = rows.pick(rows.masks[0]) if rows.masks else None
        attended = causal_attention(
            qkv, self.host.heads, None if rows.dropout is None else weights, reach
        )
        z = z + branches[0](place_linear(attended, *layer("attention.out")))
        hidden = normed_linear(z, *layer("norm2"), *layer("perceptron.up"))
        return z + branches[1](place_linear(gelu(hidden), *layer("perceptron.down")))
