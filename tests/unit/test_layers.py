"""Layers in the models' own terms, on every family."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
import transformers as hf

from motet.core.errors import ConfigError, LayoutError
from motet.core.layers import Layers, describe_roles
from motet.learning.modules.model import Model
from motet.models.parameter_roles import infer_parameter_roles

BERT = {"vocab_size": 67, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48}
BART = {
    "vocab_size": 67, "d_model": 32, "encoder_layers": 3, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
}  # fmt: skip
FAMILIES: dict[str, tuple[Any, str, str]] = {
    "bert": (hf.BertConfig(**BERT), "SequenceClassification", "embeddings, layers 0-2, pooler, head"),
    "bert-tagging": (hf.BertConfig(**BERT), "TokenClassification", "embeddings, layers 0-2, head"),
    "distilbert": (
        hf.DistilBertConfig(vocab_size=67, dim=32, n_layers=3, n_heads=4, hidden_dim=48),
        "SequenceClassification",
        "embeddings, layers 0-2, head",
    ),
    "roberta": (hf.RobertaConfig(**BERT), "SequenceClassification", "embeddings, layers 0-2, head"),
    "albert": (
        hf.AlbertConfig(**BERT, embedding_size=16),
        "SequenceClassification",
        "embeddings, layers 0-0, pooler, head",
    ),
    "mpnet": (hf.MPNetConfig(**BERT), "SequenceClassification", "embeddings, layers 0-2, head"),
    "electra": (hf.ElectraConfig(**BERT, embedding_size=16), "SequenceClassification", "embeddings, layers 0-2, head"),
    "xlnet": (
        hf.XLNetConfig(vocab_size=67, d_model=32, n_layer=3, n_head=4, d_inner=48),
        "SequenceClassification",
        "embeddings, layers 0-2, head",
    ),
    "deberta-v2": (
        hf.DebertaV2Config(**BERT, relative_attention=True, pos_att_type=["p2c", "c2p"], norm_rel_ebd="layer_norm"),
        "SequenceClassification",
        "embeddings, layers 0-2, head",
    ),
    "modernbert": (
        hf.ModernBertConfig(**BERT, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2),
        "SequenceClassification",
        "embeddings, layers 0-2, final, head",
    ),
    "gpt2": (
        hf.GPT2Config(vocab_size=67, n_embd=32, n_layer=3, n_head=4),
        "SequenceClassification",
        "embeddings, layers 0-2, final, head",
    ),
    "llama": (
        hf.LlamaConfig(**BERT, num_key_value_heads=2),
        "SequenceClassification",
        "embeddings, layers 0-2, final, head",
    ),
    "bart": (
        hf.BartConfig(**BART),
        "SequenceClassification",
        "embeddings, encoder embeddings, encoder layers 0-2, decoder embeddings, decoder layers 0-1, head",
    ),
    "marian": (
        hf.MarianConfig(**BART, pad_token_id=0, decoder_start_token_id=0),
        "Seq2SeqLM",
        "embeddings, encoder embeddings, encoder layers 0-2, decoder embeddings, decoder layers 0-1",
    ),
    "t5": (
        hf.T5Config(vocab_size=67, d_model=32, d_kv=8, d_ff=48, num_layers=3, num_decoder_layers=2, num_heads=4),
        "Seq2SeqLM",
        "embeddings, encoder layers 0-2, encoder final, decoder layers 0-1, decoder final",
    ),
}


def made(family: str) -> Any:
    config, head, _ = FAMILIES[family]
    with torch.device("meta"):
        return getattr(hf, f"AutoModelFor{head}").from_config(config)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_parameter_of_every_family_has_its_place(family: str) -> None:
    module = made(family)
    anatomy = infer_parameter_roles(module)
    assert set(anatomy.roles) == {name for name, _ in module.named_parameters()}
    assert describe_roles(anatomy.roles.values()) == FAMILIES[family][2]


@pytest.mark.parametrize("family", FAMILIES)
def test_freezing_from_below_leaves_what_is_above(family: str) -> None:
    module = made(family)
    model = Model(family, module, infer_parameter_roles(module).roles)
    whole = sum(p.numel() for p in module.parameters())
    sides = "encoder " if "encoder" in FAMILIES[family][2] else ""
    model.freeze(Layers.parse("embeddings", f"{sides}layers 0"))
    assert 0 < model.layout.size < whole
    assert not any(p.endswith(("embeddings", "embeddings.norm")) for p in model.layout.roles)
    assert not any(f"{sides.strip()}.layers.0".lstrip(".") == p.removesuffix(".norm") for p in model.layout.roles)


@pytest.mark.parametrize("family", FAMILIES)
def test_lower_layers_grow_one_by_one_up_to_all_but_the_embeddings(family: str) -> None:
    module = made(family)
    layout = Model(family, module, infer_parameter_roles(module).roles).layout
    depth = len({p.removesuffix(".norm") for p in layout.roles if "layers." in p})
    chosen = [set(layout.select_layers(Layers.parse(f"lower {c}")).names) for c in range(depth + 1)]
    assert chosen[0] == set()
    assert all(fewer < more for fewer, more in pairwise(chosen))
    assert chosen[-1] == set(layout.select_layers(~Layers.parse("embeddings")).names)
    assert set(layout.select_layers(Layers.parse("lower half")).names) == chosen[depth // 2]
    with pytest.raises(LayoutError, match=f"more than this model's {depth} layers"):
        layout.select_layers(Layers.parse(f"lower {depth + 1}"))


@pytest.mark.parametrize("family", ["bert", "llama", "t5", "deberta-v2"])
def test_norms_are_found_in_every_kind(family: str) -> None:
    parts = infer_parameter_roles(made(family)).roles
    norms = Layers.parse("norms")
    found = [n for n, p in parts.items() if norms.matches(n, p)]
    assert found
    assert all("norm" in n.lower() or "ln" in n.lower() for n in found)
    assert len(found) + sum(1 for n, p in parts.items() if (~norms).matches(n, p)) == len(parts)


def test_bert_tiny_keeps_five_norms_of_256_numbers() -> None:
    """FedBN on the encoder of BERT-tiny: 5 × 256 scalars stay with the client."""
    with torch.device("meta"):
        config = hf.BertConfig(hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512)
        module = hf.AutoModelForSequenceClassification.from_config(config)
    parts = infer_parameter_roles(module).roles
    norms = {n: p.numel() for n, p in module.named_parameters() if Layers.parse("norms").matches(n, parts[n])}
    assert len(norms) == 10
    assert sum(norms.values()) == 5 * 256


@pytest.mark.parametrize(
    ("term", "chosen"),
    [
        ("layers 1", ["layers.1", "layers.1.norm"]),
        ("layers 1-2", ["layers.1", "layers.1.norm", "layers.2"]),
        ("layers 1–", ["layers.1", "layers.1.norm", "layers.2"]),
        ("Layers", ["layers.0", "layers.1", "layers.1.norm", "layers.2"]),
        ("encoder", ["embeddings", "layers.0", "layers.1", "layers.1.norm", "layers.2"]),
        ("norms", ["layers.1.norm"]),
        ("head", ["head"]),
        ("name:w[01]", ["embeddings", "layers.0"]),
    ],
)
def test_terms_choose_what_they_say(term: str, chosen: list[str]) -> None:
    parts = ["embeddings", "layers.0", "layers.1", "layers.1.norm", "layers.2", "pooler", "head"]
    layers = Layers.parse(term)
    assert [p for i, p in enumerate(parts) if layers.matches(f"w{i}", p)] == chosen


def test_a_selection_that_matches_nothing_is_an_error() -> None:
    model = Model("bert", (module := made("bert")), infer_parameter_roles(module).roles)
    with pytest.raises(
        LayoutError, match=r"'layers 7' matches nothing in this model; expected layers out of embeddings, layers 0-2"
    ):
        model.freeze(Layers.parse("layers 7"))
    with pytest.raises(ConfigError, match="freezes the whole model"):
        model.freeze(Layers.all())


@pytest.mark.parametrize("term", ["layrs 0", "head 3", "", "layers x"])
def test_a_word_that_is_no_choice_of_layers_is_explained(term: str) -> None:
    with pytest.raises(LayoutError, match="is not a selection of layers; expected one of: all, embeddings"):
        Layers.parse(term)
