"""Tokenized texts in the cache equal newly tokenized ones."""

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
def test_cached_features_equal_new_features(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTET_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "MIN_CACHED_EXAMPLES", 1)
    corpus = BUILTIN_CORPORA[name]()
    task = build_task(ComponentConfig("auto"), corpus)
    model = load_model(ModelConfig("tiny", 80), task.name, task.labels, lambda: vocabulary_texts(corpus), Seed(0))
    expected = task.build_features(corpus, model, 80)
    first, second = (cache.load_features(task, corpus, model, 80) for _ in range(2))
    assert len(list((tmp_path / "features").iterdir())) == 1
    rows = np.arange(min(7, len(expected)))
    for features in (first, second):
        assert all(torch.equal(features.batch(rows)[n], t) for n, t in expected.batch(rows).items())
        assert features.metadata.keys() == expected.metadata.keys()
        assert np.array_equal(features.example_ids(rows), expected.example_ids(rows))
    ids = second.columns["input_ids"]
    assert isinstance(ids, Ragged)
    assert isinstance(ids.values, np.memmap)
    assert first.key != cache.load_features(task, corpus, model, 100).key


def test_empty_environment_variable_disables_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTET_CACHE", "")
    assert cache.cache_folder() is None
    monkeypatch.delenv("MOTET_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.cache_folder() == tmp_path / "motet"
