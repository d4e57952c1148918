"""Numbers of the transformer host, a causal language model."""

import math
from dataclasses import dataclass, field, replace
from typing import Self

from morphogen.config.fields import Checks
from morphogen.config.host import Host
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.plain import make_plain
from morphogen.vocab.slot import SlotSpec, format_slot

TOKEN_BLUEPRINTS: tuple[Blueprint, ...] = tuple(Blueprint(code) for code in (2, 3, *range(8, 13)))
_NETWORKS = "morphogen.extras.text.networks:TransformerNetworks"
_MODULES = {Blueprint.ATTENTION.label: "token_attention", Blueprint.NORM.label: "token_norm"}

_TOKENS = 4096  # evaluated at once
# Copies of features per layer and at once, and of logits, measured.
_STORED = 18.0
_HELD = 16.0
_LOGITS = 4.0


@dataclass(frozen=True)
class TransformerSpec(Host):
    """Numbers of a causal transformer; a slot `r0c{i}` lies after the last layer of segment i.

    Raises: ConfigError for a number out of its range.

    Example:
        >>> import morphogen as mg
        >>> host = mg.TransformerSpec(vocabulary=97, width=48, heads=4, layers=3, block=64)
        >>> host.params(), [slot.name for slot in host.all_slots]
        (92640, ['r0c0', 'r0c1', 'r0c2'])
    """

    computed_by = _NETWORKS
    blueprints = tuple(blueprint.label for blueprint in TOKEN_BLUEPRINTS)
    causal = True
    isolates = False
    vocabulary: int = field()
    """Tokens."""
    width: int = field()  # pyright: ignore[reportIncompatibleVariableOverride]
    """Of the features."""
    heads: int
    """Of attention."""
    layers: int
    block: int
    """Tokens in a sample."""
    segments: int = 3
    """Groups of layers, each with a slot after it."""
    dropout: float = 0.0
    """Share of the activations that are dropped in training."""
    reach: int = 0
    """Tokens back that attention sees where instances vary it, at most; 0: they do not, it sees
    all.
    """

    def __post_init__(self) -> None:
        make_plain(self)
        checks: Checks = {
            "vocabulary": (self.vocabulary >= 2, ">= 2"),
            "width": (
                self.width >= 1 and self.width % math.lcm(4, max(1, self.heads)) == 0,
                f"a multiple of {self.heads} heads, and of 4",
            ),
            **{name: (getattr(self, name) >= 1, ">= 1") for name in ("heads", "layers", "block")},
            "segments": (
                self.segments >= 1 and self.layers % max(1, self.segments) == 0,
                "a divisor of the layers",
            ),
            "dropout": (0.0 <= self.dropout < 1.0, ">= 0, < 1"),
            "reach": (0 <= self.reach < max(1, self.block), f"0 .. {self.block - 1} tokens"),
        }
        places = [
            SlotSpec(format_slot(0, i), self.width, (self.block,), i) for i in range(self.segments)
        ]
        self.set_numbers(
            checks,
            classes=self.vocabulary,
            input_shape=(self.block,),
            all_slots=tuple(places),
            chunk=max(1, _TOKENS // max(1, self.block)),
        )

    def configured(self, *, width: int | None, norm: str, vocabulary: int | None = None) -> Self:
        """Return the host with a model dimension and a number of tokens.  Raises: ConfigError for
        another normalisation.
        """
        Host.configured(self, width=None, norm=norm)
        return replace(self, width=width or self.width, vocabulary=vocabulary or self.vocabulary)

    def module_name(self, blueprint: str) -> str:
        """Return the name of the module of a blueprint: attention and norm have another form on
        tokens.
        """
        return _MODULES.get(blueprint, blueprint)

    def params(self, width: float = 1.0, classes: int | None = None) -> int:
        """Parameters; no instance restricts them."""
        d = self.width
        return (self.vocabulary + self.block) * d + self.layers * (12 * d * d + 13 * d) + 2 * d

    def numbers(self) -> dict[str, object]:
        """Numbers of the host but for its data."""
        names = ("width", "heads", "layers", "block", "segments", "dropout", "reach")
        return {name: getattr(self, name) for name in names}

    def activations(self) -> tuple[int, int]:
        """Numbers per sample: stored for the gradient, and at once in evaluation."""
        layers = _STORED * self.layers * self.width
        logits = _LOGITS * self.vocabulary
        return round(self.block * (layers + logits)), round(
            self.block * (_HELD * self.width + logits)
        )

    def macs(self) -> int:
        """Multiply-accumulates of one sample, all its tokens: products with parameters, and
        attention.
        """
        d = self.width
        n = self.block
        return n * (self.layers * (12 * d * d + 2 * n * d) + self.vocabulary * d)
