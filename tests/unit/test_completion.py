"""Training on completions: only their tokens have a loss, padding changes nothing, and adapters can be packed."""

from __future__ import annotations

import itertools
import logging
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from tests.job_runs import assert_trained_alone, run_packed

from motet.core.errors import ConfigError
from motet.core.params import Params
from motet.learning.data.features import IGNORE_INDEX, Examples, Features, Ragged
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.jobs import Fit, Infer
from motet.learning.modules.model import Model
from motet.learning.objectives import completion
from motet.learning.objectives.completion import (
    CompletionCrossEntropy,
    CompletionLoss,
    GeneratedCompletions,
    completion_logits,
)
from motet.learning.packed.device_dataset import DeviceDataset
from motet.learning.packed.packed_model import PackedModel
from motet.learning.solver import Solver
from motet.models.adapters import add_adapters
from motet.models.model_config import AdapterConfig
from motet.models.parameter_roles import infer_parameter_roles
from motet.models.prompt_tuning import add_prompt
from motet.tasks.instruct import Instruct
from motet.tasks.seq2seq import Seq2Seq

CPU = torch.device("cpu")
VOCABULARY, PAD, END = 50, 0, 1
FAMILIES = {
    "gpt2": transformers.GPT2Config(n_embd=32, n_layer=2, n_head=2, n_positions=64, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0),
    "llama": transformers.LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=64,
    ),
    "gemma2": transformers.Gemma2Config(  # caps its logits, so the output layer alone would be wrong
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=8, max_position_embeddings=64,
    ),
}  # fmt: skip
BART = transformers.BartConfig(
    vocab_size=VOCABULARY, d_model=16, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=16, decoder_ffn_dim=16,
    encoder_attention_heads=2, decoder_attention_heads=2, max_position_embeddings=32,
)  # fmt: skip


def make_model(family: str, dtype: torch.dtype = torch.float32, prompt_tokens: int = 0) -> Model:
    config = FAMILIES[family]
    config.update({"vocab_size": VOCABULARY, "pad_token_id": PAD, "eos_token_id": END, "bos_token_id": 2})
    torch.manual_seed(0)
    module = transformers.AutoModelForCausalLM.from_config(config)
    roles = infer_parameter_roles(module)
    if prompt_tokens:
        roles = add_prompt(module, roles, AdapterConfig("prompt", tokens=prompt_tokens))
    else:
        roles = add_adapters(module, roles, AdapterConfig(rank=4), train_head=False)
    for parameter in module.parameters():
        parameter.data = parameter.data.to(torch.float32 if parameter.requires_grad else dtype)
    return Model(family, module, roles.roles, None, roles.embeddings_path, roles.layers_path)


def make_features(count: int = 12, prompt_tokens: int = 0) -> Features:
    rng = np.random.default_rng(0)
    virtual = range(VOCABULARY, VOCABULARY + prompt_tokens)
    prompts = [[*virtual, *rng.integers(3, VOCABULARY, rng.integers(2, 9)).tolist()] for _ in range(count)]
    completions = [[*rng.integers(3, VOCABULARY, rng.integers(1, 5)).tolist(), END] for _ in range(count)]
    columns = {
        "input_ids": Ragged.from_lists([p + c for p, c in zip(prompts, completions, strict=True)], PAD),
        "labels": Ragged.from_lists(completions, IGNORE_INDEX),
        "completion_start": np.array([len(p) for p in prompts], np.int64),
    }
    return Features("completions", columns)


def test_steps_share_few_widths_of_completions() -> None:
    """Each pair of a text's and a completion's width is captured as a step of its own."""
    lengths = np.arange(1, 101)
    columns = {
        "input_ids": Ragged.from_lists([[5] * (20 + n) for n in lengths], PAD),
        "labels": Ragged.from_lists([[5] * n for n in lengths], IGNORE_INDEX),
        "completion_start": np.full(len(lengths), 20),
    }
    dataset = DeviceDataset(Features("completions", columns), CPU)
    rows = np.arange(len(lengths)).reshape(-1, 1, 1)
    widths = [dict(step) for step in dataset.step_widths(rows, np.ones((len(rows), 1), bool))]
    assert {width["labels"] for width in widths} == {16, 64, 100}
    assert all(width["labels"] >= n and width["input_ids"] >= 20 + n for width, n in zip(widths, lengths, strict=True))
    assert dataset.batch_widths(np.array([19]))["labels"] == 24, "inference is not captured, so it pads less"


