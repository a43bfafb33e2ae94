"""Write an answer while the model generates it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

_INCOMPLETE = "\ufffd"  # what the first bytes of a character are decoded to


class AnswerStream:
    """Receives the tokens of a generation, as a streamer of transformers does, and writes the new text of each."""

    def __init__(self, tokenizer: Any, write: Callable[[str], object]) -> None:
        self.tokenizer, self.write = tokenizer, write
        self.tokens: list[int] = []
        self.num_written = 0
        self.has_prompt = False

    def put(self, tokens: Tensor) -> None:
        if not self.has_prompt:  # generation begins with the prompt
            self.has_prompt = True
            return
        self.tokens += tokens.flatten().tolist()
        text = str(self.tokenizer.decode(self.tokens, skip_special_tokens=True)).lstrip()
        if not text.endswith(_INCOMPLETE):
            self._write_until(text, len(text.rstrip()))  # spaces at the end are not part of an answer

    def end(self) -> None:
        text = str(self.tokenizer.decode(self.tokens, skip_special_tokens=True)).strip()
        self._write_until(text, len(text))

    def _write_until(self, text: str, end: int) -> None:
        if end > self.num_written:
            self.write(text[self.num_written : end])
            self.num_written = end
