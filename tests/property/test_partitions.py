"""Properties of all partitions: each example once, no client lost, the same result for the same seed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.datasets.toy_corpora import toy_classification, toy_regression
from motet.experiment.build.partition_builder import build_partition
from motet.experiment.recipe.run_config import ComponentConfig
from motet.partitions import PARTITIONS, Partition, drift, label, label_quantity, natural, quantity, uniform
from motet.partitions.dirichlet import assign_rows, largest_remainder, sample_mixtures
from motet.partitions.local_test import hold_out_local_tests, merge_splits
from motet.partitions.multi_domain import sample_matching, stratified_split
from motet.partitions.partition import ClientRows, NamedClients, NumberedClients
from motet.partitions.partition_file import read_partition, write_partition
from motet.partitions.proportions import label_quotas

TOY = toy_classification(train=120, test=40, authors=6)
SCORED = toy_regression(train=60, test=20, authors=6)
BILINGUAL = Corpus(  # half of the texts in Greek letters
    "bilingual",
    "classification",
    {
        **TOY.columns,
        "text": [
            text if row % 2 else "".join(chr(0x3B1 + ord(c) % 24) if c.isalpha() else c for c in text)
            for row, text in enumerate(TOY.columns["text"])
        ],
    },
    TOY.num_train,
)
TABLE = [[70, 10, 10, 10], [10, 70, 10, 10], [25, 25, 25, 25]]
# Corpus and options for each strategy, and whether every example belongs to exactly one client.
STRATEGIES: dict[str, tuple[Corpus, dict[str, Any], bool]] = {
    "uniform": (TOY, {"clients": 7}, True),
    "label": (TOY, {"clients": 7, "alpha": 0.5}, True),
    "quantity": (TOY, {"clients": 7, "beta": 0.5}, True),
    "label_quantity": (TOY, {"clients": 7, "alpha": 0.5, "beta": 0.5}, True),
    "feature": (TOY, {"clients": 7, "encoder": "tfidf", "clusters": 4}, True),
    "clusters": (TOY, {"clients": 4, "encoder": "tfidf"}, True),
    "natural": (TOY, {}, True),
    "multi_domain": (TOY, {"alpha": 5.0}, False),
    "proportions": (TOY, {"table": TABLE}, False),
    "sorted": (SCORED, {"clients": 3}, True),
    "length": (TOY, {"clients": 7}, True),
    "vocabulary": (TOY, {"clients": 7, "topics": 4}, True),
    "language": (BILINGUAL, {"clients": 7}, True),
    "drift": (TOY, {"clients": 5, "phases": 3, "rounds_per_phase": 2}, True),
}


def build_corpus(
    labels: Sequence[str], test: Sequence[str] = ("a", "b") * 10, client: Sequence[str] | None = None
) -> Corpus:
    all_labels = [*labels, *test]
    columns = {"text": [f"t{i}" for i in range(len(all_labels))], "label": all_labels}
    if client is not None:
        columns["client"] = [*client]
    return Corpus("corpus", "classification", columns, len(labels))


def assert_covers(partition: Partition, corpus: Corpus) -> None:
    assert sorted(partition.train.rows.tolist()) == list(range(corpus.num_train))
    assert sorted(partition.test.rows.tolist()) == list(range(corpus.num_train, len(corpus)))
    assert len(partition.train) == len(partition.test) == len(partition)


def test_all_strategies_are_tested() -> None:
    assert set(STRATEGIES) == set(PARTITIONS) - {"auto", "file"}


@pytest.mark.parametrize("name", STRATEGIES)
def test_partition_is_disjoint_deterministic_and_survives_a_file(name: str, tmp_path: Path) -> None:
    corpus, options, is_complete = STRATEGIES[name]
    partition = build_partition(ComponentConfig(name, options), corpus, Seed(3))
    if is_complete:
        assert_covers(partition, corpus)
    rows = np.concatenate(
        [
            partition.train.rows,
            partition.test.rows,
            *(r for r in (partition.public, partition.global_test) if r is not None),
        ]
    )
    assert len(np.unique(rows)) == len(rows)
    assert partition.train.rows.max() < corpus.num_train <= partition.test.rows.min()
    assert partition.train.sizes.min() >= 1
    assert len(partition) == options.get("clients", len(partition)) >= 2
    same_seed, other_seed = (build_partition(ComponentConfig(name, options), corpus, Seed(s)) for s in (3, 4))
    assert same_seed.digest == partition.digest
    if name not in ("natural", "clusters"):  # these do not depend on the seed
        assert other_seed.digest != partition.digest
    write_partition(partition, corpus, tmp_path / "p.h5")
    restored, corpus_info = read_partition(tmp_path / "p.h5")
    assert (restored.digest, corpus_info["key"]) == (partition.digest, corpus.fingerprint)
    assert dict(restored.recipe) == json.loads(json.dumps(dict(partition.recipe)))
    assert partition.recipe["type"] == name
    assert (restored.rounds_per_phase, restored.train.phases, list(restored.clients)) == (
        partition.rounds_per_phase,
        partition.train.phases,
        list(partition.clients),
    )


@given(
    counts=st.lists(st.integers(1, 60), min_size=2, max_size=8),
    clients=st.integers(1, 12),
    alpha=st.floats(1e-3, 1e4),
    seed=st.integers(0, 10**6),
    rounding=st.sampled_from(["largest_remainder", "sequential"]),
)
@settings(max_examples=80, deadline=None)
def test_label_skew_assigns_every_example_once_and_keeps_all_clients(
    counts: list[int], clients: int, alpha: float, seed: int, rounding: str
) -> None:
    labels = [f"l{k}" for k, n in enumerate(counts) for _ in range(n)]
    corpus = build_corpus(labels, ["l0", "l1"] * 10)
    if clients > corpus.num_train:
        return
    partition = label(corpus, Seed(seed), clients=clients, alpha=alpha, rounding=rounding)  # type: ignore[arg-type]
    assert_covers(partition, corpus)
    sizes = partition.train.sizes
    assert (sizes[:-1] == corpus.num_train // clients).all()
    assert sizes[-1] == corpus.num_train - (clients - 1) * (corpus.num_train // clients)
    same_seed = label(corpus, Seed(seed), clients=clients, alpha=alpha, rounding=rounding)  # type: ignore[arg-type]
    assert same_seed.digest == partition.digest


@given(clients=st.integers(1, 20), beta=st.floats(0.01, 100), seed=st.integers(0, 10**6))
@settings(max_examples=50, deadline=None)
def test_quantity_skew_assigns_every_example_once_and_leaves_no_client_empty(
    clients: int, beta: float, seed: int
) -> None:
    corpus = build_corpus(["a", "b"] * 200, ["a", "b"] * 5)
    partition = quantity(corpus, Seed(seed), clients=clients, beta=beta)
    assert_covers(partition, corpus)
    assert partition.train.sizes.min() >= 1
    assert partition.test.sizes.min() >= 1 or clients > len(corpus) - corpus.num_train
    label_and_quantity = label_quantity(corpus, Seed(seed), clients=clients, alpha=1.0, beta=beta)
    assert_covers(label_and_quantity, corpus)
    assert label_and_quantity.train.sizes.min() >= 1


@given(clients=st.integers(1, 30), seed=st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_uniform_clients_differ_by_at_most_one_example(clients: int, seed: int) -> None:
    corpus = build_corpus(["a", "b"] * 40)
    partition = uniform(corpus, Seed(seed), clients=clients)
    assert_covers(partition, corpus)
    assert partition.train.sizes.max() - partition.train.sizes.min() <= 1


@given(
    clients=st.integers(1, 8),
    phases=st.integers(2, 5),
    rounds_per_phase=st.integers(1, 7),
    schedule=st.sampled_from(["gradual", "sudden"]),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=40, deadline=None)
def test_drift_assigns_every_example_to_one_client_and_phase(
    clients: int, phases: int, rounds_per_phase: int, schedule: str, seed: int
) -> None:
    corpus = build_corpus(["a", "b", "c", "d"] * 20, ["a", "b"] * 30)
    partition = drift(
        corpus, Seed(seed), clients=clients, phases=phases, rounds_per_phase=rounds_per_phase, schedule=schedule
    )  # type: ignore[arg-type]
    assert_covers(partition, corpus)
    for k in range(clients):
        assert np.array_equal(
            np.concatenate([partition.train.in_phase(k, p) for p in range(phases)]), partition.train[k]
        )
    assert [
        partition.phase(r) for r in (0, rounds_per_phase - 1, rounds_per_phase, phases * rounds_per_phase - 1, 10**6)
    ] == [
        0,
        0,
        1,
        phases - 1,
        phases - 1,
    ]


@given(share=st.floats(0.01, 0.99), clients=st.integers(1, 12), phases=st.integers(1, 3), seed=st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_local_test_is_a_share_of_each_clients_rows(share: float, clients: int, phases: int, seed: int) -> None:
    corpus = merge_splits(build_corpus(["a", "b"] * 40, ["a", "b"] * 10))
    partition = quantity(corpus, Seed(seed), clients=clients, beta=1.0)
    if phases > 1:
        partition = drift(corpus, Seed(seed), clients=clients, phases=phases)
    result = hold_out_local_tests(partition, share, Seed(seed), merged=True)
    assert result.train.phases == result.test.phases == partition.train.phases
    for k in range(clients):
        for p in range(partition.train.phases):
            train, test, before = (
                result.train.in_phase(k, p),
                result.test.in_phase(k, p),
                partition.train.in_phase(k, p),
            )
            assert sorted([*train, *test]) == sorted(before)
            assert len(test) == (0 if len(before) < 2 else min(max(round(len(before) * share), 1), len(before) - 1))
    assert result.global_test is not None
    assert np.array_equal(result.global_test, np.sort(result.test.rows))


@given(
    table=st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3).filter(sum), min_size=1, max_size=6),
    available=st.lists(st.integers(1, 400), min_size=3, max_size=3),
)
@settings(max_examples=100, deadline=None)
def test_label_quotas_do_not_exceed_the_available_examples_and_have_equal_sizes(
    table: list[list[int]], available: list[int]
) -> None:
    shares = np.array(table) / np.sum(table, axis=1, keepdims=True)
    counts = label_quotas(shares, np.array(available))
    assert (counts.sum(0) <= available).all()
    assert len(set(counts.sum(1))) == 1
    size = int(counts.sum(1)[0])
    assert (np.abs(counts - shares * size) < 1).all()
    exact = np.min(np.array(available)[shares.sum(0) > 0] / shares.sum(0)[shares.sum(0) > 0])
    assert size >= exact - len(table) - 1, "a common size this small leaves too much unused"


@given(st.lists(st.floats(0, 50), min_size=1, max_size=9), st.integers(0, 10**6))
def test_largest_remainder_sums_to_the_total_and_is_off_by_less_than_one(weights: list[float], seed: int) -> None:
    shares = np.array(weights) + 1e-6
    shares /= shares.sum()
    total = seed % 500
    rounded = largest_remainder(shares * total, total)
    assert rounded.sum() == total
    assert (np.abs(rounded - shares * total) < 1 + 1e-9).all()


@given(counts=st.lists(st.integers(1, 80), min_size=3, max_size=3), seed=st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_domain_sample_and_public_split_follow_the_labels(counts: list[int], seed: int) -> None:
    codes = np.repeat(np.arange(3), counts)
    q = np.random.default_rng(seed).dirichlet(np.ones(3))
    rows = sample_matching(np.arange(len(codes)), codes, q, Seed(seed))
    counts_in_sample = np.bincount(codes[rows], minlength=3)
    assert len(np.unique(rows)) == len(rows)
    assert (np.abs(counts_in_sample - q * len(rows)) <= 1.5).all()
    public, private = stratified_split(rows, codes, 0.2, Seed(seed))
    assert sorted([*public, *private]) == sorted(rows)
    assert len(public) == round(0.2 * len(rows))
    assert (np.abs(np.bincount(codes[public], minlength=3) - 0.2 * counts_in_sample) < 1 + 1e-9).all()


def test_natural_clients_follow_the_column() -> None:
    names = ["zoe", "al", "al", "bo", "zoe", "al"]
    corpus = build_corpus(["a", "b"] * 2, ["a", "b"], client=names)
    partition = natural(corpus, Seed(0))
    assert list(partition.clients) == ["al", "bo", "zoe"]
    for client in partition.clients:
        rows = partition.train[partition.index(client)]
        assert [names[r] for r in rows] == [client] * len(rows)
    assert partition.test[partition.index("al")].tolist() == [5]
    assert partition.test[partition.index("zoe")].tolist() == [4]


def test_large_alpha_gives_the_prior_and_small_alpha_one_label_per_client() -> None:
    ids = np.repeat(np.arange(5), 400)
    for alpha, low, high in ((1e6, 0.19, 0.23), (1e-3, 0.97, 1.0)):
        prior = np.full(5, 0.2)
        q = sample_mixtures(prior, alpha, 10, np.random.default_rng(1))
        client_rows = assign_rows(ids, q, np.random.default_rng(2), "largest_remainder")
        largest = [np.bincount(ids[client_rows[k]], minlength=5).max() / len(client_rows[k]) for k in range(4)]
        assert low <= float(np.median(largest)) <= high


def test_alpha_that_underflows_gives_one_label_drawn_from_the_prior() -> None:
    prior = np.array([0.7, 0.3, 0.0])
    q = sample_mixtures(prior, 1e-300, 400, np.random.default_rng(0))
    assert ((q == 0) | (q == 1)).all()
    assert (q.sum(1) == 1).all()
    assert q[:, 2].sum() == 0
    assert q[:, 0].mean() == pytest.approx(0.7, abs=0.07)


def test_test_rows_follow_the_training_labels_unless_independent_test() -> None:
    corpus = build_corpus([f"l{k}" for k in range(10)] * 200, [f"l{k}" for k in range(10)] * 200)
    _, ids = corpus.factorize("label")

    def agreement(independent: bool) -> float:
        partition = label(corpus, Seed(1), clients=20, alpha=0.5, independent_test=independent)
        counts = [
            np.stack([np.bincount(ids[s[k]], minlength=10) for k in range(12)])
            for s in (partition.train, partition.test)
        ]
        return float(np.corrcoef(counts[0].ravel(), counts[1].ravel())[0, 1])

    assert agreement(independent=False) > 0.95
    assert agreement(independent=True) < 0.3


@given(st.integers(1, 10**7))
def test_numbered_clients_sort_in_order_and_are_found(count: int) -> None:
    names = NumberedClients(count)
    indices = sorted({0, count // 3, count // 2, count - 1})
    assert [names.index(names[i]) for i in indices] == indices
    assert sorted(names[i] for i in indices) == [names[i] for i in indices]


def test_unknown_client_is_not_found() -> None:
    for names in (NumberedClients(20), NamedClients(np.array(["a", "c"]))):
        for unknown in ("b", "client-020", "client-3", "zz"):
            with pytest.raises(ValueError):
                names.index(unknown)


@given(st.lists(st.lists(st.integers(0, 99), max_size=5), min_size=1, max_size=12), st.integers(1, 3))
def test_phases_keep_the_pieces(parts: list[list[int]], phases: int) -> None:
    pieces = parts * phases
    without_phases = ClientRows.from_lists([np.array(p, np.int64) for p in pieces])
    with_phases = ClientRows(without_phases.rows, without_phases.offsets, phases)
    assert len(with_phases) * phases == len(pieces)
    assert with_phases.sizes.sum() == len(without_phases.rows)
    assert [rows.tolist() for rows in with_phases.phase_pieces()] == pieces
