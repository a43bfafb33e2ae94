"""Adapters of a pretrained causal model: exported for peft, merged on request, with a model card, and ready to chat."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from typer.testing import CliRunner

from motet.cli import app
from motet.core.errors import ConfigError
from motet.datasets.toy_corpora import toy_instruct
from motet.experiment.build.federation_builder import build_federation, vocabulary_texts
from motet.experiment.commands.chat_session import open_chat
from motet.experiment.commands.model_export import export_models, loading_code
from motet.experiment.commands.recipe_runner import run_recipe
from motet.experiment.recipe.recipe_files import load_recipe
from motet.learning.data.chat_format import Turn
from motet.models.word_vocabulary import CHAT_TEMPLATE, build_word_tokenizer

SETTINGS = [
    "rounds=1",
    "data.limit=48",
    "data.test_limit=12",
    "partition.clients=2",
    "solver.epochs=1",
    "evaluation.samples=3",
]


EXAMPLE = Path(__file__).parents[2] / "examples" / "score_adapters.py"


def save_base(folder: Path, hidden_size: int = 32) -> Path:
    """Save a small Llama with random weights and a word tokenizer with a chat template."""
    tokenizer = build_word_tokenizer(vocabulary_texts(toy_instruct()), add_special_tokens=False)
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=hidden_size, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        pad_token_id=tokenizer.pad_token_id, bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=["lora", "dora", "prompt"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    base = save_base(folder / "base")
    adapter = [f"model.adapter.type={request.param}", "model.adapter.rank=4", "model.adapter.tokens=3"]
    run_recipe(load_recipe("toy-instruct", [*SETTINGS, f"model.name={base}", *adapter]), folder / "run")
    return folder / "run"


def logits(module: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    with torch.no_grad():
        output: torch.Tensor = module(input_ids=batch["input_ids"])["logits"]
    return output


@pytest.mark.parametrize("run", ["lora", "dora"], indirect=True)
def test_peft_and_transformers_load_what_was_trained(run: Path, tmp_path: Path) -> None:
    import peft

    assert {"adapter_model.safetensors", "adapter_config.json", "README.md"} <= {
        p.name for p in (run / "model").iterdir()
    }
    settings = json.loads((run / "model" / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == str(run.parent / "base")
    federation = build_federation(load_recipe(str(run / "config.yaml"), []))
    batch = federation.server.features.batch(np.arange(4))
    base = transformers.AutoModelForCausalLM.from_pretrained(run.parent / "base").eval()
    untouched = logits(base, batch)
    adapted = logits(peft.PeftModel.from_pretrained(base, run / "model").eval(), batch)
    assert not torch.allclose(untouched, adapted, atol=1e-3)
    export_models(run, tmp_path / "merged", merged=True)
    merged = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "merged").eval()
    assert torch.allclose(logits(merged, batch), adapted, atol=1e-5)
    assert not (tmp_path / "merged" / "adapter_config.json").exists()
    pipeline = transformers.pipeline("text-generation", model=str(run / "model"))
    text = pipeline("[CLS] name the topic of chord song tune [SEP]", max_new_tokens=4, do_sample=False)
    assert text[0]["generated_text"].startswith("[CLS] name the topic of")
    assert loading_code("instruct", run / "model").startswith("peft.AutoPeftModelForCausalLM")
    assert loading_code("instruct", tmp_path / "merged").startswith("transformers.pipeline")


@pytest.mark.parametrize("method", ["fedex_lora", "flora"])
def test_a_method_that_changes_the_base_exports_the_whole_model(method: str, tmp_path: Path) -> None:
    """Adapters on the unchanged base would be another model; those of FLoRA are zero."""
    base = save_base(tmp_path / "base")
    changes = [
        *SETTINGS,
        f"model.name={base}",
        "model.adapter.rank=4",
        f"algorithm={method}",
        "evaluation.initial=true",
    ]
    run_recipe(load_recipe("toy-instruct", changes), tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    server = build_federation(load_recipe(str(tmp_path / "run" / "config.yaml"), [])).server
    batch = server.features.batch(server.global_test_rows)
    module = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "model").eval()
    positions = (batch["completion_start"][:, None] - 1 + torch.arange(batch["labels"].shape[1])).clamp(
        max=batch["input_ids"].shape[1] - 1
    )
    predictions = logits(module, batch).take_along_dim(positions.unsqueeze(-1), 1)
    loss = torch.nn.functional.cross_entropy(predictions.flatten(0, 1), batch["labels"].flatten()).item()
    assert loss == pytest.approx(summary["final"]["loss"], abs=1e-4)
    assert loss < summary["initial"]["loss"] - 1e-3
    assert not (tmp_path / "run" / "model" / "adapter_config.json").exists()


def test_peft_gives_the_scores_of_the_summary(run: Path) -> None:
    example = runpy.run_path(str(EXAMPLE))
    expected = json.loads((run / "summary.json").read_text())["final"]
    scores: dict[str, float] = example["score_adapters"](run)
    assert scores == pytest.approx({name: expected[name] for name in scores}, abs=1e-4)


def test_the_card_says_how_the_adapters_were_trained(run: Path) -> None:
    card = (run / "model" / "README.md").read_text()
    assert "library_name: peft" in card
    assert f"base_model: {run.parent / 'base'}" in card
    kind = "prompt, 3 virtual tokens" if "prompt" in run.parent.name else ", rank 4, alpha 8, all linear layers"
    assert kind in card
    assert "| metric | before training | after |" in card


def test_samples_are_written_before_and_after_training(run: Path) -> None:
    samples = json.loads((run / "samples.json").read_text())
    assert len(samples) == 3
    assert all(sample.keys() == {"prompt", "reference", "before", "after"} for sample in samples)


def test_chat_answers_as_the_run_did(run: Path) -> None:
    sample = json.loads((run / "samples.json").read_text())[0]
    session = open_chat(run, device="cpu", max_new_tokens=8)
    assert session.reply(sample["prompt"]) == sample["after"]
    assert [turn.role for turn in session.turns] == ["user", "assistant"]
    result = CliRunner().invoke(app, ["chat", str(run), "--prompt", sample["prompt"], "--max-new-tokens", "8"])
    assert result.output.strip() == sample["after"]
    result = CliRunner().invoke(
        app, ["chat", str(run / "model"), "--max-new-tokens", "8"], input=f"{sample['prompt']}\n\n"
    )
    assert result.output.strip() == sample["after"]


def test_chat_writes_prompts_as_in_training(tmp_path: Path) -> None:
    """The base has a chat template, but the run uses Alpaca's layout. The exported tokenizer says so."""
    base = save_base(tmp_path / "base")
    changes = [*SETTINGS, f"model.name={base}", "model.adapter.rank=4", "model.max_tokens=60", "task.template=alpaca"]
    run_recipe(load_recipe("toy-instruct", changes), tmp_path / "run")
    sample = json.loads((tmp_path / "run" / "samples.json").read_text())[0]
    export_models(tmp_path / "run", tmp_path / "merged", merged=True)
    for folder in (tmp_path / "run", tmp_path / "merged"):
        session = open_chat(folder, device="cpu", max_new_tokens=8)
        assert "### Instruction:" in session.chat.render_prompt([Turn("user", "a")])
        assert session.reply(sample["prompt"]) == sample["after"]


