from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from motet.core.errors import DataError
from motet.datasets.squad_json import find_answer, printable_ascii, read_mrqa, read_squad

Put = Callable[..., Path]
CONTEXT = "Rain fell in May. In June, rain fell again."


def squad_json(*questions: dict[str, Any], context: str = CONTEXT, title: str = "Rain") -> str:
    return json.dumps(
        {"version": "1.1", "data": [{"title": title, "paragraphs": [{"context": context, "qas": list(questions)}]}]}
    )


def question(key: str, *answers: tuple[str, int], **more: Any) -> dict[str, Any]:
    gold = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": key, "question": f" question {key}?", "answers": gold, **more}


def test_distinct_answers_are_kept_with_their_places(put: Put) -> None:
    rows = read_squad(put("a.json", squad_json(question("q", ("May", 13), ("in May", 10), ("May", 13)))), Counter())
    assert rows == {
        "id": ["q"],
        "context": [CONTEXT],
        "question": ["question q?"],
        "answers": [["May", "in May"]],
        "starts": [[13, 10]],
        "title": ["Rain"],
    }


def test_the_place_that_is_said_counts_before_the_first_occurrence() -> None:
    assert find_answer(CONTEXT, "fell", 32) == 32
    assert find_answer(CONTEXT, "fell", 31) == 5
    assert find_answer(CONTEXT, "fell", -1) == 5
    assert find_answer(CONTEXT, "snow", 5) == -1


def test_a_question_whose_answer_is_nowhere_is_left_out_and_counted(put: Put) -> None:
    left_out: Counter[str] = Counter()
    rows = read_squad(
        put("a.json", squad_json(question("lost", ("snow", 0)), question("half", ("snow", 0), ("June", 0)))), left_out
    )
    assert (rows["id"], rows["answers"], rows["starts"]) == (["half"], [["June"]], [[21]])
    assert left_out == {"questions whose answer is not in the context": 1}


def test_a_question_without_an_answer_has_empty_lists(put: Put) -> None:
    impossible = question(
        "no", ("May", 13), is_impossible=True, plausible_answers=[{"text": "May", "answer_start": 13}]
    )
    left_out: Counter[str] = Counter()
    rows = read_squad(put("a.json", squad_json(impossible, question("none"), question("blank", ("", 0)))), left_out)
    assert rows["answers"] == rows["starts"] == [[], [], []]
    assert not left_out


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "a.json: this is no JSON"),
        ("[]", "a.json, the file: there is no list of objects 'data'"),
        ('{"data": [{"title": "x"}]}', "a.json, article 1: there is no list of objects 'paragraphs'"),
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', "a.json, article 1: 'context' is None; expected a text"),
        (squad_json({"id": "q7", "answers": []}), "article 1, question 'q7': 'question' is None"),
        (squad_json({"id": "q7", "question": "?"}), "article 1, question 'q7': there is no list of objects 'answers'"),
    ],
)
def test_a_file_of_another_form_is_explained(text: str, says: str, put: Put) -> None:
    with pytest.raises(DataError) as refused:
        read_squad(put("a.json", text), Counter())
    assert says in str(refused.value)


def mrqa_lines(*records: tuple[str, list[dict[str, Any]]]) -> str:
    lines: list[dict[str, Any]] = [{"header": {"dataset": "SQuAD", "split": "train"}}]
    lines += [{"id": "", "context": context, "qas": qas} for context, qas in records]
    return "".join(json.dumps(line) + "\n" for line in lines)


def detected(key: str, *answers: tuple[str, list[list[int]]]) -> dict[str, Any]:
    spans = [{"text": text, "char_spans": spans, "token_spans": [[0, 0]]} for text, spans in answers]
    return {
        "qid": key,
        "question": f"question {key}?",
        "answers": [text for text, _ in answers],
        "detected_answers": spans,
    }


def test_the_header_is_skipped_and_the_earliest_span_counts(put: Put) -> None:
    asked = detected("q", ("fell", [[32, 35], [5, 8]]), ("fell", [[5, 8]]), ("May", [[0, 2]]))
    rows = read_mrqa(put("a.jsonl.gz", mrqa_lines((CONTEXT, [asked]))), Counter())
    assert rows == {
        "id": ["q"],
        "context": [CONTEXT],
        "question": ["question q?"],
        "answers": [["fell", "May"]],
        "starts": [[5, 13]],
    }


def test_at_most_so_many_questions_are_read(put: Put) -> None:
    text = mrqa_lines(
        (CONTEXT, [detected("1", ("snow", [[0, 3]])), detected("2", ("May", [[13, 15]]))]), (CONTEXT, [detected("3")])
    )
    left_out: Counter[str] = Counter()
    assert read_mrqa(put("a.jsonl", text), left_out, most=2)["id"] == ["2"]
    assert sum(left_out.values()) == 1
    assert read_mrqa(put("a.jsonl", text), Counter(), most=0)["id"] == []
    assert read_mrqa(put("a.jsonl", text), Counter())["id"] == ["2", "3"]


def test_only_printable_letters_are_kept_and_places_move_with_them(put: Put) -> None:
    context = "Café – ok. Tea\x00 at ten, tea at six."
    asked = [detected("moved", ("tea", [[24, 26]])), detected("gone", ("Café", [[0, 3]]))]
    assert context[24:27] == "tea"
    left_out: Counter[str] = Counter()
    rows = read_mrqa(put("a.jsonl", mrqa_lines((context, asked))), left_out, ascii_only=True)
    assert rows["context"] == ["Caf  ok. Tea at ten, tea at six."]
    assert (rows["answers"], rows["starts"]) == ([["tea"]], [[21]])
    assert left_out == {"questions whose answer is not in the context": 1}


def test_printable_is_what_a_typewriter_has() -> None:
    assert printable_ascii("a\tb\nc\x07d\x7fe…f") == "a\tb\ncdef"


def test_a_broken_line_of_mrqa_is_named(put: Put) -> None:
    with pytest.raises(DataError, match=r"a.jsonl, line 2: there is no list of objects 'qas'"):
        read_mrqa(put("a.jsonl", '{"header": {}}\n{"context": "x"}\n'), Counter())
