"""Selections of layers by role, on all model families."""

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


def make_module(family: str) -> Any:
    config, head, _ = FAMILIES[family]
    with torch.device("meta"):
        return getattr(hf, f"AutoModelFor{head}").from_config(config)


def make_model(family: str) -> Model:
    module = make_module(family)
    return Model(family, module, infer_parameter_roles(module).roles)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_parameter_has_a_role(family: str) -> None:
    module = make_module(family)
    roles = infer_parameter_roles(module).roles
    assert set(roles) == {name for name, _ in module.named_parameters()}
    assert describe_roles(roles.values()) == FAMILIES[family][2]


@pytest.mark.parametrize("family", FAMILIES)
def test_frozen_layers_are_not_in_the_layout(family: str) -> None:
    model = make_model(family)
    num_parameters = sum(parameter.numel() for parameter in model.module.parameters())
    stack = "encoder" if "encoder" in FAMILIES[family][2] else ""
    model.freeze(Layers.parse("embeddings", f"{stack} layers 0"))
    assert 0 < model.layout.size < num_parameters
    roles = {role.removesuffix(".norm") for role in model.layout.roles}
    assert not any(role.endswith("embeddings") for role in roles)
    assert f"{stack}.layers.0".lstrip(".") not in roles


@pytest.mark.parametrize("family", FAMILIES)
def test_lower_layers_grow_one_by_one_up_to_all_except_the_embeddings(family: str) -> None:
    layout = make_model(family).layout

    def select(layers: Layers) -> set[str]:
        return set(layout.select_layers(layers).names)

    depth = len({role.removesuffix(".norm") for role in layout.roles if "layers." in role})
    lower = [select(Layers.parse(f"lower {c}")) for c in range(depth + 1)]
    assert lower[0] == set()
    assert all(fewer < more for fewer, more in pairwise(lower))
    assert lower[-1] == select(~Layers.parse("embeddings"))
    assert lower[depth // 2] == select(Layers.parse("lower half"))
    with pytest.raises(LayoutError, match=f"more than this model's {depth} layers"):
        select(Layers.parse(f"lower {depth + 1}"))


@pytest.mark.parametrize("family", ["bert", "llama", "t5", "deberta-v2"])
def test_norms_are_recognized(family: str) -> None:
    roles = infer_parameter_roles(make_module(family)).roles
    norms = Layers.parse("norms")
    selected = [name for name, role in roles.items() if norms.matches(name, role)]
    others = [name for name, role in roles.items() if (~norms).matches(name, role)]
    assert selected
    assert all("norm" in name.lower() or "ln" in name.lower() for name in selected)
    assert sorted(selected + others) == sorted(roles)


def test_fedbn_keeps_5_norms_of_256_numbers_of_bert_tiny() -> None:
    with torch.device("meta"):
        config = hf.BertConfig(hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512)
        module = hf.AutoModelForSequenceClassification.from_config(config)
    norms, roles = Layers.parse("norms"), infer_parameter_roles(module).roles
    sizes = [parameter.numel() for name, parameter in module.named_parameters() if norms.matches(name, roles[name])]
    assert len(sizes) == 10
    assert sum(sizes) == 5 * 256


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        ("layers 1", ["layers.1", "layers.1.norm"]),
        ("layers 1-2", ["layers.1", "layers.1.norm", "layers.2"]),
        ("layers 1–", ["layers.1", "layers.1.norm", "layers.2"]),
        ("layers 2-0", []),
        ("Layers", ["layers.0", "layers.1", "layers.1.norm", "layers.2"]),
        ("encoder", ["embeddings", "layers.0", "layers.1", "layers.1.norm", "layers.2"]),
        ("norms", ["layers.1.norm"]),
        ("head", ["head"]),
        ("name:w[01]", ["embeddings", "layers.0"]),
    ],
)
def test_a_term_selects_the_roles_it_names(term: str, expected: list[str]) -> None:
    roles = ["embeddings", "layers.0", "layers.1", "layers.1.norm", "layers.2", "pooler", "head"]
    layers = Layers.parse(term)
    assert [role for i, role in enumerate(roles) if layers.matches(f"w{i}", role)] == expected


def test_a_selection_that_matches_nothing_is_rejected() -> None:
    model = make_model("bert")
    with pytest.raises(
        LayoutError, match=r"'layers 7' matches nothing in this model; expected layers out of embeddings, layers 0-2"
    ):
        model.freeze(Layers.parse("layers 7"))
    with pytest.raises(ConfigError, match="freezes the whole model"):
        model.freeze(Layers.all())


def test_a_pattern_cannot_take_forever() -> None:
    """A pattern was a regular expression. With nested repetitions, a server could stop a client that joined."""
    layers = Layers.parse(f"name:{'*a' * 30}b", "name:(a+)+$", "name:[")
    assert not layers.matches("a" * 1000, "head")


@pytest.mark.parametrize("term", ["layrs 0", "head 3", "", "layers x", f"layers 0-{'9' * 5000}"])
def test_an_unknown_term_is_rejected(term: str) -> None:
    with pytest.raises(LayoutError, match="is not a selection of layers; expected one of: all, embeddings"):
        Layers.parse(term)
