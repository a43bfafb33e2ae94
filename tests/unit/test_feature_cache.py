"""Tokenized texts and partitions in the cache equal new ones, and damaged entries are computed again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from motet.core.rng import Seed
from motet.datasets.load_corpus import BUILTIN_CORPORA
from motet.datasets.toy_corpora import toy_classification
from motet.experiment.build import feature_cache as cache
from motet.experiment.build import partition_cache
from motet.experiment.build.cache_folder import cache_folder, clear_cache, measure_cache, open_cache
from motet.experiment.build.federation_builder import build_task, vocabulary_texts
from motet.experiment.recipe.run_config import ComponentConfig
from motet.learning.data.features import Ragged
from motet.models.load_model import load_model
from motet.models.model_config import ModelConfig

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


def test_a_damaged_entry_is_computed_again_and_others_cannot_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTET_CACHE", str(tmp_path / "mine"))
    monkeypatch.setattr(cache, "MIN_CACHED_EXAMPLES", 1)
    corpus = BUILTIN_CORPORA["toy-classification"]()
    task = build_task(ComponentConfig("auto"), corpus)
    model = load_model(ModelConfig("tiny", 24), task.name, task.labels, lambda: vocabulary_texts(corpus), Seed(0))
    expected = cache.load_features(task, corpus, model, 24).batch(np.arange(5))["input_ids"].clone()
    (folder,) = (tmp_path / "mine" / "features").iterdir()
    files = list(folder.iterdir())
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert {path.stat().st_mode & 0o777 for path in (folder, folder.parent, tmp_path / "mine")} == {0o700}
    for damage in (lambda p: p.write_bytes(b"\x93NUMPY"), lambda p: p.unlink()):
        for name in ("columns-input_ids.npy", "meta.json"):
            damage(folder / name)
            features = cache.load_features(task, corpus, model, 24)
            assert torch.equal(features.batch(np.arange(5))["input_ids"], expected)


def test_a_folder_that_others_can_write_to_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTET_CACHE", str(tmp_path))
    assert open_cache("features") == tmp_path / "features"
    (tmp_path / "features").chmod(0o777)
    assert open_cache("features") is None


def test_partitions_that_encode_texts_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTET_CACHE", str(tmp_path))
    corpus = toy_classification(train=60, test=20)
    config = ComponentConfig("feature", {"clients": 3, "clusters": 3, "encoder": "tfidf"})
    first = partition_cache.load_partition(config, corpus, Seed(1))
    (path,) = (tmp_path / "partitions").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    with monkeypatch.context() as patch:
        patch.setattr(partition_cache, "build_partition", None)
        assert partition_cache.load_partition(config, corpus, Seed(1)).digest == first.digest
    path.write_bytes(b"damaged")
    assert partition_cache.load_partition(config, corpus, Seed(1)).digest == first.digest
    partition_cache.load_partition(ComponentConfig("label", {"clients": 3}), corpus, Seed(1))
    partition_cache.load_partition(config, corpus, Seed(2))
    assert measure_cache()["partitions"].entries == 2, "other strategies are fast; another seed is another partition"
    clear_cache()
    assert measure_cache()["partitions"].entries == 0


def test_empty_environment_variable_disables_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTET_CACHE", "")
    assert cache_folder() is None
    monkeypatch.delenv("MOTET_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "motet"
