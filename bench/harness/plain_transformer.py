"""A language model the way anybody would write it, with its seeds: the rival and the oracle of the
stacked form.

As in `minimal` nothing is imported from the package: leaves, order and mathematics are written out
here, and not taken from the module that an export of the package builds.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SEED_HEADS = 4


class Attention(nn.Module):
    """Causal attention, of a layer or of a seed."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x: Tensor, reach: int | None = None) -> Tensor:
        samples, length, d = x.shape
        parts = (
            self.qkv(x).view(samples, length, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        )
        if reach is None:
            y = F.scaled_dot_product_attention(*parts.unbind(0), is_causal=True)
        else:
            seen = torch.ones(length, length, dtype=torch.bool, device=x.device).tril().triu(-reach)
            y = F.scaled_dot_product_attention(*parts.unbind(0), attn_mask=seen)
        return self.out(y.transpose(1, 2).reshape(samples, length, d))


class Perceptron(nn.Module):
    """The perceptron of a layer (factor 4) or of a seed."""

    def __init__(self, d: int, factor: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(d, factor * d), nn.Linear(factor * d, d)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))


class LowRank(nn.Module):
    def __init__(self, d: int, rank: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(d, rank, bias=False), nn.Linear(rank, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.up(self.down(x))


class TokenNorm(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(()))
        self.norm = nn.LayerNorm(d)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.w) * (self.norm(x) - x)


class TokenGate(nn.Module):
    """A gate per token, out of the mean of all tokens up to it."""

    def __init__(self, d: int) -> None:
        super().__init__()
        hidden = max(8, d // 4)
        self.first, self.second = nn.Linear(d, hidden), nn.Linear(hidden, 1)

    def forward(self, x: Tensor) -> Tensor:
        count = torch.arange(1, x.shape[1] + 1, device=x.device).unsqueeze(-1)
        return torch.sigmoid(self.second(F.silu(self.first(x.cumsum(1) / count))))


TOKEN_BODIES = {  # by the codes of the package
    2: lambda d: Attention(d, SEED_HEADS),
    3: TokenNorm,
    8: lambda d: LowRank(d, 8),
    9: lambda d: LowRank(d, 32),
    10: lambda d: Perceptron(d, 2),
    11: lambda d: Perceptron(d, 4),
    12: lambda d: Attention(d, SEED_HEADS),
}


class Layer(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(d), Attention(d, heads)
        self.norm2, self.perceptron = nn.LayerNorm(d), Perceptron(d, 4)

    def forward(self, z: Tensor, reach: int | None) -> Tensor:
        z = z + self.attention(self.norm1(z), reach)
        return z + self.perceptron(self.norm2(z))


class LanguageModel(nn.Module):
    """The transformer with its slots, by name."""

    def __init__(
        self, vocabulary: int, d: int, heads: int, layers: int, block: int, segments: int
    ) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, d), nn.Embedding(block, d)
        self.layers = nn.ModuleList(Layer(d, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(d)
        self.segment = layers // segments
        self.reach: int | None = None  # tokens back that its attention sees; None: all
        self.slots = nn.ModuleDict()

    def forward(self, ids: Tensor, off: frozenset[str] = frozenset()) -> Tensor:
        z = self.token(ids) + self.position.weight[: ids.shape[1]]
        for i, layer in enumerate(self.layers, start=1):
            z = layer(z, self.reach)
            if i % self.segment == 0 and (name := f"r0c{i // self.segment - 1}") in self.slots:
                z = self.slots[name](z, name not in off)
        return F.linear(self.norm(z), self.token.weight)

    @staticmethod
    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        """Mean over the tokens with a label; -1 is none."""
        return F.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=-1)
