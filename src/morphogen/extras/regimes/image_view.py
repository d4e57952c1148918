"""Views: how the images of an env are shown."""

from enum import IntEnum


class View(IntEnum):
    """Views of normalised images; 0 is the mean of a channel."""

    PLAIN = 0  # as stored
    INVERTED = 1  # every number negated
    TURNED = 2  # by 90 degrees
    HALF = 3  # the right half is 0
    NOISY = 4  # noise added, the same for a sample in all epochs

    @property
    def label(self) -> str:
        """Name in configs, events and tables."""
        return self.name.lower()
