"""Fused kernels replace parts of a model where they give the same output. liger-kernel needs a GPU, so a stand-in is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.families import CASES
from torch import Tensor
from transformers.models.llama import modeling_llama

from motet.learning.packed import fused_blocks, packed_model
from motet.learning.packed.packed_model import PackedModel

CPU = torch.device("cpu")
rotate = modeling_llama.apply_rotary_pos_emb


class FakeRotary:
    """Counts its calls. Its launches can be skipped, as in a compile-only run; or it is wrong."""

    def __init__(self) -> None:
        self.calls, self.is_launched = 0, True

    def __call__(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        self.calls += 1
        return rotate(q, k, cos, sin) if self.is_launched else (q, k)


@pytest.fixture
def rotary(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRotary]:
    fake = FakeRotary()
    monkeypatch.setattr(fused_blocks, "_liger_kernels", lambda: {"rotary": fake})
    fused_blocks._find_equal_rotary.cache_clear()
    yield fake
    fused_blocks._find_equal_rotary.cache_clear()


def llama(monkeypatch: pytest.MonkeyPatch) -> tuple[PackedModel, dict[str, Tensor]]:
    """Return a packed model that looks for a fused rotary embedding, as on a GPU, and a batch."""
    find: Any = fused_blocks.find_fused_rotary
    monkeypatch.setattr(PackedModel, "_install_blocks", lambda self: setattr(self, "uses_fused_blocks", True))
    monkeypatch.setattr(packed_model, "find_fused_rotary", lambda module, _: find(module, CPU))
    model = CASES["Llama CausalLM"].model()
    packed = PackedModel(model, model.module, CPU)
    packed.load_clients([model.initial_params])
    ids = torch.arange(8).view(2, 4)
    return packed, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def test_an_equal_rotary_embedding_is_used_in_forward_passes_only(
    rotary: FakeRotary, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed, batch = llama(monkeypatch)
    calls = rotary.calls
    logits = packed(batch)["logits"]
    assert rotary.calls == calls + CASES["Llama CausalLM"].model().module.config.num_hidden_layers
    assert modeling_llama.apply_rotary_pos_emb is rotate
    packed.rotary = None
    assert torch.equal(packed(batch)["logits"], logits)


def test_a_compile_only_run_does_not_decide_about_the_rotary_embedding(
    rotary: FakeRotary, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed, batch = llama(monkeypatch)
    rotary.is_launched = False
    packed(batch)
    rotary.is_launched, rotary.calls = True, 0
    packed(batch)
    assert rotary.calls


def test_another_rotary_embedding_is_not_used(rotary: FakeRotary, monkeypatch: pytest.MonkeyPatch) -> None:
    rotary.is_launched = False
    packed, _ = llama(monkeypatch)
    assert packed.rotary is None
