"""MLflow: to the server that $MLFLOW_TRACKING_URI names; else into ./mlflow.db, for which the whole package is needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motet.core.errors import ConfigError, first_line
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
    try:
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient
    except ImportError:
        raise ConfigError("track: mlflow is not installed; run: pip install 'motet[track]', or leave it out.") from None
    try:
        client = MlflowClient()
        return MLflowTracker(client, _begun(client, f"{name} {folder.name}", settings))
    except MlflowException as error:
        raise ConfigError(
            f"track: MLflow cannot be written to ({first_line(error)}); set MLFLOW_TRACKING_URI to a server that answers, or "
            "pip install mlflow, since mlflow-skinny alone keeps nothing on this machine."
        ) from None


def _begun(client: Any, title: str, settings: Mapping[str, Any]) -> str:
    found = client.get_experiment_by_name("motet")
    experiment = found.experiment_id if found else client.create_experiment("motet")
    run: str = client.create_run(experiment, run_name=title).info.run_id
    for section, value in settings.items():
        client.log_param(run, section, str(value)[:500])
    return run
