"""Columns of instruction and preference data: prompt and completion, or prompt, chosen and rejected.

People publish such data as lists of chat messages, with Alpaca's columns, or as plain texts. All become the same columns.
A prompt of one user turn is a text. If a row has more turns, every prompt is a list of turns, and the column `roles` has
the role of each turn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from motet.core.errors import DataError
from motet.datasets.instruction_checks import check_inputs, check_instructions
from motet.datasets.read_log import ReadLog

INSTRUCTION_TASKS = ("instruct", "preference")
# Columns that data may have instead of Motet's, and what they stand for.
_ALTERNATIVES = {
    ("messages",): ("prompt", "completion"),
    ("instruction", "output"): ("prompt", "completion"),
    ("chosen", "rejected"): ("prompt",),
}
_NEEDED = {"instruct": ("prompt", "completion"), "preference": ("prompt", "chosen", "rejected")}
_EXPECTED = {
    "instruct": "Add prompt and completion, messages, or instruction and output, or name them in data.columns.",
    "preference": "Add prompt, chosen and rejected, or name them in data.columns.",
}
_REPLACED = ("messages", "instruction", "input", "output")
# The roles of ShareGPT and its relatives.
_ROLE_NAMES = {"human": "user", **dict.fromkeys(("gpt", "chatgpt", "bot", "model"), "assistant")}
_ROLE, _CONTENT = (f"[\"'](?:{names})[\"']\\s*:" for names in ("role|from", "content|value"))
_MESSAGES = re.compile(rf"\s*\[\s*\{{\s*(?:{_ROLE}.*{_CONTENT}|{_CONTENT}.*{_ROLE})", re.DOTALL)  # written as a text
REMOVED_TURNS = "conversations with turns after the last answer, which were removed"
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
DescribeRow = Callable[[int], str]  # such as "train.jsonl, line 7"


class Message(NamedTuple):
    """One turn of a conversation."""

    role: str
    content: str


Conversation = list[Message]


def derivable_columns(columns: Collection[str]) -> set[str]:
    """Return Motet's columns that follow from others: prompt and completion from messages, for example."""
    return {name for needs, names in _ALTERNATIVES.items() if all(c in columns for c in needs) for name in names}


def instruction_prompt(instruction: str, context: str = "") -> str:
    """Join an instruction and its input, as in Alpaca and Dolly."""
    return f"{instruction.strip()}\n\n{context.strip()}".strip()


def build_prompts(task: str, columns: Mapping[str, Any], describe: DescribeRow, log: ReadLog) -> dict[str, Any]:
    """Return the columns of task `instruct` or `preference`; an error names the row that does not fit."""
    available = {*columns, *derivable_columns(columns)}
    if missing := [name for name in _NEEDED[task] if name not in available]:
        raise DataError(
            f"{describe(0)}: task {task} needs the column {' and '.join(missing)}, and there is none; there are "
            f"{', '.join(columns) or 'no columns of this task'}. {_EXPECTED[task]}"
        )
    build = _build_instructions if task == "instruct" else _build_preferences
    result = build(columns, describe, log)
    check_instructions(task, result, log)
    return result


def _build_instructions(columns: Mapping[str, Any], describe: DescribeRow, log: ReadLog) -> dict[str, Any]:
    result = {key: values for key, values in columns.items() if key not in _REPLACED}
    if "messages" in columns:
        prompts, completions = _split_completions(columns["messages"], "messages", describe, log)
    elif "prompt" not in columns and "instruction" in columns:
        contexts = columns.get("input", [""] * len(columns["instruction"]))
        check_inputs(contexts, log)
        pairs_of_texts = zip(columns["instruction"], contexts, strict=True)
        prompts = [[Message("user", instruction_prompt(*pair))] for pair in pairs_of_texts]
        completions = columns["output"]
    else:
        prompts, completions = list(map(_as_conversation, columns["prompt"])), columns["completion"]
        if not all(isinstance(completion, str) for completion in completions):
            answers = map(_as_answer, completions)
            conversations = [[*prompt, *answer] for prompt, answer in zip(prompts, answers, strict=True)]
            prompts, completions = _split_completions(conversations, "completion", describe, log)
    for row, completion in enumerate(completions):
        _require_text(describe(row), "completion", completion)
    result |= {**_prompt_columns(prompts, describe), "completion": completions}
    if "choices" in result:
        result["choices"] = _check_choices(result["choices"], completions, describe)
    return result


