"""What is probably wrong with prompts and answers that can be read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from motet.datasets.missing_values import looks_missing
from motet.datasets.read_log import ReadLog

KNOWN_ROLES = ("system", "developer", "user", "assistant", "tool")
THOUGHTS = ("reasoning_content", "reasoning", "thinking")  # fields of messages that are not read
USUAL_SHARE = 0.5  # of the rows; fewer may be as they should be
MIN_REPEATED_LENGTH = 10  # characters of a prompt with which an answer may begin by chance
# What chat templates write around the turns of a conversation.
_MARKER = re.compile(
    r"<\|(?:im_start|im_end|eot_id|start_header_id|system|user|assistant)\|>|\[/?INST\]|<start_of_turn>"
    r"|^\s*(?:### (?:Instruction|Input|Response|Human|Assistant)|Human|Assistant|USER|ASSISTANT):",
    re.MULTILINE,
)


def check_instructions(task: str, columns: Mapping[str, Any], log: ReadLog) -> None:
    """Write warnings about the columns of task `instruct` or `preference` to the log."""
    prompts = [[prompt] if isinstance(prompt, str) else prompt for prompt in columns["prompt"]]
    answers = columns["completion" if task == "instruct" else "chosen"]
    roles: Sequence[Sequence[str]] = columns.get("roles", ())
    others = Counter(role for row in roles for role in set(row) if role not in KNOWN_ROLES)
    if others:
        log.warn(
            f"Conversations have other roles than {', '.join(KNOWN_ROLES)}: "
            f"{', '.join(f'{role} ({count:,})' for role, count in others.items())}. Most chat templates do not know them. "
            "Rename them."
        )
    count = sum("assistant" in row for row in roles)
    if task == "instruct" and count:
        log.warn(
            f"{count:,} conversations have several answers, and only the last one is learned. To learn more of them, write a "
            "row for each."
        )
    _check_layout(prompts, answers, log)


def _check_layout(prompts: Sequence[Sequence[str]], answers: Sequence[str], log: ReadLog) -> None:
    """Find answers that repeat their prompts, and texts with the marks of a chat template."""
    pairs = list(zip(prompts, answers, strict=True))
    count = sum(
        len(turns[-1]) >= MIN_REPEATED_LENGTH and answer.strip().startswith(turns[-1].strip())
        for turns, answer in pairs
    )
    if count >= USUAL_SHARE * len(pairs):
        log.warn(f"{count:,} of {len(pairs):,} answers begin with their prompt. Remove it from the answers.")
    marks = [match[0].strip() for turns, answer in pairs if (match := _MARKER.search("\n".join([*turns, answer])))]
    if len(marks) >= USUAL_SHARE * len(pairs):
        log.warn(
            f"{len(marks):,} of {len(pairs):,} rows have marks of a chat template, such as {marks[0]}. Motet adds those of "
            "the model: keep only the texts, or write messages with role and content."
        )


def check_messages(values: Iterable[Any], log: ReadLog) -> None:
    """Find texts of a reasoning model that are in a field of their own."""
    messages = (
        message for value in values if isinstance(value, list) for message in value if isinstance(message, dict)
    )
    counts = Counter(name for message in messages for name in THOUGHTS if message.get(name))
    if counts:
        log.warn(
            f"Messages have fields that are not read: {', '.join(f'{name} ({count:,})' for name, count in counts.items())}. "
            "If the model should learn these texts, write them into the content."
        )


def check_inputs(inputs: Sequence[str], log: ReadLog) -> None:
    """Find inputs such as 'nan', which become part of the prompt."""
    missing = Counter(text.strip() for text in inputs if text.strip() and looks_missing(text))
    if missing:
        log.warn(
            f"The column input holds {', '.join(f'{text!r} ({count:,})' for text, count in missing.most_common(3))}, which "
            "becomes part of the prompt. If there is no input, write an empty text."
        )
