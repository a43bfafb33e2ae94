from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from motet.core.rng import Seed
from motet.datasets.load_corpus import BUILTIN_CORPORA
from motet.experiment.build import feature_cache as cache
from motet.experiment.build.federation_builder import build_task, vocabulary_texts
from motet.experiment.recipe.run_config import ComponentConfig
from motet.learning.data.features import Ragged
from motet.models.load_model import ModelConfig, load_model

TOYS = [name for name in BUILTIN_CORPORA if name.startswith("toy-")]


@pytest.mark.parametrize("name", TOYS)
def test_features_from_disk_are_those_that_were_made(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTET_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "MIN_CACHED_EXAMPLES", 1)
    corpus = BUILTIN_CORPORA[name]()
    task = build_task(ComponentConfig("auto"), corpus)
    model = load_model(ModelConfig("tiny", 80), task.name, task.labels, lambda: vocabulary_texts(corpus), Seed(0))
    fresh = task.build_features(corpus, model, 80)
    first, second = (cache.load_features(task, corpus, model, 80) for _ in range(2))
    assert len(list((tmp_path / "features").iterdir())) == 1
    rows = np.arange(min(7, len(fresh)))
    for made in (first, second):
        assert all(torch.equal(made.batch(rows)[n], t) for n, t in fresh.batch(rows).items())
        assert made.metadata.keys() == fresh.metadata.keys()
        assert np.array_equal(made.example_ids(rows), fresh.example_ids(rows))
    ids = second.columns["input_ids"]
    assert isinstance(ids, Ragged)
    assert isinstance(ids.values, np.memmap)
    assert first.key != cache.load_features(task, corpus, model, 100).key


def test_an_empty_variable_keeps_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTET_CACHE", "")
    assert cache.cache_folder() is None
    monkeypatch.delenv("MOTET_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.cache_folder() == tmp_path / "motet"
