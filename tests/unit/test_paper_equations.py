"""The update rules of the papers, checked on clients with quadratic losses, where every step and optimum has a closed form."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from motet.algorithms import feddyn, fednova, fedrep, per_fedavg, pfedme, qfedavg, scaffold
from motet.algorithms.moon import ModelContrast
from motet.core.errors import ConfigError
from motet.core.layers import Layers
from motet.core.params import Params
from motet.core.program import Algorithm, InitialModels, Round
from motet.core.rng import Seed
from motet.core.script import Exchange, run_script
from motet.learning.jobs import FitResult
from motet.learning.objectives.supervised import CrossEntropy
from motet.learning.solver import Solver

CURVATURES = {"a": 1.0, "b": 3.0, "c": 0.5}
OPTIMA = {"a": -1.0, "b": 2.0, "c": 4.0}
SIZES = {"a": 4, "b": 2, "c": 6}
SGD = Solver(optimizer="sgd", lr=0.1, batch=2, schedule="constant", clip=0.0)  # 2, 1 and 3 steps per epoch
ROLES = {"body": "layers.0", "head": "head"}
Gradient = Callable[[Mapping[str, Tensor]], dict[str, Tensor]]


class FakeExamples:
    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def select(self, indices: np.ndarray) -> FakeExamples:
        return FakeExamples(len(indices))


@dataclass
class FakeContext:
    """A client context that trains with exact gradients."""

    client: str
    gradient: Gradient
    loss: Callable[[Mapping[str, Tensor]], float]
    initial_params: Params
    size: int
    seed: Seed = Seed(0)

    @property
    def participant(self) -> Any:
        return SimpleNamespace(split=lambda name: FakeExamples(self.size))

    def fit(
        self,
        start: Params,
        solver: Solver,
        *,
        examples: FakeExamples | None = None,
        proximal_anchor: Params | None = None,
        gradient_correction: Params | None = None,
        train_only: Layers | None = None,
        purpose: str = "fit",
    ) -> Generator[Any, Any, FitResult]:
        steps = solver.num_steps(self.size if examples is None else len(examples))
        anchor, params = proximal_anchor or start, start
        for step in range(steps):
            gradient = Params.from_tensors(self.gradient(params.tensors()), ROLES)
            gradient = Params(params.layout, gradient.flat) + solver.proximal_mu * (params - anchor)
            gradient = gradient if gradient_correction is None else gradient + gradient_correction
            if train_only is not None:
                gradient = gradient.zeros_like().updated(gradient.select_layers(train_only))
            params = params - solver.learning_rate_at(step, steps) * gradient
        return FitResult(params, torch.zeros(steps), steps)
        yield

    def evaluate(self, params: Params, split: str) -> Generator[Any, Any, Any]:
        return SimpleNamespace(scores={"loss": self.loss(params.tensors())})
        yield


def make_params(body: float, head: float | None = None) -> Params:
    tensors = {"body": torch.tensor([body], dtype=torch.float64)}
    if head is not None:
        tensors["head"] = torch.tensor([head], dtype=torch.float64)
    return Params.from_tensors(tensors, ROLES)


def quadratic(client: str) -> tuple[Gradient, Callable[[Mapping[str, Tensor]], float]]:
    """f(w) = a/2·(w − b)²."""
    curvature, optimum = CURVATURES[client], OPTIMA[client]
    return (
        lambda w: {"body": curvature * (w["body"] - optimum)},
        lambda w: float(curvature / 2 * (w["body"] - optimum) ** 2),
    )


class FakeFederation:
    """Runs rounds of an algorithm with fake contexts, and keeps the client states."""

    def __init__(self, algorithm: Algorithm, start: Params, functions: Any = quadratic) -> None:
        self.algorithm, self.functions, self.start = algorithm, functions, start
        self.states: dict[str, Any] = {}
        self.state = algorithm.init(InitialModels(shared=start, clients=tuple(CURVATURES)))

    def run(self, rounds: int = 1, cohort: tuple[str, ...] = ("a", "b", "c")) -> Any:
        for index in range(rounds):
            rnd = Round(index, rounds, cohort, Seed(index), server=None)
            self.state = run_script(self.algorithm.round(self.state, rnd), self._exchange, lambda job: None)
        return self.state

    def _exchange(self, exchange: Exchange) -> Any:
        collector = exchange.collector()
        method: Any = getattr(self.algorithm, exchange.address.partition(".")[2])
        for client, payload in exchange.payloads.items():
            context = FakeContext(client, *self.functions(client), self.start, SIZES[client])
            try:
                next(method(context, payload, self.states.get(client)))
            except StopIteration as end:
                reply, state = end.value
            if state is not None:
                self.states[client] = state
            collector.add(client, reply)
        return collector.value()


def descend(client: str, w: float, steps: int, lr: float = 0.1, shift: float = 0.0, mu: float = 0.0) -> float:
    """Return w after plain gradient steps with a constant `shift` and a proximal term around the first w."""
    anchor = w
    for _ in range(steps):
        w -= lr * (CURVATURES[client] * (w - OPTIMA[client]) + shift + mu * (w - anchor))
    return w


def steps_of(client: str) -> int:
    return SGD.num_steps(SIZES[client])


GLOBAL_OPTIMUM = sum(CURVATURES[c] * OPTIMA[c] for c in CURVATURES) / sum(CURVATURES.values())


def test_scaffold_follows_option_two() -> None:
    federation = FakeFederation(scaffold(SGD, server_lr=0.5), make_params(0.0))
    x, c, controls = 0.0, 0.0, dict.fromkeys(CURVATURES, 0.0)
    for cohort in (("a", "b", "c"), ("a", "c"), ("b",)):
        updates, changes = [], []
        for client in cohort:
            steps = steps_of(client)
            y = descend(client, x, steps, shift=c - controls[client])
            new = controls[client] - c + (x - y) / (steps * 0.1)
            updates.append(y - x)
            changes.append(new - controls[client])
            controls[client] = new
        x += 0.5 * float(np.mean(updates))
        c += len(cohort) / 3 * float(np.mean(changes))
        state = federation.run(cohort=cohort)
        assert float(state.params["body"]) == pytest.approx(x, abs=1e-12)
        assert float(state.control["body"]) == pytest.approx(c, abs=1e-12)
    assert {k: float(v["body"]) for k, v in federation.states.items()} == pytest.approx(controls)


def test_scaffold_uses_the_sum_of_varying_learning_rates() -> None:
    solver = Solver(optimizer="sgd", lr=0.1, batch=1, schedule="linear", warmup=0.0, clip=0.0)
    federation = FakeFederation(scaffold(solver), make_params(1.0))
    federation.run(cohort=("a",))
    w, rates = 1.0, [solver.learning_rate_at(k, 4) for k in range(4)]
    for rate in rates:
        w -= rate * (w + 1.0)
    assert float(federation.states["a"]["body"]) == pytest.approx((1.0 - w) / sum(rates))


def test_scaffold_and_feddyn_reach_the_global_optimum_with_unequal_clients() -> None:
    for algorithm in (scaffold(SGD), feddyn(Solver(optimizer="sgd", lr=0.1, batch=2, epochs=20, clip=0.0), alpha=1.0)):
        state = FakeFederation(algorithm, make_params(0.0)).run(80)
        assert float(state.params["body"]) == pytest.approx(GLOBAL_OPTIMUM, abs=1e-3)


def test_feddyn_follows_its_algorithm() -> None:
    alpha = 0.5
    federation = FakeFederation(feddyn(SGD, alpha), make_params(0.0))
    theta, h, gradients = 0.0, 0.0, dict.fromkeys(CURVATURES, 0.0)
    for cohort in (("a", "b", "c"), ("a", "b"), ("c",)):
        locals_ = {}
        for client in cohort:
            locals_[client] = descend(client, theta, steps_of(client), shift=-gradients[client], mu=alpha)
            gradients[client] -= alpha * (locals_[client] - theta)
        h -= alpha / 3 * sum(w - theta for w in locals_.values())
        theta = float(np.mean(list(locals_.values()))) - h / alpha
        state = federation.run(cohort=cohort)
        assert (float(state.params["body"]), float(state.h["body"])) == pytest.approx((theta, h))
    assert {k: float(v["body"]) for k, v in federation.states.items()} == pytest.approx(gradients)


def test_fednova_normalizes_updates_by_their_steps() -> None:
    federation = FakeFederation(fednova(SGD), make_params(0.5))
    n, x = sum(SIZES.values()), 0.5
    for _ in range(2):
        d = {c: (x - descend(c, x, steps_of(c))) / (0.1 * steps_of(c)) for c in CURVATURES}
        effective = sum(SIZES[c] / n * steps_of(c) for c in CURVATURES)
        x -= effective * sum(SIZES[c] / n * 0.1 * d[c] for c in CURVATURES)
        assert float(federation.run().params["body"]) == pytest.approx(x, abs=1e-7)


def test_qfedavg_weights_clients_by_their_losses() -> None:
    for q in (0.0, 1.0, 2.5):
        federation, w, lipschitz = FakeFederation(qfedavg(SGD, q), make_params(0.5)), 0.5, 1 / 0.1
        deltas, hs = [], []
        for client, curvature in CURVATURES.items():
            loss = curvature / 2 * (w - OPTIMA[client]) ** 2
            delta = lipschitz * (w - descend(client, w, steps_of(client)))
            deltas.append(loss**q * delta)
            hs.append(q * loss ** (q - 1) * delta**2 + lipschitz * loss**q)
        assert float(federation.run().params["body"]) == pytest.approx(w - sum(deltas) / sum(hs))


def test_qfedavg_keeps_the_model_if_the_powers_of_all_losses_are_0() -> None:
    federation = FakeFederation(qfedavg(SGD, q=40.0), make_params(2.0))
    assert float(federation.run(cohort=("b",)).params["body"]) == OPTIMA["b"] == 2.0


def test_pfedme_reaches_the_optimum_of_the_moreau_envelopes() -> None:
    lam = 2.0
    algorithm = pfedme(SGD, lam=lam, eta=0.05, inner_steps=60)
    federation = FakeFederation(algorithm, make_params(0.0))
    envelope = {c: lam * CURVATURES[c] / (lam + CURVATURES[c]) for c in CURVATURES}
    one_round = []
    for client, curvature in CURVATURES.items():
        w = 0.0
        for _ in range(steps_of(client)):
            theta = (curvature * OPTIMA[client] + lam * w) / (curvature + lam)
            w -= 0.05 * lam * (w - theta)
        one_round.append(w)
    assert float(federation.run().params["body"]) == pytest.approx(float(np.mean(one_round)), abs=1e-6)
    w = float(
        FakeFederation(pfedme(Solver(optimizer="sgd", lr=0.1, steps=1, clip=0.0), lam, 0.2, 1.0, 60), make_params(0.0))
        .run(100)
        .params["body"]
    )
    assert w == pytest.approx(sum(envelope[c] * OPTIMA[c] for c in CURVATURES) / sum(envelope.values()), abs=1e-4)


def test_pfedme_deploys_the_personal_model_and_mixes_with_beta() -> None:
    federation = FakeFederation(pfedme(SGD, lam=2.0, eta=0.05, beta=0.5, inner_steps=80), make_params(0.0))
    whole = FakeFederation(pfedme(SGD, lam=2.0, eta=0.05, inner_steps=80), make_params(0.0))
    assert float(federation.run().params["body"]) == pytest.approx(0.5 * float(whole.run().params["body"]))
    context: Any = None
    assert (
        federation.algorithm.assemble(context, federation.state.params, federation.states["b"])
        is federation.states["b"]
    )
    assert float(federation.states["b"]["body"]) == pytest.approx(
        3 * 2 / (3 + 2), abs=1e-6
    )  # one local round from w = 0


def test_per_fedavg_follows_the_first_order_steps() -> None:
    alpha, federation = 0.2, FakeFederation(per_fedavg(SGD, alpha=0.2), make_params(1.0))
    updates = []
    for client, curvature in CURVATURES.items():
        w = 1.0
        for _ in range(steps_of(client)):
            inner = w - alpha * curvature * (w - OPTIMA[client])
            w -= 0.1 * curvature * (inner - OPTIMA[client])
        updates.append(w - 1.0)
    assert float(federation.run().params["body"]) == pytest.approx(1.0 + float(np.mean(updates)))
    assert float(federation.states["b"]["body"]) == pytest.approx(descend("b", 1.0, 1, lr=alpha))  # its adapted model
    one_step = per_fedavg(Solver(optimizer="sgd", lr=0.1, steps=1, clip=0.0), alpha)
    weights = {c: CURVATURES[c] * (1 - alpha * CURVATURES[c]) for c in CURVATURES}
    optimum = sum(weights[c] * OPTIMA[c] for c in CURVATURES) / sum(weights.values())
    assert float(FakeFederation(one_step, make_params(0.0)).run(200).params["body"]) == pytest.approx(optimum, abs=1e-5)


@pytest.mark.parametrize("steps", [None, 4])
def test_fedrep_trains_the_head_and_then_the_representation(steps: int | None) -> None:
    """The head is trained for `head_epochs`, also if the representation is trained for a number of steps."""

    def product(client: str) -> tuple[Gradient, Callable[[Mapping[str, Tensor]], float]]:
        target = OPTIMA[client]  # f = (h·φ − y)²/2
        return (
            lambda w: {
                "body": (w["body"] * w["head"] - target) * w["head"],
                "head": (w["body"] * w["head"] - target) * w["body"],
            },
            lambda w: 0.0,
        )

    federation = FakeFederation(fedrep(replace(SGD, steps=steps), head_epochs=2), make_params(1.0, 0.5), product)
    body, heads = 1.0, dict.fromkeys(CURVATURES, 0.5)
    for _ in range(2):
        bodies = []
        for client in CURVATURES:
            head, phi = heads[client], body
            for _ in range(2 * steps_of(client)):
                head -= 0.1 * (phi * head - OPTIMA[client]) * phi
            for _ in range(steps or steps_of(client)):
                phi -= 0.1 * (phi * head - OPTIMA[client]) * head
            heads[client] = head
            bodies.append(phi)
        body = float(np.mean(bodies))
        assert federation.run().representation.layout.names == ("body",)
        assert float(federation.state.representation["body"]) == pytest.approx(body)
        assert {k: float(v["head"]) for k, v in federation.states.items()} == pytest.approx(heads)


@pytest.mark.parametrize("create", [scaffold, fednova, qfedavg, per_fedavg])
def test_algorithms_that_are_derived_for_sgd_refuse_other_optimizers(create: Callable[..., Algorithm]) -> None:
    with pytest.raises(ConfigError, match=r"derived for SGD without momentum, but solver\.optimizer is adamw"):
        create(Solver(optimizer="adamw"))
    with pytest.raises(ConfigError, match=r"computes with the learning rate, but solver\.lr is 0"):
        create(Solver(optimizer="sgd", lr=0))


class TinyEncoder:
    """Returns fixed hidden states and logits, as a transformers model would."""

    config = SimpleNamespace()

    def __init__(self, hidden: Tensor, logits: Tensor) -> None:
        self.hidden, self.logits = hidden, logits

    def __call__(self, **inputs: Any) -> dict[str, Any]:
        return {"logits": self.logits, "hidden_states": (None, self.hidden)}


class TinyForward:
    def __init__(self, module: Any) -> None:
        self.module = module

    def apply(self, function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        return function(self.module, *inputs)


def test_moon_adds_the_model_contrast_of_its_equation() -> None:
    torch.manual_seed(0)
    hidden, logits = torch.randn(3, 2, 4), torch.randn(3, 5)
    mask = torch.tensor([[1, 1], [1, 0], [1, 1]])
    batch = {
        "input_ids": torch.zeros(3, 2, dtype=torch.long),
        "attention_mask": mask,
        "labels": torch.tensor([0, 3, 4]),
        "z_global": torch.randn(3, 4),
        "z_previous": torch.randn(3, 4),
    }
    forward: Any = TinyForward(TinyEncoder(hidden, logits))
    losses, weights = ModelContrast(CrossEntropy(), mu=2.0, temperature=0.5).losses(forward, batch)
    for i in range(3):
        z = hidden[i, mask[i].bool()].mean(0)
        positive, negative = (
            torch.exp(torch.cosine_similarity(z, batch[name][i], 0) / 0.5) for name in ("z_global", "z_previous")
        )
        supervised = -logits[i].log_softmax(-1)[batch["labels"][i]]
        expected = supervised - 2.0 * torch.log(positive / (positive + negative))
        assert float(losses[i]) == pytest.approx(float(expected), abs=1e-5)
    assert weights.tolist() == [1, 1, 1]
