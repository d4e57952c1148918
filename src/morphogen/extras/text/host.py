"""Numbers of the transformer host, a causal language model."""

import math
from dataclasses import field, replace
from typing import Annotated, ClassVar, Self

from pydantic import Field

from morphogen.config.fields import Checks, Count, Natural, Several, Spec, spec
from morphogen.config.host import Host
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.slot import SlotSpec, format_slot

TOKEN_BLUEPRINTS: tuple[Blueprint, ...] = tuple(Blueprint(code) for code in (2, 3, *range(8, 13)))
_NETWORKS = "morphogen.extras.text.networks:TransformerNetworks"
_MODULES = {Blueprint.ATTENTION.label: "token_attention", Blueprint.NORM.label: "token_norm"}

_TOKENS = 4096  # evaluated at once
# Copies of features per layer and at once, and of logits, measured.
_STORED = 18.0
_HELD = 16.0
_LOGITS = 4.0


@spec
class TransformerSpec(Host, Spec):
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
    PATH: ClassVar[str] = "host"
    IS_PART: ClassVar[bool] = True

    vocabulary: Several = field()
    """Tokens."""
    width: Count = field()  # pyright: ignore[reportIncompatibleVariableOverride]
    """Of the features."""
    heads: Count
    """Of attention."""
    layers: Count
    block: Count
    """Tokens in a sample."""
    segments: Count = 3
    """Groups of layers, each with a slot after it."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the activations that are dropped in training."""
    reach: Natural = 0
    """Tokens back that attention sees where instances vary it, at most; 0: they do not, it sees
    all.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.set_numbers(
            classes=self.vocabulary,
            input_shape=(self.block,),
            all_slots=tuple(
                SlotSpec(format_slot(0, i), self.width, (self.block,), i)
                for i in range(self.segments)
            ),
            chunk=max(1, _TOKENS // self.block),
        )

    def cross_checks(self) -> Checks:
        """Heads share the width, segments the layers; no place sees back beyond the sample."""
        return {
            "width": (
                self.width % math.lcm(4, self.heads) == 0,
                f"a multiple of {self.heads} heads, and of 4",
            ),
            "segments": (self.layers % self.segments == 0, "a divisor of the layers"),
            "reach": (self.reach < self.block, f"0 .. {self.block - 1} tokens"),
        }

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
