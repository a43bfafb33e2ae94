"""Each formulation: what it makes of a corpus, what it loses, how it judges."""

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
from motet.learning.data.features import Examples, Features, Ragged
from motet.learning.modules.model import Model
from motet.learning.objectives.supervised import TokenCrossEntropy, token_losses
from motet.models.load_model import MODELS, ModelConfig, PackagedModel
from motet.tasks import classification, language_modeling, qa, regression, seq2seq, tagging
from motet.tasks.language_modeling import group_texts
from motet.tasks.question_answering import SpanExtraction, infer_pair_template
from motet.tasks.squad_metrics import exact_match, token_f1
from motet.tasks.text_metrics import generation_scores


@pytest.fixture(scope="module")
def wordpieces() -> Any:
    packaged = MODELS["minilm"]
    assert isinstance(packaged, PackagedModel)
    return transformers.AutoTokenizer.from_pretrained(str(packaged.directory()))


def reader(tokenizer: Any, **config: Any) -> Model:
    """A model of which only the tokenizer and the configuration are looked at."""
    module = torch.nn.Module()
    module.config = transformers.BertConfig(**config)  # type: ignore[assignment]
    return Model("reader", module, {}, tokenizer)


def whole(features: Features) -> Examples:
    return Examples(features, np.arange(len(features)))


# ---- classification and regression ----------------------------------------------------------------------------------


def pairs_of(labels: list[str]) -> Corpus:
    texts = [f"first {i}" for i in range(len(labels))]
    return Corpus(
        "pairs",
        "classification",
        {"text": texts, "second": ["and then"] * len(labels), "label": labels},
        len(labels) - 1,
    )


def test_a_pair_is_one_row_that_tells_the_two_apart(wordpieces: Any) -> None:
    corpus = pairs_of(["yes", "no", "yes"])
    batch = classification(corpus).features(corpus, reader(wordpieces), 32).batch(np.array([0, 1]))
    said = wordpieces.decode(batch["input_ids"][0])
    assert said == "[CLS] first 0 [SEP] and then [SEP]"
    assert batch["token_type_ids"][0].tolist() == [0] * 4 + [1] * 3


def test_without_an_attention_mask_padding_is_text(wordpieces: Any) -> None:
    corpus = pairs_of(["yes", "no", "yes"])
    parity = classification(corpus, attention_mask=False).features(corpus, reader(wordpieces), 20)
    batch = parity.batch(np.array([0]))
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
def test_the_positive_one_of_two_labels_is_the_one_that_affirms(labels: list[str], positive: str) -> None:
    assert classification(pairs_of([*labels, labels[0]])).positive == positive


def test_classification_is_judged_as_scikit_learn_judges() -> None:
    from sklearn.metrics import f1_score, matthews_corrcoef

    rng = np.random.default_rng(0)
    truth, said = rng.integers(0, 3, 50), rng.integers(0, 3, 50)
    corpus = Corpus("c", "classification", {"text": ["x"] * 50, "label": [f"l{k}" for k in truth]}, 49)
    task = classification(corpus)
    features = Features("c", {"input_ids": Ragged.from_lists([[1]] * 50), "labels": task.label_ids(corpus)})
    readings = {"logits": F.one_hot(torch.from_numpy(said), 3).float(), "loss": torch.ones(50)}
    scores = task.metrics(readings, whole(features))
    assert set(scores) == set(task.metric_names)
    assert scores["accuracy"] == (truth == said).mean()
    assert scores["f1_macro"] == f1_score(truth, said, average="macro")
    assert scores["matthews"] == matthews_corrcoef(truth, said)


