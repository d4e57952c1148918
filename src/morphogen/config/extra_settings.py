"""Groups of settings that extras add to a spec, by the entry points `morphogen.settings`."""

from typing import Any, ClassVar, TypeVar

from morphogen.config.fields import Checks, Spec
from morphogen.config.host import Host
from morphogen.config.registry import extra_parts

C = TypeVar("C", bound=type)


class ExtraSpec(Spec):
    """Base of a group of settings of an extra; its entry point has the path of the group as its
    name.
    """

    # module:class of the instance process of a run with this group; "" = none
    PROCESS: ClassVar[str] = ""
    # title in help texts of the flags `--GROUP-FIELD` of all fields; "" = no flags
    FLAGS: ClassVar[str] = ""

    def host_checks(
        self, host: Host, *, classes: tuple[int, int], observed: tuple[str, ...]
    ) -> Checks:
        """Return the settings of the group that a run allows, as `cross_checks` does.

        Args:
            host: of the run.
            classes: range of the number of classes of an env; (0, 0): no class labels.
            observed: names of the instance parameters that the policy observes.
        """
        return {}

    def fill_owner(self, owner: Any) -> Any:
        """Return the spec that holds the group, with every field set that the extra decides."""
        return owner


def with_extras(cls: C) -> C:
    """Add the groups of extras to the class of a spec, as its last fields.

    Only extras of this distribution add settings, because a broken group would stop every run.
    """
    for path, group in extra_parts("morphogen.settings").items():
        owner, _, name = path.rpartition(".")
        if owner == getattr(cls, "PATH", None):
            cls.__annotations__[name] = group
            setattr(cls, name, group())
    return cls


def fill_owner(owner: Any) -> Any:
    """Return a spec in which every group of an extra has set the fields that it decides."""
    for group in extra_groups(owner).values():
        owner = group.fill_owner(owner)
    return owner


def extra_groups(owner: Any) -> dict[str, ExtraSpec]:
    """Return the groups of extras in a spec, by name."""
    return {name: group for name, group in vars(owner).items() if isinstance(group, ExtraSpec)}
