"""Metrics of generated texts: equal to their libraries on English, and sensible in every script."""

from __future__ import annotations

import random
import string
from typing import Any

import numpy as np
import pytest
import sacrebleu
from rouge_score.rouge_scorer import RougeScorer
from rouge_score.tokenizers import DefaultTokenizer

from motet.datasets.corpus import Corpus
from motet.tasks.metric_statistics import metric_from_statistics
from motet.tasks.rouge_tokenizer import RougeTokenizer, split_sentences
from motet.tasks.seq2seq import seq2seq
from motet.tasks.text_metrics import TextMetrics, choose_bleu_tokenizer

GENERATED = ["the cat sat on the mat", "a storm is coming tonight", "", "prices rising again in may"]
REFERENCES = ["the cat is on the mat", "a storm comes tonight", "something", "prices rise again in may"]
IN_MANY_SCRIPTS = {
    "Arabic": "الطقس جميل اليوم في المدينة القديمة",
    "Hindi": "आज शहर में मौसम बहुत अच्छा है",
    "Russian": "Сегодня в городе очень хорошая погода",
    "Greek": "Σήμερα ο καιρός είναι πολύ καλός",
    "Chinese": "今天这个城市的天气非常好",
    "Japanese": "今日はとても良い天気です",
    "Thai": "วันนี้อากาศดีมาก",
    "French": "Élève très zélé à l’école",
}


class NoSynonyms:
    def synsets(self, word: str) -> list[str]:
        return []


@pytest.mark.parametrize("stemming", [False, True])
def test_metrics_of_english_texts_match_the_libraries(stemming: bool) -> None:
    from nltk.translate.meteor_score import single_meteor_score

    scores = TextMetrics(stemming=stemming).compute(GENERATED, REFERENCES)
    names = ["rouge1", "rouge2", "rougeL", "rougeLsum"]
    scorer = RougeScorer(names, use_stemmer=stemming)
    rouge = [scorer.score(reference, text) for text, reference in zip(GENERATED, REFERENCES, strict=True)]
    for name in names:
        assert scores[name] == pytest.approx(np.mean([row[name].fmeasure for row in rouge]))
    assert scores["bleu"] * 100 == pytest.approx(sacrebleu.corpus_bleu(GENERATED, [REFERENCES]).score)
    meteor = [
        single_meteor_score(reference.split(), text.split(), wordnet=NoSynonyms())
        for text, reference in zip(GENERATED, REFERENCES, strict=True)
    ]
    assert scores["meteor"] == pytest.approx(np.mean(meteor))


@pytest.mark.parametrize("stemming", [False, True])
def test_ascii_texts_have_the_words_of_rouge_score(stemming: bool) -> None:
    rng, expected, tokenizer = random.Random(0), DefaultTokenizer(stemming), RougeTokenizer(stemming)
    for _ in range(2000):
        text = "".join(rng.choices(string.printable, k=rng.randrange(60)))
        assert tokenizer.tokenize(text) == expected.tokenize(text)


@pytest.mark.parametrize("script", IN_MANY_SCRIPTS)
def test_identical_texts_have_rouge_1_in_every_script(script: str) -> None:
    text = IN_MANY_SCRIPTS[script]
    metrics = TextMetrics(bleu_tokenizer=choose_bleu_tokenizer([text]))
    scores = metrics.compute([text], [text])
    names = ("rouge1", "rouge2", "rougeL", "rougeLsum", "rougeL_b12", "bleu")
    assert {name: scores[name] for name in names} == pytest.approx(dict.fromkeys(names, 1.0))


def test_words_keep_their_accents_and_vowel_signs() -> None:
    words = RougeTokenizer(stemming=True).tokenize
    assert words("Élève zélé") == ["élève", "zélé"]
    assert words("शहर में") == ["शहर", "में"]
    assert words("2024年の天気 in Tokyo") == ["2024", "年", "の", "天", "気", "in", "tokyo"]
    assert words("cafe\u0301") == words("caf\u00e9")


def test_stemming_matches_words_with_the_same_stem_except_in_fednlps_rouge() -> None:
    texts, references = ["prices rising again"], ["price rises again"]
    stemmed, plain = (TextMetrics(stemming=stemming).compute(texts, references) for stemming in (True, False))
    assert stemmed["rougeL"] == 1.0
    assert plain["rougeL"] == pytest.approx(1 / 3)
    assert stemmed["rougeL_b12"] == plain["rougeL_b12"] == pytest.approx(1 / 3)


