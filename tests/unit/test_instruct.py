"""Instruction tuning: columns in every published form, chat templates, truncation, and metrics of answers."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from motet.core.errors import ConfigError, DataError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.datasets.instruction_corpora import alpaca, code_alpaca, dolly, p3
from motet.datasets.load_corpus import DataConfig, load_corpus
from motet.datasets.toy_corpora import toy_instruct
from motet.experiment.build.federation import Federation
from motet.experiment.build.federation_builder import federate_corpus, vocabulary_texts
from motet.experiment.commands.chat_session import ChatSession
from motet.experiment.recipe.run_config import ComponentConfig
from motet.learning.data.chat_format import ChatFormat, Turn
from motet.learning.data.features import IGNORE_INDEX, Examples, Ragged
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.modules.model import Model
from motet.models.model_config import AdapterConfig, ModelConfig
from motet.models.word_vocabulary import CHAT_TEMPLATE, build_word_tokenizer
from motet.tasks.answer_metrics import exact_matches, normalize_answer, rouge_l
from motet.tasks.instruct import Instruct, instruct

WriteFile = Callable[..., Path]
SMALL = {"n_embd": 32, "n_layer": 1}
CHAT_ML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def load(path: Path, **options: Any) -> Corpus:
    return load_corpus(DataConfig(path=str(path), **options), Seed(0))


def make_federation(corpus: Corpus, max_tokens: int = 32, **options: Any) -> Federation:
    model = ModelConfig("tiny", max_tokens, adapter=AdapterConfig(rank=4), config=SMALL)
    task = ComponentConfig("instruct", {"max_new_tokens": 4, **options})
    return federate_corpus(model, corpus, ComponentConfig("uniform", {"clients": 2}), Seed(0), task=task)


def make_tokenizer(template: str | None = CHAT_TEMPLATE, words: str = "how are you ? fine , thanks") -> Any:
    tokenizer = build_word_tokenizer([words], add_special_tokens=False)
    tokenizer.chat_template = template
    return tokenizer


# Columns


def test_messages_alpaca_and_prompt_columns_give_the_same_corpus(tmp_path: Path) -> None:
    pairs = [(f"question {i}", f"answer {i}") for i in range(5)]
    forms = {
        "plain": [{"prompt": p, "completion": c} for p, c in pairs],
        "messages": [
            {"messages": [{"role": "user", "content": p}, {"role": "assistant", "content": c}]} for p, c in pairs
        ],
        "sharegpt": [{"messages": [{"from": "human", "value": p}, {"from": "gpt", "value": c}]} for p, c in pairs],
        "alpaca": [{"instruction": p, "input": "", "output": c} for p, c in pairs],
    }
    corpora = {name: load(write_rows(tmp_path / f"{name}.jsonl", rows)) for name, rows in forms.items()}
    for corpus in corpora.values():
        assert corpus.task == "instruct"
        assert corpus.columns == corpora["plain"].columns
    table = tmp_path / "table.csv"
    table.write_text("prompt,completion\n" + "".join(f"{p},{c}\n" for p, c in pairs))
    assert load(table).columns == corpora["plain"].columns


def test_a_conversation_keeps_its_roles_and_its_last_answer_is_the_completion(tmp_path: Path) -> None:
    turns = [("system", "be brief"), ("user", "hi"), ("assistant", "hello"), ("user", "bye"), ("assistant", "see you")]
    rows = [{"messages": [{"role": role, "content": text} for role, text in turns]}] * 2
    corpus = load(write_rows(tmp_path / "chats.jsonl", rows))
    assert corpus.column("roles")[0] == ["system", "user", "assistant", "user"]
    assert corpus.column("prompt")[0] == ["be brief", "hi", "hello", "bye"]
    assert corpus.column("completion")[0] == "see you"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "a", "completion": " "}, "line 2: column 'completion' is empty"),
        ({"prompt": "", "completion": "b"}, "line 2: the prompt is empty"),
        ({"messages": [{"role": "user", "content": "a"}]}, "line 2: column 'messages' has no turn of the assistant"),
        ({"messages": [{"role": "user"}]}, "line 2: column 'messages' holds"),
        ({"messages": "no list"}, "expected a list of messages with role and content"),
        ({"instruction": "a", "output": ""}, "line 2: column 'completion' is empty"),
        ({"prompt": "a", "completion": "b", "choices": ["c", "d"]}, "line 2: the completion 'b' is not one of its choices"),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_learned_is_named(row: dict[str, Any], message: str, tmp_path: Path) -> None:
    good = {
        "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
        "choices": ["b"], "prompt": "a", "completion": "b", "instruction": "a", "output": "b",
    }  # fmt: skip
    rows = [{name: good[name] for name in row}, row]
    with pytest.raises(DataError, match=message):
        load(write_rows(tmp_path / "rows.jsonl", rows))


@pytest.mark.parametrize(
    ("task", "row", "message"),
    [
        ("instruct", {"prompt": "a"}, "line 1: task instruct needs the column completion, and there is none; there are prompt"),
        ("instruct", {"completion": "a"}, "needs the column prompt, .* Add prompt and completion, messages, or"),
        ("preference", {"prompt": "a", "chosen": "b"}, "task preference needs the column rejected"),
    ],
)  # fmt: skip
def test_a_missing_column_is_named(task: str, row: dict[str, str], message: str, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [row, row])
    with pytest.raises(DataError, match=message):
        load_corpus(DataConfig(path=str(path)), Seed(0), task)


def test_other_tasks_ignore_columns_of_instructions(tmp_path: Path) -> None:
    corpus = load(write_rows(tmp_path / "a.jsonl", [{"text": "a", "label": "x", "input": 7}] * 4))
    assert (corpus.task, set(corpus.columns)) == ("classification", {"text", "label"})


# Readers


def test_p3_has_one_client_per_task(write_file: WriteFile, tmp_path: Path) -> None:
    row = {"task": "ag_news", "template": "t", "prompt": "Which?", "completion": "Sports", "closed": True}
    rows = [row, {**row, "task": "xsum", "closed": False}, {**row, "completion": ""}]
    for split in ("train", "test"):
        write_file(f"{split}.jsonl", "".join(json.dumps(r) + "\n" for r in rows))
    corpus = p3(tmp_path)
    assert corpus.column("client") == ["ag_news", "xsum"] * 2
    assert corpus.column("closed") == [True, False] * 2
    assert corpus.num_train == 2
    assert corpus.report.drop_counts == {"rows without a prompt or an answer": 2}


def test_dolly_puts_the_context_behind_the_instruction(write_file: WriteFile, tmp_path: Path) -> None:
    row = {"instruction": "When?", "context": "In 1912.", "response": "1912", "category": "closed_qa"}
    rows = [row, {**row, "context": "", "category": "open_qa"}]
    write_file("databricks-dolly-15k.jsonl", "".join(json.dumps(r) + "\n" for r in rows))
    corpus = dolly(tmp_path)
    prompts = dict(zip(corpus.column("client"), corpus.column("prompt"), strict=True))
    assert prompts == {"closed_qa": "When?\n\nIn 1912.", "open_qa": "When?"}


def test_alpaca_and_code_alpaca(write_file: WriteFile, tmp_path: Path) -> None:
    tasks = [
        "Sort a list in Python",
        "Write a JavaScript function",
        "Write C++ code",
        "Select all rows (SQL)",
        "Sum up",
    ]
    rows = [{"instruction": task, "input": "<noinput>", "output": "x"} for task in tasks]
    for name in ("alpaca_data.json", "code_alpaca_20k.json"):
        write_file(name, json.dumps([*rows, {"instruction": "a", "input": "", "output": ""}]))
    assert set(alpaca(tmp_path).column("prompt")) == set(tasks)
    corpus = code_alpaca(tmp_path)
    languages = dict(zip(corpus.column("prompt"), corpus.column("client"), strict=True))
    assert [languages[task] for task in tasks] == ["python", "javascript", "c++", "sql", "other"]
    assert corpus.report.drop_counts == {"rows without a prompt or an answer": 1}


# Prompts and completions as tokens


def test_the_chat_template_writes_the_prompt_and_ends_the_answer() -> None:
    tokenizer = make_tokenizer(CHAT_ML)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    chat = ChatFormat(tokenizer, "auto", "model")
    assert chat.template is None
    assert chat.render_prompt([Turn("user", "how?")]) == "<|im_start|>user\nhow?<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.convert_ids_to_tokens(chat.end_token) == "<|im_end|>"
    assert tokenizer.decode(chat.tokenize_completions(["fine"])[0]) == "fine <|im_end|>"


def test_options_of_the_template_are_set_in_the_run_and_in_the_exported_template() -> None:
    tokenizer = make_tokenizer(
        CHAT_ML + "{% if thinking is defined and thinking is false %}{{ date }}<done>{% endif %}"
    )
    task = Instruct(template_options=(("thinking", False), ("date", 'the "1st" 🎻')))
    model = Model("gpt-1", torch.nn.Module(), {}, tokenizer)
    exported = copy.deepcopy(tokenizer)
    exported.chat_template = task.chat_template(model)
    own = ChatFormat(tokenizer, "auto", "gpt").render_prompt([Turn("user", "how?")])
    assert ChatFormat(exported, "chat", "gpt").render_prompt([Turn("user", "how?")]) == f'{own}the "1st" 🎻<done>'
    corpus = Corpus("toy", "instruct", {"prompt": ["how are you"], "completion": ["fine"]}, 1)
    assert task.build_features(corpus, model, 99).columns["completion_start"][0] > len(tokenizer(own)["input_ids"])
    with pytest.raises(
        ConfigError, match=r"task\.template_options has 'thin', but the chat template of gpt does not read it"
    ):
        ChatFormat(tokenizer, "auto", "gpt", options={"thin": 1})
    with pytest.raises(ConfigError, match=r"task\.template_options has 'thinking', but prompts have Alpaca's layout"):
        ChatFormat(tokenizer, "alpaca", "gpt", options={"thinking": True})
    with pytest.raises(ConfigError, match=r"task\.template_options\.date is \[1\]; expected a text, a number"):
        ChatFormat(tokenizer, "auto", "gpt", options={"date": [1]})


def test_virtual_tokens_come_before_every_prompt_and_are_never_cut() -> None:
    chat = ChatFormat(make_tokenizer(CHAT_ML), "auto", "model", virtual_tokens=(100, 101))
    (prompt,) = chat.tokenize_prompts("corpus", [[Turn("user", "how are you?")]])
    assert prompt[:2] == [100, 101]
    assert chat.truncate(prompt, len(prompt) - 3) == ([100, 101, *prompt[5:]], 3)


def test_without_a_chat_template_the_layout_is_that_of_alpaca() -> None:
    chat = ChatFormat(make_tokenizer(None), "auto", "model")
    text = chat.render_prompt([Turn("user", "how are you?")])
    assert text.startswith("Below is an instruction that describes a task.")
    assert text.endswith("\n\n### Instruction:\nhow are you?\n\n### Response:\n")
    turns = [Turn("system", "Be brief."), Turn("user", "a"), Turn("assistant", "b"), Turn("tool", "c")]
    assert chat.render_prompt(turns) == (
        "Be brief.\n\n### Instruction:\na\n\n### Response:\nb\n\n### Input:\nc\n\n### Response:\n"
    )
    assert ChatFormat(make_tokenizer(CHAT_ML), "none", "model").render_prompt(turns[1:3]) == "a\nb"
    assert chat.end_token == chat.tokenizer.eos_token_id


def test_a_template_that_fails_is_reported_before_training() -> None:
    with pytest.raises(ConfigError, match=r"task\.template is chat, but the tokenizer of gpt has no chat template"):
        ChatFormat(make_tokenizer(None), "chat", "gpt")
    with pytest.raises(ConfigError, match="does not write the user's message"):
        ChatFormat(make_tokenizer("{{ bos_token }}"), "auto", "gpt")
    template = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}{{ m.content }}{% endfor %}"
    chat = ChatFormat(make_tokenizer(template), "auto", "gpt")
    with pytest.raises(
        DataError,
        match=r"row 1 \(.*\): the chat .* of gpt fails .* roles system, user \(no system\).* or set task\.template",
    ):
        chat.tokenize_prompts("toy", [[Turn("user", "a")], [Turn("system", "a"), Turn("user", "b")]])
    with pytest.raises(ConfigError, match=r"no system.*try it without --system"):
        ChatSession(None, make_tokenizer(template), "gpt", system="be brief").reply("hello")


def test_advice_about_a_failing_template_names_another_one() -> None:
    content: Any = None
    turns = [Turn("user", content)]
    with pytest.raises(ConfigError, match=r"Set task\.template=alpaca\."):
        ChatFormat(make_tokenizer("{{ raise_exception('no') }}"), "auto", "gpt")
    with pytest.raises(DataError, match=r"Alpaca's layout of prompts fails .* Change the row\.$"):
        ChatFormat(make_tokenizer(CHAT_ML), "alpaca", "gpt").tokenize_prompts("toy", [turns])


def test_long_prompts_lose_their_beginning_and_completions_stay_whole() -> None:
    columns = {"prompt": ["a b c d e f g h", "a b"] * 2, "completion": ["x y", "x"] * 2}
    federation = make_federation(Corpus("toy", "instruct", columns, 2), max_tokens=6)
    features, tokenizer = federation.server.features, federation.model.tokenizer
    ids = features.columns["input_ids"]
    assert isinstance(ids, Ragged)
    assert tokenizer.decode(ids[0]) == "[CLS] h [SEP] x y [SEP]"
    assert tokenizer.decode(ids[1]) == "[CLS] a b [SEP] x [SEP]"
    assert features.batch(np.array([0]))["labels"].tolist() == [tokenizer("x y [SEP]")["input_ids"]]
    assert features.columns["completion_start"].tolist() == [3, 4, 3, 4]  # type: ignore[union-attr]
    (note,) = federation.server.notes
    assert note.startswith("2 of 4 prompts do not fit into model.max_tokens and lose their beginning (14 tokens)")


def test_a_completion_that_does_not_fit_is_an_error() -> None:
    columns = {"prompt": ["a"] * 3, "completion": ["x", "x x x x x x", "x"]}
    with pytest.raises(
        DataError, match=r"row 1 \(.*\): the completion text has 7 tokens, but model.max_tokens is 6.*1 of 3 rows"
    ):
        make_federation(Corpus("toy", "instruct", columns, 2), max_tokens=6)


# Metrics


def test_answers_match_regardless_of_case_punctuation_and_later_lines() -> None:
    assert normalize_answer(" The Answer, is:  YES!\nbecause") == "the answer is yes"
    assert exact_matches(["Yes.", "no", "", "**"], ["yes", "yes", "yes", "**"]).tolist() == [1, 0, 0, 1]
    assert rouge_l(["the cats sat", "dogs"], ["the cat sat", "cat"]).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("columns", "scoring"),
    [
        ({"closed": [True, False] * 50}, "by_row"),
        ({"closed": [True] * 100}, "exact_match"),
        ({"choices": [["x"], []] * 50}, "by_row"),
        ({"completion": ["yes", "no"] * 50}, "exact_match"),
        ({"completion": [f"text {i}" for i in range(100)]}, "rougeL"),
    ],
)
def test_the_scoring_follows_from_the_corpus(columns: dict[str, list[Any]], scoring: str) -> None:
    corpus = Corpus("toy", "instruct", {"prompt": ["a"] * 100, "completion": ["x"] * 100, **columns}, 80)
    assert instruct(corpus).scoring == scoring
    assert instruct(corpus, scoring="rougeL").primary_metric == "rougeL"


def test_closed_answers_count_by_exact_match_and_others_by_rouge() -> None:
    columns = {"prompt": ["a"] * 4, "completion": ["x y", "x", "x y", "y"], "closed": [True, True, False, False]}
    federation = make_federation(Corpus("toy", "instruct", columns, 2))
    task, features = federation.server.task, federation.server.features
    examples = Examples(features, np.arange(4))
    answers = ["x y", "y", "x", "y"]
    ids = [features.tokenizer(text)["input_ids"] for text in answers]
    predictions = {
        "predictions": torch.tensor([row + [IGNORE_INDEX] * (2 - len(row)) for row in ids]),
        "loss": torch.tensor([2.0, 2.0, 2.0, 2.0]),
        "count": torch.tensor([3, 2, 3, 2]),
    }
    metrics = task.compute_metrics(predictions, examples)
    assert metrics == pytest.approx({"loss": 0.8, "exact_match": 0.5, "rougeL": 5 / 6, "score": 2 / 3})
    scores = task.score_examples(predictions, examples)
    assert scores[:, 0] == pytest.approx([1, 0, 2 / 3, 1])
    only_open = task.compute_metrics(
        {name: t[2:] for name, t in predictions.items()}, examples.select(np.array([2, 3]))
    )
    assert "exact_match" not in only_open
    assert isinstance(task, Instruct)
    samples = task.read_samples(predictions, examples)
    assert samples[2] == {"prompt": "a", "reference": "x y", "generated": "x"}


def test_the_most_likely_choice_is_the_one_with_the_lowest_loss() -> None:
    options = ["x", "y y z", "z z"]
    columns = {
        "prompt": ["a b", "b", "a", "b b a"], "completion": ["x", "z z", "y y z", "y"],
        "choices": [options, options, options, []],
    }  # fmt: skip
    corpus = Corpus("toy", "instruct", columns, 2)
    federation = make_federation(corpus)
    features, model = federation.server.features, federation.model
    examples = Examples(features, np.arange(4))
    work = federation.server_context(0).infer(model.initial_params, examples)
    predictions = SerialExecutor(torch.device("cpu")).run(next(work))
    module = model.with_params(model.initial_params)
    likelihoods = []
    for row in range(3):
        start = int(features.columns["completion_start"][row])
        prompt = features.columns["input_ids"][row][:start].tolist()
        likelihoods.append(
            [log_likelihood(module, prompt, features.tokenizer(f"{text} [SEP]")["input_ids"]) for text in options]
        )
    assert predictions["choice"].tolist() == [*np.argmax(likelihoods, axis=1).tolist(), -1]
    right = [options[i] == c for i, c in zip(predictions["choice"].tolist()[:3], columns["completion"], strict=False)]
    metrics = federation.server.task.compute_metrics(predictions, examples)
    assert metrics["choice_accuracy"] == pytest.approx(np.mean(right))


def log_likelihood(module: Any, prompt: list[int], answer: list[int]) -> float:
    with torch.no_grad():
        logits = module(input_ids=torch.tensor([[*prompt, *answer]]))["logits"][0].log_softmax(-1)
    return sum(float(logits[len(prompt) - 1 + i, token]) for i, token in enumerate(answer))


def test_the_toy_corpus_has_a_vocabulary_of_prompts_and_completions() -> None:
    words = set(" ".join(vocabulary_texts(toy_instruct(train=40, test=8))).split())
    assert {"topic", "headline"} <= words
