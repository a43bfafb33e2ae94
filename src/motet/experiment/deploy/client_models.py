"""The models that a client of a served run may keep: the last one it evaluated, and the best one so far."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from motet.atomic_files import replace_when_complete
from motet.core.errors import ConfigError, RunError, WireError
from motet.core.messages import message
from motet.core.rebased import ModelParams
from motet.core.script import ClientId
from motet.experiment.deploy.acceptance import load_group_model
from motet.experiment.loop.scores import is_better
from motet.experiment.recipe.run_config import RunConfig
from motet.learning.context import Context
from motet.learning.modules.model import Model
from motet.tasks import Task
from motet.transport.admission import JoinAccepted
from motet.transport.encrypted_files import EncryptionKey, StateFiles
from motet.transport.private_files import create_private_folder

FOLDER_NAME = "models"
ACCEPTANCE, LAST, BEST = "acceptance", "last", "best"
MODEL_LABEL = "model"  # of encrypted files: the last model may be the best one, too, under another name


@message
@dataclass(frozen=True, eq=False)
class EvaluatedModel:
    """The model that a client would deploy after a round, with the metrics on its held-out examples.

    The metrics are empty if the client holds nothing back.
    """

    client: ClientId
    round: int
    scores: dict[str, float]
    params: ModelParams


class ClientModels:
    """Stores the models of one client in a folder of its state, with the server's acceptance to build them from."""

    def __init__(
        self, run_folder: Path, group: str, acceptance: JoinAccepted, primary_metric: str, files: StateFiles
    ) -> None:
        self.folder, self.primary_metric, self.files = run_folder / FOLDER_NAME, primary_metric, files
        create_private_folder(self.folder)
        files.save(self.folder / ACCEPTANCE, (group, acceptance))
        self.last_round = -1

    def record(self, ctx: Context, params: ModelParams, scores: Mapping[str, float]) -> None:
        """Store the model of a round, also as the best one if its score is higher than that of earlier rounds."""
        if ctx.round == self.last_round:  # evaluated on another split
            return
        self.last_round = ctx.round
        model = EvaluatedModel(client=ctx.client, round=ctx.round, scores=dict(scores), params=params)
        self.files.save(self.folder / LAST, model, MODEL_LABEL)
        if self._is_best(model):
            with replace_when_complete(self.folder / BEST) as link:
                os.link(self.folder / LAST, link)

    def _is_best(self, model: EvaluatedModel) -> bool:
        path = self.folder / BEST
        if not path.exists() or self.primary_metric not in model.scores:
            return True
        best = _load_model(path, self.files).scores.get(self.primary_metric)
        return best is None or is_better(model.scores[self.primary_metric], best, self.primary_metric)


@dataclass(frozen=True, eq=False)
class JoinedRun:
    """A run that a client has joined, read from the client's state folder."""

    config: RunConfig
    task: Task
    model: Model
    last: EvaluatedModel
    best: EvaluatedModel


def has_client_models(folder: Path) -> bool:
    """Return True if a folder is the state of a client, or of one of its runs."""
    return bool(_find_run_folders(folder))


def load_joined_run(folder: Path, key: EncryptionKey | None = None) -> JoinedRun:
    """Read the newest run in a client's state folder, or the run in the folder of one run."""
    folders = _find_run_folders(folder)
    if not folders:
        raise ConfigError(
            f"'{folder}' has no model; expected the state of a client, such as .motet/NAME, after the server has "
            "evaluated the client's model. Wait until the run is over."
        )
    models, files = folders[-1] / FOLDER_NAME, StateFiles(key)
    group_name, acceptance = files.load(models / ACCEPTANCE)
    config = RunConfig.from_settings("server", acceptance.config)
    task, model = load_group_model(config, acceptance, group_name)
    return JoinedRun(
        config=config,
        task=task,
        model=model,
        last=_load_model(models / LAST, files),
        best=_load_model(models / BEST, files),
    )


def _find_run_folders(folder: Path) -> list[Path]:
    """Return the folders of runs with a model, the newest last."""
    candidates = [folder, *folder.glob("*/")] if folder.is_dir() else []
    runs = [path for path in candidates if (path / FOLDER_NAME / LAST).exists()]
    return sorted(runs, key=lambda path: (path / FOLDER_NAME / LAST).stat().st_mtime)


def _load_model(path: Path, files: StateFiles) -> EvaluatedModel:
    try:
        model = files.load(path, MODEL_LABEL)
    except WireError as error:
        raise RunError(f"{error} Join the run again.") from None
    if not isinstance(model, EvaluatedModel):
        raise RunError(f"{path} holds a {type(model).__name__}; expected a model. Join the run again.")
    return model