def test_regression_is_judged_by_correlation_and_a_constant_correlates_with_nothing() -> None:
    from scipy.stats import pearsonr, spearmanr

    rng = np.random.default_rng(0)
    truth, said = rng.normal(size=20), rng.normal(size=20)
    corpus = Corpus("r", "regression", {"text": ["x"] * 20, "score": truth.tolist()}, 19)
    features = Features("r", {"input_ids": Ragged.from_lists([[1]] * 20), "labels": truth.astype(np.float32)})
    task = regression(corpus)
    scores = task.metrics({"predictions": torch.from_numpy(said), "loss": torch.ones(20)}, whole(features))
    assert scores["pearson"] == pytest.approx(pearsonr(truth, said)[0], abs=1e-6)
    assert scores["spearman"] == pytest.approx(spearmanr(truth, said)[0], abs=1e-6)
    flat = task.metrics({"predictions": torch.zeros(20), "loss": torch.ones(20)}, whole(features))
    assert flat["pearson"] == flat["spearman"] == 0.0


def test_a_score_that_is_no_number_is_named_with_its_row(wordpieces: Any) -> None:
    corpus = Corpus("r", "regression", {"text": ["x", "y"], "score": ["1.5", "much"]}, 1)
    with pytest.raises(DataError, match="r, row 1: score 'much' is no number"):
        regression(corpus).features(corpus, reader(wordpieces), 16)


def test_one_label_alone_cannot_be_learnt() -> None:
    with pytest.raises(DataError, match="have one label, 'a'"):
        classification(Corpus("c", "classification", {"text": ["x", "y"], "label": ["a", "a"]}, 1))


# ---- tagging --------------------------------------------------------------------------------------------------------

WORDS = ["Wolfgangerl", "Amadeus", "Mozart", "visited", "Salzburg", "."]
TAGS = ["B-PER", "I-PER", "I-PER", "O", "B-LOC", "O"]


def sentences(words: list[list[str]], tags: list[list[str]]) -> Corpus:
    return Corpus("t", "tagging", {"words": words, "tags": tags}, len(words))


def test_a_tag_stands_on_the_first_piece_of_its_word(wordpieces: Any) -> None:
    corpus = sentences([WORDS], [TAGS])
    task = tagging(corpus)
    features = task.features(corpus, reader(wordpieces), 32)
    batch = features.batch(np.array([0]))
    pieces = wordpieces.convert_ids_to_tokens(batch["input_ids"][0])
    labelled = [(p, task.labels[k]) for p, k in zip(pieces, batch["labels"][0].tolist(), strict=True) if k != -100]
    assert [tag for _, tag in labelled] == TAGS
    assert not any(p.startswith("##") for p, _ in labelled)
    assert len(pieces) > len(WORDS) + 2  # there were words of several pieces


def right_answers(features: Features) -> dict[str, torch.Tensor]:
    labels = features.batch(np.arange(len(features)))["labels"]
    known = labels != -100
    return {"predictions": labels, "loss": torch.zeros(len(labels)), "count": known.sum(1)}


def test_right_tags_score_one_and_what_was_cut_off_is_not_found(wordpieces: Any) -> None:
    corpus = sentences([WORDS, ["Salzburg"]], [TAGS, ["B-LOC"]])
    task = tagging(corpus)
    for max_tokens, f1 in ((32, 1.0), (7, 2 * (2 / 2) * (2 / 3) / (2 / 2 + 2 / 3))):
        features = task.features(corpus, reader(wordpieces), max_tokens)
        assert task.metrics(right_answers(features), whole(features))["f1"] == pytest.approx(f1)


def test_a_word_of_no_tokens_is_dropped_with_its_tag(wordpieces: Any) -> None:
    corpus = sentences([["Oslo", "\u200b", "Lima"]], [["B-LOC", "O", "B-LOC"]])
    task = tagging(corpus)
    features = task.features(corpus, reader(wordpieces), 16)
    truth, said = task.tags(right_answers(features), whole(features))
    assert truth == said == [["B-LOC", "B-LOC"]]


