"""Errors of invalid input.  Every message names the field, the value and the allowed values."""


class ConfigError(ValueError):
    """A configuration, flag or constructor argument that cannot be used (exit code 2)."""


class DeviceError(ConfigError):
    """A device that does not exist or cannot do what was asked (exit code 2)."""


class ScheduleError(ConfigError):
    """A declared schedule whose next action is illegal (exit code 2)."""


class DataError(ValueError):
    """A data file that is missing, damaged or of another shape (exit code 3)."""


class CheckpointError(ValueError):
    """A checkpoint or policy file that does not fit or is damaged (exit code 4)."""


class TrainingDiverged(RuntimeError):
    """Several rounds in a row without one finite optimiser step of the policy (exit code 5)."""
