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


class Residual(nn.Module):
    """A block of two convolutions with a shortcut."""

    def __init__(self, before, after, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.downsample = nn.Sequential()
        if before != after:
            conv = nn.Conv2d(before, after, 1, stride, bias=False)
            self.downsample = nn.Sequential(conv, nn.BatchNorm2d(after))

    def forward(self, x):
        h = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(h + self.downsample(x))


def resnet18(width=8):
    """The residual network of 18 layers for images of 32 x 32; its usual width is 64."""
    widths = [width, width, 2 * width, 4 * width, 8 * width]
    net = nn.Sequential()
    net.add_module("conv1", nn.Conv2d(3, width, 3, padding=1, bias=False))
    net.add_module("bn1", nn.BatchNorm2d(width))
    net.add_module("relu", nn.ReLU(inplace=True))
    for i in range(4):
        first = Residual(widths[i], widths[i + 1], 1 + (i > 0))
        second = Residual(widths[i + 1], widths[i + 1], 1)
        net.add_module(f"layer{i + 1}", nn.Sequential(first, second))
    net.add_module("pool", nn.AdaptiveAvgPool2d(1))
    net.add_module("flatten", nn.Flatten())
    net.add_module("fc", nn.Linear(8 * width, 10))
    return net