def test_adapters_of_another_model_and_folders_without_a_model_are_rejected(run: Path, tmp_path: Path) -> None:
    other = save_base(tmp_path / "other", hidden_size=16)
    mismatch = "its words have 16 numbers" if "prompt" in run.parent.name else "size mismatch for"
    with pytest.raises(ConfigError, match=rf"the adapters in .* do not fit the model '.*other' \({mismatch}"):
        open_chat(run, base=str(other))
    with pytest.raises(ConfigError, match=r"model\.name: .* holds adapters; expected a whole model.*merge them first"):
        build_federation(load_recipe("toy-instruct", [f"model.name={run / 'model'}", "model.adapter.rank=4"]))
    with pytest.raises(ConfigError, match="has no model to talk to; expected a finished run or an exported model"):
        open_chat(tmp_path)


@pytest.mark.parametrize("run", ["prompt"], indirect=True)
def test_a_trained_prompt_alone_is_sent_and_cannot_be_merged(run: Path, tmp_path: Path) -> None:
    federation = build_federation(load_recipe(str(run / "config.yaml"), []))
    model, features = federation.model, federation.server.features
    assert model.layout.names == ("model.embed_tokens.virtual.weight",)
    assert model.layout.shapes == ((3, 32),)
    assert [tuple(features.columns["input_ids"][row][:3]) for row in range(4)] == [model.virtual_tokens] * 4
    with pytest.raises(ConfigError, match="cannot be merged; leave out --merged"):
        export_models(run, tmp_path / "merged", merged=True)
