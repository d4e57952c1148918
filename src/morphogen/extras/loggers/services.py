"""TensorBoard and Weights & Biases, through the loggers of TorchRL."""

import importlib
import importlib.util
import os
from abc import abstractmethod
from functools import cached_property
from typing import Any, ClassVar

from morphogen.errors import ConfigError
from morphogen.extras.loggers.scalars import ScalarRow, ScalarSink
from morphogen.extras.loggers.wandb_spec import WandbSpec

PROJECT = "morphogen"


class Service(ScalarSink):
    """A logger of TorchRL; its name is the name of its package.

    A resumed run logs the repeated rounds again, under the same steps.
    """

    END: ClassVar[str]  # method of an open run that ends it

    @classmethod
    def check(cls) -> None:
        """Raise a ConfigError if the package of the logger is not installed."""
        name = cls.NAME
        if importlib.util.find_spec(name) is None:
            package = f'the package {name} (pip install "morphogen[{name}]")'
            raise ConfigError(
                f"telemetry.loggers: expected {package} for {name}, got no such package"
            )

    @cached_property
    def _logger(self) -> Any:
        """Opened by the thread that writes first: a service may be slow to answer, or refuse."""
        self._place.folder.mkdir(parents=True, exist_ok=True)
        return self.open_logger(importlib.import_module("torchrl.record.loggers"))

    @abstractmethod
    def open_logger(self, loggers: Any) -> Any:
        """Open the logger of the module `loggers` of TorchRL; a new run logs its settings."""

    def write_row(self, row: ScalarRow) -> None:
        """Log every measured number of a row."""
        for name, value in row.scalars():
            self._logger.log_scalar(name, value, step=row.step)

    def flush(self) -> None:
        """Do nothing: a service flushes on its own schedule."""

    def close(self) -> None:
        """End the run at the service."""
        if "_logger" in vars(self):
            getattr(self._logger.experiment, self.END)()


class TensorBoard(Service):
    """Event files of TensorBoard in the run directory."""

    NAME = "tensorboard"
    END = "close"

    def open_logger(self, loggers: Any) -> Any:
        """Open a file; the settings of the run are a table in Markdown."""
        place = self._place
        logger = loggers.TensorboardLogger(exp_name=self.NAME, log_dir=str(place.folder))
        if not place.rounds:
            rows = [f"| {name} | {value} |" for name, value in place.config.items()]
            table = "\n".join(["| setting | value |", "|---|---|", *rows])
            logger.experiment.add_text("config", table)
        return logger


class WeightsAndBiases(Service):
    """Weights & Biases; settings count more than its environment variables.

    The id of a run is kept in a file, so that a resumed run continues the same run there.
    """

    NAME = "wandb"
    END = "finish"
    KEEPS_LINKS = True  # a link to its newest run

    def open_logger(self, loggers: Any) -> Any:
        """Open a run, or continue one."""
        spec: WandbSpec = getattr(self._spec, self.NAME)
        place = self._place
        environ = os.environ
        id_file = place.folder / "wandb.id"
        known = id_file.read_text("utf-8") if id_file.is_file() else None
        logger = loggers.WandbLogger(
            exp_name=spec.name or environ.get("WANDB_NAME") or place.run.absolute().name,
            log_dir=environ.get("WANDB_DIR") or str(place.folder),
            project=spec.project or environ.get("WANDB_PROJECT") or PROJECT,
            log_env_packages=False,
            tags=list(spec.tags) or None,  # None: from the environment, like `mode`
            id=known,
            entity=spec.entity,
            group=spec.group,
            mode=spec.mode,
        )
        if known is None:
            id_file.write_text(logger.experiment.id, "utf-8")
            logger.experiment.config.update(dict(place.config))
        return logger
