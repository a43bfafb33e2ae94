"""From conversations to tokens: the tokenizer's chat template or, without one, Alpaca's layout."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from motet.core.errors import ConfigError, DataError, first_line

TemplateName = Literal["auto", "chat", "alpaca"]
# Alpaca's layout as a chat template. Exported models carry it, so that others write prompts as in training.
_ALPACA = r"""
{%- set system = messages | selectattr("role", "equalto", "system") | map(attribute="content") | join("\n") -%}
{{ system or "Below is an instruction that describes a task. Write a response that appropriately completes the request." }}
{%- for message in messages if message.role != "system" -%}
{{ "\n\n" + {"user": "### Instruction:", "assistant": "### Response:"}.get(message.role, "### Input:") }}
{{- "\n" + message.content + (eos_token if loop.last and message.role == "assistant" else "") }}
{%- endfor -%}
{{ "\n\n### Response:\n" if add_generation_prompt else "" }}"""
_CONTINUATION = r"{{ messages | map(attribute='content') | join('\n') }}"  # no layout: the model goes on with the text
_QUESTION, _ANSWER = "motetquestion", "motetanswer"  # must survive any template
_MAX_QUOTED = 120  # characters of a template's error message
BATCH_SIZE = 1_000  # texts per call of a fast tokenizer


class Turn(NamedTuple):
    """One turn of a conversation."""

    role: str
    content: str


class TruncatedPrompt(NamedTuple):
    tokens: list[int]
    removed: int  # tokens at the beginning that are left out


class ChatFormat:
    """Writes prompts as a model expects them. A completion follows its prompt and ends with `end_token`.

    `template` is the chat template that replaces the tokenizer's, if one does. `is_own` is True if the layout is that
    of the tokenizer.
    """

    def __init__(
        self,
        tokenizer: Any,
        template: TemplateName | Literal["none"],
        model: str,
        virtual_tokens: Sequence[int] = (),
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """`virtual_tokens` come before every prompt and are never cut. With "none", prompts have no layout.

        `options` are variables that the tokenizer's template reads.
        """
        self.tokenizer, self.model, self.virtual_tokens = tokenizer, model, list(virtual_tokens)
        if template == "chat" and not has_chat_template(tokenizer):
            raise ConfigError(
                f"task.template is chat, but the tokenizer of {model} has no chat template. Set task.template=alpaca "
                "for a plain layout, or choose a model that is tuned for chat."
            )
        self.template: str | None = None
        self.is_own = template in ("auto", "chat") and has_chat_template(tokenizer)
        if options:
            self.template = _set_options(tokenizer, self.is_own, options, model)
        if not self.is_own:
            start = "{{ bos_token }}" if starts_with_bos(tokenizer) else ""
            self.template = start + (_CONTINUATION if template == "none" else _ALPACA)
        else:
            self._check_template()
        end_token = find_end_token(tokenizer) if self.is_own else tokenizer.eos_token_id
        if end_token is None:
            raise ConfigError(
                f"the tokenizer of {model} has no end-of-text token, so completions cannot end; expected eos_token in "
                "its tokenizer_config.json."
            )
        self.end_token = int(end_token)

    def render_prompt(self, turns: Sequence[Turn]) -> str:
        """Return the text after which the model writes its answer."""
        try:
            return _apply_template(self.tokenizer, turns, self.template, add_generation_prompt=True)
        except Exception as error:  # templates are programs of the model's authors and raise anything
            roles = ", ".join(turn.role for turn in turns)
            template = f"the chat template of {self.model}" if self.is_own else "Alpaca's layout of prompts"
            raise ConfigError(
                f"{template} fails on a conversation with the roles {roles} ({first_line(error)[:_MAX_QUOTED]})."
            ) from None

    def tokenize_prompt(self, turns: Sequence[Turn]) -> list[int]:
        """Return the tokens after which the model writes its answer."""
        return [*self.virtual_tokens, *self._tokenize([self.render_prompt(turns)])[0]]

    def tokenize_prompts(self, name: str, conversations: Iterable[Sequence[Turn]]) -> list[list[int]]:
        """Return the tokens of each prompt. An error names the row of corpus `name` that does not fit."""
        texts = []
        for row, turns in enumerate(conversations):
            try:
                texts.append(self.render_prompt(turns))
            except ConfigError as error:
                other_template = ", or set task.template=alpaca" if self.is_own else ""
                advice = f"Change the row{other_template}."
                raise DataError(f"{name}, {describe_row(row)}: {error} {advice}") from None
        return [[*self.virtual_tokens, *prompt] for prompt in self._tokenize(texts)]

    def tokenize_completions(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each completion, with the end token."""
        return [[*ids, self.end_token] for ids in self._tokenize([text.strip() for text in texts])]

    def truncate(self, prompt: list[int], length: int) -> TruncatedPrompt:
        """Remove tokens from the beginning of a prompt, except for virtual ones and the token with which texts start."""
        removed = max(0, len(prompt) - length)
        if not removed:
            return TruncatedPrompt(prompt, 0)
        kept = len(self.virtual_tokens)
        kept += prompt[kept] == self.tokenizer.bos_token_id and length > kept + 1
        return TruncatedPrompt([*prompt[:kept], *prompt[removed + kept :]], removed)

    def _tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        ids: list[list[int]] = []
        for start in range(0, len(texts), BATCH_SIZE):
            batch = list(texts[start : start + BATCH_SIZE])
            ids += self.tokenizer(batch, add_special_tokens=False, verbose=False)["input_ids"]
        return ids

    def _check_template(self) -> None:
        """Raise an error if the template fails, or leaves out what it is given."""
        try:
            prompt = self.render_prompt([Turn("user", _QUESTION)])
        except ConfigError as error:
            raise ConfigError(f"{error} Set task.template=alpaca.") from None
        if _QUESTION not in prompt:
            raise ConfigError(
                f"the chat template of {self.model} does not write the user's message; expected a template for "
                "messages with role and content. Set task.template=alpaca."
            )


