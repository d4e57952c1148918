"""Settings of the logger `wandb`."""

from typing import Annotated, ClassVar, Literal

from morphogen.config.extra_settings import ExtraSpec
from morphogen.config.fields import OUTPUT, Name, Names, Null, option, spec


@spec
class WandbSpec(ExtraSpec):
    """Appearance of a run at Weights & Biases."""

    PATH: ClassVar[str] = "telemetry.wandb"

    project: Annotated[Name | None, Null("$WANDB_PROJECT, else morphogen")] = option(
        default=None,
        flag=("--wandb-project", "NAME", OUTPUT),
        text="project (default $WANDB_PROJECT, else morphogen)",
    )
    entity: Annotated[Name | None, Null("the account's")] = option(
        default=None, flag=("--wandb-entity", "NAME", OUTPUT), text="team or user"
    )
    group: Annotated[Name | None, Null("none")] = option(
        default=None, flag=("--wandb-group", "NAME", OUTPUT), text="group of runs"
    )
    name: Annotated[Name | None, Null("$WANDB_NAME, else the run directory's")] = option(
        default=None,
        flag=("--wandb-name", "NAME", OUTPUT),
        text="name (default $WANDB_NAME, else the run directory's)",
    )
    tags: Annotated[tuple[str, ...], Names()] = option(
        default=(), flag=("--wandb-tags", "TAG", OUTPUT), text="tags of the run"
    )
    mode: Annotated[
        Literal["online", "offline", "disabled"] | None, Null("$WANDB_MODE, else online")
    ] = option(
        default=None,
        flag=("--wandb-mode", "MODE", OUTPUT),
        text="online, offline, disabled (default $WANDB_MODE, else online)",
    )
