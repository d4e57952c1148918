"""Settings `evaluation.keep` of a run: its networks that stay."""

from typing import ClassVar, Literal

from morphogen.config.extra_settings import ExtraSpec
from morphogen.config.fields import spec

NONE = "none"
ALL = "all"


@spec
class KeepSpec(ExtraSpec):
    """Parts of the final evaluation that a run keeps, besides its numbers.

    Example:
        >>> import morphogen as mg
        >>> mg.RunSpec(evaluation={"keep": {"networks": "all"}}).evaluation.keep.networks
        'all'
    """

    PATH: ClassVar[str] = "evaluation.keep"
    FLAGS: ClassVar[str] = "logging and checkpoints"

    networks: Literal["none", "best", "all"] = "best"
    """networks of the final evaluation to keep: none, best (default: the best and the median of
    each arm) or all
    """
