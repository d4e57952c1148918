"""The transformer host, and seeds and gates on vectors, as modules of plain torch.

Parameters of a module are in the order of the leaves of its layout.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from morphogen.extras.text.host import TransformerSpec
from morphogen.extras.text.seeds import HEADS
from morphogen.vocab.blueprint import bottleneck_width


class CausalAttention(nn.Module):
    """Attention of every place on the places up to it.  `reach`: places back; None: all."""

    def __init__(self, width: int, heads: int, reach: int | None = None) -> None:
        super().__init__()
        self.heads = heads
        self.reach = reach
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return features like x, [B, n, d]."""
        samples, length, width = x.shape
        split = self.qkv(x).view(samples, length, 3, self.heads, width // self.heads)
        queries, keys, values = split.permute(2, 0, 3, 1, 4).unbind(0)
        if self.reach is None:
            y = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        else:
            seen = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
            seen = seen.triu(-self.reach)
            y = F.scaled_dot_product_attention(queries, keys, values, attn_mask=seen)
        return self.out(y.transpose(1, 2).reshape(samples, length, width))


class Perceptron(nn.Module):
    """Two linear layers."""

    def __init__(self, width: int, factor: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, factor * width)
        self.down = nn.Linear(factor * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return features like x."""
        return self.down(F.gelu(self.up(x)))


class LowRank(nn.Module):
    """A matrix of low rank."""

    def __init__(self, width: int, rank: int) -> None:
        super().__init__()
        self.down = nn.Linear(width, rank, bias=False)
        self.up = nn.Linear(rank, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return features like x."""
        return self.up(self.down(x))


class VectorNormShift(nn.Module):
    """Moves the features towards normalised ones."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.amount = nn.Parameter(torch.zeros(1, device="cpu"))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """Return features like x."""
        return torch.tanh(self.amount) * (self.norm(x) - x)


_SEEDS: dict[str, Callable[[int], nn.Module]] = {
    "attention": lambda d: CausalAttention(d, HEADS),
    "flex_attention": lambda d: CausalAttention(d, HEADS),
    "norm": VectorNormShift,
    "lora": lambda d: LowRank(d, 8),
    "lora_large": lambda d: LowRank(d, 32),
    "mlp_small": lambda d: Perceptron(d, 2),
    "mlp": lambda d: Perceptron(d, 4),
}


def build_seed(blueprint: str, channels: int) -> nn.Module | None:
    """Return a seed of a blueprint; None for one that is not known here."""
    build = _SEEDS.get(blueprint)
    return build and build(channels)


class VectorGate(nn.Module):
    """Openness of a seed: for each vector, for each sequence by its mean, or, causal, for each
    place by the mean of the places up to it.
    """

    def __init__(self, channels: int, kind: str) -> None:
        super().__init__()
        hidden = bottleneck_width(channels)
        self.kind = kind
        self.first = nn.Linear(channels, hidden)
        self.second = nn.Linear(hidden, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the openness in (0, 1), which broadcasts to x."""
        mean = x.detach()
        if self.kind == "causal":
            places = torch.arange(1, x.shape[1] + 1, device=x.device).unsqueeze(-1)
            mean = x.cumsum(1) / places
        elif self.kind == "sequences":
            mean = mean.mean(1, keepdim=True)
        return torch.sigmoid(self.second(F.silu(self.first(mean))))


def build_gate(channels: int, kind: str) -> nn.Module:
    """Return the gate of a slot, on features of a kind: dense, sequences or causal."""
    return VectorGate(channels, kind)


class Layer(nn.Module):
    """A layer of a transformer."""

    def __init__(self, width: int, heads: int, reach: int | None) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = CausalAttention(width, heads, reach)
        self.norm2 = nn.LayerNorm(width)
        self.perceptron = Perceptron(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Return features like x."""
        x = x + self.attention(self.norm1(x))
        return x + self.perceptron(self.norm2(x))


class PlainTransformer(nn.Module):
    """A causal language model with tied embeddings; slot `r0c{i}` is behind segment i."""

    def __init__(self, host: TransformerSpec, reach: int | None) -> None:
        super().__init__()
        self.token = nn.Embedding(host.vocabulary, host.width)
        self.position = nn.Embedding(host.block, host.width)
        layers = (Layer(host.width, host.heads, reach) for _ in range(host.layers))
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(host.width)
        self.slots = nn.ModuleDict()
        self.segment = host.layers // host.segments

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits of the next tokens.  int64 [B, n] -> [B, n, vocabulary]."""
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]]
        for i, layer in enumerate(self.layers, start=1):
            x = layer(x)
            name = f"r0c{i // self.segment - 1}"
            if i % self.segment == 0 and name in self.slots:
                x = self.slots[name](x)
        return F.linear(self.norm(x), self.token.weight)


def build_host(host: TransformerSpec, leaves: dict[str, Tensor], instance: Any) -> nn.Module:
    """Return a language model with the parameters of an env, in the world of its instance, a
    row.
    """
    made = PlainTransformer(host, int(instance.reach) if host.reach else None)
    made.load_state_dict(leaves)
    return made
