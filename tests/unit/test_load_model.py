"""Where models come from: a folder, the models folder or the hub; and settings that would not fit."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import constants
from transformers import AutoModel, BertModel, LlamaConfig, LlamaForCausalLM, RobertaConfig, YosoConfig

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.datasets.data_file import ReadOptions
from motet.datasets.hub import load_from_hub
from motet.experiment.build.feature_cache import load_features
from motet.experiment.commands.model_export import save_pretrained
from motet.learning.modules.model import Model
from motet.models.load_model import load_model
from motet.models.model_config import AdapterConfig, ModelConfig
from motet.models.tiny_models import tiny_config
from motet.models.word_vocabulary import build_word_tokenizer
from motet.tasks.instruct import Instruct
from motet.tasks.language_modeling import LanguageModeling

TEXTS = ["a cat sat", "a dog ran"]
WIDTH = 8


def save_model(folder: Path) -> None:
    tokenizer = build_word_tokenizer(TEXTS)
    sizes = {"hidden_size": WIDTH, "intermediate_size": 8, "num_attention_heads": 2}
    BertModel(tiny_config("classification", tokenizer, {}, sizes)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.fixture
def offline_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # the environment variable is read on import
    return tmp_path


@pytest.mark.parametrize("folder", ["models/small", "models/organization/small"])
def test_hub_name_is_found_in_the_models_folder(folder: str, offline_folder: Path) -> None:
    save_model(offline_folder / folder)
    config = ModelConfig(name="organization/small", max_tokens=8)
    model = load_model(config, "classification", ("no", "yes"), lambda: TEXTS, Seed(0))
    assert model.module.config.hidden_size == WIDTH


def test_models_folder_is_set_by_an_environment_variable(offline_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_model(offline_folder / "far" / "small")
    config = ModelConfig(name="organization/small", max_tokens=8)
    with pytest.raises(ConfigError, match="not a local directory"):
        load_model(config, "classification", ("no", "yes"), lambda: TEXTS, Seed(0))
    monkeypatch.setenv("MOTET_MODELS", str(offline_folder / "far"))
    assert (
        load_model(config, "classification", ("no", "yes"), lambda: TEXTS, Seed(0)).module.config.hidden_size == WIDTH
    )


@pytest.mark.parametrize(("config_class", "positions"), [(RobertaConfig, 19), (YosoConfig, 20)])
def test_positions_that_a_model_reserves_are_not_counted(
    config_class: Any, positions: int, offline_folder: Path
) -> None:
    """The positions of both begin after that of padding. The table of RoBERTa has max_position_embeddings rows; YOSO's, 2 more."""
    tokenizer = build_word_tokenizer(TEXTS)
    sizes = {"hidden_size": WIDTH, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = config_class(vocab_size=len(tokenizer), pad_token_id=0, max_position_embeddings=20, **sizes)
    AutoModel.from_config(config).save_pretrained(offline_folder / "reserving")
    tokenizer.save_pretrained(offline_folder / "reserving")

    def load(max_tokens: int) -> Model:
        config = ModelConfig("reserving", max_tokens)
        return load_model(config, "classification", ("no", "yes"), lambda: TEXTS, Seed(0))

    ids = torch.ones(1, positions, dtype=torch.long)
    assert load(positions).module(input_ids=ids)["logits"].shape == (1, 2)
    with pytest.raises(
        ConfigError, match=rf"model.max_tokens is {positions + 1}, but reserving has {positions} positions"
    ):
        load(positions + 1)


@pytest.fixture
def empty_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A hub without models that lists the paths of its requests. It ends if a client waits to repeat a request."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            paths.append(self.path)
            self.send_error(404)

        do_GET = do_HEAD  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: pytest.fail("a request is repeated"))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield paths
    server.shutdown()
    thread.join()
    server.server_close()


def load_small_model() -> int:
    config = ModelConfig(name="organization/small", max_tokens=8)
    return load_model(config, "classification", ("no", "yes"), lambda: TEXTS, Seed(0)).module.config.hidden_size  # type: ignore[no-any-return]


def test_a_hub_that_answers_is_asked_for_the_model(empty_hub: list[str]) -> None:
    with pytest.raises(ConfigError, match="could not be loaded from the hub"):
        load_small_model()
    assert "/organization/small/resolve/main/config.json" in empty_hub


def test_a_hub_without_an_answer_is_not_asked_again(empty_hub: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    closed = "http://127.0.0.1:9"
    monkeypatch.setattr(constants, "ENDPOINT", closed)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", closed + "/{repo_id}/resolve/{revision}/{filename}")
    with pytest.raises(ConfigError, match=r"We couldn't connect.*could not be loaded from the hub"):
        load_small_model()
    with pytest.raises(ConfigError, match="Check the name and the network connection"):
        load_from_hub("organization/texts", ReadOptions(), 0.2)
    cached = Path(constants.HF_HUB_CACHE) / "models--organization--small"
    save_model(cached / "snapshots" / "1234")
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("1234")
    assert load_small_model() == WIDTH
    assert not constants.HF_HUB_OFFLINE, "the network may return"


def save_llama(folder: Path, **generation: object) -> Path:
    """Save a Llama whose tokenizer has a padding token and a word without an embedding."""
    tokenizer = build_word_tokenizer(TEXTS, add_special_tokens=False)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
        eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps(generation))
    tokenizer.add_special_tokens({"pad_token": "<fill>"})
    tokenizer.add_tokens(["<word>"])
    tokenizer.save_pretrained(folder)
    return folder


def test_a_padding_token_without_an_embedding_is_replaced_and_a_word_without_one_is_an_error(tmp_path: Path) -> None:
    config = ModelConfig(str(save_llama(tmp_path / "base")), 16, adapter=AdapterConfig(rank=2))
    model = load_model(config, "instruct", (), lambda: TEXTS, Seed(0))
    assert model.tokenizer.pad_token == model.tokenizer.eos_token
    columns = {"prompt": ["a cat", "a dog"], "completion": ["sat", "ran"]}
    task = Instruct()
    load_features(task, Corpus("animals", "instruct", columns, 1), model, 16)
    columns["completion"][1] = "<word>"
    with pytest.raises(ConfigError, match=r"animals has the token '<word>' .* but the model has embeddings for"):
        load_features(task, Corpus("animals", "instruct", columns, 1), model, 16)


def test_a_model_with_settings_of_generation_that_have_no_effect_can_be_saved(tmp_path: Path) -> None:
    """transformers loads a temperature without sampling, and refuses to save it after the training."""
    base = save_llama(tmp_path / "base", temperature=0.6, top_p=0.9, early_stopping=True, repetition_penalty=1.1)
    model = load_model(ModelConfig(str(base), 16), "lm", (), lambda: TEXTS, Seed(0))
    save_pretrained(model, LanguageModeling(), model.initial_params, tmp_path / "saved")
    settings = json.loads((tmp_path / "saved" / "generation_config.json").read_text())
    assert settings["repetition_penalty"] == 1.1
    assert not {"temperature", "top_p", "early_stopping"} & set(settings)
    base = save_llama(tmp_path / "contradiction", output_scores=True)
    with pytest.raises(ConfigError, match=r"model\.name: the generation_config\.json of .*contradiction is not valid"):
        load_model(ModelConfig(str(base), 16), "lm", (), lambda: TEXTS, Seed(0))
