"""Base of the setting groups that extras add to `RunSpec`."""

from typing import ClassVar

from morphogen.config.fields import Spec
from morphogen.vocab.host import Host


class SettingGroup(Spec):
    """Settings of an extra: a group of `RunSpec` under the name of its entry point (`config.parts.GROUPS`).

    A run whose group is not at its defaults has the instance process that the group names.
    """

    PROCESS: ClassVar[str] = ""  # module:class of the `data.instance_process.InstanceProcess`; "" = none

    def host_faults(self, host: Host, *, classes: tuple[int, int], observed: tuple[str, ...]) -> list[str]:
        """Describe settings that do not fit the run, a line each.

        Args:
            host: of the run.
            classes: range of the number of classes of an env.
            observed: names of the instance parameters that the policy observes.
        """
        return []

    def summary(self) -> str:
        """Describe the group in a line, for the list that a run prints at its start."""
        return ""
