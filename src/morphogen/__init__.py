"""morphogen: growing neural networks under the control of a learned policy.

Many small host networks train side by side; in their slots seeds are germinated, trained in isolation, blended in and
kept, or pruned.  Once per epoch a policy picks one action per env and is paid by what the grown network is worth minus
what it costs.  The state of all envs is one stacked tree of tensors (`EnvState`), every step is a pure function over it
(`steps`, `rules`, `nets`, `learn`), and one scheduler composes them and is the only place that waits for the device.

    import morphogen as mg
    result = mg.train_ppo_vectorized(mg.RunSpec(task="digits", rounds=10))

Names are loaded on first use, so that importing the package costs nothing.
"""

import importlib
from typing import Any

_HOMES = {
    "errors": (
        "CheckpointError",
        "ConfigError",
        "DataError",
        "DeviceError",
        "ScheduleError",
        "TrainingDiverged",
    ),
    "config.spec": (
        "AttributionSpec",
        "CheckpointSpec",
        "DataSpec",
        "EngineSpec",
        "GovernorSpec",
        "HostSpec",
        "InstanceSpec",
        "LifecycleSpec",
        "PolicySpec",
        "PpoSpec",
        "RewardSpec",
        "RunSpec",
        "SignalSpec",
        "TelemetrySpec",
        "resolve",
    ),
    "config.task": ("TASKS",),
    "config.preset": ("PRESETS",),
    "config.config_files": ("dump_config", "load_config"),
    "state.env": ("EnvState",),
    "state.decision": ("ActionOutcome", "ActionSpec"),
    "state.measure": ("RewardInputs",),
    "state.schema": ("describe",),
    "storage.checkpoint_files": ("load_checkpoint", "load_policy"),
    "telemetry.kinds.round": ("BatchSummary",),
    "engine.scheduler": ("Hooks", "Parts", "Scheduler"),
    "run.train": ("resume", "train_ppo_vectorized"),
    "evaluation.play": ("play",),
    "analysis.inspect_run": ("tables",),
    "analysis.report": ("report",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
_PACKAGES = ("config", "learn", "nets", "rules", "state", "steps", "vocab")
__all__ = sorted([*_HOME, *_PACKAGES])


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"morphogen.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'morphogen' has no attribute {name!r}")
    if _HOME[name].startswith("config."):  # a config may name a reward rule of an installed package
        importlib.import_module("morphogen.engine.extensions").register_names()
    value = getattr(importlib.import_module(f"morphogen.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
