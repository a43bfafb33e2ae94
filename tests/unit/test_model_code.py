"""A recipe, which may come from a server or another person, cannot make a machine run code or load other files."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from tests.unit.test_load_model import TEXTS, save_model

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.experiment.recipe.run_config import RunConfig
from motet.models.load_model import load_model
from motet.models.loading_permissions import allow_remote_code
from motet.models.model_config import ModelConfig

ATTACK = """
from pathlib import Path
from transformers import BertConfig

Path("{mark}").write_text("attacked")

class AttackConfig(BertConfig):
    model_type = "attack"
"""


@pytest.fixture
def hostile_model(tmp_path: Path) -> tuple[Path, Path]:
    """A model folder with Python code, and the file that the code writes when it runs."""
    folder, mark = tmp_path / "hostile", tmp_path / "attacked"
    save_model(folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "attack", "auto_map": {"AutoConfig": "attack.AttackConfig"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "attack.py").write_text(ATTACK.format(mark=mark))
    return folder, mark


def load(model: dict[str, Any]) -> None:
    config = RunConfig.from_settings("recipe", {"model": {"max_tokens": 8, **model}})
    task = "seq2seq" if config.model.name.startswith("bert2bert") else "classification"
    load_model(config.model, task, ("no", "yes"), lambda: TEXTS, Seed(0))


class Payload:
    """An object that creates a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


@pytest.mark.parametrize("kind", ["pickle", "checkpoint", "header", "overlap", "shape"])
def test_hostile_weights_run_no_code_and_fill_no_memory(kind: str, tmp_path: Path) -> None:
    """They ended with a traceback."""
    folder, mark = tmp_path / "hostile", tmp_path / "attacked"
    save_model(folder)
    weights = folder / "model.safetensors"
    tensor = {"dtype": "F32", "shape": [16], "data_offsets": [0, 64]}
    if kind in ("pickle", "checkpoint"):
        weights.unlink()
        with (folder / "pytorch_model.bin").open("wb") as file:
            torch.save(Payload(mark), file) if kind == "checkpoint" else pickle.dump(Payload(mark), file, protocol=2)
    else:
        headers = {"overlap": {"a": tensor, "b": tensor}, "shape": {"a": {**tensor, "shape": [2**62, 4]}}}
        header = json.dumps(headers.get(kind, {})).encode()
        size = 2**63 if kind == "header" else len(header)
        weights.write_bytes(size.to_bytes(8, "little") + header + bytes(64))
    with pytest.raises(ConfigError, match="no model could be loaded"):
        load({"name": str(folder)})
    assert not mark.exists()


@pytest.mark.parametrize(
    "name", ["../far.safetensors", "{folder}/far.safetensors", "sub/far.safetensors", ".far.safetensors"]
)
@pytest.mark.parametrize("prefix", ["", "mixed:"])
def test_a_model_names_no_weights_outside_of_the_files_that_its_hash_covers(
    prefix: str, name: str, tmp_path: Path
) -> None:
    folder, name = tmp_path / "model", name.format(folder=tmp_path)
    save_model(folder)
    far = folder / name
    far.parent.mkdir(exist_ok=True)
    (folder / "model.safetensors").rename(far)
    with safe_open(far, "pt") as weights:
        index = {"metadata": {}, "weight_map": dict.fromkeys(weights.keys(), name)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ConfigError, match=r"model\.safetensors\.index\.json names the weights '"):
        load({"name": f"{prefix}{folder}"})
    (folder / "model.safetensors.index.json").unlink()
    config = json.loads((folder / "config.json").read_text()) | {"transformers_weights": name}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=r"config\.json names the weights '"):
        load({"name": f"{prefix}{folder}"})


@pytest.mark.parametrize(
    ("prefix", "from_scratch"), [("", False), ("", True), ("mixed:", False), ("mixed:", True), ("bert2bert:", False)]
)
def test_a_recipe_cannot_make_a_machine_run_the_code_of_a_model(
    hostile_model: tuple[Path, Path], prefix: str, from_scratch: bool
) -> None:
    folder, mark = hostile_model
    settings = {"name": f"{prefix}{folder}", "from_scratch": from_scratch}
    with pytest.raises(ConfigError, match=r"model.config: 'trust_remote_code' is not a setting of an architecture"):
        load({**settings, "config": {"trust_remote_code": True}})
    with pytest.raises(ConfigError, match="--trust-remote-code"):
        load(settings)
    assert not mark.exists()


def test_the_person_at_the_machine_can_allow_the_code_of_models(hostile_model: tuple[Path, Path]) -> None:
    folder, mark = hostile_model
    with allow_remote_code(), pytest.raises(ConfigError):  # the code is no complete model
        load({"name": str(folder), "from_scratch": True})
    assert mark.read_text() == "attacked"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("code_revision", "main"),
        ("state_dict", {}),
        ("attn_implementation", "kernels-community/attack"),
        ("hidden_act", "kernels-community/attack"),
        ("cache_dir", "/tmp"),
        ("token", "hf_x"),
        ("proxies", {"https": "evil.example.org"}),
        ("quantization_config", {"quant_method": "quark"}),
        ("hidden_size", 2**40),
        ("hidden_size", "32"),
        ("num_hidden_layers", float("inf")),
        ("dropout", [1]),
    ],
)
def test_only_numbers_of_the_architecture_reach_a_model(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"model.config.*{key}"):
        ModelConfig("tiny", config={key: value})


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("tiny", {"hidden_size": -16}),
        ("tiny", {"num_attention_heads": 0}),
        ("tiny", {"num_attention_heads": 1.5}),
        ("bilstm", {"embedding_dim": -1}),
    ],
)
def test_settings_that_do_not_fit_together_give_a_sentence(name: str, settings: dict[str, Any]) -> None:
    """A server could end a client with a traceback."""
    with pytest.raises(ConfigError, match=f"no model could be built from '{name}' with model.config="):
        load({"name": name, "config": settings})


def test_the_architecture_can_be_changed() -> None:
    config = ModelConfig("tiny", 8, config={"hidden_size": 16, "hidden_dropout_prob": 0.1, "hidden_act": "relu"})
    model = load_model(config, "classification", ("no", "yes"), lambda: TEXTS, Seed(0))
    assert (model.module.config.hidden_size, model.module.config.hidden_act) == (16, "relu")
