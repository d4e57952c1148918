"""The lifecycle in which no seed moves by itself."""

from typing import Any

from morphogen.config.groups import LifecycleSpec


def by_hand(**fields: Any) -> LifecycleSpec:
    """Lifecycle whose gates all wait for an action, with ten epochs of training."""
    return LifecycleSpec(**{"auto_forward": (), "min_training_epochs": 10, **fields})
