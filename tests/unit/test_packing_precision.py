"""How packing is judged: rounding, and what follows from it, is accepted; a wrong computation is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from motet.learning.data.features import Features, Ragged
from motet.learning.modules.model import Model
from motet.learning.packed import packed_layers, packed_lora, packing_mode
from motet.learning.packed.packing_mode import PackingChoice, choose_packing_mode, choose_probe_rows
from motet.models.adapters import AdapterConfig, add_adapters
from motet.models.parameter_roles import infer_parameter_roles

CPU = torch.device("cpu")
LowRank = Callable[..., torch.Tensor]


def deep_llama() -> Model:
    """Return a Llama in bfloat16, with large random weights and many layers: rounding errors add up."""
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=8, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=50, max_position_embeddings=64, initializer_range=0.3, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    module: Any = transformers.LlamaForCausalLM(config)
    roles = add_adapters(module, infer_parameter_roles(module), AdapterConfig(rank=4), train_head=False)
    for parameter in module.parameters():
        parameter.data = parameter.data.to(torch.float32 if parameter.requires_grad else torch.bfloat16)
    return Model("deep", module, roles.roles, None, roles.embeddings_path, roles.layers_path)


def choose(model: Model) -> PackingChoice:
    ids = torch.randint(3, 50, (4, 11), generator=torch.Generator().manual_seed(0)).tolist()
    features = Features("texts", {"input_ids": Ragged.from_lists(ids, 0)})
    return choose_packing_mode(model, model.module, features.batch(choose_probe_rows(features)), CPU)


def test_rounding_of_a_deep_model_is_no_reason_to_train_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    model = deep_llama()
    assert choose(model) == PackingChoice("packed_layers", "")
    monkeypatch.setattr(packing_mode, "ROUNDING_FACTOR", 0.0)  # the difference alone would be rejected
    assert "packed_layers: differs by" in choose(model).rejections


@pytest.mark.parametrize("mistake", ["another client's adapters", "a scaling that is 30 % off"])
def test_a_wrong_packing_is_rejected_in_bfloat16(monkeypatch: pytest.MonkeyPatch, mistake: str) -> None:
    correct: LowRank = packed_lora._LowRankUpdate.apply  # type: ignore[assignment]

    def wrong(x: Any, weight: Any, bias: Any, a: Any, b: Any, scaling: float) -> torch.Tensor:
        if mistake == "another client's adapters":
            return correct(x, weight, bias, a.roll(1, 0), b.roll(1, 0), scaling)
        return correct(x, weight, bias, a, b, 1.3 * scaling)

    monkeypatch.setattr(packed_lora._LowRankUpdate, "apply", wrong)
    choice = choose(deep_llama())
    assert choice.mode != "packed_layers"
    assert "packed_layers: differs by" in choice.rejections and "from float32 by" in choice.rejections


class ZigZag(nn.Module):
    """An activation with so many kinks that rounding in float32 changes the slope of some of its outputs."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (torch.frac(1e6 * x) - 0.5).abs() / 1e6 + x


def bert_with_kinks() -> Model:
    config = transformers.BertConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=50,
        max_position_embeddings=64, pad_token_id=0, num_labels=3,
    )  # fmt: skip
    torch.manual_seed(0)
    module: Any = transformers.BertForSequenceClassification(config)
    for layer in module.bert.encoder.layer:
        layer.intermediate.intermediate_act_fn = ZigZag()
    roles = infer_parameter_roles(module)
    return Model("kinks", module, roles.roles, None, roles.embeddings_path, roles.layers_path)


def test_gradients_that_jump_at_kinks_are_compared_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    product, gradient_error = packed_layers.packed_linear, 0.0

    def add_in_another_order(axis: Any, x: Any, weight: Any, bias: Any, *, transposed: bool) -> torch.Tensor:
        y = product(axis, x.flip(-1), weight.flip(-1), bias, transposed=transposed)
        return y + gradient_error * (y - y.detach())

    monkeypatch.setattr(packed_layers, "packed_linear", add_in_another_order)
    model = bert_with_kinks()
    assert choose(model) == PackingChoice("packed_layers", "")
    gradient_error = 0.003
    assert "packed_layers: differs by" in choose(model).rejections and "in float64 by" in choose(model).rejections
    gradient_error = 0.0
    monkeypatch.setattr(packing_mode, "MAX_JUMP", 0.0)  # in float32 alone it would be rejected
    assert "packed_layers: differs by" in choose(model).rejections