def describe_row(row: int) -> str:
    """Return a name for a row of a corpus. It does not quote the text, which may be private."""
    return f"row {row} (from 0, training rows before test rows)"


def _set_options(tokenizer: Any, is_own: bool, options: Mapping[str, Any], model: str) -> str:
    """Return the tokenizer's chat template with variables that are set, so that an exported model has them too."""
    own = tokenizer.get_chat_template() if is_own else ""
    for name, value in options.items():
        if not re.search(rf"\b{re.escape(name)}\b", own):
            used = f"the chat template of {model} does not read it" if is_own else "prompts have Alpaca's layout"
            raise ConfigError(
                f"task.template_options has '{name}', but {used}; expected a variable of the chat template, such as "
                f"enable_thinking for Qwen3. Remove task.template_options.{name}."
            )
        if not isinstance(value, str | int | float | bool):
            raise ConfigError(f"task.template_options.{name} is {value!r}; expected a text, a number, true or false.")
    # transformers drops the end of a line that has only a statement.
    settings = [f"{{% set {name} = {json.dumps(value, ensure_ascii=False)} %}}\n" for name, value in options.items()]
    return "".join([*settings, own])


def has_chat_template(tokenizer: Any) -> bool:
    return bool(getattr(tokenizer, "chat_template", None))


def find_end_token(tokenizer: Any) -> int | None:
    """Return the token with which the chat template ends an answer, or else the end-of-text token."""
    end: int | None = tokenizer.eos_token_id
    if not has_chat_template(tokenizer):
        return end
    turns = [Turn("user", _QUESTION), Turn("assistant", _ANSWER)]
    try:
        text = _apply_template(tokenizer, turns, None, add_generation_prompt=False)
    except Exception:  # a template for prompts alone; answers then end with the end-of-text token
        return end
    ids = tokenizer(text.rpartition(_ANSWER)[2], add_special_tokens=False)["input_ids"]
    special = {*tokenizer.all_special_ids, *getattr(tokenizer, "added_tokens_decoder", {})}
    return next((token for token in ids if token in special), end)


def _apply_template(tokenizer: Any, turns: Sequence[Turn], template: str | None, *, add_generation_prompt: bool) -> str:
    messages = [{"role": turn.role, "content": turn.content} for turn in turns]
    return str(
        tokenizer.apply_chat_template(
            messages, chat_template=template, tokenize=False, add_generation_prompt=add_generation_prompt
        )
    )


def starts_with_bos(tokenizer: Any) -> bool:
    """True if the tokenizer puts a beginning-of-text token before texts."""
    return tokenizer.bos_token_id is not None and tokenizer("a")["input_ids"][:1] == [tokenizer.bos_token_id]
