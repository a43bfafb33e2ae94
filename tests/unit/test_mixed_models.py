"""One backbone, a head for each task."""

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
from motet.models.load_model import ModelConfig, load_model
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


def loaded(task: str, seed: int = 1) -> Model:
    return load_model(ModelConfig("mixed:tiny", 32), task, LABELS[task], texts, Seed(seed))


def test_all_tasks_begin_with_the_same_backbone() -> None:
    common = Layers.parse("encoder", "encoder head", "decoder", "pooler", "name:contrast.*")
    first, *others = (loaded(task).initial_params.select_layers(common) for task in LABELS)
    assert all(torch.equal(first.flat, other.flat) for other in others)
    assert not torch.equal(first.flat, loaded("qa", seed=2).initial_params.select_layers(common).flat)


def test_every_task_reads_what_it_needs() -> None:
    shapes = {"classification": (2, 3), "tagging": (2, 4, 2), "regression": (2, 1)}
    for task, shape in shapes.items():
        assert loaded(task).module(**BATCH)["logits"].shape == shape
    spans = loaded("qa").module(**BATCH)
    assert spans["start_logits"].shape == spans["end_logits"].shape == (2, 4)
    words = loaded("seq2seq")
    written = words.module(**BATCH, decoder_input_ids=torch.tensor([[2, 5], [2, 6]]))["logits"]
    assert written.shape == (2, 2, len(words.tokenizer))


def test_the_head_for_masked_words_is_tied_to_nothing() -> None:
    module = loaded("classification").module
    assert isinstance(module, MultiTaskModel)
    table = module.backbone.encoder.get_input_embeddings().weight
    assert all(p is not table for p in module.namer.parameters())
    decoder = dict(module.backbone.decoder.named_parameters(remove_duplicate=False)).values()
    assert not {id(p) for p in decoder} & {id(p) for p in module.namer.parameters()}


def test_an_exported_model_says_the_same(tmp_path: Path) -> None:
    for task, auto in (
        ("classification", hf.AutoModelForSequenceClassification),
        ("qa", hf.AutoModelForQuestionAnswering),
    ):
        module = loaded(task).module.eval()
        module.save_pretrained(tmp_path / task)  # type: ignore[operator]
        again = auto.from_pretrained(tmp_path / task).eval()
        key = "logits" if task == "classification" else "start_logits"
        assert torch.allclose(module(**BATCH)[key], again(**BATCH)[key], atol=1e-6)
    assert again.config.model_type == "bert"
    writer = loaded("seq2seq").module.eval()
    writer.save_pretrained(tmp_path / "seq2seq")  # type: ignore[operator]
    decoder = {"decoder_input_ids": torch.tensor([[2, 5], [2, 6]])}
    again = hf.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "seq2seq").eval()
    assert torch.allclose(writer(**BATCH, **decoder)["logits"], again(**BATCH, **decoder)["logits"], atol=1e-5)


def test_language_models_have_no_place_on_it() -> None:
    with pytest.raises(ConfigError, match="not for lm"):
        load_model(ModelConfig("mixed:tiny", 32), "lm", (), texts, Seed(1))


def test_a_model_that_is_only_its_task_is_refused_with_what_to_do() -> None:
    plain = load_model(ModelConfig("tiny", 32), "classification", ("a", "b"), texts, Seed(1))
    with pytest.raises(ConfigError, match="mixed:<encoder>"):
        backbone_methods(PackedModel(plain, plain.module, torch.device("cpu")))
