"""Instruction tuning: P3, Dolly, Alpaca and CodeAlpaca in their published files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from motet.core.errors import DataError
from motet.datasets.corpus import Corpus
from motet.datasets.instruction_columns import instruction_prompt
from motet.datasets.original_files import MISSING_COLUMNS, read_json, read_jsonl, require_file
from motet.datasets.read_log import ReadLog
from motet.datasets.splits import Columns, build_corpus

NO_ANSWER = "rows without a prompt or an answer"
OTHER_LANGUAGE = "other"
# Programming languages of CodeAlpaca, as tasks name them. The first match counts; longer names come first.
LANGUAGES = {
    "c++": r"c\+\+|cpp",
    "c#": r"c#|\.net",
    "javascript": r"javascript|js|node(?:\.js)?|react|jquery",
    "typescript": r"typescript",
    "java": r"java",
    "python": r"python|numpy|pandas|django|flask",
    "sql": r"sql|mysql|sqlite|database",
    "html": r"html",
    "css": r"css",
    "php": r"php|laravel",
    "ruby": r"ruby|rails",
    "swift": r"swift",
    "kotlin": r"kotlin",
    "go": r"golang|go (?:program|code|function)",
    "rust": r"rust",
    "scala": r"scala",
    "r": r"r (?:program|code|script|function)",
    "bash": r"bash|shell|unix|linux",
    "c": r"c (?:program|code|function)|in c",
    "regex": r"regex|regular expression",
}
_PATTERNS = {name: re.compile(rf"(?<![\w+#]){pattern}(?![\w+#])") for name, pattern in LANGUAGES.items()}


def p3(folder: Path) -> Corpus:
    """Prompts of 27 tasks from the T0 mixture. Instruct; client = task. From train.jsonl and test.jsonl."""
    hint = "expected train.jsonl and test.jsonl with task, prompt, completion and closed."
    train, test = (require_file("p3", folder, f"{split}.jsonl", hint=hint) for split in ("train", "test"))
    log = ReadLog(folder)
    return build_corpus("p3", "instruct", _read_p3(train, log), _read_p3(test, log), log)


def _read_p3(path: Path, log: ReadLog) -> Columns:
    columns: Columns = {"prompt": [], "completion": [], "closed": [], "client": [], "template": []}
    for number, row in read_jsonl(path, log):
        if not all(name in row for name in ("task", "prompt", "completion", "closed")):
            log.drop(MISSING_COLUMNS, path, number)
        elif _add_row(columns, path, number, str(row["prompt"]), str(row["completion"]), log):
            columns["closed"].append(bool(row["closed"]))
            columns["client"].append(str(row["task"]))
            columns["template"].append(str(row.get("template", "")))
    return columns


def dolly(folder: Path) -> Corpus:
    """15,000 instructions by employees of Databricks. Instruct; client = category. From databricks-dolly-15k.jsonl."""
    path = require_file(
        "dolly", folder, "databricks-dolly-15k.jsonl", "dolly.jsonl", hint="download it from huggingface.co/databricks."
    )
    log = ReadLog(folder)
    columns: Columns = {"prompt": [], "completion": [], "client": []}
    for number, row in read_jsonl(path, log):
        if "instruction" not in row or "response" not in row:
            log.drop(MISSING_COLUMNS, path, number)
            continue
        prompt = instruction_prompt(str(row["instruction"]), str(row.get("context") or ""))
        if _add_row(columns, path, number, prompt, str(row["response"]), log):
            columns["client"].append(str(row.get("category") or "other"))
    return build_corpus("dolly", "instruct", columns, None, log)


def alpaca(folder: Path) -> Corpus:
    """52,000 generated instructions. Instruct. From alpaca_data.json, or the cleaned or the GPT-4 version of it."""
    names = ("alpaca_data.json", "alpaca_data_cleaned.json", "alpaca_gpt4_data.json", "alpaca_data_gpt4.json")
    path = require_file("alpaca", folder, *names, hint="download it from github.com/tatsu-lab/stanford_alpaca.")
    log = ReadLog(folder)
    columns: Columns = {"prompt": [], "completion": []}
    for number, row in _read_alpaca_rows(path, log):
        _add_row(columns, path, f"row {number}", *_alpaca_texts(row), log)
    return build_corpus("alpaca", "instruct", columns, None, log)


def code_alpaca(folder: Path) -> Corpus:
    """20,000 programming tasks. Instruct; client = programming language named in the task. From code_alpaca_20k.json."""
    hint = "download it from github.com/sahil280114/codealpaca."
    path = require_file("code-alpaca", folder, "code_alpaca_20k.json", "code_alpaca.json", hint=hint)
    log = ReadLog(folder)
    columns: Columns = {"prompt": [], "completion": [], "client": []}
    for number, row in _read_alpaca_rows(path, log):
        prompt, completion = _alpaca_texts(row)
        if _add_row(columns, path, f"row {number}", prompt, completion, log):
            columns["client"].append(find_language(prompt))
    return build_corpus("code-alpaca", "instruct", columns, None, log)


def find_language(task: str) -> str:
    """Return the programming language that a task names, or "other"."""
    text = task.lower()
    return next((name for name, pattern in _PATTERNS.items() if pattern.search(text)), OTHER_LANGUAGE)


def _read_alpaca_rows(path: Path, log: ReadLog) -> Iterable[tuple[int, dict[str, Any]]]:
    rows = read_json(path, log)
    if not isinstance(rows, list):
        raise DataError(
            f"{path.name}: expected a list of rows with instruction, input and output. Use the original file."
        )
    for number, row in enumerate(rows):
        if isinstance(row, dict) and "instruction" in row and "output" in row:
            yield number, row
        else:
            log.drop(MISSING_COLUMNS, path, f"row {number}")


def _alpaca_texts(row: dict[str, Any]) -> tuple[str, str]:
    context = str(row.get("input") or "")
    return instruction_prompt(str(row["instruction"]), "" if context.strip() == "<noinput>" else context), str(
        row["output"]
    )


def _add_row(columns: Columns, path: Path, position: int | str, prompt: str, completion: str, log: ReadLog) -> bool:
    """Add a prompt and its completion; return False if one of them is empty."""
    if not prompt.strip() or not completion.strip():
        log.drop(NO_ANSWER, path, position)
        return False
    columns["prompt"].append(prompt.strip())
    columns["completion"].append(completion.strip())
    return True
