"""Training in bfloat16 on a CPU: attention and dropout, and what Motet says about the processor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.families import CASES, random_features
from torch import Tensor, nn

from motet.experiment.build import cpu_info
from motet.experiment.build.executor_builder import bfloat16_warning, describe_precision
from motet.experiment.build.federation import Federation
from motet.learning.executors.serial_executor import PrefixCache, SerialExecutor
from motet.learning.jobs import Fit
from motet.learning.packed import cpu_attention
from motet.learning.packed.packed_model import PackedModel
from motet.learning.solver import Solver

CPU = torch.device("cpu")
BF16 = torch.bfloat16


def relative_difference(actual: Tensor, expected: Tensor) -> float:
    difference = (actual.double() - expected.double()).norm() / expected.double().norm()
    return float(difference.detach())


@pytest.mark.parametrize("kind", ["plain", "masked", "added mask", "causal", "dropout"])
def test_attention_is_within_rounding_of_double_precision(kind: str) -> None:
    torch.manual_seed(0)
    texts, heads, tokens, width = 3, 2, 37, 24
    inputs = [torch.randn(texts, tokens, heads, width).to(BF16).transpose(1, 2).requires_grad_() for _ in range(3)]
    exact = [x.detach().double().requires_grad_() for x in inputs]
    is_read = (torch.arange(tokens) < torch.tensor([[37], [20], [1]])).view(texts, 1, 1, tokens)
    if kind == "causal":
        is_read = torch.ones(tokens, tokens, dtype=torch.bool).tril().view(1, 1, tokens, tokens)
    has_mask = kind in ("masked", "added mask")
    mask = is_read.to(BF16).log() if kind == "added mask" else is_read if has_mask else None
    dropout = 0.25 if kind == "dropout" else 0.0
    assert cpu_attention.supports(*inputs, mask, dropout)
    torch.manual_seed(1)
    out = cpu_attention.attend(*inputs, mask, 0.3, kind == "causal", dropout)
    torch.manual_seed(1)
    shape = (texts * heads, tokens, tokens)
    factors = cpu_attention.draw_dropout(shape, dropout).double() if dropout else torch.ones(shape).double()

    q, k, v = exact
    scores = 0.3 * q @ k.transpose(2, 3)
    if has_mask or kind == "causal":
        scores = scores.masked_fill(~is_read, float("-inf"))
    expected = (scores.softmax(-1) * factors.view(texts, heads, tokens, tokens)) @ v
    grad = torch.randn_like(out)
    grads = torch.autograd.grad(out, inputs, grad)
    expected_grads = torch.autograd.grad(expected, exact, grad.double().transpose(1, 2))
    assert relative_difference(out.transpose(1, 2), expected) < 1e-2
    assert max(map(relative_difference, grads, expected_grads)) < 2e-2


def test_other_attention_is_left_to_torch() -> None:
    q = torch.zeros(2, 1, 8, 16, dtype=BF16)
    assert cpu_attention.supports(q, q, q, None)
    assert not cpu_attention.supports(q.float(), q.float(), q.float(), None)
    assert not cpu_attention.supports(q, q, q[..., :8], None)
    assert not cpu_attention.supports(q, q, q, None, dropout=1e-3)
    assert not cpu_attention.supports(*[torch.zeros(1, 1, 513, 1, dtype=BF16)] * 3, None)


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_dropout_has_torchs_distribution_and_keeps_the_mean(p: float) -> None:
    torch.manual_seed(0)
    factors = cpu_attention.draw_dropout((1601, 1251), p)
    assert factors.unique().tolist() == [0, float(torch.tensor(1 / (1 - p), dtype=BF16))]
    assert abs(float((factors == 0).double().mean()) - p) < 2e-3  # p is rounded
    assert abs(float(factors.double().mean()) - 1) < 5 * (p / (1 - p) / factors.numel()) ** 0.5
    # neighbors are independent: four of them come from one random number
    both = (factors[:, 1:] == 0) & (factors[:, :-1] == 0)
    assert abs(float(both.double().mean()) - p * p) < 1e-3
    torch.manual_seed(0)
    assert torch.equal(factors, cpu_attention.draw_dropout((1601, 1251), p))


@pytest.mark.parametrize("name", ["Bert SequenceClassification", "Llama CausalLM", "T5 ConditionalGeneration"])
def test_models_compute_the_same_up_to_rounding(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two texts with padding. Llama's heads share keys, and T5's position bias needs torch's attention."""
    calls: list[float] = []

    def attend(*inputs: object) -> Tensor:
        calls.append(0.0)
        return original(*inputs)  # type: ignore[arg-type]

    original = cpu_attention.attend
    monkeypatch.setattr(cpu_attention, "attend", attend)
    case = CASES[name]
    model, batch = case.model(), random_features(case, 3).batch(np.arange(3))
    exact, rounded = (PackedModel(model, model.module, CPU, use_bf16=use) for use in (False, True))
    for packed in (exact, rounded):
        packed.load_clients([model.initial_params])
        packed.module.eval()
    with torch.no_grad():
        expected = exact(batch)["logits"]
        assert not calls
        assert not any(isinstance(m, cpu_attention.FastDropout) for m in exact.module.modules())
        with torch.autocast("cpu", BF16):
            logits = rounded(batch)["logits"]
    assert bool(calls) == (not name.startswith("T5"))
    assert 1e-6 < relative_difference(logits, expected) < 5e-2


def test_dropout_of_a_model_is_replaced_in_training_only() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    cpu_attention.install_fast_dropout(module)
    x = torch.ones(8, 100)
    assert set(module[1](x).unique().tolist()) == {0.0, 2.0}
    assert torch.equal(module.eval()[1](x), x)


def test_a_cached_frozen_prefix_gives_the_same_up_to_rounding(frozen_federation: Federation) -> None:
    client = frozen_federation.participant(frozen_federation.clients[0])
    model, solver = client.model, Solver(optimizer="sgd", lr=0.2, batch=8)
    job = Fit(model, model.initial_params, client.split("train"), client.task.objective, solver, 5)
    cache = PrefixCache()
    cache.prepare(model, job.examples.features)
    assert cache.states
    whole, upper = (SerialExecutor(CPU, c, use_bf16=True).run(job).params.flat - job.start.flat for c in (None, cache))
    cache.close()
    assert relative_difference(upper, whole) < 5e-2


@pytest.mark.parametrize(
    ("lines", "flags"),
    [
        ("model name\t: EPYC\nflags\t\t: fpu avx512_bf16 amx_bf16\n", "amx_bf16, avx512_bf16"),
        ("Features\t: fp asimd bf16\n", "bf16"),
        ("model name\t: Xeon\nflags\t\t: fpu avx2 not_bf16\n", ""),
        (None, ""),
    ],
    ids=["x86", "arm", "without", "another system"],
)
def test_bfloat16_on_a_processor_without_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str | None, flags: str
) -> None:
    monkeypatch.setattr(cpu_info, "CPU_INFO", tmp_path / "cpuinfo")
    if lines is not None:
        (tmp_path / "cpuinfo").write_text(lines)
    warning = bfloat16_warning("bfloat16", CPU)
    assert warning == "" if flags else "use precision=float32" in warning
    assert bfloat16_warning("auto", CPU) == bfloat16_warning("float32", CPU) == ""
    instructions = f"instructions for bfloat16 ({flags})" if flags else "no instructions for bfloat16"
    assert describe_precision("auto", CPU) == f"float32; this CPU {'also has' if flags else 'has'} {instructions}"
    assert describe_precision("bfloat16", CPU) == f"bfloat16; this CPU has {instructions}"
