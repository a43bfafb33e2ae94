"""Tokenized texts on disk, memory-mapped, under a key made of everything they depend on."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from motet.datasets.corpus import Corpus
from motet.experiment.build.cache_folder import file_checksum, key_for, lock_entry, open_cache
from motet.learning.data.features import Column, Features, Ragged
from motet.learning.modules.model import Model
from motet.learning.modules.token_embeddings import check_token_ids
from motet.tasks.task import Task
from motet.transport.private_files import PRIVATE_FILE

META = "meta.json"
FORMAT = 5  # raise it when tokenization changes
MIN_CACHED_EXAMPLES = 5_000  # smaller corpora are tokenized faster than they are looked up


def load_features(task: Task, corpus: Corpus, model: Model, max_tokens: int, use_cache: bool = True) -> Features:
    """Return a corpus tokenized for a model, from the cache if possible."""
    features = _load_or_build(task, corpus, model, max_tokens, use_cache)
    check_token_ids(features, model, corpus.name)
    task.check_features(features, model)
    return features


def _load_or_build(task: Task, corpus: Corpus, model: Model, max_tokens: int, use_cache: bool) -> Features:
    depends_on = (FORMAT, corpus.fingerprint, task, max_tokens, _tokenizer_digest(model))
    key = key_for(*depends_on)
    cache = open_cache("features") if use_cache and len(corpus) >= MIN_CACHED_EXAMPLES else None
    if cache is None:
        return replace(task.build_features(corpus, model, max_tokens), key=key)
    folder = cache / key
    with lock_entry(folder):
        if not _is_intact(folder):
            features = replace(task.build_features(corpus, model, max_tokens), key=key)
            try:
                _write(folder, features)
            except OSError:  # a full disk does not stop a run
                return features
    return _read(folder, key, corpus, model)


def _is_intact(folder: Path) -> bool:
    """Return True if the entry has every file, unchanged since it was written. Else delete it."""
    try:
        meta = json.loads((folder / META).read_text("utf-8"))
        checksums: dict[str, str] = meta["checksums"]
        if all(file_checksum(folder / Path(name).name) == value for name, value in checksums.items()):
            return True
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    shutil.rmtree(folder, ignore_errors=True)
    return False


def _tokenizer_digest(model: Model) -> str:
    """Hash everything that changes how a text is tokenized, and the token with which the decoder starts."""
    tokenizer = model.tokenizer
    backend = getattr(tokenizer, "backend_tokenizer", None)
    vocabulary = backend.to_str() if backend is not None else repr(sorted(tokenizer.get_vocab().items()))
    config = getattr(model.module, "config", None)
    marks = (getattr(config, "decoder_start_token_id", None), getattr(config, "model_type", ""), tokenizer.pad_token_id)
    template = getattr(tokenizer, "chat_template", None) or ""
    return hashlib.sha256(f"{vocabulary}{marks}{template}{model.virtual_tokens or ''}".encode()).hexdigest()


def _write(folder: Path, features: Features) -> None:
    """Write to a temporary folder and rename it, so that two processes or a crash cannot leave half a result."""
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".part-"))
    try:
        meta: dict[str, Any] = {"left": features.pad_left, "reads_back": features.tokenizer is not None}
        for kind, columns in (("columns", features.columns), ("side", features.metadata)):
            meta[kind] = {name: _save_column(temporary, f"{kind}-{name}", column) for name, column in columns.items()}
        if features.example_offsets is not None:
            np.save(temporary / "first.npy", features.example_offsets)
        meta["checksums"] = {path.name: file_checksum(path) for path in sorted(temporary.iterdir())}
        (temporary / META).write_text(json.dumps(meta), "utf-8")
        for path in temporary.iterdir():
            path.chmod(PRIVATE_FILE)
        temporary.rename(folder)
    except OSError:
        if not (folder / META).exists():
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _save_column(folder: Path, name: str, column: Column) -> int | None:
    """Save a column and return its padding value, or None if the column is not ragged."""
    if isinstance(column, Ragged):
        np.save(folder / f"{name}.npy", column.values)
        np.save(folder / f"{name}.offsets.npy", column.offsets)
        return column.pad
    np.save(folder / f"{name}.npy", column)
    return None


def _read(folder: Path, key: str, corpus: Corpus, model: Model) -> Features:
    meta = json.loads((folder / META).read_text("utf-8"))

    def load_columns(kind: str) -> Mapping[str, Column]:
        return {name: _load_column(folder, f"{kind}-{name}", pad) for name, pad in meta[kind].items()}

    return Features(
        key=key,
        columns=load_columns("columns"),
        example_offsets=np.load(folder / "first.npy", mmap_mode="r") if (folder / "first.npy").exists() else None,
        metadata=load_columns("side"),
        raw_columns=corpus.columns,
        tokenizer=model.tokenizer if meta["reads_back"] else None,
        pad_left=meta["left"],
    )


def _load_column(folder: Path, name: str, pad: int | None) -> Column:
    values: np.ndarray = np.load(folder / f"{name}.npy", mmap_mode="r")
    if pad is None:
        return values
    return Ragged(values, np.load(folder / f"{name}.offsets.npy", mmap_mode="r"), pad)
