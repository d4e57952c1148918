"""A share of the profile's examples, for properties of which one example takes long."""

from hypothesis import settings


def one_in(parts: int) -> int:
    """The examples of the profile divided by `parts`, at least one."""
    return max(1, settings().max_examples // parts)
