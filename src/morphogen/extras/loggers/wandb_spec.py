"""Settings of the logger `wandb`."""

from typing import Annotated, ClassVar, Literal

from morphogen.config.extra_settings import ExtraSpec
from morphogen.config.fields import Name, Names, spec


@spec
class WandbSpec(ExtraSpec):
    """Appearance of a run at Weights & Biases."""

    PATH: ClassVar[str] = "telemetry.wandb"
    FLAGS: ClassVar[str] = "logging and checkpoints"

    project: Name | None = None
    """project (default $WANDB_PROJECT, else morphogen)"""
    entity: Name | None = None
    """team or user"""
    group: Name | None = None
    """group of runs"""
    name: Name | None = None
    """name (default $WANDB_NAME, else the run directory's)"""
    tags: Annotated[tuple[str, ...], Names()] = ()
    """tags of the run"""
    mode: Literal["online", "offline", "disabled"] | None = None
    """online, offline, disabled (default $WANDB_MODE, else online)"""
