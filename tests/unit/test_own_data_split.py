"""The split of a user's own data depends on the rows, not on the name or the format of the file."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import torch

import motet
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.datasets.hdf5_store import write_store
from motet.datasets.load_corpus import BUILTIN_CORPORA, DataConfig, load_corpus, read_corpus

ROWS = [{"text": f"text number {i}", "label": "even" if i % 2 else "odd", "client": f"c{i % 7}"} for i in range(60)]


def write_rows(path: Path) -> Path:
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(ROWS[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(ROWS)
    return path


def load(path: Path, **options: bool) -> Corpus:
    return load_corpus(DataConfig(path=str(path), **options), Seed(0))  # type: ignore[arg-type]


def contents(corpus: Corpus) -> tuple[int, dict[str, list[str]]]:
    return corpus.num_train, {name: list(column) for name, column in corpus.columns.items()}


@pytest.mark.parametrize("name", ["other.csv", "rows.tsv", "rows.jsonl", "rows.parquet"])
@pytest.mark.parametrize("resplit", [False, True])
def test_the_same_rows_have_the_same_split_in_every_format(name: str, resplit: bool, tmp_path: Path) -> None:
    first, second = write_rows(tmp_path / "rows.csv"), write_rows(tmp_path / name)
    assert contents(load(first, resplit=resplit)) == contents(load(second, resplit=resplit))


def test_the_fingerprint_depends_on_the_rows_alone(tmp_path: Path) -> None:
    """Runs on the same rows in other files can be compared example by example."""
    names = ("a.csv", "b.jsonl", "c.parquet")
    assert len({load(write_rows(tmp_path / name)).fingerprint for name in names}) == 1
    other = tmp_path / "d.csv"
    other.write_text((tmp_path / "a.csv").read_text().replace("number 5,", "number five,", 1))
    assert load(other).fingerprint != load(tmp_path / "a.csv").fingerprint


def test_a_store_is_split_again_like_the_file_that_it_was_built_from(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.csv")
    write_store(load(path), tmp_path / "rows.h5")
    assert contents(load(tmp_path / "rows.h5")) == contents(load(path))
    assert contents(load(tmp_path / "rows.h5", resplit=True)) == contents(load(path, resplit=True))


def test_a_named_corpus_in_a_store_is_split_again_like_the_corpus_itself(tmp_path: Path) -> None:
    write_store(BUILTIN_CORPORA["toy-classification"](), tmp_path / "toy.h5")
    from_store = load(tmp_path / "toy.h5", resplit=True)
    assert contents(from_store) == contents(read_corpus(DataConfig(name="toy-classification", resplit=True)))


def test_the_same_rows_give_the_same_clients_and_weights_in_every_format(tmp_path: Path) -> None:
    results = []
    for name in ("rows.csv", "other.jsonl"):
        corpus = motet.load(path=write_rows(tmp_path / name))
        clients = motet.federation(corpus, model="tiny", max_tokens=8, partition="label", clients=3, alpha=1.0)
        result = motet.run(clients, motet.fedavg(motet.Solver(lr=0.01, batch=8)), rounds=1, workers=0)
        results.append((clients.partition.digest, result.params))
    (first_digest, first), (second_digest, second) = results
    assert first_digest == second_digest
    assert torch.equal(first.flat, second.flat)