def test_tags_are_judged_as_seqeval_judges() -> None:
    from seqeval.metrics import f1_score

    truth = [["B-A", "I-A", "O", "B-B"], ["O", "B-A", "B-A", "O"]]
    said = [["B-A", "O", "O", "B-B"], ["O", "B-A", "I-A", "O"]]
    corpus = sentences([["w"] * 4] * 2, truth)
    task = tagging(corpus)
    index = {t: i for i, t in enumerate(task.labels)}
    side = {"word": Ragged.from_lists([[0, 1, 2, 3]] * 2, -1)}
    features = Features("t", {"input_ids": Ragged.from_lists([[1] * 4] * 2)}, metadata=side, raw_columns=corpus.columns)
    table = torch.tensor([[index[t] for t in row] for row in said])
    scores = task.metrics(
        {"predictions": table, "loss": torch.zeros(2), "count": torch.tensor([4, 4])}, whole(features)
    )
    assert scores["f1"] == f1_score(truth, said)


def test_tags_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DataError, match="row 0: 2 words have 1 tags"):
        tagging(sentences([["a", "b"]], [["O"]]))
    with pytest.raises(DataError, match="'PER' is no tag of the form"):
        tagging(sentences([["a"]], [["PER"]]))


def test_both_sides_of_every_entity_are_labels() -> None:
    assert tagging(sentences([["a", "b"]], [["B-LOC", "O"]])).labels == ("O", "B-LOC", "I-LOC")


# ---- question answering ---------------------------------------------------------------------------------------------

PASSAGE = "The violin was made in Cremona by Antonio Stradivari, a luthier, in the year 1715. It is played to this day by many."


def asked(question: str, *answers: str, context: str = PASSAGE) -> dict[str, Any]:
    return {
        "question": question,
        "context": context,
        "answers": list(answers),
        "starts": [context.index(a) for a in answers],
    }


def questions(*rows: dict[str, Any]) -> Corpus:
    return Corpus("q", "qa", {key: [row[key] for row in rows] for key in rows[0]}, len(rows))


ROWS = (asked("Who made it?", "Antonio Stradivari", "Stradivari"), asked("When?", "1715"), asked("Why?"))


@pytest.mark.parametrize("max_tokens", [48, 24])
def test_the_answers_place_reads_back_as_the_answer(max_tokens: int, wordpieces: Any) -> None:
    corpus = questions(*ROWS)
    task = qa(corpus, stride=6, question_tokens=8)
    features = task.features(corpus, reader(wordpieces), max_tokens)
    batch = features.batch(np.arange(len(features)))
    found = 0
    for row, example in enumerate(features.example_ids(np.arange(len(features)))):
        start, end = int(batch["starts"][row]), int(batch["ends"][row])
        answers = corpus.column("answers")[example]
        if start:
            first, last = features.metadata["first"], features.metadata["last"]
            assert isinstance(first, Ragged)
            assert isinstance(last, Ragged)
            assert PASSAGE[first[row][start] : last[row][end]] == answers[0]
            found += 1
    assert found >= 2
    assert (len(features) > 3) == (max_tokens == 24)


