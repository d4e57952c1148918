"""Errors of invalid input.  Every message names the field, the value and the allowed values.

The command line exits with a code per class, so that scripts can tell them apart.
"""


class ConfigError(ValueError):
    """Invalid setting, flag or argument; all faults at once, a line each (exit code 2).

    Example:
        >>> import morphogen as mg
        >>> mg.RunSpec(envs=0, ppo={"clip": 3})
        Traceback (most recent call last):
            ...
        morphogen.errors.ConfigError: envs: expected a number greater than or equal to 1, got 0
        ppo.clip: expected a number less than or equal to 1, got 3
    """


class DeviceError(ConfigError):
    """Missing device, or a device without the requested ability (exit code 2)."""


class CompileError(ConfigError):
    """Failure of the compiler behind `engine.compile` (exit code 2)."""


class ScheduleError(ConfigError):
    """Illegal action of a declared schedule (exit code 2)."""


class DataError(ValueError):
    """Data file or data set that is missing, damaged or of another shape (exit code 3)."""


class CheckpointError(ValueError):
    """Checkpoint or policy file that is damaged or does not fit the run (exit code 4)."""


class TrainingDiverged(RuntimeError):
    """Run without one finite optimiser step of the policy in several consecutive rounds (exit code
    5).
    """


class RankError(RuntimeError):
    """Another process of a run died, did not answer in time, or differs from this one (exit code
    8).
    """
