"""Tokenised texts kept on disk, memory-mapped, under a name made of everything they depend on."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from motet.datasets.corpus import Corpus
from motet.learning.data.features import Column, Features, Ragged
from motet.learning.modules.model import Model
from motet.tasks.task import Task

FORMAT = 1  # raise it when features are made differently
WORTH_IT = 5_000  # examples; fewer are tokenised faster than found


def cache_folder() -> Path | None:
    """$MOTET_CACHE, or the user's cache folder; an empty MOTET_CACHE means none."""
    given = os.environ.get("MOTET_CACHE")
    if given is not None:
        return Path(given) if given else None
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "motet"


def cached_features(task: Task, corpus: Corpus, model: Model, max_tokens: int) -> Features:
    """The features of a corpus for a model; read from disk if they were made before. `MOTET_CACHE=` keeps none."""
    key = hashlib.sha256(repr((FORMAT, corpus.fingerprint, task, max_tokens, _tongue(model))).encode()).hexdigest()[:24]
    folder = cache_folder()
    if folder is None or len(corpus) < WORTH_IT:
        made = task.features(corpus, model, max_tokens)
        return Features(
            key, made.columns, made.example_offsets, made.metadata, made.raw_columns, made.tokenizer, made.pad_left
        )
    place = folder / "features" / key
    if not (place / "meta.json").exists():
        _write(place, task.features(corpus, model, max_tokens))
    return _read(place, key, corpus, model)


def _tongue(model: Model) -> str:
    """All of a tokenizer that changes what it makes of a text, and where the model begins to write."""
    tokenizer = model.tokenizer
    backend = getattr(tokenizer, "backend_tokenizer", None)
    said = backend.to_str() if backend is not None else repr(sorted(tokenizer.get_vocab().items()))
    config = getattr(model.module, "config", None)
    marks = (getattr(config, "decoder_start_token_id", None), getattr(config, "model_type", ""), tokenizer.pad_token_id)
    return hashlib.sha256(f"{said}{marks}".encode()).hexdigest()


def _write(place: Path, features: Features) -> None:
    """Into a folder beside, which then takes the name: two processes may do it at once, a crash leaves nothing half done."""
    place.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(dir=place.parent, prefix=".part-"))
    try:
        meta: dict[str, Any] = {"left": features.pad_left, "reads_back": features.tokenizer is not None}
        for kind, columns in (("columns", features.columns), ("side", features.metadata)):
            meta[kind] = {name: _save(beside, f"{kind}-{name}", column) for name, column in columns.items()}
        if features.example_offsets is not None:
            np.save(beside / "first.npy", features.example_offsets)
        (beside / "meta.json").write_text(json.dumps(meta), "utf-8")
        beside.rename(place)
    except OSError:
        if not (place / "meta.json").exists():
            raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _save(folder: Path, name: str, column: Column) -> int | None:
    """The padding of a ragged column, None of a plain one."""
    if isinstance(column, Ragged):
        np.save(folder / f"{name}.npy", column.values)
        np.save(folder / f"{name}.offsets.npy", column.offsets)
        return column.pad
    np.save(folder / f"{name}.npy", column)
    return None


def _read(place: Path, key: str, corpus: Corpus, model: Model) -> Features:
    meta = json.loads((place / "meta.json").read_text("utf-8"))

    def columns(kind: str) -> Mapping[str, Column]:
        return {name: _load(place, f"{kind}-{name}", pad) for name, pad in meta[kind].items()}

    first = np.load(place / "first.npy", mmap_mode="r") if (place / "first.npy").exists() else None
    tokenizer = model.tokenizer if meta["reads_back"] else None
    return Features(key, columns("columns"), first, columns("side"), corpus.columns, tokenizer, meta["left"])


def _load(folder: Path, name: str, pad: int | None) -> Column:
    values: np.ndarray = np.load(folder / f"{name}.npy", mmap_mode="r")
    if pad is None:
        return values
    return Ragged(values, np.load(folder / f"{name}.offsets.npy", mmap_mode="r"), pad)