def test_windows_cover_the_whole_passage_and_a_stride_beyond_them_skips(wordpieces: Any) -> None:
    corpus = questions(ROWS[0])
    for stride, complete in ((6, True), (200, False)):
        features = qa(corpus, stride=stride, question_tokens=8).features(corpus, reader(wordpieces), 24)
        first = features.metadata["first"]
        assert isinstance(first, Ragged)
        seen = {int(v) for v in first.values if v >= 0}
        every = wordpieces(PASSAGE, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        assert (seen == {a for a, _ in every}) is complete


def sure(features: Features, spans: dict[int, tuple[int, int]]) -> dict[str, torch.Tensor]:
    """Predictions of a model that is sure of one span in each row."""
    width = int(features.lengths.max())
    start, end = torch.zeros(len(features), width), torch.zeros(len(features), width)
    for row, (a, b) in spans.items():
        start[row, a] = end[row, b] = 9.0
    return {"start": start, "end": end, "loss": torch.zeros(len(features))}


def test_decoding_gives_back_the_answer_and_scores_it(wordpieces: Any) -> None:
    corpus = questions(*ROWS)
    task = qa(corpus, question_tokens=8)
    features = task.features(corpus, reader(wordpieces), 64)
    batch = features.batch(np.arange(3))
    gold = {row: (int(batch["starts"][row]), int(batch["ends"][row])) for row in range(3)}
    readings = sure(features, gold)
    assert task.answers(readings, whole(features)) == {0: "Antonio Stradivari", 1: "1715", 2: ""}
    scores = task.metrics(readings, whole(features))
    assert scores["em"] == scores["f1"] == 1.0
    assert scores["em_pairs"] == 3 / 4  # four pairs of question and answer, of which "Stradivari" alone is not met
    assert scores["f1_pairs"] == pytest.approx((1 + 2 / 3 + 1 + 1) / 4)


def test_an_end_before_the_beginning_or_a_long_answer_is_never_chosen(wordpieces: Any) -> None:
    corpus = questions(ROWS[0])
    task = qa(corpus, question_tokens=8, answer_tokens=3)
    features = task.features(corpus, reader(wordpieces), 64)
    inside = np.flatnonzero(features.metadata["first"][0] >= 0)  # type: ignore[index]
    text = task.answers(sure(features, {0: (int(inside[10]), int(inside[2]))}), whole(features))[0]
    assert text
    long = task.answers(sure(features, {0: (int(inside[0]), int(inside[9]))}), whole(features))[0]
    assert len(wordpieces(long, add_special_tokens=False)["input_ids"]) <= 3


def test_questions_without_answers_are_answered_by_nothing_only_where_there_are_such(wordpieces: Any) -> None:
    with_none, without = questions(*ROWS), questions(*ROWS[:2])
    assert qa(with_none).unanswerable
    assert not qa(without).unanswerable
    features = qa(without).features(without, reader(wordpieces), 128)
    assert all(qa(without).answers(sure(features, {0: (0, 0), 1: (0, 0)}), whole(features)).values())


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("the Antonio  Stradivari!", "Antonio Stradivari"),
        ("in Cremona", "Cremona"),
        ("", "Cremona"),
        ("", ""),
        ("an apple a day", "apple day"),
        ("the the cat", "cat cat"),
        ("1715.", "1715"),
        ("nothing alike", "Cremona"),
    ],
)
def test_answers_are_compared_as_squad_compares(said: str, answer: str) -> None:
    from torchmetrics.functional.text import squad

    pred = [{"prediction_text": said, "id": "0"}]
    gold = [{"answers": {"answer_start": [0], "text": [answer]}, "id": "0"}]
    scores = squad(pred, gold)
    assert token_f1(said, answer) * 100 == pytest.approx(float(scores["f1"]), abs=1e-4) or (not said and not answer)
    assert exact_match(said, answer) * 100 == float(scores["exact_match"])


def test_an_answer_that_is_not_where_it_is_said_to_be_is_refused(wordpieces: Any) -> None:
    row = {**asked("Who?", "Cremona"), "starts": [3]}
    corpus = questions(row)
    with pytest.raises(DataError, match="answer 'Cremona' does not stand at character 3"):
        qa(corpus).features(corpus, reader(wordpieces), 128)


def test_a_length_that_leaves_no_room_for_the_passage_is_refused(wordpieces: Any) -> None:
    corpus = questions(*ROWS)
    with pytest.raises(ConfigError, match=r"model\.max_tokens is 64; with task\.question_tokens=64 that leaves -3"):
        qa(corpus).features(corpus, reader(wordpieces), 64)


def test_how_a_tokenizer_joins_two_texts_is_read_off_it(wordpieces: Any) -> None:
    frame = infer_pair_template(wordpieces)
    cls, sep = wordpieces.cls_token_id, wordpieces.sep_token_id
    assert (frame.before, frame.between, frame.behind, frame.types) == ([cls], [sep], [sep], (0, 1))


# ---- writing --------------------------------------------------------------------------------------------------------


def test_the_decoder_sees_the_target_one_step_behind(wordpieces: Any) -> None:
    corpus = Corpus("s", "seq2seq", {"source": ["a long text"] * 2, "target": ["short", "a bit longer"]}, 1)
    features = seq2seq(corpus).features(corpus, reader(wordpieces, decoder_start_token_id=7), 16)
    batch = features.batch(np.arange(2))
    for row in range(2):
        labels = [k for k in batch["labels"][row].tolist() if k != -100]
        assert batch["decoder_input_ids"][row].tolist()[: len(labels)] == [7, *labels[:-1]]
    assert batch["labels"][0].tolist()[-1] == -100


