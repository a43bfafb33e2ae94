"""A hash of the files of a model on this machine, with which a client pins the models that it agrees to load."""

from __future__ import annotations

import hashlib
from pathlib import Path

from motet.core.errors import ConfigError
from motet.hub_access import find_cached_model
from motet.models.load_model import BERT2BERT_PREFIX, MULTITASK_PREFIX, find_model
from motet.models.model_config import MODELS, PackagedModel

UNHASHED = "any"  # a model without files: random weights and the vocabulary of the run


def base_model_name(name: str) -> str:
    """Return the name of the model whose files are loaded: `mixed:minilm` loads `minilm`."""
    return name.removeprefix(BERT2BERT_PREFIX).removeprefix(MULTITASK_PREFIX)


def hash_model(name: str) -> str:
    """Return `sha256:…` over the names and contents of a model's files, or `any` for a model without files."""
    name = base_model_name(name)
    if name in MODELS and not isinstance(MODELS[name], PackagedModel):
        return UNHASHED
    folder = _find_folder(name)
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if path.is_file() and not any(part.startswith((".", "__pycache__")) for part in relative.parts):
            with path.open("rb") as file:
                digest.update(f"{relative.as_posix()}\n{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return f"sha256:{digest.hexdigest()}"


def _find_folder(name: str) -> Path:
    """Return the folder of a model on this machine. Nothing is downloaded."""
    path = Path(find_model(name))
    if path.is_dir():
        return path
    cached = find_cached_model(name)
    if cached is None:
        raise ConfigError(
            f"the model '{name}' is not on this machine; put it into models/ or $MOTET_MODELS, or download it first: "
            f"hf download {name}"
        )
    return cached
