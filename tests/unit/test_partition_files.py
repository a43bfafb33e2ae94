"""Partitions as files, ours and FedNLP's: what is written is read again, and what does not fit is refused."""

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


def test_a_run_uses_the_partition_of_a_file(tmp_path: Path) -> None:
    made = label(TOY, Seed(1), clients=5)
    write_partition(made, TOY, tmp_path / "p.h5")
    used = from_file(TOY, str(tmp_path / "p.h5"), digest=made.digest)
    assert used.digest == made.digest
    assert all(np.array_equal(used.train[k], made.train[k]) for k in range(5))
    assert used.recipe["alpha"] == 1.0


def test_natural_clients_keep_their_names_in_a_file(tmp_path: Path) -> None:
    made = natural(TOY, Seed(1))
    write_partition(made, TOY, tmp_path / "p.h5")
    used = from_file(TOY, str(tmp_path / "p.h5"))
    assert list(used.clients) == list(made.clients)
    assert used.index("author-03") == made.index("author-03")


def test_what_was_shifted_is_kept_where_the_corpus_does_not_say_it(tmp_path: Path) -> None:
    made = length(TOY, Seed(1), clients=4)
    write_partition(made, TOY, tmp_path / "p.h5")
    kinds = from_file(TOY, str(tmp_path / "p.h5")).trait
    assert kinds is not None
    assert made.trait is not None
    assert kinds.names.tolist() == made.trait.names.tolist()
    assert kinds.settings == made.trait.settings
    assert np.array_equal(kinds.codes, made.trait.codes)
    assert label(TOY, Seed(1), clients=4).trait is None


def test_a_file_for_another_corpus_is_refused(tmp_path: Path) -> None:
    write_partition(uniform(TOY, Seed(1), 3), TOY, tmp_path / "p.h5")
    fewer = TOY.sample(50, 10, np.random.default_rng(0))
    with pytest.raises(ConfigError, match="divides toy-classification with 90 and 30, and this run reads"):
        from_file(fewer, str(tmp_path / "p.h5"))
    other = Corpus(TOY.name, TOY.task, {**TOY.columns, "text": ["x"] * 120}, 90)
    with pytest.raises(ConfigError, match="The numbers agree, the texts do not"):
        from_file(other, str(tmp_path / "p.h5"))


def test_another_partition_than_was_meant_is_refused(tmp_path: Path) -> None:
    write_partition(uniform(TOY, Seed(1), 3), TOY, tmp_path / "p.h5")
    with pytest.raises(ConfigError, match=r"partition\.digest is 123abc, and"):
        from_file(TOY, str(tmp_path / "p.h5"), digest="123abc")


def test_a_file_that_was_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.h5"
    write_partition(uniform(TOY, Seed(1), 3), TOY, path)
    with h5py.File(path, "r+") as file:
        file["train/rows"][0] = file["train/rows"][1]
    with pytest.raises(DataError, match="was changed after it was made"):
        from_file(TOY, str(path))


def test_what_is_no_partition_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.h5").write_text("hello")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = 1
    for name, says in (
        ("none.h5", "there is no such file"),
        ("text.h5", "cannot be read"),
        ("other.h5", "is no partition of version 1"),
    ):
        with pytest.raises(DataError, match=says):
            from_file(TOY, str(tmp_path / name))


def test_fednlps_files_are_written_and_read_under_its_names(tmp_path: Path) -> None:
    path = tmp_path / "toy_partition.h5"
    made = {
        "niid_label_clients=12_alpha=0.5": label(TOY, Seed(1), clients=12, alpha=0.5),
        "niid_quantity_clients=12_beta=5.0": quantity(TOY, Seed(1), clients=12, beta=5.0),
        "uniform_clients=12": uniform(TOY, Seed(1), clients=12),
        "niid_cluster_clients=12_alpha=1.0": feature(TOY, Seed(1), clients=12, clusters=3, encoder="tfidf"),
        "natural_clients=5": natural(TOY, Seed(1)),
    }
    for name, partition in made.items():
        assert write_fednlp_partition(partition, path) == name == fednlp_name(partition)
    assert is_fednlp_partition_file(path)
    for name, partition in made.items():
        back = read_fednlp_partition(path, name, TOY)
        assert np.array_equal(back.train.rows, partition.train.rows), (
            "client 10 comes after client 9, not after client 1"
        )
        assert np.array_equal(back.test.offsets, partition.test.offsets)
    assert from_file(TOY, str(path), "niid_quantity_clients=12_beta=5").recipe["beta"] == 5.0
    with h5py.File(path) as file:
        assert int(file["niid_label_clients=12_alpha=0.5/n_clients"][()]) == 12
        assert set(file["niid_cluster_clients=12_alpha=1.0/client_assignment"][()]) == {0, 1, 2}
        assert file["uniform_clients=12/partition_data/11/test"][()].dtype.kind == "i"


def test_older_names_of_fednlp_are_known(tmp_path: Path) -> None:
    path = tmp_path / "old.h5"
    made = uniform(TOY, Seed(1), clients=3)
    write_fednlp_partition(made, path, "kmeans_3")
    write_fednlp_partition(made, path, "niid_label_clients=3_alpha=1.0")
    assert len(read_fednlp_partition(path, "kmeans_clusters=3")) == 3
    assert len(read_fednlp_partition(path, "niid_label_clients=3_alpha=1")) == 3
    with pytest.raises(ConfigError, match=r"partition\.name is missing in old\.h5; it holds kmeans_3"):
        from_file(TOY, str(path))
    with pytest.raises(ConfigError, match="there is no 'niid_label_clients=4_alpha=1"):
        from_file(TOY, str(path), "niid_label_clients=4_alpha=1.0")


def test_fednlps_rows_must_be_the_corpuss(tmp_path: Path) -> None:
    path = tmp_path / "p.h5"
    write_fednlp_partition(uniform(TOY, Seed(1), clients=3), path)
    few = TOY.select(np.arange(60), 40)
    with pytest.raises(ConfigError, match="trains on row 89, which is a test row of toy-classification"):
        from_file(few, str(path))


def test_what_fednlps_files_have_no_place_for_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="FedNLP's partition files"):
        write_fednlp_partition(drift(TOY, Seed(1), clients=3), tmp_path / "p.h5")