def trained(model: Model, seed: int = 0) -> torch.Tensor:
    """Return adapters as they could be after training: B is no longer zero."""
    noise = torch.randn(model.layout.size, generator=torch.Generator().manual_seed(seed))
    return model.initial_params.flat + 0.1 * noise


@pytest.mark.parametrize("family", FAMILIES)
def test_the_loss_is_that_of_transformers_with_masked_prompts(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, features = make_model(family), make_features()
    packed = PackedModel(model, model.module, CPU)
    params = Params(model.layout, trained(model))
    packed.load_clients([params])
    packed.module.eval()
    rows = np.arange(len(features))
    batch = features.batch(rows)
    losses, weights = CompletionCrossEntropy().losses(packed, batch)
    labels = torch.full_like(batch["input_ids"], IGNORE_INDEX)
    for row, start in enumerate(batch["completion_start"].tolist()):
        length = int(weights[row])
        labels[row, start : start + length] = batch["input_ids"][row, start : start + length]
    reference = model.with_params(params)(
        input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], labels=labels
    )["loss"]
    assert torch.isclose((losses * weights).sum() / weights.sum(), reference, rtol=1e-5)
    monkeypatch.setattr(completion, "_MAX_LOGITS", 2 * VOCABULARY * len(rows))
    for readout in (CompletionLoss(), GeneratedCompletions(max_new_tokens=3)):  # two tokens of each row at a time
        with torch.no_grad():
            evaluated = readout.read(packed, batch)
        assert torch.allclose(evaluated["loss"], losses * weights, rtol=1e-5)
        assert torch.equal(evaluated["count"], weights.long())


def test_a_long_prompt_beside_a_long_completion_needs_no_more_positions_than_the_model_has() -> None:
    model = make_model("gpt2")
    positions = model.module.config.n_positions
    lengths = [(positions - 8, 8), (2, positions - 2)]  # of the prompts and their completions
    columns = {
        "input_ids": Ragged.from_lists([[5] * positions] * 2, PAD),
        "labels": Ragged.from_lists([[5] * completion for _, completion in lengths], IGNORE_INDEX),
        "completion_start": np.array([prompt for prompt, _ in lengths]),
    }
    packed = PackedModel(model, model.module, CPU)
    packed.load_clients([model.initial_params])
    packed.module.eval()
    batch = Features("completions", columns).batch(np.arange(2))
    with torch.no_grad():
        expected = CompletionLoss().read(packed, batch)["loss"]
        assert torch.allclose(GeneratedCompletions(max_new_tokens=3).read(packed, batch)["loss"], expected, rtol=1e-5)


def test_generation_beyond_the_learned_positions_is_refused_before_training() -> None:
    gpt2, llama = make_model("gpt2"), make_model("llama")
    features = Features("completions", {"completion_start": np.array([7, 60])})
    Instruct(max_new_tokens=5).check_features(features, gpt2)  # the last position of 64
    Instruct(max_new_tokens=500).check_features(features, llama)  # computes its positions
    message = (
        "longest prompt has 60 tokens and task.max_new_tokens is 6, so generation needs 65 positions, but .* has 64"
    )
    with pytest.raises(ConfigError, match=message):
        Instruct(max_new_tokens=6).check_features(features, gpt2)
    bart = replace(gpt2, module=transformers.BartForConditionalGeneration(BART))
    Seq2Seq(max_target_tokens=32).check_features(features, bart)
    with pytest.raises(ConfigError, match=r"task.max_target_tokens is 33, .* has 32"):
        Seq2Seq(max_target_tokens=33).check_features(features, bart)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_padding_does_not_change_the_logits(family: str) -> None:
    model, features = make_model(family), make_features()
    packed = PackedModel(model, model.module, CPU)
    packed.load_clients([model.initial_params])
    packed.module.eval()
    together = completion_logits(packed, features.batch(np.arange(5)))
    for row in range(5):
        alone = completion_logits(packed, features.batch(np.array([row])))[0]
        assert torch.allclose(together[row, : len(alone)], alone, atol=1e-5)


