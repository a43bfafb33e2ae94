from __future__ import annotations

from pathlib import Path

import pytest
from transformers import BertModel

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.models.load_model import load_model
from motet.models.model_config import ModelConfig
from motet.models.tiny_models import tiny_config
from motet.models.word_vocabulary import build_word_tokenizer

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