def _build_preferences(columns: Mapping[str, Any], describe: DescribeRow, log: ReadLog) -> dict[str, Any]:
    """Build prompts from chosen and rejected answers, which may be texts or conversations."""
    result = {key: values for key, values in columns.items() if key not in _REPLACED}
    if "prompt" not in columns and any(isinstance(answer, str) for answer in columns["chosen"]):
        raise DataError(
            f"{describe(0)}: chosen and rejected are texts, and there is no column prompt. Name it with "
            "data.columns.prompt=…; or write chosen and rejected as lists of messages that begin with the prompt."
        )
    answers: dict[str, list[str]] = {"chosen": [], "rejected": []}
    prompts: list[Conversation] = []
    for row, (chosen, rejected) in enumerate(zip(columns["chosen"], columns["rejected"], strict=True)):
        if isinstance(chosen, str) != isinstance(rejected, str):
            raise DataError(f"{describe(row)}: one answer is a text and the other a list of messages. Fix the row.")
        prompt = _as_conversation(columns["prompt"][row]) if "prompt" in columns else []
        histories = []
        for key, answer in (("chosen", chosen), ("rejected", rejected)):
            turns = _join_turns(f"{describe(row)}: column '{key}'", prompt, _as_answer(answer))
            history, text = _split_completion(describe(row), turns, key, log)
            _require_text(describe(row), key, text)
            answers[key].append(text)
            histories.append(history)
        if histories[0] != histories[1]:
            raise DataError(
                f"{describe(row)}: chosen and rejected answer different conversations. Fix or remove the row."
            )
        prompts.append(histories[0])
    return {**result, **_prompt_columns(prompts, describe), **answers}


def to_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def to_prompt(value: Any) -> str | Conversation:
    """Accept a text, or a list of messages: a conversation. The list may be in a text, as JSON."""
    is_list = isinstance(value, list | tuple) or (isinstance(value, str) and _MESSAGES.match(value) is not None)
    return to_conversation(value) if is_list else to_text(value)


def to_conversation(value: Any) -> Conversation:
    """Accept a list of messages with role and content (or from and value), or the same as JSON."""
    messages = json.loads(value) if isinstance(value, str) else value
    if not isinstance(messages, list | tuple) or not messages:
        raise ValueError("not a list of messages")
    turns = [_to_message(message) for message in messages]
    answers = [message for message, turn in zip(messages, turns, strict=True) if turn.role == "assistant"]
    if answers and answers[-1].get("weight", 1) == 0:
        raise ValueError("the last answer should not be learned")
    return turns


def to_choices(value: Any) -> list[str]:
    """Accept a list of texts, or the same as JSON."""
    choices = json.loads(value) if isinstance(value, str) and value.strip() else value or []
    if not isinstance(choices, list | tuple):
        raise ValueError("not a list")
    return [str(choice).strip() for choice in choices]


def to_bool(value: Any) -> bool:
    return _BOOLEANS[str(value).strip().lower()]


# How to convert a value of each column, and what is expected.
INSTRUCTION_CONVERTERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "messages": (
        to_conversation,
        "a list of messages with role and content (in a text: as JSON), without calls of tools or a last answer of weight 0",
    ),
    "instruction": (to_text, "text"),
    "input": (to_text, "text"),
    "output": (to_text, "text"),
    "prompt": (to_prompt, "a text or a list of messages (in a text: as JSON)"),
    "completion": (to_prompt, "a text or a list of messages (in a text: as JSON)"),
    "chosen": (to_prompt, "a text or a list of messages (in a text: as JSON)"),
    "rejected": (to_prompt, "a text or a list of messages (in a text: as JSON)"),
    "closed": (to_bool, "true or false"),
    "choices": (to_choices, "a list of texts"),
}
INSTRUCTION_COLUMNS = tuple(INSTRUCTION_CONVERTERS)


