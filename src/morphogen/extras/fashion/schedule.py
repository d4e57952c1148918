"""The rival of the task `fashion` that does not look: its best schedule."""

from pathlib import Path

from morphogen.config.parts import FILE_POLICIES
from morphogen.config.spec import RunSpec
from morphogen.policy.policy import Policy
from morphogen.vocab.limits import Limits

FILE = Path(__file__).with_name("schedule.json")  # written by `morphogen tune --task fashion`


def build_schedule(spec: RunSpec, limits: Limits) -> Policy:
    """Build the policy of the packaged schedule.

    Raises: ConfigError for a run without its slots, blueprints or epochs.
    """
    return FILE_POLICIES.call("schedule", str(FILE), spec, limits)