def test_rouge_l_with_beta_favors_recall() -> None:
    """The longest common subsequence of the first pair has 5 of 6 words. A short text has a higher precision."""
    compute = TextMetrics().compute
    assert compute(GENERATED[:1], REFERENCES[:1])["rougeL_b12"] == pytest.approx(5 / 6)
    precision, recall, b = 1.0, 2 / 6, 1.2**2
    expected = (1 + b) * precision * recall / (recall + b * precision)
    assert compute(["the cat"], REFERENCES[:1])["rougeL_b12"] == pytest.approx(expected)
    assert set(compute([], [])) == set(compute(GENERATED, REFERENCES))


def test_rouge_lsum_compares_sentence_by_sentence() -> None:
    reference = "The old bridge was closed. Traffic moved to the north."
    swapped = "Traffic moved to the north. The old bridge was closed."
    scores = TextMetrics(stemming=False).compute([swapped], [reference])
    lines = ["\n".join(text.replace(". ", ".\n").split("\n")) for text in (reference, swapped)]
    expected = RougeScorer(["rougeL", "rougeLsum"]).score(*lines)
    assert scores["rougeLsum"] == pytest.approx(expected["rougeLsum"].fmeasure) == 1.0
    assert scores["rougeL"] == pytest.approx(expected["rougeL"].fmeasure)
    assert scores["rougeL"] < 1.0


def test_sentences_are_lines_or_end_at_punctuation() -> None:
    assert split_sentences("One. Two?\nThree.\n") == ["One. Two?", "Three."]
    assert split_sentences('He said "no." Then he left! Why?') == ['He said "no."', "Then he left!", "Why?"]
    assert split_sentences("今天很好。明天下雨！") == ["今天很好。", "明天下雨！"]
    assert split_sentences("It costs 3.50 now") == ["It costs 3.50 now"]
    assert split_sentences("") == []


@pytest.mark.parametrize("overlap", [0.0, 0.2, 0.9])
@pytest.mark.parametrize("count", [1, 3, 40])
def test_bleu_from_statistics_is_smoothed_like_sacrebleu(overlap: float, count: int) -> None:
    """With little overlap, some n-grams never match, and sacrebleu smooths the precisions of zero."""
    rng = random.Random(count)
    references = [" ".join(rng.choices("abcdefghijklmnop", k=rng.randrange(1, 9))) for _ in range(count)]
    generated = [
        " ".join(word if rng.random() < overlap else rng.choice("uvwxyz") for word in reference.split())
        for reference in references
    ]
    rows = TextMetrics().score_texts(generated, references)
    bleu: Any = metric_from_statistics("bleu", rows.shape[1] - 1)
    sample = np.array([rng.randrange(count) for _ in range(count)])
    for picks in (np.arange(count), sample):
        means = rows[picks, 1:].mean(0, dtype=np.float64)
        expected = sacrebleu.corpus_bleu([generated[i] for i in picks], [[references[i] for i in picks]])
        assert 100 * bleu(means, count) == pytest.approx(expected.score, rel=1e-5, abs=1e-9)


def test_every_reported_metric_follows_from_the_statistics() -> None:
    metrics = TextMetrics()
    rows = metrics.score_texts(GENERATED, REFERENCES)
    means = rows.mean(0, dtype=np.float64)
    for name, value in metrics.compute(GENERATED, REFERENCES).items():
        metric = metric_from_statistics(name, rows.shape[1] - 1)
        number = means[0] if name == "rougeL" else metric(means[1:], len(rows)) if metric else None
        assert number == pytest.approx(value, rel=1e-5), name


def test_the_task_says_which_tokenizer_and_stemmer_it_uses() -> None:
    english = Corpus("s", "seq2seq", {"source": ["a"] * 2, "target": ["a title"] * 2}, 1)
    chinese = Corpus("s", "seq2seq", {"source": ["a"] * 2, "target": ["今天很好"] * 2}, 1)
    task = seq2seq(english)
    assert set(task.metric_details) == set(task.metric_names) - {"loss"}
    assert "Porter stemmer" in task.metric_details["rougeL"]
    assert "no stemmer" in seq2seq(english, stemming=False).metric_details["rougeL"]
    assert "tokenizer 13a" in task.metric_details["bleu"]
    assert "tokenizer char" in seq2seq(chinese).metric_details["bleu"]
