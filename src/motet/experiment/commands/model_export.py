"""`motet export`: write models as directories that transformers loads."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import quote

import torch

from motet.core.errors import ConfigError
from motet.core.params import Params
from motet.core.script import ClientId
from motet.experiment.build.component_builders import build_components
from motet.experiment.build.federation import ClientGroup
from motet.experiment.build.federation_builder import build_federation
from motet.experiment.build.run_plan import build_plan
from motet.experiment.commands.run_folder import load_config, require_empty
from motet.experiment.loop.run_loop import FederatedRun
from motet.learning.executors.serial_executor import SerialExecutor
from motet.models.adapters import merge_adapters
from motet.models.bilstm import BiLSTM
from motet.models.load_model import AUTO_CLASSES, quiet_transformers

# Tasks with a pipeline in transformers 5. Models for question answering and seq2seq are loaded by their class.
PIPELINES = {
    "classification": "text-classification",
    "regression": "text-classification",
    "tagging": "token-classification",
    "lm": "text-generation",
}
BILSTM_TYPE = "motet-bilstm"


def export_models(folder: Path, to: Path, client: ClientId | None = None, every: bool = False) -> list[Path]:
    """Export the model of a run, of one client, or of every client to a folder each. Return the folders.

    The run may be finished or interrupted.
    """
    config = load_config(folder)
    require_empty(to)
    federation = build_federation(config)
    plan = build_plan(config, federation, build_components(config))
    if client is not None:
        federation.group_for(client)  # raises an error if there is no such client
    if client is None and plan.has_personal_models and not every:
        raise ConfigError(
            f"{plan.algorithm.name} trains a model for each client; choose one with --client, such as --client "
            f"{federation.clients[0]}, or export all with --all."
        )
    run = FederatedRun(plan, SerialExecutor(torch.device("cpu")), folder=folder)
    if not run.restore():
        raise ConfigError(f"'{folder}' has no checkpoint yet, so there is no model to export; run more rounds first.")
    if not every:
        group = federation.server if client is None else federation.group_for(client)
        save_model(group, run.model_for(client), to)
        return [to]
    folders = {client: to / folder_name(client) for client in federation.clients}
    for each, path in folders.items():
        save_model(federation.group_for(each), run.model_for(each), path)
    return list(folders.values())


def save_model(group: ClientGroup, params: Params, folder: Path) -> None:
    """Save a model and its tokenizer for `transformers.pipeline`, or a BiLSTM for `motet.models.bilstm`."""
    module = merge_adapters(group.model.with_params(params))
    folder.mkdir(parents=True, exist_ok=True)
    group.model.tokenizer.save_pretrained(folder)
    if isinstance(module, BiLSTM):
        from safetensors.torch import save_file

        save_file({name: t.contiguous() for name, t in module.state_dict().items()}, str(folder / "model.safetensors"))
        settings = {"model_type": BILSTM_TYPE, **module.settings, "labels_named": list(group.task.labels)}
        (folder / "config.json").write_text(json.dumps(settings, indent=2) + "\n", "utf-8")
        return
    save_pretrained = getattr(module, "save_pretrained", None)
    if save_pretrained is None:
        raise ConfigError(f"{type(module).__name__} has no save_pretrained, so it cannot be exported.")
    with quiet_transformers():
        save_pretrained(folder)


def loading_code(task: str, folder: Path) -> str:
    """Return a line of Python that loads an exported model."""
    if needs_motet(folder):
        return f'motet.models.bilstm.BiLSTM.load("{folder}")'
    if task in PIPELINES:
        return f'transformers.pipeline("{PIPELINES[task]}", model="{folder}")'
    return f'transformers.{AUTO_CLASSES[task]}.from_pretrained("{folder}")'


def needs_motet(folder: Path) -> bool:
    """Return True if an exported model is a BiLSTM, which transformers cannot load."""
    config = json.loads((folder / "config.json").read_text("utf-8"))
    return bool(config.get("model_type") == BILSTM_TYPE)


def folder_name(client: ClientId) -> str:
    """Return a folder name for a client: different for each, and never outside its parent folder."""
    return re.sub(r"^\.", "%2E", quote(client, safe=" "))