def _to_message(message: Any) -> Message:
    role = str(message.get("role") or message["from"]).lower()
    if message.get("tool_calls") or message.get("function_call"):
        raise ValueError("a message calls a tool")
    content = message["content"] if "content" in message else message["value"]
    if isinstance(content, list):  # parts; only those with text can be used
        content = "".join(part["text"] for part in content)
    if not isinstance(content, str):
        raise TypeError("the content of a message is not a text")
    return Message(_ROLE_NAMES.get(role, role), content)


def _as_conversation(prompt: str | Conversation) -> Conversation:
    return [Message("user", prompt)] if isinstance(prompt, str) else prompt


def _as_answer(completion: str | Conversation) -> Conversation:
    return [Message("assistant", completion)] if isinstance(completion, str) else completion


def _join_turns(place: str, prompt: Conversation, answer: Conversation) -> Conversation:
    """Join a prompt and an answer, which may repeat the prompt."""
    if not prompt or answer[0].role == "assistant":
        return [*prompt, *answer]
    contents = [turn.content.strip() for turn in answer]
    if not all(turn.content.strip() in contents for turn in prompt):
        raise DataError(f"{place} does not begin with the prompt of the row. Fix or remove the row.")
    return answer


def _split_completions(
    conversations: Sequence[Conversation], column: str, describe: DescribeRow, log: ReadLog
) -> tuple[list[Conversation], list[str]]:
    pairs = [_split_completion(describe(row), turns, column, log) for row, turns in enumerate(conversations)]
    return [prompt for prompt, _ in pairs], [completion for _, completion in pairs]


def _split_completion(row: str, turns: Conversation, column: str, log: ReadLog) -> tuple[Conversation, str]:
    """Return the turns before the last turn of the assistant, and that turn."""
    last = next((i for i in reversed(range(len(turns))) if turns[i].role == "assistant"), None)
    if last is None:
        roles = ", ".join(dict.fromkeys(turn.role for turn in turns))
        raise DataError(
            f"{row}: column '{column}' has no turn of the assistant, only {roles}; the last one is the "
            "completion. Fix or remove the row."
        )
    log.change(REMOVED_TURNS, count=last < len(turns) - 1)
    return turns[:last], turns[last].content


def _require_text(row: str, column: str, text: Any) -> None:
    if not str(text).strip():
        raise DataError(
            f"{row}: column '{column}' is empty; expected the answer that the model should learn. "
            "Fix or remove the row."
        )


def _prompt_columns(prompts: Sequence[Conversation], describe: DescribeRow) -> dict[str, list[Any]]:
    for row, turns in enumerate(prompts):
        if not any(turn.content.strip() for turn in turns):
            raise DataError(f"{describe(row)}: the prompt is empty; expected a text. Fix or remove the row.")
    if all(len(turns) == 1 and turns[0].role == "user" for turns in prompts):
        return {"prompt": [turns[0].content for turns in prompts]}
    return {
        "prompt": [[turn.content for turn in turns] for turns in prompts],
        "roles": [[turn.role for turn in turns] for turns in prompts],
    }


def _check_choices(choices: Sequence[list[str]], completions: Sequence[str], describe: DescribeRow) -> list[list[str]]:
    for row, (options, completion) in enumerate(zip(choices, completions, strict=True)):
        if options and completion.strip() not in options:
            raise DataError(
                f"{describe(row)}: the completion '{completion[:40]}' is not one of its choices "
                f"({', '.join(options[:5])}). Fix the row, or give it no choices."
            )
    return list(choices)
