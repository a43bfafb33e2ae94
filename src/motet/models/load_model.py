"""Load a model by name: from a package, a directory or the Hugging Face hub, or with random weights."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from motet.core.errors import ConfigError, MotetError, first_line
from motet.core.layers import Layers
from motet.core.rng import Seed, seeded_torch
from motet.core.suggestions import did_you_mean
from motet.learning.modules.first_token import reads_first_token_only
from motet.learning.modules.model import Model
from motet.learning.modules.position_embeddings import count_positions
from motet.missing_paths import describe_missing, is_hub_name, is_path
from motet.models.adapters import add_adapters
from motet.models.bilstm import BiLSTM
from motet.models.encoder_decoder import init_encoder_decoder, load_bert2bert
from motet.models.generation_settings import choose_padding, prepare_generation, remove_unused_settings
from motet.models.loading_permissions import REMOTE_CODE_ADVICE, is_remote_code_allowed, loader_options, loading
from motet.models.model_config import MODELS, AdapterConfig, ModelConfig, PackagedModel, find_local_model
from motet.models.multitask import MultiTaskModel
from motet.models.parameter_roles import ParameterRoles, infer_parameter_roles
from motet.models.prompt_tuning import add_prompt, find_prompt
from motet.models.quantization import quantize_adapted_layers
from motet.models.tiny_models import CAUSAL_TASKS, tiny_config
from motet.models.word_vocabulary import build_word_tokenizer

AUTO_CLASSES = {
    "classification": "AutoModelForSequenceClassification",
    "multi_label": "AutoModelForSequenceClassification",
    "regression": "AutoModelForSequenceClassification",
    "tagging": "AutoModelForTokenClassification",
    "qa": "AutoModelForQuestionAnswering",
    "seq2seq": "AutoModelForSeq2SeqLM",
    "lm": "AutoModelForCausalLM",
    "instruct": "AutoModelForCausalLM",
    "preference": "AutoModelForCausalLM",
}
COMPLETION_TASKS = ("instruct", "preference")
TASKS_WITH_NEW_HEAD = ("classification", "multi_label", "regression", "tagging", "qa")  # others use the pretrained one
BERT2BERT_PREFIX, MULTITASK_PREFIX = "bert2bert:", "mixed:"
TextSource = Callable[[], Iterable[str]]  # called only for models that build their vocabulary from the corpus


def load_model(config: ModelConfig, task: str, labels: Sequence[str], texts: TextSource, seed: Seed) -> Model:
    """Load a model with a new head for these labels. The same seed gives the same weights on every machine."""
    if task not in AUTO_CLASSES:
        raise ConfigError(
            f"there is no model head for the task '{task}'; let the task name one of Motet's: "
            f'head: str = "classification" (or {", ".join(list(AUTO_CLASSES)[1:])}).'
        )
    with seeded_torch(seed.derive("model", config.name).to_int(), torch.device("cpu")), quiet_transformers():
        module, tokenizer = build_module(config, task, labels, texts)
    choose_padding(module, tokenizer)
    if task in COMPLETION_TASKS:
        prepare_generation(module, tokenizer, has_word_vocabulary=config.name == "tiny")
    remove_unused_settings(module, config.name)
    _check_max_tokens(config, module)
    roles = module.parameter_roles() if isinstance(module, BiLSTM | MultiTaskModel) else infer_parameter_roles(module)
    if config.adapter is not None:
        with seeded_torch(seed.derive("adapters", config.name).to_int(), torch.device("cpu")):
            roles = _add_adapter(module, roles, config, config.adapter, task)
    identity = repr((config, task, tuple(labels), seed.root, len(tokenizer)))
    model = Model(
        key=f"{config.name}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}",
        module=module,
        roles=roles.roles,
        tokenizer=tokenizer,
        embeddings_path=roles.embeddings_path,
        layers_path=roles.layers_path,
        max_tokens=config.max_tokens,
        adapter_base=config.name if _has_separate_adapters(config, task) else "",
        virtual_tokens=() if (prompt := find_prompt(module)) is None else prompt.virtual_tokens,
        first_token_only=config.first_token_only,
    )
    if config.first_token_only:
        _check_first_token(model, config.name)
    if config.freeze:
        model.freeze(Layers.parse(*config.freeze))
    _cast_weights(config, module)
    return model


def _add_adapter(
    module: nn.Module, roles: ParameterRoles, config: ModelConfig, adapter: AdapterConfig, task: str
) -> ParameterRoles:
    if adapter.type == "prompt":
        _check_prompt(config, task, adapter)
        return add_prompt(module, roles, adapter)
    return add_adapters(module, roles, adapter, train_head=task in TASKS_WITH_NEW_HEAD)


def _check_prompt(config: ModelConfig, task: str, adapter: AdapterConfig) -> None:
    """Raise an error if a model cannot be trained by a prompt."""
    if task not in COMPLETION_TASKS:
        raise ConfigError(
            f"model.adapter.type is prompt, which is for the tasks {' and '.join(COMPLETION_TASKS)}, not {task}. Set "
            "model.adapter.type=lora."
        )
    if config.name == "tiny" or config.from_scratch:
        raise ConfigError(
            "model.adapter.type is prompt, but the model has random weights, which a prompt cannot change. Choose a "
            "pretrained model, or set model.adapter.type=lora."
        )
    if adapter.tokens >= config.max_tokens:
        raise ConfigError(
            f"model.adapter.tokens is {adapter.tokens}, but model.max_tokens is {config.max_tokens}, so no text fits. Lower "
            "model.adapter.tokens, or raise model.max_tokens."
        )


def _has_separate_adapters(config: ModelConfig, task: str) -> bool:
    """True if nothing but adapters is trained, and others can load the same pretrained model."""
    is_pretrained = config.name != "tiny" and not config.from_scratch
    return config.adapter is not None and task in CAUSAL_TASKS and is_pretrained


def _cast_weights(config: ModelConfig, module: nn.Module) -> None:
    """Cast trained weights to float32 and frozen ones to `model.dtype`, or quantize them."""
    frozen = [p for p in module.parameters() if not p.requires_grad]
    if config.dtype != "float32" and not frozen:
        raise ConfigError(
            f"model.dtype is {config.dtype}, but no weight is frozen, and trained weights stay in float32. Add an adapter "
            "(model.adapter.rank=8), freeze layers (model.freeze=[embeddings]), or remove model.dtype."
        )
    frozen_dtype = getattr(torch, config.dtype)
    for parameter in module.parameters():
        parameter.data = parameter.data.to(torch.float32 if parameter.requires_grad else frozen_dtype)
    if config.quantize != "none":
        quantize_adapted_layers(module, config.quantize)


def build_module(config: ModelConfig, task: str, labels: Sequence[str], texts: TextSource) -> tuple[nn.Module, Any]:
    """Return the module and its tokenizer."""
    try:
        return _build_module(config, task, labels, texts)
    except MotetError:
        raise
    except Exception as error:  # for settings that do not fit together, torch and transformers raise anything
        settings = f" with model.config={dict(config.config)}" if config.config else ""
        raise ConfigError(
            f"model.name: no model could be built from '{config.name}'{settings} ({first_line(error)}). "
            "Use a model that suits the task, and settings that fit together."
        ) from error


def _build_module(config: ModelConfig, task: str, labels: Sequence[str], texts: TextSource) -> tuple[nn.Module, Any]:
    import transformers

    if config.name == "bilstm":
        return _build_bilstm(config, task, labels, texts)
    auto_class, label_settings = getattr(transformers, AUTO_CLASSES[task]), _label_settings(task, labels)
    if config.name == "tiny":
        tokenizer = build_word_tokenizer(texts(), add_special_tokens=task not in CAUSAL_TASKS)
        return auto_class.from_config(tiny_config(task, tokenizer, label_settings, config.config)), tokenizer
    if config.name.startswith(MULTITASK_PREFIX):
        name = config.name.removeprefix(MULTITASK_PREFIX)
        backbone, tokenizer = _build_encoder_decoder(replace(config, name=name), texts)
        return MultiTaskModel(backbone, task, labels), tokenizer
    path = find_model(config.name.removeprefix(BERT2BERT_PREFIX))
    tokenizer = _from_pretrained(transformers.AutoTokenizer, path, "tokenizer")
    if config.name.startswith(BERT2BERT_PREFIX):
        if task != "seq2seq":
            raise ConfigError(f"model.name: {config.name} generates text; it is for task seq2seq, not {task}.")
        return load_bert2bert(path, tokenizer, config.config), tokenizer
    settings = {**label_settings, **config.config}
    if config.from_scratch:
        module_config = _from_pretrained(transformers.AutoConfig, path, "configuration", **settings)
        return auto_class.from_config(module_config, trust_remote_code=is_remote_code_allowed()), tokenizer
    dtype = getattr(torch, config.dtype)
    return _from_pretrained(auto_class, path, "model", dtype=dtype, **settings), tokenizer


def _build_encoder_decoder(config: ModelConfig, texts: TextSource) -> tuple[Any, Any]:
    """Return an encoder-decoder and its tokenizer, pretrained or with random weights (`tiny`, `from_scratch`)."""
    import transformers

    if config.name == "tiny":
        tokenizer = build_word_tokenizer(texts())
        encoder_config = tiny_config("classification", tokenizer, {}, config.config)
        return init_encoder_decoder(encoder_config, tokenizer), tokenizer
    path = find_model(config.name)
    tokenizer = _from_pretrained(transformers.AutoTokenizer, path, "tokenizer")
    if config.from_scratch:
        encoder_config = _from_pretrained(transformers.AutoConfig, path, "configuration", **config.config)
        return init_encoder_decoder(encoder_config, tokenizer), tokenizer
    return load_bert2bert(path, tokenizer, config.config), tokenizer


def _build_bilstm(config: ModelConfig, task: str, labels: Sequence[str], texts: TextSource) -> tuple[nn.Module, Any]:
    supported = ("classification", "multi_label", "regression", "tagging", "lm")
    if task not in supported:
        raise ConfigError(f"model.name: bilstm supports {', '.join(supported)}, not {task}.")
    options = ("embedding_dim", "hidden_size", "dropout")
    if unknown := [name for name in config.config if name not in options]:
        raise ConfigError(
            f"model.config: bilstm has no option '{unknown[0]}'; the options are {', '.join(options)}."
            f"{did_you_mean(unknown[0], options)}"
        )
    tokenizer = build_word_tokenizer(texts(), add_special_tokens=task not in CAUSAL_TASKS)
    module = BiLSTM(
        task=task,
        vocab_size=len(tokenizer),
        num_labels=len(labels),
        pad_token_id=tokenizer.pad_token_id,
        **config.config,
    )
    return module, tokenizer


def find_model(name: str) -> str:
    """Return the directory of a model, or its name for the hub."""
    source = MODELS.get(name)
    if isinstance(source, PackagedModel):
        return str(source.directory())
    directory = find_local_model(name)
    if directory is not None:
        return str(directory)
    if (Path(name) / "adapter_config.json").exists():  # transformers would load them with their base, and hide it
        raise ConfigError(
            f"model.name: '{name}' holds adapters; expected a whole model. To train on from them, merge them first: "
            "motet export RUN --to merged --merged, then model.name=merged."
        )
    if is_path(name) and not Path(name).exists() and not is_hub_name(name):
        raise ConfigError(
            f"model.name: {describe_missing(name)} Expected a directory with a model, a hub name, or one of "
            f"{', '.join(MODELS)}."
        )
    if matches := difflib.get_close_matches(name, MODELS, n=1, cutoff=0.75):
        raise ConfigError(
            f"model.name: there is no model '{name}'. Did you mean '{matches[0]}'? See: motet list models"
        )
    return name


def load_causal_model(name: str) -> Any:
    """Return a pretrained causal model in evaluation mode."""
    import transformers

    with quiet_transformers():
        return _from_pretrained(transformers.AutoModelForCausalLM, find_model(name), "model").eval()


def load_tokenizer(path: str) -> Any:
    import transformers

    with quiet_transformers():
        return _from_pretrained(transformers.AutoTokenizer, path, "tokenizer")


def load_sentence_encoder(name: str) -> tuple[nn.Module, Any]:
    """Return a transformer without a head, in evaluation mode, and its tokenizer."""
    import transformers

    path = find_model(name)
    with quiet_transformers():
        module = _from_pretrained(transformers.AutoModel, path, "model", dtype=torch.float32)
        return module.eval(), _from_pretrained(transformers.AutoTokenizer, path, "tokenizer")


def _label_settings(task: str, labels: Sequence[str]) -> dict[str, Any]:
    if task in ("classification", "multi_label", "tagging"):
        return {
            **({"problem_type": "multi_label_classification"} if task == "multi_label" else {}),  # sigmoid, not softmax
            "num_labels": len(labels),
            "id2label": dict(enumerate(labels)),
            "label2id": {label: i for i, label in enumerate(labels)},
        }
    return {"num_labels": 1, "problem_type": "regression"} if task == "regression" else {}


def _from_pretrained(auto_class: Any, path: str, kind: str, **options: Any) -> Any:
    try:
        with loading(path):
            return auto_class.from_pretrained(path, **loader_options(), **options)
    except Exception as error:  # files from someone else raise anything
        if "trust_remote_code" in str(error):
            advice = REMOTE_CODE_ADVICE
        elif Path(path).is_dir():
            files = ", ".join(sorted(p.name for p in Path(path).iterdir())[:8]) or "nothing"
            advice = (
                f"The directory holds {files}. Save model and tokenizer there with save_pretrained, or name another."
            )
        else:
            advice = (
                "It is not a local directory and could not be loaded from the hub. "
                f"Give a directory, a hub name, or one of {', '.join(MODELS)}."
            )
        raise ConfigError(
            f"model.name: no {kind} could be loaded from '{path}' ({first_line(error)}). {advice}"
        ) from None


def _check_first_token(model: Model, name: str) -> None:
    """Raise an error if the predictions need more than the first token of the last layer."""
    ids = torch.arange(6) % len(model.tokenizer)
    probe = {"input_ids": torch.stack([ids, ids.flip(0)]), "attention_mask": torch.tensor([[1] * 6, [1] * 4 + [0] * 2])}
    if not model.layers_path or not reads_first_token_only(model.module, model.layers_path, probe):
        raise ConfigError(
            f"model.first_token_only is set, but the predictions of {name} need other tokens, or its layers are unlike "
            "BERT's. It is for classification with BERT, RoBERTa or MiniLM; remove model.first_token_only."
        )


def _check_max_tokens(config: ModelConfig, module: nn.Module) -> None:
    configured = getattr(getattr(module, "config", None), "max_position_embeddings", None)
    # RoBERTa's configuration counts positions that no token has, and the table of YOSO has rows that no token reads.
    counts = [n for n in (configured, count_positions(module)) if isinstance(n, int) and n > 0]
    if counts and min(counts) < config.max_tokens:
        raise ConfigError(
            f"model.max_tokens is {config.max_tokens}, but {config.name} has {min(counts)} positions. Lower it."
        )


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence progress bars and warnings about new heads, which are expected here."""
    from transformers.utils import logging

    hf_logging: Any = logging  # its functions have no types
    verbosity, had_progress_bar = hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled()
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        hf_logging.set_verbosity(verbosity)
        if had_progress_bar:
            hf_logging.enable_progress_bar()
