"""Train a policy that grows neural networks: many small hosts side by side, seeds in their slots.

Once per training epoch the policy picks one action per env: germinate a seed, set its blending,
keep it (fossilize), prune it, or wait.  PPO trains the policy on the value of the grown network
minus the price of its parameters. The package is for research on growing networks and on
reinforcement learning of such decisions.

The state of all envs is one stacked tree of tensors (`EnvState`).  Every step is a pure function of
that tree (`rules`, `hosts`, `policy`, `steps`, `ppo`); `env` and `train` compose the steps and
alone decide when the host waits for the device.

    import morphogen as mg
    result = mg.train_ppo_vectorized(mg.RunSpec(task="digits", rounds=10))

Entry points: `make` builds an environment, which moves many hosts epoch by epoch under any policy,
and `make_env` the same for TorchRL; `train_ppo_vectorized` and `resume` run and continue a
training, `play` plays a policy, `tables` and `report` read a run back, `RunSpec` and its groups
hold every setting, `Scheduler` with `Parts` runs a training, `run_epoch`, `Rollout` and
`PpoLearner` are its parts for a loop of your own, `TASKS`, `HOSTS`, `BLUEPRINTS`, `RULES` and the
other registries take parts of your own, `testing` holds their laws.  `dir(morphogen)` lists every
public name: classes and functions, the packages, and the modules `actions` (`env.actions`) and
`rng` (`state.rng`).

Importing the package loads neither torch nor any module: a name is imported on first use.  Below:
the manual of the command line and of run directories (`MANUAL.md`), all settings (`SETTINGS.md`),
then the names of the original system (`ORIGINAL_NAMES.md`).

.. include:: MANUAL.md
.. include:: SETTINGS.md
.. include:: ORIGINAL_NAMES.md
"""

import importlib
import re
from pathlib import Path
from typing import Any

# one list, for type checkers too
_PUBLIC = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_HOMES: dict[str, str] = {
    name: home for home, name in re.findall(r"(?m)^from (\S+) import (\w+) as", _PUBLIC)
}
__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("morphogen")
    if name not in _HOMES:
        raise AttributeError(f"module 'morphogen' has no attribute {name!r}")
    home = importlib.import_module(_HOMES[name])
    value = (
        vars(home)[name]
        if name in vars(home)
        else importlib.import_module(f"{home.__name__}.{name}")
    )
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
