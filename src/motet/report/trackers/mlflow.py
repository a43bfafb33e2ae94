"""MLflow tracker.

Logs to the server in $MLFLOW_TRACKING_URI, or to ./mlflow.db, which needs the full mlflow package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motet.core.errors import ConfigError, first_line
from motet.core.install_hint import install_command
from motet.report.trackers import Tracker


@dataclass(frozen=True)
class MLflowTracker:
    client: Any
    run: str

    def log(self, round: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.client.log_metric(self.run, name, value, step=round)

    def close(self) -> None:
        self.client.set_terminated(self.run)


def open_tracker(name: str, folder: Path, settings: Mapping[str, Any]) -> Tracker:
    """Log to the MLflow server at MLFLOW_TRACKING_URI."""
    try:
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient
    except ImportError:
        raise ConfigError(
            f"track: mlflow is not installed. Run: {install_command('track', 'mlflow')}, or remove mlflow from track."
        ) from None
    try:
        client = MlflowClient()
        return MLflowTracker(client, _create_run(client, f"{name} {folder.name}", settings))
    except MlflowException as error:
        raise ConfigError(
            f"track: logging to MLflow failed: {first_line(error)}. Set MLFLOW_TRACKING_URI to a running server, or "
            "pip install mlflow to log to a local file, which mlflow-skinny cannot do."
        ) from None


def _create_run(client: Any, title: str, settings: Mapping[str, Any]) -> str:
    experiment = client.get_experiment_by_name("motet")
    experiment_id = experiment.experiment_id if experiment else client.create_experiment("motet")
    run: str = client.create_run(experiment_id, run_name=title).info.run_id
    for section, value in settings.items():
        client.log_param(run, section, str(value)[:500])
    return run
