"""TensorBoard, Weights & Biases and MLflow, through the loggers of TorchRL."""

import importlib
import importlib.util
import os
from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from operator import attrgetter
from typing import Any, ClassVar

from morphogen.errors import ConfigError
from morphogen.extras.loggers.scalars import ScalarRow, ScalarSink
from morphogen.extras.loggers.wandb_spec import WandbSpec

PROJECT = "morphogen"


class Service(ScalarSink):
    """A logger of TorchRL; its name is the name of its package.

    A resumed run logs the repeated rounds again, under the same steps.  The id of a run at a
    service is kept in a file, so that a resumed run continues the same run there.
    """

    ID: ClassVar[str] = ""  # attribute of an open run, its id at the service

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
        id_file = self._place.folder / f"{self.NAME}.id"
        known = id_file.read_text("utf-8") if id_file.is_file() else None
        loggers = importlib.import_module("torchrl.record.loggers")
        logger = self.open_logger(loggers, known)
        if self.ID and known is None:
            id_file.write_text(attrgetter(self.ID)(logger.experiment), "utf-8")
        if self._place.config and not self._place.rounds and known is None:
            self.log_config(logger.experiment, self._place.config)
        return logger

    @abstractmethod
    def open_logger(self, loggers: Any, known: str | None) -> Any:
        """Open the logger of the module `loggers` of TorchRL.  known: id of the run at the
        service.
        """

    @abstractmethod
    def log_config(self, experiment: Any, config: Mapping[str, Any]) -> None:
        """Log the settings of the run."""

    def write_row(self, row: ScalarRow) -> None:
        """Log every measured number of a row."""
        for name, value in row.scalars():
            self._logger.log_scalar(name, value, step=row.step)

    def flush(self) -> None:
        """Do nothing: a service flushes on its own schedule."""

    def close(self) -> None:
        """End the run at the service."""
        if "_logger" in vars(self):
            self.close_logger(self._logger.experiment)

    @abstractmethod
    def close_logger(self, experiment: Any) -> None:
        """End an open run."""


class TensorBoard(Service):
    """Event files of TensorBoard in the run directory."""

    NAME = "tensorboard"

    def open_logger(self, loggers: Any, known: str | None) -> Any:
        """Open a file."""
        return loggers.TensorboardLogger(exp_name=self.NAME, log_dir=str(self._place.folder))

    def log_config(self, experiment: Any, config: Mapping[str, Any]) -> None:
        """Log the settings as a table in Markdown."""
        rows = [f"| {name} | {value} |" for name, value in config.items()]
        experiment.add_text("config", "\n".join(["| setting | value |", "|---|---|", *rows]))

    def close_logger(self, experiment: Any) -> None:
        """Close the file."""
        experiment.close()


class WeightsAndBiases(Service):
    """Weights & Biases; settings count more than its environment variables."""

    NAME = "wandb"
    ID = "id"
    KEEPS_LINKS = True  # a link to its newest run

    def open_logger(self, loggers: Any, known: str | None) -> Any:
        """Open a run, or continue one."""
        spec: WandbSpec = getattr(self._spec, self.NAME)
        environ = os.environ
        return loggers.WandbLogger(
            exp_name=spec.name or environ.get("WANDB_NAME") or self._place.run.absolute().name,
            log_dir=environ.get("WANDB_DIR") or str(self._place.folder),
            project=spec.project or environ.get("WANDB_PROJECT") or PROJECT,
            log_env_packages=False,
            tags=list(spec.tags) or None,  # None: from the environment, like `mode`
            id=known,
            entity=spec.entity,
            group=spec.group,
            mode=spec.mode,
        )

    def log_config(self, experiment: Any, config: Mapping[str, Any]) -> None:
        """Set the config of the run."""
        experiment.config.update(dict(config))

    def close_logger(self, experiment: Any) -> None:
        """Finish the run."""
        experiment.finish()


class MlFlow(Service):
    """MLflow: the server of `MLFLOW_TRACKING_URI`, or a data base in the run directory."""

    NAME = "mlflow"
    ID = "info.run_id"

    def open_logger(self, loggers: Any, known: str | None) -> Any:
        """Open a run, or continue one."""
        if known is not None:
            os.environ["MLFLOW_RUN_ID"] = known  # of the run that is started next
        folder = self._place.folder
        artifacts = self._place.run.absolute() / folder.name / self.NAME
        uris = {
            "tracking_uri": f"sqlite:///{folder}/mlflow.db",
            "artifact_location": artifacts.as_uri(),
        }
        if uri := os.environ.get("MLFLOW_TRACKING_URI"):
            uris = {"tracking_uri": uri}  # its server knows where artifacts go
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or PROJECT
        return loggers.MLFlowLogger(exp_name=name, **uris)

    def log_config(self, experiment: Any, config: Mapping[str, Any]) -> None:
        """Log the settings as parameters."""
        importlib.import_module("mlflow").log_params(dict(config))

    def close_logger(self, experiment: Any) -> None:
        """End the run."""
        importlib.import_module("mlflow").end_run()