def test_smoothing_spreads_over_all_tokens_but_the_right_one_and_padding() -> None:
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 3, 11, generator=g)
    labels = torch.tensor([[4, 5, -100], [6, -100, -100]])
    got = token_losses(logits, labels, smoothing=0.1, pad=1)
    target = torch.full((2, 3, 11), 0.1 / 9)
    target[..., 1] = 0
    target.scatter_(-1, labels.clamp(min=0).unsqueeze(-1), 0.9)
    want = -(target * logits.log_softmax(-1)).sum(-1) * (labels != -100)
    assert torch.allclose(got, want, atol=1e-6)
    assert torch.allclose(token_losses(logits, labels, 0.0), token_losses(logits, labels, 1e-9, pad=1), atol=1e-5)


def test_a_batch_loses_the_mean_over_its_labelled_tokens() -> None:
    g = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(3, 5, 7, generator=g), torch.randint(0, 7, (3, 5), generator=g)
    labels[0, 2:] = -100
    labels[2] = -100

    class Fixed:
        module = None

        def __call__(self, batch: Any) -> dict[str, torch.Tensor]:
            return {"logits": logits}

    loss, worth = TokenCrossEntropy().losses(Fixed(), {"labels": labels})
    mean = (loss * worth).sum() / worth.sum()
    assert torch.allclose(mean, F.cross_entropy(logits.reshape(-1, 7), labels.reshape(-1)))
    shifted, worth = TokenCrossEntropy(shift=1).losses(Fixed(), {"labels": labels})
    want = F.cross_entropy(logits[:, :-1].reshape(-1, 7), labels[:, 1:].reshape(-1))
    assert torch.allclose((shifted * worth).sum() / worth.sum(), want)


SAID = ["the cat sat on the mat", "a storm is coming tonight", "", "prices rise again in may"]
GOLD = ["the cat is on the mat", "a storm comes tonight", "something", "prices rise again in may"]


def test_writing_is_judged_by_the_fields_own_measures() -> None:
    import sacrebleu
    from nltk.translate.meteor_score import single_meteor_score
    from rouge_score.rouge_scorer import RougeScorer

    class Bare:
        def synsets(self, word: str) -> list[str]:
            return []

    scores = generation_scores(SAID, GOLD)
    assert scores["bleu"] * 100 == pytest.approx(sacrebleu.corpus_bleu(SAID, [GOLD]).score)
    scorer = RougeScorer(["rouge1", "rougeL"])
    found = [scorer.score(g, s) for s, g in zip(SAID, GOLD, strict=True)]
    assert scores["rouge1"] == pytest.approx(np.mean([f["rouge1"].fmeasure for f in found]))
    meteor = [single_meteor_score(g.split(), s.split(), wordnet=Bare()) for s, g in zip(SAID, GOLD, strict=True)]
    assert scores["meteor"] == pytest.approx(np.mean(meteor))


def test_rouge_l_with_beta_leans_to_recall() -> None:
    """LCS("the cat sat on the mat", "the cat is on the mat") = 5 of 6 words each way; a short text has the better precision."""
    assert generation_scores(SAID[:1], GOLD[:1])["rougeL_b12"] == pytest.approx(5 / 6)
    precision, recall, b = 1.0, 2 / 6, 1.2**2
    want = (1 + b) * precision * recall / (recall + b * precision)
    assert generation_scores(["the cat"], GOLD[:1])["rougeL_b12"] == pytest.approx(want)
    assert set(generation_scores([], [])) == set(generation_scores(SAID, GOLD))


# ---- language models ------------------------------------------------------------------------------------------------


