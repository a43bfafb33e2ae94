from __future__ import annotations

from pathlib import Path

import pytest
from transformers import BertModel

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.models.load_model import ModelConfig, load_model
from motet.models.tiny_models import tiny_config
from motet.models.word_vocabulary import build_word_tokenizer

TEXTS = ["a cat sat", "a dog ran"]
WIDTH = 8


def save_model(place: Path) -> None:
    tokenizer = build_word_tokenizer(TEXTS)
    sizes = {"hidden_size": WIDTH, "intermediate_size": 8, "num_attention_heads": 2}
    BertModel(tiny_config("classification", tokenizer, {}, sizes)).save_pretrained(place)
    tokenizer.save_pretrained(place)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # the variable was read when it was imported
    return tmp_path


@pytest.mark.parametrize("place", ["models/small", "models/somebody/small"])
def test_a_name_on_the_hub_is_found_in_a_folder_of_models(place: str, elsewhere: Path) -> None:
    save_model(elsewhere / place)
    choice = ModelConfig(name="somebody/small", max_tokens=8)
    model = load_model(choice, "classification", ("no", "yes"), lambda: TEXTS, Seed(0))
    assert model.module.config.hidden_size == WIDTH


def test_the_folder_of_models_can_be_anywhere(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_model(elsewhere / "far" / "small")
    choice = ModelConfig(name="somebody/small", max_tokens=8)
    with pytest.raises(ConfigError, match="no directory here"):
        load_model(choice, "classification", ("no", "yes"), lambda: TEXTS, Seed(0))
    monkeypatch.setenv("MOTET_MODELS", str(elsewhere / "far"))
    assert (
        load_model(choice, "classification", ("no", "yes"), lambda: TEXTS, Seed(0)).module.config.hidden_size == WIDTH
    )
