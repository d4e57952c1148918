"""Paths as people write them."""

import os
from pathlib import Path

from morphogen.errors import ConfigError
from morphogen.vocab.text import format_value

POLICY_FILE = "policy.safetensors"  # in a run directory
NETWORK_ENTRY = "network"  # of the metadata in the file of a grown network


def expand_path(text: str | os.PathLike[str]) -> Path:
    """Return the path of a text in which `~` is a home folder.

    Raises: ConfigError if that home folder is unknown, as without HOME and without an entry in
    /etc/passwd.
    """
    path = os.path.expanduser(text)  # unlike Path.expanduser, it leaves ./~ as it is
    if path.startswith("~"):
        raise ConfigError(f"path: expected a known home folder for ~, got {format_value(path)}")
    return Path(path)
