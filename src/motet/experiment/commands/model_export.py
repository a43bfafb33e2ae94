"""`motet export`: write models as directories that transformers loads."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict
from urllib.parse import quote

from motet.core.errors import ConfigError, RunError, first_line
from motet.core.rebased import ModelParams, split_base
from motet.core.script import ClientId
from motet.experiment.build.federation import ClientGroup
from motet.experiment.commands.model_card import ModelCard, describe_run, pipeline_tag
from motet.experiment.commands.run_folder import load_summary, require_empty
from motet.experiment.commands.run_models import RunModels, list_names
from motet.experiment.deploy.client_models import has_client_models, load_joined_run
from motet.learning.lean_transformers import save_leanly
from motet.learning.modules.model import Model
from motet.models.adapters import merge_adapters, save_adapter
from motet.models.bilstm import BiLSTM
from motet.models.load_model import AUTO_CLASSES, quiet_transformers
from motet.tasks import Task
from motet.transport.encrypted_files import EncryptionKey
from motet.transport.json_files import read_json

BILSTM_TYPE = "motet-bilstm"
MODEL_ADVICE = "Export the model again."


class ModelFile(TypedDict):
    """What is read of a model's config.json."""

    architectures: NotRequired[list[str] | None]
    model_type: NotRequired[str | None]


class AdapterFile(TypedDict):
    """What is read of an adapter_config.json."""

    base_model_name_or_path: str


class ExportedModels(NamedTuple):
    """The folders that were written, and the clients that keep their models on their machines."""

    folders: list[Path]
    remote_clients: list[ClientId]


def export_models(
    folder: Path,
    to: Path,
    client: ClientId | None = None,
    *,
    every: bool = False,
    best: bool = False,
    merged: bool = False,
    state_key: EncryptionKey | None = None,
) -> ExportedModels:
    """Export the model of a run, of one client, or of every client to a folder each.

    The folder is the one of a run, finished or interrupted, or the state of a client that has joined a served run.
    `best` exports the best model of such a client instead of the last. `merged` adds adapters to the model's weights
    instead of saving them alone. `state_key` decrypts the state of such a client.
    """
    require_empty(to)
    if has_client_models(folder):
        export_joined_model(folder, to, best=best, client=client, merged=merged, state_key=state_key)
        return ExportedModels([to], [])
    if best:
        raise ConfigError(f"export: --best is for the state of a client, such as .motet/NAME, and '{folder}' is a run.")
    models = RunModels(folder)
    card = describe_run(models.config, load_summary(folder) or {}, folder)
    if every:
        return _export_all(models, to, card, merged)
    if not models.has_model(client):
        raise ConfigError(_explain_missing(models, client))
    card = card if client is None else card.for_client(client)
    save_model(models.group_for(client), models.build(client), to, card, merged)
    is_server_only = client is None and models.plan.has_personal_models
    return ExportedModels([to], models.clients if is_server_only else [])


def _export_all(models: RunModels, to: Path, card: ModelCard, merged: bool) -> ExportedModels:
    folders = {client: to / folder_name(client) for client in models.clients if models.has_model(client)}
    if not folders:
        raise ConfigError(_explain_missing(models, None))
    for client, path in folders.items():
        save_model(models.group_for(client), models.build(client), path, card.for_client(client), merged)
    return ExportedModels(list(folders.values()), [c for c in models.clients if c not in folders])


def _explain_missing(models: RunModels, client: ClientId | None) -> str:
    name, example = models.plan.algorithm.name, models.clients[0]
    if models.has_model(example):
        return (
            f"{name} trains a model for each client; choose one with --client, such as --client {example}, "
            "or export all with --all."
        )
    return (
        f"{name} trains a model for each client, and the models of {client or list_names(models.clients)} are on the "
        "clients' machines; the server has only what all clients share. Export a model on its client's machine: "
        f"motet export .motet/{client or example} --to model"
    )


def export_joined_model(
    folder: Path,
    to: Path,
    *,
    best: bool = False,
    client: ClientId | None = None,
    merged: bool = False,
    state_key: EncryptionKey | None = None,
) -> str:
    """Export the model of a client that has joined a served run. Return a sentence about it."""
    joined = load_joined_run(folder, state_key)
    model = joined.best if best else joined.last
    if client not in (None, model.client):
        raise ConfigError(f"--client is '{client}', but '{folder}' is the state of {model.client}; leave --client out.")
    card = describe_run(joined.config, {"task": joined.task.name, "rounds": model.round})
    card = card.for_client(model.client, model.scores)
    save_pretrained(joined.model, joined.task, model.params, to, card, merged=merged)
    metric = joined.task.primary_metric
    score = f" ({metric} {model.scores[metric]:.3f} on its held-out examples)" if metric in model.scores else ""
    return f"{to}: the model of {model.client} after round {model.round}{score}"


