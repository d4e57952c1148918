"""Defaults of the runs of tasks: config files, each in the folder of the module of its task."""

import json
from pathlib import Path

from morphogen.config.fields import Settings


def read_defaults(module: str, task: str) -> Settings:
    """Return the settings of the config file `TASK.json` in the folder of a module.

    module: path of the module, `__file__`.
    """
    return json.loads(Path(module).with_name(f"{task}.json").read_bytes())
