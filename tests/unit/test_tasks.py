"""Each task: its features, its loss and its metrics."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
import transformers

from motet.core.errors import ConfigError, DataError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.datasets.load_corpus import BUILTIN_CORPORA
from motet.experiment.build.federation_builder import build_task, federate_corpus
from motet.experiment.recipe.run_config import ComponentConfig
from motet.learning.data.features import IGNORE_INDEX, Examples, Features, Ragged
from motet.learning.modules.model import Model
from motet.learning.objectives.supervised import TokenCrossEntropy, token_losses
from motet.models.model_config import MODELS, ModelConfig, PackagedModel
from motet.tasks import classification, language_modeling, qa, regression, seq2seq, tagging
from motet.tasks.language_modeling import group_texts
from motet.tasks.question_answering import infer_pair_template


@pytest.fixture(scope="module")
def wordpieces() -> Any:
    packaged = MODELS["minilm"]
    assert isinstance(packaged, PackagedModel)
    return transformers.AutoTokenizer.from_pretrained(str(packaged.directory()))


def tokenizer_model(tokenizer: Any, **config: Any) -> Model:
    """A model with a tokenizer and a configuration, but no parameters."""
    module = torch.nn.Module()
    module.config = transformers.BertConfig(**config)  # type: ignore[assignment]
    return Model("tokenizer", module, {}, tokenizer)


def all_examples(features: Features) -> Examples:
    return Examples(features, np.arange(len(features)))


# ---- classification and regression ----------------------------------------------------------------------------------


def build_pairs(labels: list[str]) -> Corpus:
    texts = [f"first {i}" for i in range(len(labels))]
    return Corpus(
        "pairs",
        "classification",
        {"text": texts, "second": ["and then"] * len(labels), "label": labels},
        len(labels) - 1,
    )


def test_text_pair_becomes_one_row_with_token_types(wordpieces: Any) -> None:
    corpus = build_pairs(["yes", "no", "yes"])
    batch = classification(corpus).build_features(corpus, tokenizer_model(wordpieces), 32).batch(np.array([0, 1]))
    assert wordpieces.decode(batch["input_ids"][0]) == "[CLS] first 0 [SEP] and then [SEP]"
    assert batch["token_type_ids"][0].tolist() == [0] * 4 + [1] * 3


def test_without_attention_mask_padding_counts_as_text(wordpieces: Any) -> None:
    corpus = build_pairs(["yes", "no", "yes"])
    features = classification(corpus, attention_mask=False).build_features(corpus, tokenizer_model(wordpieces), 20)
    batch = features.batch(np.array([0]))
    assert batch["input_ids"].shape == (1, 20)
    assert bool(batch["attention_mask"].all())


@pytest.mark.parametrize(
    ("labels", "positive"),
    [
        (["equivalent", "not_equivalent"], "equivalent"),
        (["acceptable", "unacceptable"], "acceptable"),
        (["0", "1"], "1"),
        (["negative", "positive"], "positive"),
        (["a", "b"], "b"),
    ],
)
def test_positive_label_is_the_one_without_a_negation(labels: list[str], positive: str) -> None:
    assert classification(build_pairs([*labels, labels[0]])).positive_label == positive


def test_classification_metrics_match_scikit_learn() -> None:
    from sklearn.metrics import f1_score, matthews_corrcoef

    rng = np.random.default_rng(0)
    true, predicted = rng.integers(0, 3, 50), rng.integers(0, 3, 50)
    corpus = Corpus("c", "classification", {"text": ["x"] * 50, "label": [f"l{k}" for k in true]}, 49)
    task = classification(corpus)
    features = Features("c", {"input_ids": Ragged.from_lists([[1]] * 50), "labels": task.label_ids(corpus)})
    predictions = {"logits": F.one_hot(torch.from_numpy(predicted), 3).float(), "loss": torch.ones(50)}
    scores = task.compute_metrics(predictions, all_examples(features))
    assert set(scores) == set(task.metric_names)
    assert scores["accuracy"] == (true == predicted).mean()
    assert scores["f1_macro"] == pytest.approx(f1_score(true, predicted, average="macro"))
    assert scores["f1_weighted"] == pytest.approx(f1_score(true, predicted, average="weighted"))
    assert scores["matthews"] == pytest.approx(matthews_corrcoef(true, predicted))


def test_class_weights_follow_the_training_rows_or_a_mapping() -> None:
    corpus = Corpus("c", "classification", {"text": ["x"] * 9, "label": ["a"] * 6 + ["b"] * 2 + ["a"]}, 8)
    balanced = classification(corpus, class_weights="balanced")
    assert balanced.class_weights == (8 / 12, 8 / 4)
    assert classification(corpus, class_weights={"b": 3}).class_weights == (1.0, 3.0)
    logits, labels = torch.randn(4, 2), torch.tensor([0, 0, 1, 0])
    losses, weights = balanced.objective.losses(lambda batch: batch, {"logits": logits, "labels": labels})  # type: ignore[arg-type]
    expected = F.cross_entropy(logits, labels, weight=torch.tensor(balanced.class_weights))
    assert float((losses * weights).sum() / weights.sum()) == pytest.approx(float(expected))


@pytest.mark.parametrize(
    ("weights", "message"),
    [({"c": 2}, r"names 'c'; the labels are a, b"), ({"a": 0}, r"class_weights.a is 0; expected a number above 0")],
)
def test_class_weights_that_fit_no_label_are_rejected(weights: dict[str, float], message: str) -> None:
    corpus = Corpus("c", "classification", {"text": ["x"] * 3, "label": ["a", "b", "a"]}, 2)
    with pytest.raises(ConfigError, match=message):
        classification(corpus, class_weights=weights)


def test_regression_metrics_match_scipy_and_are_zero_for_constant_predictions() -> None:
    from scipy.stats import pearsonr, spearmanr

    rng = np.random.default_rng(0)
    true, predicted = rng.normal(size=20), rng.normal(size=20)
    corpus = Corpus("r", "regression", {"text": ["x"] * 20, "score": true.tolist()}, 19)
    features = Features("r", {"input_ids": Ragged.from_lists([[1]] * 20), "labels": true.astype(np.float32)})
    task = regression(corpus)
    scores = task.compute_metrics(
        {"predictions": torch.from_numpy(predicted), "loss": torch.ones(20)}, all_examples(features)
    )
    assert scores["pearson"] == pytest.approx(pearsonr(true, predicted)[0], abs=1e-6)
    assert scores["spearman"] == pytest.approx(spearmanr(true, predicted)[0], abs=1e-6)
    constant = task.compute_metrics({"predictions": torch.zeros(20), "loss": torch.ones(20)}, all_examples(features))
    assert constant["pearson"] == constant["spearman"] == 0.0


def test_score_that_is_not_a_number_raises_an_error_with_its_row(wordpieces: Any) -> None:
    corpus = Corpus("r", "regression", {"text": ["x", "y"], "score": ["1.5", "much"]}, 1)
    with pytest.raises(DataError, match="r, row 1: score 'much' is not a number"):
        regression(corpus).build_features(corpus, tokenizer_model(wordpieces), 16)


def test_single_label_raises_an_error() -> None:
    with pytest.raises(DataError, match="have one label, 'a'"):
        classification(Corpus("c", "classification", {"text": ["x", "y"], "label": ["a", "a"]}, 1))


# ---- tagging --------------------------------------------------------------------------------------------------------

WORDS = ["Wolfgangerl", "Amadeus", "Mozart", "visited", "Salzburg", "."]
TAGS = ["B-PER", "I-PER", "I-PER", "O", "B-LOC", "O"]


def tagging_corpus(words: list[list[str]], tags: list[list[str]]) -> Corpus:
    return Corpus("t", "tagging", {"words": words, "tags": tags}, len(words))


def test_first_token_of_a_word_is_labeled(wordpieces: Any) -> None:
    corpus = tagging_corpus([WORDS], [TAGS])
    task = tagging(corpus)
    features = task.build_features(corpus, tokenizer_model(wordpieces), 32)
    batch = features.batch(np.array([0]))
    pieces = wordpieces.convert_ids_to_tokens(batch["input_ids"][0])
    labeled = [(p, task.labels[k]) for p, k in zip(pieces, batch["labels"][0].tolist(), strict=True) if k != -100]
    assert [tag for _, tag in labeled] == TAGS
    assert not any(p.startswith("##") for p, _ in labeled)
    assert len(pieces) > len(WORDS) + 2  # some words have several tokens


def correct_predictions(features: Features) -> dict[str, torch.Tensor]:
    labels = features.batch(np.arange(len(features)))["labels"]
    is_labeled = labels != -100
    return {"predictions": labels, "loss": torch.zeros(len(labels)), "count": is_labeled.sum(1)}


def test_truncated_words_count_as_predicted_o(wordpieces: Any) -> None:
    corpus = tagging_corpus([WORDS, ["Salzburg"]], [TAGS, ["B-LOC"]])
    task = tagging(corpus)
    for max_tokens, f1 in ((32, 1.0), (7, 2 * (2 / 2) * (2 / 3) / (2 / 2 + 2 / 3))):
        features = task.build_features(corpus, tokenizer_model(wordpieces), max_tokens)
        assert task.compute_metrics(correct_predictions(features), all_examples(features))["f1"] == pytest.approx(f1)


def test_word_without_tokens_is_dropped_with_its_tag(wordpieces: Any) -> None:
    corpus = tagging_corpus([["Oslo", "\u200b", "Lima"]], [["B-LOC", "O", "B-LOC"]])
    task = tagging(corpus)
    features = task.build_features(corpus, tokenizer_model(wordpieces), 16)
    true, predicted = task.decode(correct_predictions(features), all_examples(features))
    assert true == predicted == [["B-LOC", "B-LOC"]]


def test_a_sentence_without_words_has_scores_of_0(wordpieces: Any) -> None:
    corpus = tagging_corpus([[], ["Oslo"]], [[], ["B-LOC"]])
    task = tagging(corpus)
    features = task.build_features(corpus, tokenizer_model(wordpieces), 16)
    first = Examples(features, np.array([0]))
    predictions = {name: column[:1] for name, column in correct_predictions(features).items()}
    assert set(task.compute_metrics(predictions, first).values()) == {0.0}


def test_tagging_metrics_match_seqeval() -> None:
    from seqeval.metrics import f1_score

    true = [["B-A", "I-A", "O", "B-B"], ["O", "B-A", "B-A", "O"]]
    predicted = [["B-A", "O", "O", "B-B"], ["O", "B-A", "I-A", "O"]]
    corpus = tagging_corpus([["w"] * 4] * 2, true)
    task = tagging(corpus)
    label_ids = {t: i for i, t in enumerate(task.labels)}
    metadata = {"word_ids": Ragged.from_lists([[0, 1, 2, 3]] * 2, -1)}
    features = Features(
        "t", {"input_ids": Ragged.from_lists([[1] * 4] * 2)}, metadata=metadata, raw_columns=corpus.columns
    )
    classes = torch.tensor([[label_ids[t] for t in row] for row in predicted])
    scores = task.compute_metrics(
        {"predictions": classes, "loss": torch.zeros(2), "count": torch.tensor([4, 4])}, all_examples(features)
    )
    assert scores["f1"] == f1_score(true, predicted)


def test_entities_are_confused_with_other_types_or_with_none(wordpieces: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = Corpus("c", "tagging", {"words": [["x"] * 4], "tags": [["B-A", "I-A", "O", "B-B"]]}, 1)
    task = tagging(corpus)
    tags = [["B-A", "I-A", "O", "B-B"], ["B-A", "O", "O", "B-A"]], [["B-A", "O", "O", "B-A"], ["B-A", "O", "B-B", "O"]]
    monkeypatch.setattr(type(task), "decode", lambda *_: tags)
    confusion = task.count_confusions({}, all_examples(task.build_features(corpus, tokenizer_model(wordpieces), 8)))
    assert confusion.labels == ("A", "B", "no entity")
    assert confusion.counts.tolist() == [[1, 0, 2], [1, 0, 0], [1, 1, 0]]
    assert confusion.score_labels() == {
        "A": {"precision": 1 / 3, "recall": 1 / 3, "f1": 1 / 3, "support": 3},
        "B": {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 1},
    }


def test_a_tag_that_was_not_in_training_raises_an_error_also_where_the_sentence_is_truncated(wordpieces: Any) -> None:
    """It was found only when the confusions of the entities were counted, after training."""
    sentence = (["Oslo", "and", "Lima"], ["B-LOC", "O", "B-PER"])
    corpus = Corpus("t", "tagging", {"words": [["Oslo"], sentence[0]], "tags": [["B-LOC"], sentence[1]]}, 1)
    task = tagging(corpus)
    for max_tokens in (32, 4):
        with pytest.raises(DataError, match="row 1: tag 'B-PER' does not occur in the training rows"):
            task.build_features(corpus, tokenizer_model(wordpieces), max_tokens)


def test_invalid_tags_raise_an_error() -> None:
    with pytest.raises(DataError, match="row 0: 2 words have 1 tags"):
        tagging(tagging_corpus([["a", "b"]], [["O"]]))
    with pytest.raises(DataError, match="'PER' is not a tag of the form"):
        tagging(tagging_corpus([["a"]], [["PER"]]))


def test_every_entity_type_gets_both_tags() -> None:
    assert tagging(tagging_corpus([["a", "b"]], [["B-LOC", "O"]])).labels == ("O", "B-LOC", "I-LOC")


# ---- question answering ---------------------------------------------------------------------------------------------

CONTEXT = (
    "The violin was made in Cremona by Antonio Stradivari, a luthier, in the year 1715. "
    "It is played to this day by many."
)


def build_row(question: str, *answers: str, context: str = CONTEXT) -> dict[str, Any]:
    return {
        "question": question,
        "context": context,
        "answers": list(answers),
        "starts": [context.index(a) for a in answers],
    }


def qa_corpus(*rows: dict[str, Any]) -> Corpus:
    return Corpus("q", "qa", {key: [row[key] for row in rows] for key in rows[0]}, len(rows))


ROWS = (build_row("Who made it?", "Antonio Stradivari", "Stradivari"), build_row("When?", "1715"), build_row("Why?"))


@pytest.mark.parametrize("max_tokens", [48, 24])
def test_target_tokens_are_the_answer(max_tokens: int, wordpieces: Any) -> None:
    corpus = qa_corpus(*ROWS)
    task = qa(corpus, stride=6, max_question_tokens=8)
    features = task.build_features(corpus, tokenizer_model(wordpieces), max_tokens)
    batch = features.batch(np.arange(len(features)))
    num_answers = 0
    for row, example in enumerate(features.example_ids(np.arange(len(features)))):
        start, end = int(batch["starts"][row]), int(batch["ends"][row])
        answers = corpus.column("answers")[example]
        if start:
            token_starts, token_ends = features.metadata["token_starts"], features.metadata["token_ends"]
            assert isinstance(token_starts, Ragged)
            assert isinstance(token_ends, Ragged)
            assert CONTEXT[token_starts[row][start] : token_ends[row][end]] == answers[0]
            num_answers += 1
    assert num_answers >= 2
    assert (len(features) > 3) == (max_tokens == 24)


@pytest.mark.parametrize("stride", [6, 200])
def test_windows_cover_the_context_also_if_the_stride_is_longer_than_a_window(stride: int, wordpieces: Any) -> None:
    """With the defaults, stride 128 and 128 tokens of question and context, tokens between windows were skipped."""
    corpus = qa_corpus(ROWS[0])
    features = qa(corpus, stride=stride, max_question_tokens=8).build_features(corpus, tokenizer_model(wordpieces), 24)
    token_starts = features.metadata["token_starts"]
    assert isinstance(token_starts, Ragged)
    covered = {int(v) for v in token_starts.values if v >= 0}
    offsets = wordpieces(CONTEXT, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    assert covered == {start for start, _ in offsets}


def predict_spans(features: Features, spans: dict[int, tuple[int, int]]) -> dict[str, torch.Tensor]:
    """Predictions with a high score for one span in each row."""
    width = int(features.lengths.max())
    start, end = torch.zeros(len(features), width), torch.zeros(len(features), width)
    for row, (a, b) in spans.items():
        start[row, a] = end[row, b] = 9.0
    return {"start": start, "end": end, "loss": torch.zeros(len(features))}


def test_correct_spans_are_decoded_and_scored(wordpieces: Any) -> None:
    corpus = qa_corpus(*ROWS)
    task = qa(corpus, max_question_tokens=8)
    features = task.build_features(corpus, tokenizer_model(wordpieces), 64)
    batch = features.batch(np.arange(3))
    spans = {row: (int(batch["starts"][row]), int(batch["ends"][row])) for row in range(3)}
    predictions = predict_spans(features, spans)
    assert task.decode(predictions, all_examples(features)) == {0: "Antonio Stradivari", 1: "1715", 2: ""}
    scores = task.compute_metrics(predictions, all_examples(features))
    assert scores["em"] == scores["f1"] == 1.0
    assert scores["em_pairs"] == 3 / 4  # of four question-answer pairs, only "Stradivari" is not matched
    assert scores["f1_pairs"] == pytest.approx((1 + 2 / 3 + 1 + 1) / 4)


def test_reversed_and_long_spans_are_not_predicted(wordpieces: Any) -> None:
    corpus = qa_corpus(ROWS[0])
    task = qa(corpus, max_question_tokens=8, max_answer_tokens=3)
    features = task.build_features(corpus, tokenizer_model(wordpieces), 64)
    tokens = np.flatnonzero(features.metadata["token_starts"][0] >= 0)  # type: ignore[index]
    text = task.decode(predict_spans(features, {0: (int(tokens[10]), int(tokens[2]))}), all_examples(features))[0]
    assert text
    long = task.decode(predict_spans(features, {0: (int(tokens[0]), int(tokens[9]))}), all_examples(features))[0]
    assert len(wordpieces(long, add_special_tokens=False)["input_ids"]) <= 3


def test_empty_answers_are_predicted_only_if_the_corpus_has_unanswerable_questions(wordpieces: Any) -> None:
    unanswerable, answerable = qa_corpus(*ROWS), qa_corpus(*ROWS[:2])
    assert qa(unanswerable).has_unanswerable
    assert not qa(answerable).has_unanswerable
    features = qa(answerable).build_features(answerable, tokenizer_model(wordpieces), 128)
    assert all(qa(answerable).decode(predict_spans(features, {0: (0, 0), 1: (0, 0)}), all_examples(features)).values())


def test_answer_at_a_wrong_offset_raises_an_error(wordpieces: Any) -> None:
    row = {**build_row("Who?", "Cremona"), "starts": [3]}
    corpus = qa_corpus(row)
    with pytest.raises(DataError, match="answer 'Cremona' is not at character 3"):
        qa(corpus).build_features(corpus, tokenizer_model(wordpieces), 128)


def test_max_tokens_without_capacity_for_the_context_raises_an_error(wordpieces: Any) -> None:
    corpus = qa_corpus(*ROWS)
    with pytest.raises(ConfigError, match=r"model\.max_tokens is 64; with task\.max_question_tokens=64 that leaves -3"):
        qa(corpus).build_features(corpus, tokenizer_model(wordpieces), 64)


def test_pair_template_is_inferred_from_the_tokenizer(wordpieces: Any) -> None:
    template = infer_pair_template(wordpieces)
    cls, sep = wordpieces.cls_token_id, wordpieces.sep_token_id
    assert (template.before, template.between, template.after, template.types) == ([cls], [sep], [sep], (0, 1))


# ---- generation -----------------------------------------------------------------------------------------------------


def test_decoder_input_is_the_shifted_target(wordpieces: Any) -> None:
    corpus = Corpus("s", "seq2seq", {"source": ["a long text"] * 2, "target": ["short", "a bit longer"]}, 1)
    features = seq2seq(corpus).build_features(corpus, tokenizer_model(wordpieces, decoder_start_token_id=7), 16)
    batch = features.batch(np.arange(2))
    for row in range(2):
        labels = [k for k in batch["labels"][row].tolist() if k != -100]
        assert batch["decoder_input_ids"][row].tolist()[: len(labels)] == [7, *labels[:-1]]
    assert batch["labels"][0].tolist()[-1] == -100


def test_label_smoothing_excludes_the_target_and_padding() -> None:
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 3, 11, generator=g)
    labels = torch.tensor([[4, 5, -100], [6, -100, -100]])
    losses = token_losses(logits, labels, smoothing=0.1, pad=1)
    target = torch.full((2, 3, 11), 0.1 / 9)
    target[..., 1] = 0
    target.scatter_(-1, labels.clamp(min=0).unsqueeze(-1), 0.9)
    expected = -(target * logits.log_softmax(-1)).sum(-1) * (labels != -100)
    assert torch.allclose(losses, expected, atol=1e-6)
    assert torch.allclose(token_losses(logits, labels, 0.0), token_losses(logits, labels, 1e-9, pad=1), atol=1e-5)


def test_token_cross_entropy_is_the_mean_over_labeled_tokens() -> None:
    g = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(3, 5, 7, generator=g), torch.randint(0, 7, (3, 5), generator=g)
    labels[0, 2:] = -100
    labels[2] = -100

    class FixedLogits:
        module = None

        def __call__(self, batch: Any) -> dict[str, torch.Tensor]:
            return {"logits": logits}

    losses, weights = TokenCrossEntropy().losses(FixedLogits(), {"labels": labels})
    mean = (losses * weights).sum() / weights.sum()
    assert torch.allclose(mean, F.cross_entropy(logits.reshape(-1, 7), labels.reshape(-1)))
    losses, weights = TokenCrossEntropy(shift=1).losses(FixedLogits(), {"labels": labels})
    expected = F.cross_entropy(logits[:, :-1].reshape(-1, 7), labels[:, 1:].reshape(-1))
    assert torch.allclose((losses * weights).sum() / weights.sum(), expected)


# ---- language modeling ----------------------------------------------------------------------------------------------


def test_texts_are_cut_into_chunks_without_losing_tokens(wordpieces: Any) -> None:
    tokenizer = copy.deepcopy(wordpieces)
    tokenizer.eos_token = "[SEP]"
    texts = ["one two three four five six seven", "eight", ""]
    corpus = Corpus("l", "lm", {"text": texts}, 2)
    features = language_modeling(corpus).build_features(corpus, tokenizer_model(tokenizer), 4)
    ids = features.columns["input_ids"]
    assert isinstance(ids, Ragged)
    sizes = [len(ids[r]) for r in range(len(ids))]
    assert max(sizes) <= 4
    tokens = [len(tokenizer(text, add_special_tokens=False)["input_ids"]) + 1 for text in texts]
    chunks = np.bincount(features.example_ids(np.arange(len(ids))))
    first_tokens = features.batch(np.arange(len(ids)))["labels"][:, 1:] != IGNORE_INDEX
    assert int(first_tokens.sum()) == sum(tokens) - sum(chunks), "all but a chunk's first token are predicted"
    first = [int(v) for r in range(len(ids)) if features.example_ids(np.array([r]))[0] == 0 for v in ids[r]]
    assert first == [*tokenizer(texts[0], add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]


def test_a_text_begins_with_the_token_that_the_tokenizer_puts_before_texts(wordpieces: Any) -> None:
    corpus = Corpus("l", "lm", {"text": ["one two"]}, 1)
    tokenizer = copy.deepcopy(wordpieces)  # writes [CLS] before and [SEP] behind a text
    tokenizer.bos_token, tokenizer.eos_token = "[CLS]", "[SEP]"
    features = language_modeling(corpus).build_features(corpus, tokenizer_model(tokenizer), 16)
    assert features.columns["input_ids"][0].tolist() == tokenizer("one two")["input_ids"]


@pytest.mark.parametrize("is_grouped", [True, False])
def test_an_end_token_alone_in_a_chunk_is_kept_if_texts_are_concatenated(is_grouped: bool, wordpieces: Any) -> None:
    """It separates the text from the next one. Without grouping, it would be a chunk that predicts nothing."""
    tokenizer = copy.deepcopy(wordpieces)
    tokenizer.eos_token = "[SEP]"
    corpus = Corpus("l", "lm", {"text": ["one two three four"]}, 1)
    task = language_modeling(corpus, group_texts=is_grouped)
    ids = task.build_features(corpus, tokenizer_model(tokenizer), 4).columns["input_ids"]
    assert isinstance(ids, Ragged)
    assert ids.lengths.tolist() == ([4, 1] if is_grouped else [4])


def test_group_texts_does_not_mix_clients() -> None:
    ids = Ragged.from_lists([[1, 1], [2, 2, 2], [1], [2, 2], [1, 1, 1]])
    chunks, offsets = group_texts(ids, [np.array([0, 2, 4]), np.array([1, 3]), np.array([], np.int64)], 4)
    assert [chunks[r].tolist() for r in range(len(chunks))] == [[1, 1, 1, 1], [1, 1], [2, 2, 2, 2]]
    assert offsets.tolist() == [0, 2, 3, 3]  # the last chunk of the second client had one token and was dropped


def test_grouping_keeps_the_tokens_of_every_client() -> None:
    corpus = BUILTIN_CORPORA["toy-lm"]()
    config = ModelConfig("tiny", 16)
    natural = ComponentConfig("natural", {"column": "client"})
    ungrouped = federate_corpus(config, corpus, natural, Seed(0), task=ComponentConfig("lm", {"group_texts": False}))
    grouped = federate_corpus(config, corpus, natural, Seed(0), task=ComponentConfig("lm"))
    assert len(grouped.features) < len(ungrouped.features)
    for client in list(grouped.clients)[:5]:
        tokens = []
        for federation in (ungrouped, grouped):
            rows = federation.participant(client).split("train").rows
            ids = federation.features.columns["input_ids"]
            assert isinstance(ids, Ragged)
            tokens.append(np.concatenate([ids[r] for r in rows]).tolist())
        assert tokens[0] == tokens[1] or tokens[0][:-1] == tokens[1]
        assert grouped.participant(client).size == ungrouped.participant(client).size


def test_perplexity_is_the_exponential_of_the_mean_loss() -> None:
    task = language_modeling(Corpus("l", "lm", {"text": ["x"]}, 1))
    predictions = {"correct": torch.tensor([3, 1]), "count": torch.tensor([4, 4]), "loss": torch.tensor([4.0, 12.0])}
    features = Features("l", {"input_ids": Ragged.from_lists([[1], [1]])})
    scores = task.compute_metrics(predictions, all_examples(features))
    assert scores == {"accuracy": 0.5, "perplexity": pytest.approx(math.exp(2)), "loss": 2.0}


# ---- all tasks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in BUILTIN_CORPORA if n.startswith("toy-")])
def test_toy_corpora_are_deterministic_and_have_clients_and_domains(name: str) -> None:
    one, two = BUILTIN_CORPORA[name](), BUILTIN_CORPORA[name]()
    assert one.fingerprint == two.fingerprint
    assert len(set(one.column("client"))) == 20
    assert len(set(one.column("domain"))) == 3
    task = build_task(ComponentConfig("auto"), one)
    assert task.primary_metric in task.metric_names


def test_task_without_its_columns_raises_an_error() -> None:
    with pytest.raises(
        ConfigError, match=r"task\.type is qa, but toy-lm is a corpus for lm: it has no context, question"
    ):
        build_task(ComponentConfig("qa"), BUILTIN_CORPORA["toy-lm"]())


def test_option_of_another_task_raises_an_error() -> None:
    with pytest.raises(ConfigError, match="task: unknown option 'stride'; it takes attention_mask, positive"):
        build_task(ComponentConfig("classification", {"stride": 3}), BUILTIN_CORPORA["toy-classification"]())
