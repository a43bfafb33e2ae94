"""Models for the world outside: directories that transformers loads."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import quote

from motet.core.errors import ConfigError
from motet.core.params import Params
from motet.core.script import ClientId
from motet.experiment.build.federation import ClientGroup
from motet.models.adapters import merge_adapters
from motet.models.bilstm import BiLSTM
from motet.models.load_model import AUTO_CLASSES, quiet_transformers

# transformers 5 has pipelines for these; question answering and writing are used through their model classes.
PIPELINES = {
    "classification": "text-classification",
    "regression": "text-classification",
    "tagging": "token-classification",
    "lm": "text-generation",
}


RECURRENT = "motet-bilstm"


def loading_code(task: str, folder: Path) -> str:
    """The line of Python that makes use of an exported model. A BiLSTM is none of transformers' architectures."""
    if needs_motet(folder):
        return f'motet.models.bilstm.BiLSTM.load("{folder}")'
    if task in PIPELINES:
        return f'transformers.pipeline("{PIPELINES[task]}", model="{folder}")'
    return f'transformers.{AUTO_CLASSES[task]}.from_pretrained("{folder}")'


def needs_motet(folder: Path) -> bool:
    """Whether what is in it is none of transformers' architectures."""
    found: bool = json.loads((folder / "config.json").read_text("utf-8")).get("model_type") == RECURRENT
    return found


def folder_name(client: ClientId) -> str:
    """A client's name as the name of a folder: different names stay different, and none leads elsewhere."""
    return re.sub(r"^\.", "%2E", quote(client, safe=" "))


def save_model(group: ClientGroup, params: Params, folder: Path) -> None:
    """Model and tokenizer, as `transformers.pipeline` wants them."""
    module = merge_adapters(group.model.with_params(params))
    folder.mkdir(parents=True, exist_ok=True)
    group.model.tokenizer.save_pretrained(folder)
    if isinstance(module, BiLSTM):  # no Transformer: weights and settings, for motet.models.bilstm
        from safetensors.torch import save_file

        save_file({name: t.contiguous() for name, t in module.state_dict().items()}, str(folder / "model.safetensors"))
        settings = {"model_type": RECURRENT, **module.settings, "labels_named": list(group.task.labels)}
        (folder / "config.json").write_text(json.dumps(settings, indent=2) + "\n", "utf-8")
        return
    save = getattr(module, "save_pretrained", None)
    if save is None:
        raise ConfigError(f"{type(module).__name__} has no save_pretrained and cannot be exported.")
    with quiet_transformers():
        save(folder)
