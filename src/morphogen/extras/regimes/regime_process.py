"""Regimes of the world of an env: when they begin, and the images of each."""

import torch
from torch import Tensor

from morphogen.config.spec import RunSpec
from morphogen.data.instance_process import InstanceProcess, Range, Regime
from morphogen.extras.regimes.image_view import View
from morphogen.extras.regimes.image_views import show_views
from morphogen.extras.regimes.regime_spec import RegimeSpec
from morphogen.state import rng
from morphogen.state.tree_ops import constant_table
from morphogen.vocab.purpose import Purpose

VIEW = 0
CLASSES = 1
FIRST_CLASS = 4  # lanes of the stream of a regime


class RegimeProcess(InstanceProcess):
    """World whose regimes follow `regime.*`: functions of key, episode and epoch alone."""

    def __init__(self, spec: RunSpec, classes: int) -> None:
        super().__init__(spec, classes)
        self.settings: RegimeSpec = spec.regime
        self.changes = self.settings.hazard > 0

    def class_ranges(self, drawn: Range) -> tuple[Range, ...]:
        """Return the range of each view that occurs."""
        return tuple(self.settings.classes_in(view) or drawn for view in self.settings.views.used)

    def number(self, key: Tensor, episode: Tensor, epoch: Tensor) -> Tensor:
        """Number the regime at an epoch, from 0.

        Shapes: key int64 [E, 3]; episode, epoch int64 [E], epoch <= horizon -> int64 [E].
        Promise: regimes last `regime.least` epochs, and from then on each ends with probability
        `regime.hazard` per epoch.
        """
        horizon = self.spec.episode_length
        least = self.settings.least
        stay = 1 - self.settings.hazard
        stream = rng.stream(key, Purpose.REGIME_LENGTH, round=episode)
        words = rng.random_bits(stream, -(-horizon // least))  # a word per regime that fits
        longer = tuple(round(2**32 * stay**epochs) for epochs in range(1, horizon + 1))
        # A regime lasts one epoch more for each threshold above its word.
        extra = words.unsqueeze(-1) < constant_table(longer, torch.int64, key.device)
        ends = (least + extra.sum(-1)).cumsum(-1)
        return (ends <= epoch.unsqueeze(-1)).sum(-1)

    def regime(self, key: Tensor, episode: Tensor, epoch: Tensor) -> Regime:
        """Draw the regime of each env at an epoch."""
        number = self.number(key, episode, epoch)
        stream = rng.stream(key, Purpose.REGIME, round=episode, epoch=number)
        words = rng.random_bits(stream, FIRST_CLASS + self.classes)
        codes = tuple(map(int, self.settings.views.choices))
        drawn = rng.bounded_ints(words[:, VIEW], len(codes))
        view = constant_table(codes, torch.int64, key.device)[drawn]
        if self.settings.classes is None:
            return Regime(number, view)
        count = self._class_count(words[:, CLASSES], view)
        return Regime(number, view, count, words[:, FIRST_CLASS:])

    def _class_count(self, words: Tensor, view: Tensor) -> Tensor:
        """Draw the number of classes.  words, view int64 [E] -> int64 [E]."""
        ranges = tuple(self.settings.classes_in(code) or (0, 0) for code in View)
        lows, highs = zip(*ranges, strict=True)
        low, high = (constant_table(ends, torch.int64, view.device)[view] for ends in (lows, highs))
        return low + rng.bounded_ints(words, high - low + 1)

    def show(self, inputs: Tensor, view: Tensor, sample: Tensor) -> Tensor:
        """Return images in the view of each env."""
        settings = self.settings
        return show_views(inputs, view, sample, views=settings.views.used, noise=settings.noise)
