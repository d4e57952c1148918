"""Settings of the logger `wandb`."""

from typing import Annotated, ClassVar, Literal

from morphogen.config.extra_settings import ExtraSpec
from morphogen.config.fields import (
    OUTPUT,
    Flag,
    Name,
    Names,
    Null,
    spec,
)


@spec
class WandbSpec(ExtraSpec):
    """Appearance of a run at Weights & Biases."""

    PATH: ClassVar[str] = "telemetry.wandb"

    project: Annotated[
        Name | None, Null("$WANDB_PROJECT, else morphogen"), Flag("--wandb-project", "NAME", OUTPUT)
    ] = None
    """project (default $WANDB_PROJECT, else morphogen)"""
    entity: Annotated[
        Name | None, Null("the account's"), Flag("--wandb-entity", "NAME", OUTPUT)
    ] = None
    """team or user"""
    group: Annotated[Name | None, Null("none"), Flag("--wandb-group", "NAME", OUTPUT)] = None
    """group of runs"""
    name: Annotated[
        Name | None,
        Null("$WANDB_NAME, else the run directory's"),
        Flag("--wandb-name", "NAME", OUTPUT),
    ] = None
    """name (default $WANDB_NAME, else the run directory's)"""
    tags: Annotated[tuple[str, ...], Names(), Flag("--wandb-tags", "TAG", OUTPUT)] = ()
    """tags of the run"""
    mode: Annotated[
        Literal["online", "offline", "disabled"] | None,
        Null("$WANDB_MODE, else online"),
        Flag("--wandb-mode", "MODE", OUTPUT),
    ] = None
    """online, offline, disabled (default $WANDB_MODE, else online)"""