def save_model(
    group: ClientGroup, params: ModelParams, folder: Path, card: ModelCard | None = None, merged: bool = False
) -> None:
    """Save the model of a group's client, or of the server, with a model card."""
    save_pretrained(group.model, group.task, params, folder, card, merged=merged)


def save_pretrained(
    model: Model, task: Task, params: ModelParams, folder: Path, card: ModelCard | None = None, merged: bool = False
) -> None:
    """Save a model and its tokenizer for `transformers.pipeline`, or a BiLSTM for `motet.models.bilstm`.

    Adapters of a pretrained causal model are saved alone, as a directory of peft, unless `merged` is set or training has
    changed the pretrained weights, too: others could not combine such adapters with their base.
    """
    module = model.with_params(params)
    folder.mkdir(parents=True, exist_ok=True)
    save_tokenizer(model, task, folder)
    saves_adapters = bool(model.adapter_base) and not merged and split_base(params)[1] is None
    if card is not None:
        (folder / "README.md").write_text(replace(card, has_adapters=saves_adapters).render(), "utf-8")
    if saves_adapters:
        save_adapter(module, model.adapter_base, folder)
        return
    module = merge_adapters(module)
    if isinstance(module, BiLSTM):
        from safetensors.torch import save_file

        save_file({name: t.contiguous() for name, t in module.state_dict().items()}, str(folder / "model.safetensors"))
        settings = {"model_type": BILSTM_TYPE, **module.settings, "labels_named": list(task.labels)}
        (folder / "config.json").write_text(json.dumps(settings, indent=2) + "\n", "utf-8")
        return
    save_module = getattr(module, "save_pretrained", None)
    if save_module is None:
        raise ConfigError(f"{type(module).__name__} has no save_pretrained, so it cannot be exported.")
    with quiet_transformers():
        save_leanly(save_module, folder)


def save_tokenizer(model: Model, task: Task, folder: Path) -> None:
    """Save the tokenizer as the model was trained: with its chat template, and the length at which texts were cut.

    `truncation=True` then cuts there.
    """
    tokenizer = copy.deepcopy(model.tokenizer)
    if template := task.chat_template(model):
        tokenizer.chat_template = template
    # With adapters, a chat model reads longer texts than those of its tuning.
    if model.max_tokens is not None and not model.adapter_base:
        tokenizer.model_max_length = model.max_tokens
        if tokenizer.is_fast:
            tokenizer.backend_tokenizer.enable_truncation(model.max_tokens)
    tokenizer.save_pretrained(folder)


def push_model(folder: Path, repository: str) -> str:
    """Upload an exported model to a new or existing private repository of the Hugging Face hub. Return its address."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    api = HfApi()
    try:
        address = str(api.create_repo(repository, private=True, exist_ok=True))
        api.upload_folder(repo_id=repository, folder_path=folder, commit_message="Model trained with Motet")
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        raise RunError(
            f"'{folder}' could not be pushed to '{repository}': {first_line(error).rstrip('.')}. "
            "Expected a repository as USER/NAME to which you may write; log in with: hf auth login"
        ) from None
    return address


def loading_code(task: str, folder: Path) -> str:
    """Return a line of Python that loads an exported model."""
    if is_adapter_folder(folder):
        return f'peft.AutoPeftModelForCausalLM.from_pretrained("{folder}")'
    if needs_motet(folder):
        return f'motet.models.bilstm.BiLSTM.load("{folder}")'
    pipeline = pipeline_tag(task)
    if pipeline is not None and pipeline != "question-answering":  # transformers 5 has no pipeline for it
        truncation = ", truncation=True" if pipeline == "text-classification" else ""
        return f'transformers.pipeline("{pipeline}", model="{folder}"{truncation})'
    if task in AUTO_CLASSES:
        return f'transformers.{AUTO_CLASSES[task]}.from_pretrained("{folder}")'
    architecture = next(iter(read_model_config(folder).get("architectures") or ()), "AutoModel")
    return f'transformers.{architecture}.from_pretrained("{folder}")'  # a task of another package


def needs_motet(folder: Path) -> bool:
    """Return True if an exported model is a BiLSTM, which transformers cannot load."""
    if is_adapter_folder(folder):
        return False
    return bool(read_model_config(folder).get("model_type") == BILSTM_TYPE)


def read_model_config(folder: Path) -> dict[str, Any]:
    """Read the config.json of an exported model."""
    return read_json(folder / "config.json", ModelFile, MODEL_ADVICE) or {}


def read_adapter_config(folder: Path) -> dict[str, Any]:
    """Read the adapter_config.json of exported adapters, which peft wrote."""
    config: dict[str, Any] = read_json(folder / "adapter_config.json", AdapterFile, MODEL_ADVICE)
    return config


def is_adapter_folder(folder: Path) -> bool:
    return (folder / "adapter_config.json").exists()


def folder_name(client: ClientId) -> str:
    """Return a folder name for a client: different for each, and never outside its parent folder."""
    return re.sub(r"^\.", "%2E", quote(client, safe=" "))
