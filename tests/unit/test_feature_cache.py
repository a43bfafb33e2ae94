"""Tokenized texts and partitions in the cache equal new ones, and damaged entries are computed again."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from motet.core.rng import Seed
from motet.datasets.load_corpus import BUILTIN_CORPORA
from motet.datasets.toy_corpora import toy_classification
from motet.experiment.build import feature_cache as cache
from motet.experiment.build import partition_cache
from motet.experiment.build.cache_folder import cache_folder, clear_cache, lock_entry, measure_cache, open_cache
from motet.experiment.build.federation_builder import build_task, vocabulary_texts
from motet.experiment.recipe.run_config import ComponentConfig
from motet.learning.data.features import Ragged
from motet.models.load_model import load_model
from motet.models.model_config import ModelConfig

SLOW_BUILD_SECONDS = 0.2  # time for another process to begin the same work, if nothing stops it
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
    assert measure_cache()["features"].entries == 1
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
    (folder,) = (tmp_path / "mine" / "features").glob("[!.]*")
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
    (path,) = (tmp_path / "partitions").glob("[!.]*")
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


def test_what_several_processes_need_is_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads stand for processes here: the locks of files do not tell them apart."""
    monkeypatch.setenv("MOTET_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "MIN_CACHED_EXAMPLES", 1)
    corpus = toy_classification(train=60, test=20)
    task = build_task(ComponentConfig("auto"), corpus)
    model = load_model(ModelConfig("tiny", 24), task.name, task.labels, lambda: vocabulary_texts(corpus), Seed(0))
    builds: list[str] = []

    def slow_down(build: Callable[..., Any]) -> Callable[..., Any]:
        repeated = threading.Event()

        def build_slowly(*args: Any) -> Any:
            builds.append(build.__name__)
            if builds.count(build.__name__) > 1:
                repeated.set()
            repeated.wait(SLOW_BUILD_SECONDS)
            return build(*args)

        return build_slowly

    object.__setattr__(task, "build_features", slow_down(task.build_features))
    monkeypatch.setattr(partition_cache, "build_partition", slow_down(partition_cache.build_partition))
    config = ComponentConfig("feature", {"clients": 3, "clusters": 3, "encoder": "tfidf"})
    with ThreadPoolExecutor() as threads:
        features = [threads.submit(cache.load_features, task, corpus, model, 24) for _ in range(3)]
        partitions = [threads.submit(partition_cache.load_partition, config, corpus, Seed(1)) for _ in range(3)]
    assert sorted(builds) == ["build_features", "build_partition"]
    assert len({bytes(f.result().batch(np.arange(9))["input_ids"].numpy()) for f in features}) == 1
    assert len({p.result().digest for p in partitions}) == 1
    assert measure_cache()["features"].entries == measure_cache()["partitions"].entries == 1


def test_a_killed_process_leaves_its_entry_to_others(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from motet.experiment.build.cache_folder import lock_entry\n"
        "with lock_entry(Path(sys.argv[1])): print('locked', flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "entry")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        with lock_entry(tmp_path / "entry", max_wait=0.01) as is_locked:
            assert not is_locked, "whoever has waited long enough computes the entry too"
        process.kill()
    with lock_entry(tmp_path / "entry") as is_locked:
        assert is_locked


def test_empty_environment_variable_disables_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTET_CACHE", "")
    assert cache_folder() is None
    monkeypatch.delenv("MOTET_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "motet"
