"""Laws of every partition: each example once, nobody lost, the same seed the same bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.partitions import Partition, label, natural, quantity, uniform
from motet.partitions.dirichlet import deal, mixtures
from motet.partitions.partition import Named, Numbered


def corpus_of(labels: Sequence[str], test: Sequence[str] = ("a", "b") * 10, client: Sequence[str] | None = None) -> Corpus:
    every = [*labels, *test]
    columns = {"text": [f"t{i}" for i in range(len(every))], "label": every}
    if client is not None:
        columns["client"] = [*client]
    return Corpus("made", "classification", columns, len(labels))


def covers(partition: Partition, corpus: Corpus) -> None:
    assert sorted(partition.train.rows.tolist()) == list(range(corpus.train))
    assert sorted(partition.test.rows.tolist()) == list(range(corpus.train, len(corpus)))
    assert len(partition.train) == len(partition.test) == len(partition)


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
    if clients > corpus.train:
        return
    made = label(corpus, Seed(seed), clients=clients, alpha=alpha, rounding=rounding)  # type: ignore[arg-type]
    covers(made, corpus)
    sizes = made.train.sizes
    assert (sizes[:-1] == corpus.train // clients).all()
    assert sizes[-1] == corpus.train - (clients - 1) * (corpus.train // clients)
    again = label(corpus, Seed(seed), clients=clients, alpha=alpha, rounding=rounding)  # type: ignore[arg-type]
    assert again.digest == made.digest


@given(clients=st.integers(1, 20), beta=st.floats(0.01, 100), seed=st.integers(0, 10**6))
@settings(max_examples=50, deadline=None)
def test_quantity_shift_gives_every_example_once_and_everybody_one(clients: int, beta: float, seed: int) -> None:
    corpus = corpus_of(["a", "b"] * 200, ["a", "b"] * 5)
    made = quantity(corpus, Seed(seed), clients=clients, beta=beta)
    covers(made, corpus)
    assert made.train.sizes.min() >= 1
    assert made.test.sizes.min() >= 1 or clients > len(corpus) - corpus.train


@given(clients=st.integers(1, 30), seed=st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_uniform_gives_all_the_same(clients: int, seed: int) -> None:
    corpus = corpus_of(["a", "b"] * 40)
    made = uniform(corpus, Seed(seed), clients=clients)
    covers(made, corpus)
    assert made.train.sizes.max() - made.train.sizes.min() <= 1


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
        q = mixtures(prior, alpha, 10, np.random.default_rng(1))
        shares = deal(ids, q, np.random.default_rng(2), "largest_remainder")
        largest = [np.bincount(ids[shares[k]], minlength=5).max() / len(shares[k]) for k in range(4)]
        assert low <= float(np.median(largest)) <= high


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda c: label(c, Seed(0), clients=999), "partition.clients is 999, but there are 40 training examples"),
        (lambda c: label(c, Seed(0), alpha=0.0), "partition.alpha is 0.0; it must be above 0"),
        (lambda c: label(c, Seed(0), alpha=float("nan")), "partition.alpha is nan"),
        (lambda c: label(corpus_of(["a"] * 40, ["a"] * 4), Seed(0)), "has one value, 'a'"),
        (lambda c: quantity(c, Seed(0), beta=-1.0), "partition.beta is -1.0"),
        (lambda c: natural(c, Seed(0)), "there is no column 'client'"),
        (lambda c: natural(corpus_of(["a", "b"], ["a"], client=["x", "x", "x"]), Seed(0)), "has one value, 'x'"),
        (lambda c: uniform(c, Seed(0), clients=0), "partition.clients is 0"),
    ],
)
def test_what_cannot_be_divided_is_explained(make, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigError) as refused:
        make(corpus_of(["a", "b"] * 20))
    assert says in str(refused.value)


@given(st.integers(1, 10**7))
def test_numbered_clients_sort_in_their_order_and_are_found(count: int) -> None:
    names = Numbered(count)
    picked = sorted({0, count // 3, count // 2, count - 1})
    assert [names.index(names[i]) for i in picked] == picked
    assert sorted(names[i] for i in picked) == [names[i] for i in picked]


def test_a_stranger_is_not_found() -> None:
    for names in (Numbered(20), Named(np.array(["a", "c"]))):
        for stranger in ("b", "client-020", "client-3", "zz"):
            with pytest.raises(ValueError):
                names.index(stranger)
