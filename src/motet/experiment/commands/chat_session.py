"""`motet chat`: talk to a trained causal model."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from motet.core.errors import ConfigError
from motet.experiment.build.executor_builder import resolve_device
from motet.experiment.commands.answer_stream import AnswerStream
from motet.experiment.commands.model_export import is_adapter_folder, read_adapter_config, read_model_config
from motet.experiment.commands.run_folder import is_started
from motet.learning.data.chat_format import ChatFormat, Turn, has_chat_template
from motet.missing_paths import describe_missing
from motet.models.adapters import load_adapter
from motet.models.load_model import find_model, load_causal_model, load_tokenizer


class ChatSession:
    """A conversation with a model. `reply` adds a turn of the user and one of the model."""

    def __init__(self, module: Any, tokenizer: Any, name: str, max_new_tokens: int = 256, system: str = "") -> None:
        self.module, self.tokenizer, self.max_new_tokens = module, tokenizer, max_new_tokens
        # The tokenizer of a model that was tuned for chat has a template. Other models go on with the text.
        self.chat = ChatFormat(tokenizer, "chat" if has_chat_template(tokenizer) else "none", name)
        self.turns = [Turn("system", system)] if system else []

    def reply(self, text: str, write: Callable[[str], object] | None = None) -> str:
        """Return the model's answer, written greedily. `write` receives its parts while they are generated."""
        turns = [*self.turns, Turn("user", text)]
        prompt = self._write_prompt(turns)
        ids = torch.tensor([prompt], device=self.module.device)
        ends = self.module.generation_config.eos_token_id
        with torch.no_grad(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Position ids are not supported")  # peft, about every prompt
            generated = self.module.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=min(self.max_new_tokens, self.num_positions - len(prompt)),
                do_sample=False,
                eos_token_id=list({self.chat.end_token, *(ends if isinstance(ends, list) else [ends])} - {None}),
                pad_token_id=self.chat.end_token
                if self.tokenizer.pad_token_id is None
                else self.tokenizer.pad_token_id,
                **({} if write is None else {"streamer": AnswerStream(self.tokenizer, write)}),
            )
        answer = str(self.tokenizer.decode(generated[0, len(prompt) :], skip_special_tokens=True)).strip()
        self.turns = [*turns, Turn("assistant", answer)]
        return answer

    @property
    def num_positions(self) -> int:
        """The number of positions for a prompt and its answer, without those of a trained prompt."""
        count = getattr(self.module.config, "max_position_embeddings", None) or sys.maxsize
        trained = getattr(self.module, "peft_config", {}).values()
        return int(count) - sum(getattr(each, "num_virtual_tokens", None) or 0 for each in trained)

    def _write_prompt(self, turns: list[Turn]) -> list[int]:
        """Return the tokens of a prompt. A long conversation loses its beginning, as in training."""
        try:
            prompt = self.chat.tokenize_prompt(turns)
        except ConfigError as error:
            if turns[0].role != "system":
                raise
            raise ConfigError(f"{error} Some models take no system message: try it without --system.") from None
        if not prompt:
            raise ConfigError("the prompt is empty; expected a text.")
        longest = max(self.num_positions - self.max_new_tokens, self.num_positions // 2)
        return self.chat.truncate(prompt, longest).tokens


def _require_causal_model(path: Path) -> None:
    """Raise an error if a model does not write texts: transformers would give it an untrained head."""
    architectures = read_model_config(path).get("architectures") or ["unknown"]
    if not any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in architectures):
        raise ConfigError(
            f"'{path}' is a {architectures[0]}, which does not write texts; expected the model of a run with the task "
            "instruct, preference or lm."
        )


def open_chat(
    folder: Path, *, base: str | None = None, device: str = "auto", max_new_tokens: int = 256, system: str = ""
) -> ChatSession:
    """Load the model of a run, or an exported one. `base` replaces the pretrained model of its adapters."""
    if not folder.exists():
        raise ConfigError(f"{describe_missing(folder)} Expected a finished run or an exported model.")
    path = folder / "model" if is_started(folder) else folder
    if not is_adapter_folder(path) and not (path / "config.json").exists():
        raise ConfigError(
            f"'{folder}' has no model to talk to; expected a finished run or an exported model. The model of one client: "
            f"motet export {folder} --to model --client NAME, then motet chat model."
        )
    if not is_adapter_folder(path):
        if base is not None:
            raise ConfigError(f"--base is '{base}', but '{path}' is a whole model without adapters. Remove --base.")
        _require_causal_model(path)
        name, module = str(path), load_causal_model(str(path))
    else:
        name = base or read_adapter_config(path)["base_model_name_or_path"]
        module = load_adapter(load_causal_model(name), path, name)
    # Adapters of other programs may come without a tokenizer.
    tokenizer = load_tokenizer(str(path) if (path / "tokenizer_config.json").exists() else find_model(name))
    return ChatSession(module.to(resolve_device(device)), tokenizer, path.name, max_new_tokens, system)
