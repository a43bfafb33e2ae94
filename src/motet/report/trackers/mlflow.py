"""MLflow: to $MLFLOW_TRACKING_URI, or into ./mlruns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motet.core.errors import ConfigError
from motet.report.trackers import Tracker


@dataclass(frozen=True)
class MlFlow:
    client: Any
    run: str

    def log(self, round: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.client.log_metric(self.run, name, value, step=round)

    def close(self) -> None:
        self.client.set_terminated(self.run)


def open_tracker(name: str, folder: Path, settings: Mapping[str, Any]) -> Tracker:
    try:
        from mlflow.tracking import MlflowClient
    except ImportError:
        raise ConfigError("track: mlflow is not installed; run: pip install 'motet[track]', or leave it out.") from None
    client = MlflowClient()
    found = client.get_experiment_by_name("motet")
    experiment = found.experiment_id if found else client.create_experiment("motet")
    run = client.create_run(experiment, run_name=f"{name} {folder.name}").info.run_id
    for section, value in settings.items():
        client.log_param(run, section, str(value)[:500])
    return MlFlow(client, run)
