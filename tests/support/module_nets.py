"""Networks of plain torch that serve as hosts."""

import torch
from torch import nn

import morphogen as mg


class Cnn(nn.Module):
    """The CNN host of the digits as a plain module."""

    def __init__(self):
        super().__init__()
        self.conv0 = nn.Conv2d(1, 4, 3, padding=1, bias=False)
        self.norm0 = nn.GroupNorm(1, 4)
        self.act0 = nn.ReLU(inplace=True)
        self.pool = nn.MaxPool2d(2)
        self.conv1 = nn.Conv2d(4, 8, 3, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(1, 8)
        self.act1 = nn.ReLU(inplace=True)
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        x = self.pool(self.act0(self.norm0(self.conv0(x))))
        x = self.act1(self.norm1(self.conv1(x)))
        return self.head(x.mean((2, 3)))


class Skips(nn.Module):
    """Shortcuts past two slots, a normalisation by batch, a size that is used after a slot."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(2, 4, 3, padding=1)
        self.grow0, self.grow1 = mg.Slot(), mg.Slot()
        self.block = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(True))
        self.head = nn.Linear(4, 5)
        self.offset = nn.Parameter(torch.zeros(4))

    def forward(self, x):
        first = self.stem(x)
        count = x.shape[2] * x.shape[3]
        h = self.grow0(first + self.offset[:, None, None])
        h += first
        h = h + self.grow1(self.block(h))
        return self.head((h + first).sum((2, 3)) / count)


class Tokens(nn.Module):
    """Features that are sequences, weights that two layers share, and dropout."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.position = nn.Parameter(torch.randn(6, 8) * 0.02)
        self.layer = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.25), nn.Linear(16, 8))
        self.grow = mg.Slot()
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x):
        h = self.embed(x.abs().long() % 11) + self.position
        return self.head(self.grow(h + self.layer(h)).mean(1))


class Dense(nn.Module):
    """A perceptron."""

    def __init__(self):
        super().__init__()
        self.first, self.grow = nn.Linear(6, 8), mg.Slot()
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.grow(torch.tanh(self.first(x))))


class Attention(nn.Module):
    """Attention of torch over places."""

    def __init__(self):
        super().__init__()
        self.embed, self.grow = nn.Linear(4, 8), mg.Slot()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        h = self.embed(x)
        return self.head(self.grow(h + self.attention(h, h, h, need_weights=False)[0]).mean(1))