def test_texts_are_cut_and_every_token_is_kept_once(wordpieces: Any) -> None:
    tokenizer = copy.deepcopy(wordpieces)
    tokenizer.eos_token = "[SEP]"
    texts = ["one two three four five six seven", "eight", ""]
    corpus = Corpus("l", "lm", {"text": texts}, 2)
    features = language_modeling(corpus).features(corpus, reader(tokenizer), 4)
    ids = features.columns["input_ids"]
    assert isinstance(ids, Ragged)
    sizes = [len(ids[r]) for r in range(len(ids))]
    assert max(sizes) <= 4
    assert min(sizes) >= 2
    first = [int(v) for r in range(len(ids)) if features.example_ids(np.array([r]))[0] == 0 for v in ids[r]]
    assert first == [*tokenizer(texts[0], add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]


def test_grouping_never_mixes_two_people() -> None:
    ids = Ragged.from_lists([[1, 1], [2, 2, 2], [1], [2, 2], [1, 1, 1]])
    pieces, ends = group_texts(ids, [np.array([0, 2, 4]), np.array([1, 3]), np.array([], np.int64)], 4)
    assert [pieces[r].tolist() for r in range(len(pieces))] == [[1, 1, 1, 1], [1, 1], [2, 2, 2, 2]]
    assert ends.tolist() == [0, 2, 3, 3]  # the last token of the second was alone and predicts nothing


def test_a_grouped_federation_has_everybodys_tokens_and_no_others() -> None:
    corpus = BUILTIN_CORPORA["toy-lm"]()
    choice = ModelConfig("tiny", 16)
    natural = ComponentConfig("natural", {"column": "client"})
    loose = federate_corpus(choice, corpus, natural, Seed(0), task=ComponentConfig("lm", {"group": False}))
    close = federate_corpus(choice, corpus, natural, Seed(0), task=ComponentConfig("lm"))
    assert len(close.features) < len(loose.features)
    for client in list(close.clients)[:5]:
        tokens = []
        for federation in (loose, close):
            rows = federation.participant(client).split("train").rows
            ids = federation.features.columns["input_ids"]
            assert isinstance(ids, Ragged)
            tokens.append(np.concatenate([ids[r] for r in rows]).tolist())
        assert tokens[0] == tokens[1] or tokens[0][:-1] == tokens[1]
        assert close.participant(client).size == loose.participant(client).size


def test_perplexity_is_the_exponent_of_the_mean_loss() -> None:
    task = language_modeling(Corpus("l", "lm", {"text": ["x"]}, 1))
    readings = {"correct": torch.tensor([3, 1]), "count": torch.tensor([4, 4]), "loss": torch.tensor([4.0, 12.0])}
    features = Features("l", {"input_ids": Ragged.from_lists([[1], [1]])})
    scores = task.metrics(readings, whole(features))
    assert scores == {"accuracy": 0.5, "perplexity": pytest.approx(math.exp(2)), "loss": 2.0}


# ---- all of them ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in BUILTIN_CORPORA if n.startswith("toy-")])
def test_every_toy_corpus_is_the_same_each_time_and_has_clients_and_domains(name: str) -> None:
    one, two = BUILTIN_CORPORA[name](), BUILTIN_CORPORA[name]()
    assert one.fingerprint == two.fingerprint
    assert len(set(one.column("client"))) == 20
    assert len(set(one.column("domain"))) == 3
    task = build_task(ComponentConfig("auto"), one)
    assert task.primary_metric in task.metric_names
    assert len(task.texts(one)) == len(one)


def test_a_task_that_the_corpus_has_no_columns_for_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"task\.type is qa, but toy-lm is a corpus for lm: it has no context, question"
    ):
        build_task(ComponentConfig("qa"), BUILTIN_CORPORA["toy-lm"]())


def test_an_option_of_another_task_is_refused() -> None:
    with pytest.raises(ConfigError, match="task: unknown option 'stride'; it takes attention_mask, positive"):
        build_task(ComponentConfig("classification", {"stride": 3}), BUILTIN_CORPORA["toy-classification"]())


def test_spans_are_a_task_with_a_headline() -> None:
    assert SpanExtraction().primary_metric == "f1"
