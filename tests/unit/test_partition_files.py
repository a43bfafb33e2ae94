"""Motet's and FedNLP's partition files."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from motet.core.errors import ConfigError, DataError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.datasets.toy_corpora import toy_classification
from motet.partitions import drift, feature, from_file, label, length, natural, quantity, uniform, write_partition
from motet.partitions.fednlp_partition_file import (
    fednlp_name,
    is_fednlp_partition_file,
    read_fednlp_partition,
    write_fednlp_partition,
)

TOY = toy_classification(train=90, test=30, authors=5)


def test_partition_survives_a_round_trip(tmp_path: Path) -> None:
    partition = label(TOY, Seed(1), clients=5)
    write_partition(partition, TOY, tmp_path / "p.h5")
    restored = from_file(TOY, str(tmp_path / "p.h5"), digest=partition.digest)
    assert restored.digest == partition.digest
    assert all(np.array_equal(restored.train[k], partition.train[k]) for k in range(5))
    assert restored.recipe["alpha"] == 1.0


def test_client_names_survive_a_round_trip(tmp_path: Path) -> None:
    partition = natural(TOY, Seed(1))
    write_partition(partition, TOY, tmp_path / "p.h5")
    restored = from_file(TOY, str(tmp_path / "p.h5"))
    assert list(restored.clients) == list(partition.clients)
    assert restored.index("author-03") == partition.index("author-03")


def test_trait_is_stored_unless_it_is_a_column_of_the_corpus(tmp_path: Path) -> None:
    partition = length(TOY, Seed(1), clients=4)
    write_partition(partition, TOY, tmp_path / "p.h5")
    trait = from_file(TOY, str(tmp_path / "p.h5")).trait
    assert trait is not None
    assert partition.trait is not None
    assert trait.categories.tolist() == partition.trait.categories.tolist()
    assert trait.settings == partition.trait.settings
    assert np.array_equal(trait.codes, partition.trait.codes)
    assert label(TOY, Seed(1), clients=4).trait is None


def test_file_for_another_corpus_raises_an_error(tmp_path: Path) -> None:
    write_partition(uniform(TOY, Seed(1), 3), TOY, tmp_path / "p.h5")
    fewer = TOY.sample(50, 10, np.random.default_rng(0))
    with pytest.raises(
        ConfigError, match="was made for toy-classification with 90 training and 30 test rows, but this run reads"
    ):
        from_file(fewer, str(tmp_path / "p.h5"))
    other = Corpus(TOY.name, TOY.task, {**TOY.columns, "text": ["x"] * 120}, 90)
    with pytest.raises(ConfigError, match="The sizes agree, but the texts do not"):
        from_file(other, str(tmp_path / "p.h5"))


def test_wrong_digest_raises_an_error(tmp_path: Path) -> None:
    write_partition(uniform(TOY, Seed(1), 3), TOY, tmp_path / "p.h5")
    with pytest.raises(ConfigError, match=r"partition\.digest is 123abc, but"):
        from_file(TOY, str(tmp_path / "p.h5"), digest="123abc")


def test_modified_file_raises_an_error(tmp_path: Path) -> None:
    path = tmp_path / "p.h5"
    write_partition(uniform(TOY, Seed(1), 3), TOY, path)
    with h5py.File(path, "r+") as file:
        file["train/rows"][0] = file["train/rows"][1]
    with pytest.raises(DataError, match="was changed after it was written"):
        from_file(TOY, str(path))


def test_file_that_is_not_a_partition_raises_an_error(tmp_path: Path) -> None:
    (tmp_path / "text.h5").write_text("hello")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = 1
    for name, message in (
        ("none.h5", "does not exist"),
        ("text.h5", "cannot be read"),
        ("other.h5", "is not a partition file of version 1"),
    ):
        with pytest.raises(DataError, match=message):
            from_file(TOY, str(tmp_path / name))


def test_fednlp_partitions_survive_a_round_trip_under_fednlps_names(tmp_path: Path) -> None:
    path = tmp_path / "toy_partition.h5"
    partitions = {
        "niid_label_clients=12_alpha=0.5": label(TOY, Seed(1), clients=12, alpha=0.5),
        "niid_quantity_clients=12_beta=5.0": quantity(TOY, Seed(1), clients=12, beta=5.0),
        "uniform_clients=12": uniform(TOY, Seed(1), clients=12),
        "niid_cluster_clients=12_alpha=1.0": feature(TOY, Seed(1), clients=12, clusters=3, encoder="tfidf"),
        "natural_clients=5": natural(TOY, Seed(1)),
    }
    for name, partition in partitions.items():
        assert write_fednlp_partition(partition, path) == name == fednlp_name(partition)
    assert is_fednlp_partition_file(path)
    for name, partition in partitions.items():
        restored = read_fednlp_partition(path, name, TOY)
        assert np.array_equal(restored.train.rows, partition.train.rows), "clients must be in numeric order"
        assert np.array_equal(restored.test.offsets, partition.test.offsets)
    assert from_file(TOY, str(path), "niid_quantity_clients=12_beta=5").recipe["beta"] == 5.0
    with h5py.File(path) as file:
        assert int(file["niid_label_clients=12_alpha=0.5/n_clients"][()]) == 12
        assert set(file["niid_cluster_clients=12_alpha=1.0/client_assignment"][()]) == {0, 1, 2}
        assert file["uniform_clients=12/partition_data/11/test"][()].dtype.kind == "i"


def test_older_names_of_fednlp_are_recognized(tmp_path: Path) -> None:
    path = tmp_path / "old.h5"
    partition = uniform(TOY, Seed(1), clients=3)
    write_fednlp_partition(partition, path, "kmeans_3")
    write_fednlp_partition(partition, path, "niid_label_clients=3_alpha=1.0")
    assert len(read_fednlp_partition(path, "kmeans_clusters=3")) == 3
    assert len(read_fednlp_partition(path, "niid_label_clients=3_alpha=1")) == 3
    with pytest.raises(ConfigError, match=r"partition\.name is missing in old\.h5; it has kmeans_3"):
        from_file(TOY, str(path))
    with pytest.raises(ConfigError, match="there is no 'niid_label_clients=4_alpha=1"):
        from_file(TOY, str(path), "niid_label_clients=4_alpha=1.0")


def test_fednlp_partition_for_another_corpus_raises_an_error(tmp_path: Path) -> None:
    path = tmp_path / "p.h5"
    write_fednlp_partition(uniform(TOY, Seed(1), clients=3), path)
    smaller = TOY.select(np.arange(60), 40)
    with pytest.raises(ConfigError, match="trains on row 89, which is a test row of toy-classification"):
        from_file(smaller, str(path))


def test_drift_cannot_be_written_as_a_fednlp_partition(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="FedNLP's partition files"):
        write_fednlp_partition(drift(TOY, Seed(1), clients=3), tmp_path / "p.h5")
