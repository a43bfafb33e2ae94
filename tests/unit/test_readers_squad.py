"""Files in the formats of SQuAD and MRQA: answers, their positions, and errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from motet.core.errors import DataError
from motet.datasets.read_log import ReadLog
from motet.datasets.squad_json import find_answer, printable_ascii, read_mrqa, read_squad

WriteFile = Callable[..., Path]
CONTEXT = "Rain fell in May. In June, rain fell again."


def squad_json(*questions: dict[str, Any], context: str = CONTEXT, title: str = "Rain") -> str:
    return json.dumps(
        {"version": "1.1", "data": [{"title": title, "paragraphs": [{"context": context, "qas": list(questions)}]}]}
    )


def question(key: str, *answers: tuple[str, int], **extra: Any) -> dict[str, Any]:
    gold = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": key, "question": f" question {key}?", "answers": gold, **extra}


def test_distinct_answers_are_kept_with_their_start_positions(write_file: WriteFile) -> None:
    columns = read_squad(
        write_file("a.json", squad_json(question("q", ("May", 13), ("in May", 10), ("May", 13)))), ReadLog(Path())
    )
    assert columns == {
        "id": ["q"],
        "context": [CONTEXT],
        "question": ["question q?"],
        "answers": [["May", "in May"]],
        "starts": [[13, 10]],
        "title": ["Rain"],
    }


def test_wrong_start_position_moves_to_the_nearest_occurrence() -> None:
    assert find_answer(CONTEXT, "fell", 32) == 32
    assert find_answer(CONTEXT, "fell", 31) == 32
    assert find_answer(CONTEXT, "fell", 33) == 32
    assert find_answer(CONTEXT, "fell", 7) == 5
    assert find_answer(CONTEXT, "fell", 10_000) == 32
    assert find_answer(CONTEXT, "fell", -1) == 5
    assert find_answer(CONTEXT, "snow", 5) == -1
    assert find_answer("a b a", "a", 2) == 0  # the first of two that are equally near


def test_moved_and_lost_answers_are_counted(write_file: WriteFile) -> None:
    log = ReadLog(Path())
    path = write_file(
        "a.json", squad_json(question("q", ("fell", 31), ("May", 12), ("snow", 0)), question("r", ("In", 18)))
    )
    columns = read_squad(path, log)
    assert columns["starts"] == [[32, 13], [18]]
    assert log.build_report(2).changes == {
        "answers moved to the nearest occurrence": 1,
        "answers moved to the nearest of several occurrences (positions count characters, not bytes)": 1,
        "answers removed because they are not in the context": 1,
    }


def test_question_whose_answer_is_not_in_the_context_is_skipped(write_file: WriteFile) -> None:
    log = ReadLog(Path())
    columns = read_squad(
        write_file("a.json", squad_json(question("lost", ("snow", 0)), question("half", ("snow", 0), ("June", 0)))),
        log,
    )
    assert (columns["id"], columns["answers"], columns["starts"]) == (["half"], [["June"]], [[21]])
    assert log.build_report(0).drop_counts == {"questions whose answer is not in the context": 1}


def test_unanswerable_question_has_no_answers(write_file: WriteFile) -> None:
    impossible = question(
        "no", ("May", 13), is_impossible=True, plausible_answers=[{"text": "May", "answer_start": 13}]
    )
    log = ReadLog(Path())
    columns = read_squad(
        write_file("a.json", squad_json(impossible, question("none"), question("blank", ("", 0)))), log
    )
    assert columns["answers"] == columns["starts"] == [[], [], []]
    assert not log.build_report(0).dropped


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "a.json: invalid JSON"),
        ("[]", "a.json, the file: there is no list of objects 'data'"),
        ('{"data": [{"title": "x"}]}', "a.json, article 1: there is no list of objects 'paragraphs'"),
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', "a.json, article 1: 'context' is None; expected a string"),
        (squad_json({"id": "q7", "answers": []}), "article 1, question 'q7': 'question' is None"),
        (squad_json({"id": "q7", "question": "?"}), "article 1, question 'q7': there is no list of objects 'answers'"),
    ],
)
def test_file_in_another_format_raises_an_error(text: str, message: str, write_file: WriteFile) -> None:
    with pytest.raises(DataError) as error:
        read_squad(write_file("a.json", text), ReadLog(Path()))
    assert message in str(error.value)


def mrqa_lines(*records: tuple[str, list[dict[str, Any]]]) -> str:
    lines: list[dict[str, Any]] = [{"header": {"dataset": "SQuAD", "split": "train"}}]
    lines += [{"id": "", "context": context, "qas": qas} for context, qas in records]
    return "".join(json.dumps(line) + "\n" for line in lines)


def mrqa_question(key: str, *answers: tuple[str, list[list[int]]]) -> dict[str, Any]:
    spans = [{"text": text, "char_spans": spans, "token_spans": [[0, 0]]} for text, spans in answers]
    return {
        "qid": key,
        "question": f"question {key}?",
        "answers": [text for text, _ in answers],
        "detected_answers": spans,
    }


def test_mrqa_header_is_skipped_and_the_first_span_is_used(write_file: WriteFile) -> None:
    record = mrqa_question("q", ("fell", [[32, 35], [5, 8]]), ("fell", [[5, 8]]), ("May", [[0, 2]]))
    columns = read_mrqa(write_file("a.jsonl.gz", mrqa_lines((CONTEXT, [record]))), ReadLog(Path()))
    assert columns == {
        "id": ["q"],
        "context": [CONTEXT],
        "question": ["question q?"],
        "answers": [["fell", "May"]],
        "starts": [[5, 13]],
    }


def test_mrqa_limit_is_the_maximum_number_of_questions(write_file: WriteFile) -> None:
    text = mrqa_lines(
        (CONTEXT, [mrqa_question("1", ("snow", [[0, 3]])), mrqa_question("2", ("May", [[13, 15]]))]),
        (CONTEXT, [mrqa_question("3")]),
    )
    log = ReadLog(Path())
    assert read_mrqa(write_file("a.jsonl", text), log, limit=2)["id"] == ["2"]
    assert log.build_report(0).num_dropped == 1
    assert read_mrqa(write_file("a.jsonl", text), ReadLog(Path()), limit=0)["id"] == []
    assert read_mrqa(write_file("a.jsonl", text), ReadLog(Path()))["id"] == ["2", "3"]


def test_ascii_only_removes_characters_and_corrects_start_positions(write_file: WriteFile) -> None:
    context = "Café – ok. Tea\x00 at ten, tea at six."
    questions = [mrqa_question("moved", ("tea", [[24, 26]])), mrqa_question("gone", ("Café", [[0, 3]]))]
    assert context[24:27] == "tea"
    log = ReadLog(Path())
    columns = read_mrqa(write_file("a.jsonl", mrqa_lines((context, questions))), log, ascii_only=True)
    assert columns["context"] == ["Caf  ok. Tea at ten, tea at six."]
    assert (columns["answers"], columns["starts"]) == ([["tea"]], [[21]])
    assert log.build_report(0).drop_counts == {"questions whose answer is not in the context": 1}


def test_printable_ascii_keeps_tabs_and_line_feeds() -> None:
    assert printable_ascii("a\tb\nc\x07d\x7fe…f") == "a\tb\ncdef"


def test_broken_mrqa_line_raises_an_error(write_file: WriteFile) -> None:
    with pytest.raises(DataError, match=r"a.jsonl, line 2: there is no list of objects 'qas'"):
        read_mrqa(write_file("a.jsonl", '{"header": {}}\n{"context": "x"}\n'), ReadLog(Path()))