@pytest.mark.parametrize(("family", "prompt_tokens"), [("gpt2", 0), ("llama", 0), ("gpt2", 3), ("llama", 3)])
def test_packed_adapters_train_like_one_client_after_another(family: str, prompt_tokens: int) -> None:
    model = make_model(family, prompt_tokens=prompt_tokens)
    features = make_features(prompt_tokens=prompt_tokens)
    solver = Solver(optimizer="sgd", lr=0.5, batch=3, epochs=2)
    jobs = [
        Fit(
            model,
            model.initial_params,
            Examples(features, np.arange(4 * i, 4 * i + 4)),
            CompletionCrossEntropy(),
            solver,
            i,
        )
        for i in range(3)
    ]
    results, executor = run_packed(jobs, width=4)
    (choice,) = executor.packing_choices.values()
    assert choice.mode == "packed_layers", choice.rejections
    assert_trained_alone(results, jobs, tolerance=1e-4)


def test_a_frozen_base_in_bfloat16_trains_adapters_in_float32() -> None:
    model, features = make_model("llama", torch.bfloat16), make_features()
    job = Fit(
        model, model.initial_params, Examples(features, np.arange(6)), CompletionCrossEntropy(),
        Solver(optimizer="adamw", lr=1e-2, batch=3, epochs=4), 0,
    )  # fmt: skip
    result = SerialExecutor(CPU).run(job)
    assert result.params.flat.dtype == torch.float32
    assert result.losses[-2:].mean() < result.losses[:2].mean()
    _, executor = run_packed([job, job], width=2)
    (choice,) = executor.packing_choices.values()
    assert choice.mode == "packed_layers", choice.rejections


def test_chunks_of_prompts_have_similar_lengths_and_keep_the_order_of_the_results() -> None:
    model, features = make_model("llama"), make_features(40)
    job = Infer(model, model.initial_params, Examples(features, np.arange(40)), GeneratedCompletions(max_new_tokens=2))
    lengths = [chunk.examples.lengths for chunk in job.chunks()]
    assert [len(each) for each in lengths] == [16, 16, 8]
    assert all(longer.min() >= shorter.max() for longer, shorter in itertools.pairwise(lengths))
    predictions = SerialExecutor(CPU).run(job)
    for row in (0, 17, 39):
        alone = SerialExecutor(CPU).run(replace(job, examples=Examples(features, np.array([row]))))
        assert torch.isclose(predictions["loss"][row], alone["loss"][0], atol=1e-4)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_generated_completions_equal_those_of_transformers(family: str) -> None:
    model, features = make_model(family), make_features()
    params = [Params(model.layout, trained(model, seed)) for seed in (1, 2)]
    readout = GeneratedCompletions(max_new_tokens=6)
    jobs = [Infer(model, each, Examples(features, np.arange(5)), readout) for each in params]
    results, _ = run_packed(jobs, width=2)
    for i, each in enumerate(params):
        module = model.with_params(each)
        for row in range(5):
            prompt = features.batch(np.array([row]))
            start = int(prompt["completion_start"][0])
            expected = module.generate(prompt["input_ids"][:, :start], max_new_tokens=6, do_sample=False)[0, start:]
            assert results[i]["predictions"][row, : len(expected)].tolist() == expected.tolist()


def test_settings_of_generation_that_a_model_brings_do_not_change_its_score(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, features = make_model("llama"), make_features()
    start = Params(model.layout, trained(model))
    job = Infer(model, start, Examples(features, np.arange(5)), GeneratedCompletions(max_new_tokens=6))
    expected = SerialExecutor(CPU).run(job)["predictions"]
    brought = {
        "repetition_penalty": 5.0,
        "no_repeat_ngram_size": 1,
        "min_length": 30,
        "temperature": 0.1,
        "do_sample": True,
    }
    model.module.generation_config.update(**brought)
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    assert torch.equal(SerialExecutor(CPU).run(job)["predictions"], expected)
    assert not caplog.records, "transformers warns about settings that contradict each other"
