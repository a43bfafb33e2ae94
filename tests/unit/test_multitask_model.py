"""A shared backbone with a head for each task."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import transformers as hf

from motet.core.errors import ConfigError
from motet.core.layers import Layers
from motet.core.rng import Seed
from motet.learning.modules.model import Model
from motet.learning.objectives.atc_objectives import backbone_methods
from motet.learning.packed.packed_model import PackedModel
from motet.models.load_model import load_model
from motet.models.model_config import ModelConfig
from motet.models.multitask import MultiTaskModel

LABELS = {
    "classification": ("a", "b", "c"),
    "qa": ("start", "end"),
    "seq2seq": (),
    "tagging": ("O", "B-X"),
    "regression": (),
}
BATCH = {
    "input_ids": torch.tensor([[2, 5, 6, 3], [2, 7, 3, 0]]),
    "attention_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]),
}


def texts() -> Iterator[str]:
    yield from ["the cat sat on the mat", "a dog ran in the park", "who was it"]


def load(task: str, seed: int = 1) -> Model:
    return load_model(ModelConfig("mixed:tiny", 32), task, LABELS[task], texts, Seed(seed))


def test_all_tasks_start_from_the_same_backbone() -> None:
    shared = Layers.parse("encoder", "encoder head", "decoder", "pooler", "name:contrastive_head.*")
    first, *others = (load(task).initial_params.select_layers(shared) for task in LABELS)
    assert all(torch.equal(first.flat, other.flat) for other in others)
    assert not torch.equal(first.flat, load("qa", seed=2).initial_params.select_layers(shared).flat)


def test_every_task_has_logits_of_the_right_shape() -> None:
    shapes = {"classification": (2, 3), "tagging": (2, 4, 2), "regression": (2, 1)}
    for task, shape in shapes.items():
        assert load(task).module(**BATCH)["logits"].shape == shape
    spans = load("qa").module(**BATCH)
    assert spans["start_logits"].shape == spans["end_logits"].shape == (2, 4)
    model = load("seq2seq")
    logits = model.module(**BATCH, decoder_input_ids=torch.tensor([[2, 5], [2, 6]]))["logits"]
    assert logits.shape == (2, 2, len(model.tokenizer))


def test_mlm_head_is_not_tied_to_other_parameters() -> None:
    module = load("classification").module
    assert isinstance(module, MultiTaskModel)
    embeddings = module.backbone.encoder.get_input_embeddings().weight
    assert all(p is not embeddings for p in module.mlm_head.parameters())
    decoder = dict(module.backbone.decoder.named_parameters(remove_duplicate=False)).values()
    assert not {id(p) for p in decoder} & {id(p) for p in module.mlm_head.parameters()}


def test_exported_model_has_the_same_outputs(tmp_path: Path) -> None:
    for task, auto_class in (
        ("classification", hf.AutoModelForSequenceClassification),
        ("qa", hf.AutoModelForQuestionAnswering),
    ):
        module = load(task).module.eval()
        module.save_pretrained(tmp_path / task)  # type: ignore[operator]
        exported = auto_class.from_pretrained(tmp_path / task).eval()
        key = "logits" if task == "classification" else "start_logits"
        assert torch.allclose(module(**BATCH)[key], exported(**BATCH)[key], atol=1e-6)
    assert exported.config.model_type == "bert"
    generator = load("seq2seq").module.eval()
    generator.save_pretrained(tmp_path / "seq2seq")  # type: ignore[operator]
    decoder = {"decoder_input_ids": torch.tensor([[2, 5], [2, 6]])}
    exported = hf.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "seq2seq").eval()
    assert torch.allclose(generator(**BATCH, **decoder)["logits"], exported(**BATCH, **decoder)["logits"], atol=1e-5)


def test_language_modeling_is_not_supported() -> None:
    with pytest.raises(ConfigError, match="not lm"):
        load_model(ModelConfig("mixed:tiny", 32), "lm", (), texts, Seed(1))


def test_model_without_a_shared_backbone_raises_an_error() -> None:
    plain = load_model(ModelConfig("tiny", 32), "classification", ("a", "b"), texts, Seed(1))
    with pytest.raises(ConfigError, match="mixed:<encoder>"):
        backbone_methods(PackedModel(plain, plain.module, torch.device("cpu")))
