"""Laws of every partition: each example once, nobody lost, the same seed the same bytes."""

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
TONGUES = Corpus(  # half of it in Greek letters
    "two tongues",
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
# Every strategy on a corpus of its own; True where each example has exactly one owner.
MADE: dict[str, tuple[Corpus, dict[str, Any], bool]] = {
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
    "language": (TONGUES, {"clients": 7}, True),
    "drift": (TOY, {"clients": 5, "phases": 3, "every": 2}, True),
}


def corpus_of(
    labels: Sequence[str], test: Sequence[str] = ("a", "b") * 10, client: Sequence[str] | None = None
) -> Corpus:
    every = [*labels, *test]
    columns = {"text": [f"t{i}" for i in range(len(every))], "label": every}
    if client is not None:
        columns["client"] = [*client]
    return Corpus("made", "classification", columns, len(labels))


def covers(partition: Partition, corpus: Corpus) -> None:
    assert sorted(partition.train.rows.tolist()) == list(range(corpus.num_train))
    assert sorted(partition.test.rows.tolist()) == list(range(corpus.num_train, len(corpus)))
    assert len(partition.train) == len(partition.test) == len(partition)


def test_every_strategy_but_a_file_is_held_to_the_laws() -> None:
    assert set(MADE) == set(PARTITIONS) - {"file"}


@pytest.mark.parametrize("name", MADE)
def test_nobody_is_lost_and_nothing_is_given_twice(name: str, tmp_path: Path) -> None:
    corpus, options, whole = MADE[name]
    made = build_partition(ComponentConfig(name, options), corpus, Seed(3))
    if whole:
        covers(made, corpus)
    given_out = np.concatenate(
        [made.train.rows, made.test.rows, *(r for r in (made.public, made.global_test) if r is not None)]
    )
    assert len(np.unique(given_out)) == len(given_out)
    assert made.train.rows.max() < corpus.num_train <= made.test.rows.min()
    assert made.train.sizes.min() >= 1
    assert len(made) == options.get("clients", len(made)) >= 2
    again, other = (build_partition(ComponentConfig(name, options), corpus, Seed(s)) for s in (3, 4))
    assert again.digest == made.digest
    if name not in ("natural", "clusters"):  # these follow the data, not the seed
        assert other.digest != made.digest
    write_partition(made, corpus, tmp_path / "p.h5")
    back, of = read_partition(tmp_path / "p.h5")
    assert (back.digest, of["key"]) == (made.digest, corpus.fingerprint)
    assert dict(back.recipe) == json.loads(json.dumps(dict(made.recipe)))
    assert made.recipe["type"] == name
    assert (back.rounds_per_phase, back.train.phases, list(back.clients)) == (
        made.rounds_per_phase,
        made.train.phases,
        list(made.clients),
    )


@given(
    counts=st.lists(st.integers(1, 60), min_size=2, max_size=8),
    clients=st.integers(1, 12),
    alpha=st.floats(1e-3, 1e4),
    seed=st.integers(0, 10**6),
    rounding=st.sampled_from(["largest_remainder", "sequential"]),
)
@settings(max_examples=80, deadline=None)
def test_label_shift_gives_every_example_once_and_loses_nobody(
    counts: list[int], clients: int, alpha: float, seed: int, rounding: str
) -> None:
    labels = [f"l{k}" for k, n in enumerate(counts) for _ in range(n)]
    corpus = corpus_of(labels, ["l0", "l1"] * 10)
    if clients > corpus.num_train:
        return
    made = label(corpus, Seed(seed), clients=clients, alpha=alpha, rounding=rounding)  # type: ignore[arg-type]
    covers(made, corpus)
    sizes = made.train.sizes
    assert (sizes[:-1] == corpus.num_train // clients).all()
    assert sizes[-1] == corpus.num_train - (clients - 1) * (corpus.num_train // clients)
    again = label(corpus, Seed(seed), clients=clients, alpha=alpha, rounding=rounding)  # type: ignore[arg-type]
    assert again.digest == made.digest


@given(clients=st.integers(1, 20), beta=st.floats(0.01, 100), seed=st.integers(0, 10**6))
@settings(max_examples=50, deadline=None)
def test_quantity_shift_gives_every_example_once_and_everybody_one(clients: int, beta: float, seed: int) -> None:
    corpus = corpus_of(["a", "b"] * 200, ["a", "b"] * 5)
    made = quantity(corpus, Seed(seed), clients=clients, beta=beta)
    covers(made, corpus)
    assert made.train.sizes.min() >= 1
    assert made.test.sizes.min() >= 1 or clients > len(corpus) - corpus.num_train
    both = label_quantity(corpus, Seed(seed), clients=clients, alpha=1.0, beta=beta)
    covers(both, corpus)
    assert both.train.sizes.min() >= 1


@given(clients=st.integers(1, 30), seed=st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_uniform_gives_all_the_same(clients: int, seed: int) -> None:
    corpus = corpus_of(["a", "b"] * 40)
    made = uniform(corpus, Seed(seed), clients=clients)
    covers(made, corpus)
    assert made.train.sizes.max() - made.train.sizes.min() <= 1


@given(
    clients=st.integers(1, 8),
    phases=st.integers(2, 5),
    every=st.integers(1, 7),
    course=st.sampled_from(["gradual", "sudden"]),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=40, deadline=None)
def test_in_a_drift_every_example_has_its_client_and_its_time(
    clients: int, phases: int, every: int, course: str, seed: int
) -> None:
    corpus = corpus_of(["a", "b", "c", "d"] * 20, ["a", "b"] * 30)
    made = drift(corpus, Seed(seed), clients=clients, phases=phases, every=every, course=course)  # type: ignore[arg-type]
    covers(made, corpus)
    for k in range(clients):
        assert np.array_equal(np.concatenate([made.train.in_phase(k, p) for p in range(phases)]), made.train[k])
    assert [made.phase(r) for r in (0, every - 1, every, phases * every - 1, 10**6)] == [
        0,
        0,
        1,
        phases - 1,
        phases - 1,
    ]


@given(share=st.floats(0.01, 0.99), clients=st.integers(1, 12), phases=st.integers(1, 3), seed=st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_tests_of_ones_own_are_a_share_of_ones_rows(share: float, clients: int, phases: int, seed: int) -> None:
    corpus = merge_splits(corpus_of(["a", "b"] * 40, ["a", "b"] * 10))
    made = quantity(corpus, Seed(seed), clients=clients, beta=1.0)
    if phases > 1:
        made = drift(corpus, Seed(seed), clients=clients, phases=phases)
    cut = hold_out_local_tests(made, share, Seed(seed), whole=True)
    assert cut.train.phases == cut.test.phases == made.train.phases
    for k in range(clients):
        for p in range(made.train.phases):
            mine, held, all_ = cut.train.in_phase(k, p), cut.test.in_phase(k, p), made.train.in_phase(k, p)
            assert sorted([*mine, *held]) == sorted(all_)
            assert len(held) == (0 if len(all_) < 2 else min(max(round(len(all_) * share), 1), len(all_) - 1))
    assert cut.global_test is not None
    assert np.array_equal(cut.global_test, np.sort(cut.test.rows))


@given(
    wanted=st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3).filter(sum), min_size=1, max_size=6),
    available=st.lists(st.integers(1, 400), min_size=3, max_size=3),
)
@settings(max_examples=100, deadline=None)
def test_quotas_never_ask_for_more_than_there_is_and_are_equal_in_size(
    wanted: list[list[int]], available: list[int]
) -> None:
    shares = np.array(wanted) / np.sum(wanted, axis=1, keepdims=True)
    found = label_quotas(shares, np.array(available))
    assert (found.sum(0) <= available).all()
    assert len(set(found.sum(1))) == 1
    size = int(found.sum(1)[0])
    assert (np.abs(found - shares * size) < 1).all()
    exact = np.min(np.array(available)[shares.sum(0) > 0] / shares.sum(0)[shares.sum(0) > 0])
    assert size >= exact - len(wanted) - 1, "a common size this small leaves too much unused"


@given(st.lists(st.floats(0, 50), min_size=1, max_size=9), st.integers(0, 10**6))
def test_largest_remainders_sum_to_the_room_and_miss_by_less_than_one(wanted: list[float], seed: int) -> None:
    scale = np.array(wanted) + 1e-6
    room = seed % 500
    found = largest_remainder(scale / scale.sum() * room, room)
    assert found.sum() == room
    assert (np.abs(found - scale / scale.sum() * room) < 1 + 1e-9).all()


@given(counts=st.lists(st.integers(1, 80), min_size=3, max_size=3), seed=st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_a_domain_is_sampled_to_its_labels_and_split_by_them(counts: list[int], seed: int) -> None:
    codes = np.repeat(np.arange(3), counts)
    q = np.random.default_rng(seed).dirichlet(np.ones(3))
    rows = sample_matching(np.arange(len(codes)), codes, q, Seed(seed))
    found = np.bincount(codes[rows], minlength=3)
    assert len(np.unique(rows)) == len(rows)
    assert (np.abs(found - q * len(rows)) <= 1.5).all()
    public, private = stratified_split(rows, codes, 0.2, Seed(seed))
    assert sorted([*public, *private]) == sorted(rows)
    assert len(public) == round(0.2 * len(rows))
    assert (np.abs(np.bincount(codes[public], minlength=3) - 0.2 * found) < 1 + 1e-9).all()


def test_natural_clients_have_what_the_column_says() -> None:
    names = ["zoe", "al", "al", "bo", "zoe", "al"]
    corpus = corpus_of(["a", "b"] * 2, ["a", "b"], client=names)
    made = natural(corpus, Seed(0))
    assert list(made.clients) == ["al", "bo", "zoe"]
    for client in made.clients:
        rows = made.train[made.index(client)]
        assert [names[r] for r in rows] == [client] * len(rows)
    assert made.test[made.index("al")].tolist() == [5]
    assert made.test[made.index("zoe")].tolist() == [4]


def test_a_large_alpha_is_the_prior_and_a_small_one_a_label_each() -> None:
    ids = np.repeat(np.arange(5), 400)
    for alpha, low, high in ((1e6, 0.19, 0.23), (1e-3, 0.97, 1.0)):
        prior = np.full(5, 0.2)
        q = sample_mixtures(prior, alpha, 10, np.random.default_rng(1))
        shares = assign_rows(ids, q, np.random.default_rng(2), "largest_remainder")
        largest = [np.bincount(ids[shares[k]], minlength=5).max() / len(shares[k]) for k in range(4)]
        assert low <= float(np.median(largest)) <= high


def test_an_alpha_so_small_that_draws_fail_gives_one_label_each_by_the_prior() -> None:
    prior = np.array([0.7, 0.3, 0.0])
    q = sample_mixtures(prior, 1e-300, 400, np.random.default_rng(0))
    assert ((q == 0) | (q == 1)).all()
    assert (q.sum(1) == 1).all()
    assert q[:, 2].sum() == 0
    assert q[:, 0].mean() == pytest.approx(0.7, abs=0.07)


def test_clients_tested_by_the_same_draw_meet_their_own_labels_and_by_another_do_not() -> None:
    corpus = corpus_of([f"l{k}" for k in range(10)] * 200, [f"l{k}" for k in range(10)] * 200)
    _, ids = corpus.factorize("label")

    def agreement(independent: bool) -> float:
        made = label(corpus, Seed(1), clients=20, alpha=0.5, independent_test=independent)
        counts = [np.stack([np.bincount(ids[s[k]], minlength=10) for k in range(12)]) for s in (made.train, made.test)]
        return float(np.corrcoef(counts[0].ravel(), counts[1].ravel())[0, 1])

    assert agreement(independent=False) > 0.95
    assert agreement(independent=True) < 0.3


@given(st.integers(1, 10**7))
def test_numbered_clients_sort_in_their_order_and_are_found(count: int) -> None:
    names = NumberedClients(count)
    picked = sorted({0, count // 3, count // 2, count - 1})
    assert [names.index(names[i]) for i in picked] == picked
    assert sorted(names[i] for i in picked) == [names[i] for i in picked]


def test_a_stranger_is_not_found() -> None:
    for names in (NumberedClients(20), NamedClients(np.array(["a", "c"]))):
        for stranger in ("b", "client-020", "client-3", "zz"):
            with pytest.raises(ValueError):
                names.index(stranger)


@given(st.lists(st.lists(st.integers(0, 99), max_size=5), min_size=1, max_size=12), st.integers(1, 3))
def test_shares_with_phases_are_the_same_shares(parts: list[list[int]], phases: int) -> None:
    whole = parts * phases
    fine = ClientRows.from_lists([np.array(p, np.int64) for p in whole])
    coarse = ClientRows(fine.rows, fine.offsets, phases)
    assert len(coarse) * phases == len(whole)
    assert coarse.sizes.sum() == len(fine.rows)
    assert [rows.tolist() for rows in coarse.phase_pieces()] == whole
    assert coarse.owners.tolist() == [k for k in range(len(coarse)) for _ in range(int(coarse.sizes[k]))]
