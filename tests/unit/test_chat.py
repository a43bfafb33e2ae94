"""`motet chat`: answers appear while they are generated, can be stopped, and long conversations lose their beginning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from motet.cli import chat as chat_command
from motet.core.errors import ConfigError
from motet.experiment.commands.answer_stream import AnswerStream
from motet.experiment.commands.chat_session import ChatSession
from motet.learning.data.chat_format import Turn
from motet.models.word_vocabulary import CHAT_TEMPLATE, build_word_tokenizer

POSITIONS = 24


def make_session(template: str | None = CHAT_TEMPLATE, max_new_tokens: int = 4) -> ChatSession:
    tokenizer = build_word_tokenizer(["one two three four five"], add_special_tokens=False)
    tokenizer.chat_template = template
    config = transformers.GPT2Config(
        vocab_size=len(tokenizer), n_embd=16, n_layer=1, n_head=2, n_positions=POSITIONS,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    torch.manual_seed(0)
    module = transformers.GPT2LMHeadModel(config).eval()
    word = module.transformer.wte.weight[tokenizer.convert_tokens_to_ids("three")]
    module.transformer.ln_f.bias.data = 100 * word.detach()  # all that it writes
    return ChatSession(module, tokenizer, "small", max_new_tokens)


@pytest.mark.parametrize("max_new_tokens", [4, 1000])
def test_a_conversation_beyond_the_positions_of_the_model_loses_its_beginning(max_new_tokens: int) -> None:
    session = make_session(max_new_tokens=max_new_tokens)
    for _ in range(4):
        session.reply("one two three four five")
    assert [turn.role for turn in session.turns] == ["user", "assistant"] * 4
    prompt = session._write_prompt([*session.turns, Turn("user", "five four")])
    assert len(prompt) == max(POSITIONS - max_new_tokens, POSITIONS // 2)
    assert session.tokenizer.decode(prompt).endswith("five four [SEP]")


def test_an_answer_is_written_in_parts() -> None:
    session = make_session()
    parts: list[str] = []
    answer = session.reply("one two", write=parts.append)
    assert parts == ["three", " three", " three", " three"]
    assert "".join(parts) == answer


def test_a_character_of_several_tokens_is_written_when_it_is_complete() -> None:
    class Bytes:
        def decode(self, tokens: list[int], skip_special_tokens: bool) -> str:
            return bytes(tokens).decode("utf-8", errors="replace")

    parts: list[str] = []
    stream = AnswerStream(Bytes(), parts.append)
    stream.put(torch.tensor([list(b"question")]))
    for byte in " für \n".encode():
        stream.put(torch.tensor([byte]))
    stream.end()
    assert parts == ["f", "ü", "r"]


def test_an_empty_prompt_is_an_error() -> None:
    with pytest.raises(ConfigError, match="the prompt is empty; expected a text"):
        make_session(template=None).reply("")


def test_ctrl_c_stops_an_answer_and_not_the_conversation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = iter(["first", "second", ""])

    class Session:
        def reply(self, text: str, write: Any) -> None:
            write("begin")
            if text == "first":
                raise KeyboardInterrupt
            write(" and end")

    monkeypatch.setattr("motet.experiment.commands.chat_session.open_chat", lambda *_, **__: Session())
    monkeypatch.setattr("builtins.input", lambda _: next(lines))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    chat_command.chat(Path("model"))
    assert capsys.readouterr().out == "model: begin (stopped)\nmodel: begin and end\n"
