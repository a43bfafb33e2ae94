"""Federated distillation between different models: what is sent, what is summed, and how the options behave."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.runs import advance, make_plan, make_round, start_run
from tests.sizes import NO_DROPOUT, SMALL

from motet.algorithms import adafd, dsfl, fedavg_logits, fedkd, mhat
from motet.algorithms.adafd import make_distill_solver
from motet.algorithms.distillation import Distiller, smallest_epoch_loss
from motet.algorithms.distillation_weights import ExponentialWeights, LocalWeights, TrainingStats, normalize_weights
from motet.algorithms.logit_pooling import TopLogits, restore_logits, truncate_logits
from motet.algorithms.public_data import get_public_data
from motet.algorithms.secure_distillation import TOTAL_WEIGHT, PendingLogits, SecureDistillation
from motet.benchmark.table_metrics import TableMetric
from motet.codecs import float16, int8
from motet.codecs.chain import Channel, CodecChain
from motet.core.errors import ConfigError, PrivacyError, RunError
from motet.core.params import Params
from motet.core.rng import Seed
from motet.core.script import Note, all_client_methods, rewrite_sums, run_script
from motet.datasets.corpus import Corpus
from motet.experiment.build.component_builders import build_algorithm, build_privacy
from motet.experiment.build.federation import Federation
from motet.experiment.build.federation_builder import build_federation, federate_corpus
from motet.experiment.build.traffic_estimate import estimate_traffic
from motet.experiment.commands.dry_run import dry_run
from motet.experiment.loop.run_loop import FederatedRun
from motet.experiment.recipe.recipe_files import baseline_config, load_recipe
from motet.experiment.recipe.run_config import ComponentConfig, EvaluationConfig, RunConfig
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.solver import Solver
from motet.models.model_config import ModelConfig
from motet.report.weight_plots import draw_weights
from motet.secure import SECURE
from motet.wire import deserialize, serialize

SOLVER = Solver(lr=0.01, batch=16, epochs=2)
SMALL_MINILM = {
    "hidden_size": 32,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "intermediate_size": 32,
    **NO_DROPOUT,
}
TINY_MODEL = {"name": "tiny", "max_tokens": 24, "config": SMALL}
FLOAT32, FLOAT64 = 4, 8  # bytes


@pytest.fixture(scope="module")
def heterogeneous() -> Federation:
    """Clients with three architectures and two tokenizers; the server has a fourth model."""
    settings = {
        "data": {"name": "toy-classification", "limit": 128, "test_limit": 32, "public_share": 0.25},
        "model": {"name": "tiny", "max_tokens": 24, "config": {**SMALL, "num_hidden_layers": 1}},
        "groups": [
            {"clients": 2, "model": {"name": "tiny", "config": SMALL}},
            {"clients": 1, "model": {"name": "bilstm", "config": {"embedding_dim": 16, "hidden_size": 16}}},
            {"clients": 1, "model": {"name": "minilm", "from_scratch": True, "config": SMALL_MINILM}},
        ],
    }
    return build_federation(RunConfig.from_settings("heterogeneous", settings))


def make_config(algorithm: Any) -> RunConfig:
    settings = {
        "data": {"name": "toy-classification", "limit": 40, "test_limit": 10, "public_share": 0.25},
        "device": "cpu",
        "model": TINY_MODEL,
        "partition": {"clients": 2},
        "algorithm": algorithm,
    }
    return RunConfig.from_settings("distillation", settings)


# ---- heterogeneous models --------------------------------------------------------------------------------------------


def test_all_participants_have_the_same_public_texts_with_their_own_tokenizer(heterogeneous: Federation) -> None:
    clients = [heterogeneous.participant(client) for client in heterogeneous.clients]
    participants = [*clients, heterogeneous.server_participant]
    rows = [participant.split("public").rows.tolist() for participant in participants]
    assert all(each == rows[0] for each in rows)
    assert len(rows[0]) == 32
    train_rows = {row for client in clients for row in client.split("train").rows.tolist()}
    assert not train_rows & set(rows[0])
    is_one_token = {participant.model.tokenizer.tokenize("drizzle") == ["drizzle"] for participant in participants}
    assert is_one_token == {True, False}


def test_only_logits_are_sent_between_different_models(heterogeneous: Federation) -> None:
    running = advance(start_run(heterogeneous, adafd(SOLVER)))
    models = [running.storage.client_states.get("adafd", client) for client in heterogeneous.clients]
    assert len({model.layout.size for model in models}) == 3
    rows, classes, clients = 32, 4, 4
    traffic = running.engine.mailbox.traffic
    assert traffic.payload_up == clients * (rows * classes * FLOAT32 + FLOAT64), "logits, and a report of success"
    assert traffic.payload_down == clients * rows * classes * FLOAT32
    assert not running.plan.has_personal_models
    assert running.evaluator.evaluate_split("global").scores["accuracy"] >= 0
    assert running.state.params.layout == heterogeneous.server.model.layout


def test_traffic_does_not_depend_on_the_size_of_the_models(corpus: Corpus) -> None:
    payloads, sizes = [], []
    for width in (16, 64):
        model = ModelConfig("tiny", 24, config={**SMALL, "hidden_size": width})
        partition = ComponentConfig("uniform", {"clients": 2})
        federation = federate_corpus(model, corpus, partition, Seed(3), public_share=0.2)
        traffic = advance(start_run(federation, adafd(SOLVER))).engine.mailbox.traffic
        payloads.append((traffic.payload_up, traffic.payload_down))
        sizes.append(federation.model.layout.size)
    assert payloads[0] == payloads[1]
    assert sizes[1] > 3 * sizes[0]


def test_distillation_brings_clients_closer_to_the_server(federation: Federation) -> None:
    def mean_difference(distill_lr: float) -> float:
        running = advance(start_run(federation, adafd(SOLVER, distill_lr=distill_lr)))
        public = federation.server_participant.split("public")
        probabilities = []
        for params in (running.model_for(), running.model_for(federation.clients[0])):
            script = federation.server_context(1).infer(params, public)
            predictions = run_script(script, running.engine.mailbox.run_exchange, running.engine.executor.run)
            probabilities.append(predictions["logits"].softmax(-1))
        return float((probabilities[0] - probabilities[1]).abs().mean())

    assert mean_difference(0.01) < mean_difference(0.0)


def test_the_global_model_is_evaluated_on_every_clients_test_data(heterogeneous: Federation, tmp_path: Path) -> None:
    plan = make_plan(heterogeneous, adafd(SOLVER), 2, evaluation=EvaluationConfig(by_client=True))
    running = FederatedRun(plan, SerialExecutor(torch.device("cpu")), folder=tmp_path)
    running.run_rounds()
    accuracies = {
        row["who"]: row["value"]
        for row in running.storage.metrics.rows
        if (row["split"], row["name"], row["round"]) == ("common", "accuracy", 2)
    }
    clients = list(heterogeneous.clients)
    sizes = [len(heterogeneous.participant(client).split("test")) for client in clients]
    assert set(accuracies) == {*clients, "server"}
    weighted_mean = np.average([accuracies[client] for client in clients], weights=sizes)
    assert accuracies["server"] == pytest.approx(weighted_mean)
    mean_percent = 100 * np.mean([accuracies[client] for client in clients])
    scores, statistics = TableMetric("shared accuracy").read_examples(tmp_path, mean_percent)
    assert scores is not None
    assert np.array_equal(np.unique(scores.owners, return_counts=True)[1], sizes)
    assert statistics is not None
    assert statistics.rows.shape == (sum(sizes), 3 * len(heterogeneous.task.labels))


# ---- reading only sums -----------------------------------------------------------------------------------------------


def test_distill_epochs_count_also_if_clients_train_for_a_number_of_steps() -> None:
    in_steps = replace(SOLVER, steps=3)
    assert make_distill_solver(in_steps, 2, None).num_steps(64) == 2 * 4
    assert make_distill_solver(in_steps, None, None).num_steps(64) == 3


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        (adafd, {}), (adafd, {"weighting": "rnwc"}), (fedavg_logits, {}), (dsfl, {}), (dsfl, {"variant": "original"}),
        (mhat, {}), (fedkd, {}),
    ],
)  # fmt: skip
def test_reading_only_sums_gives_the_same_model(
    algorithm: Any, options: dict[str, Any], federation: Federation
) -> None:
    sgd = Solver(optimizer="sgd", lr=0.1, batch=16)  # Adam would amplify rounding errors
    gathered = advance(start_run(federation, algorithm(sgd, **options)))
    summed = advance(start_run(federation, algorithm(sgd, **options, exchange="sum")))
    assert set(all_client_methods(summed.plan.algorithm).values()) == {"sum"}
    assert torch.allclose(gathered.state.params.flat, summed.state.params.flat, atol=1e-5)


@pytest.mark.parametrize("protocol", ["secagg", "light_secagg"])
@pytest.mark.parametrize(("weighting", "beta"), [("enwc", 5.0), ("enwc", 15.0), ("rnwc", 5.0)])
def test_secure_sums_pool_the_same_logits(
    protocol: str, weighting: Any, beta: float, federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the weights are as small as e^−20, because clients weight their logits by their share of the total."""
    pooled_logits: list[Params] = []
    distill_server = Distiller.distill_server

    def record_pooled(self: Distiller, server: Any, params: Params, pooled: Params) -> Any:
        pooled_logits.append(pooled)
        return distill_server(self, server, params, pooled)

    monkeypatch.setattr(Distiller, "distill_server", record_pooled)
    algorithm = adafd(SOLVER, weighting=weighting, beta=beta, exchange="sum")
    advance(start_run(federation, algorithm))
    secure = SECURE[protocol](range=16.0)
    running = start_run(federation, algorithm, secure=secure)
    script = rewrite_sums(secure, algorithm.round(running.state, make_round(federation)))
    run_script(script, running.engine.mailbox.run_exchange, running.engine.executor.run)
    plain, masked = pooled_logits
    assert torch.allclose(plain.flat, masked.flat, atol=1e-4)
    assert plain.norm() > 0.1


def test_a_client_that_has_not_sent_its_weight_refuses_to_send_logits(federation: Federation) -> None:
    """It once replied with weight 0. A server that asked only one client for its weight then read that client's logits."""
    algorithm = adafd(SOLVER, exchange="sum")
    assert isinstance(algorithm, SecureDistillation)
    ctx = federation.server_context(1)
    logits = get_public_data(ctx).blank_logits()
    pending = PendingLogits(params=ctx.initial_params, logits=logits, weight=1.0, round=0)
    for client_state in (None, ctx.initial_params, pending):
        with pytest.raises(PrivacyError, match="has not sent its weight in round 2"):
            algorithm.send_logits(ctx, 1.0, client_state)
    reply, _ = algorithm.send_logits(federation.server_context(0), 2.0, pending)
    assert reply.weight == TOTAL_WEIGHT / 2


def test_weights_that_depend_on_losses_are_rejected_under_differential_privacy() -> None:
    def build(weighting: str) -> Any:
        settings = {
            "algorithm": {"type": "adafd", "exchange": "sum", "weighting": weighting},
            "privacy": {"type": "central", "clip": 1.0, "noise": 1.0},
        }
        config = RunConfig.from_settings("private", settings)
        return build_privacy(config, build_algorithm(config))

    with pytest.raises(PrivacyError, match=r"algorithm\.weighting=equal"):
        build("enwc")
    assert build("equal") is not None


@pytest.mark.parametrize(
    ("algorithm", "options", "message"),
    [
        (adafd, {"weighting": "llmwc"}, "weighting=llmwc compares the statistics of all clients"),
        (adafd, {"top_classes": 2}, "logits of the top 2 classes cannot be summed"),
        (fedkd, {"variant": "original"}, "weighting=class_counts compares"),
    ],
)
def test_options_that_need_single_replies_are_rejected_with_sums(
    algorithm: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        algorithm(SOLVER, exchange="sum", **options)


# ---- truncated logits and traffic ------------------------------------------------------------------------------------


def test_truncated_logits_keep_the_top_classes_and_the_sum() -> None:
    logits = torch.randn(7, 10, generator=torch.Generator().manual_seed(0))
    params = Params.from_tensors({"logits": logits})
    truncated = deserialize(serialize(truncate_logits(params, 3)))
    assert isinstance(truncated, TopLogits)
    restored = restore_logits("a", truncated, 10)["logits"]
    assert torch.equal(restored.topk(3).indices, logits.topk(3).indices)
    assert torch.equal(restored.topk(3).values, logits.topk(3).values)
    assert torch.allclose(restored.sum(-1), logits.sum(-1), atol=1e-5)
    assert truncate_logits(params, 9) is params, "nine classes and a mean are not shorter than ten classes"


@pytest.mark.parametrize(
    "change",
    [
        {"num_classes": 10**12},  # the server would run out of memory
        {"classes": torch.full((7, 3), 10)},
        {"classes": torch.full((7, 3), -1)},
        {"classes": torch.zeros(7, 4)},
        {"values": Params.from_tensors({"logits": torch.zeros(7)})},
        {"values": Params.from_tensors({"seen": torch.zeros(7)})},
    ],
)
def test_truncated_logits_of_a_hostile_client_are_an_error_with_its_name(change: dict[str, Any]) -> None:
    truncated = truncate_logits(Params.from_tensors({"logits": torch.zeros(7, 10)}), 3)
    assert isinstance(truncated, TopLogits)
    with pytest.raises(RunError, match=r"client-2 sent .* numbers from 0 to 9"):
        restore_logits("client-2", replace(truncated, **change), 10)


def test_truncated_and_rounded_logits_cost_fewer_bytes(federation: Federation) -> None:
    rows, classes, clients, success_report = 16, 4, 4, FLOAT64
    top = advance(start_run(federation, adafd(SOLVER, top_classes=1))).engine.mailbox.traffic
    assert top.payload_up == clients * (rows * (2 * FLOAT32 + 1) + success_report)
    half = CodecChain((float16(),))
    rounded = advance(start_run(federation, adafd(SOLVER), channel=Channel(up=half, down=half))).engine.mailbox.traffic
    assert rounded.payload_up == clients * (rows * classes * 2 + success_report)
    assert rounded.payload_down == clients * rows * classes * 2
    with pytest.raises(ConfigError, match="top_classes is 0"):
        adafd(SOLVER, top_classes=0)


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        (adafd, {}), (adafd, {"top_classes": 1}), (adafd, {"exchange": "sum"}), (dsfl, {}), (fedavg_logits, {}),
        (fedkd, {}), (fedkd, {"exchange": "sum"}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("codecs", [(), (float16(),), (int8(),)], ids=["plain", "float16", "int8"])
def test_the_traffic_estimate_is_exact(algorithm: Any, options: Any, codecs: Any, federation: Federation) -> None:
    channel = Channel(up=CodecChain(codecs), down=CodecChain(codecs))
    running = start_run(federation, algorithm(SOLVER, **options), channel=channel)
    estimate = estimate_traffic(running.plan)
    traffic = advance(running).engine.mailbox.traffic
    assert (estimate.up, estimate.down) == (traffic.payload_up, traffic.payload_down)
    assert estimate.up > 0
    assert (estimate.down > 0) == (algorithm is not fedkd)


def test_a_dry_run_estimates_the_traffic() -> None:
    config = make_config("adafd")
    facts = dry_run(config, build_federation(config)).facts
    # 2 clients × 10 texts × 4 classes × 4 bytes, and 8 bytes per client for its report of success
    assert facts["bytes per round"] == "0.3 kB down, 0.3 kB up"


# ---- weights and notes -----------------------------------------------------------------------------------------------


def note_texts(notes: list[Note]) -> list[str]:
    return [note.text for note in notes if note.text]


def test_a_note_says_if_one_client_dominates_the_pool(federation: Federation) -> None:
    dominated: list[Note] = []
    advance(start_run(federation, adafd(SOLVER, beta=2000.0)), notes=dominated)
    assert any("of the weight and dominates the pool" in text for text in note_texts(dominated))
    balanced: list[Note] = []
    advance(start_run(federation, adafd(SOLVER)), notes=balanced)
    assert note_texts(balanced) == []


def test_a_larger_beta_spreads_the_logged_weights(federation: Federation) -> None:
    def spread(beta: float) -> float:
        running = start_run(federation, adafd(SOLVER, beta=beta))
        running.run_rounds()
        rows = [
            row for row in running.storage.metrics.rows if (row["split"], row["name"]) == ("distillation", "weight")
        ]
        assert len(rows) == 2 * 4
        first_round = [row["value"] for row in rows[:4]]
        return max(first_round) - min(first_round)

    assert spread(0.5) < spread(50.0)


def test_the_weights_of_a_run_can_be_plotted(federation: Federation, tmp_path: Path) -> None:
    running = start_run(federation, adafd(SOLVER))
    running.run_rounds()
    assert draw_weights(running.storage.metrics.rows, "weights", tmp_path / "weights.png")
    assert (tmp_path / "weights.png").stat().st_size > 10_000
    assert not draw_weights([], "nothing", tmp_path / "none.png")


def test_very_large_losses_do_not_make_all_weights_zero(federation: Federation) -> None:
    stats = {name: TrainingStats(loss=loss, num_examples=1) for name, loss in (("a", 160.0), ("b", 200.0))}
    weights, _ = LocalWeights(ExponentialWeights(beta=5.0)).weights(stats)
    assert normalize_weights(weights).tolist() == pytest.approx([1.0, 0.0])
    assert normalize_weights(torch.zeros(4, dtype=torch.float64)).tolist() == [0.25] * 4
    with pytest.raises(RunError, match=r"weights of all 4 clients are too small to be summed.*algorithm\.beta"):
        advance(start_run(federation, adafd(SOLVER, beta=2000.0, exchange="sum")))


def test_the_offline_language_model_is_noted(federation: Federation) -> None:
    notes: list[Note] = []
    advance(start_run(federation, adafd(SOLVER, weighting="llmwc")), notes=notes)
    assert any("weights from a fixed rule" in text for text in note_texts(notes))


def test_a_language_model_without_a_key_is_rejected_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    config = make_config({"type": "adafd", "weighting": "llmwc", "llm": {"model": "some-model"}})
    with pytest.raises(ConfigError, match="neither OPENAI_API_KEY nor OPENAI_BASE_URL"):
        dry_run(config, build_federation(config))


# ---- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "options", "message"),
    [
        (adafd, {"temperature": 0.0}, "temperature is 0"),
        (adafd, {"temperature": -1.0}, "temperature is -1"),
        (adafd, {"epsilon": 0.0, "weighting": "rnwc"}, "epsilon is 0"),
        (adafd, {"epsilon": -5.0}, "epsilon is -5"),
        (adafd, {"beta": -1.0}, "beta is -1"),
        (dsfl, {"sharpness": 0.0}, "sharpness is 0"),
    ],
)
def test_invalid_options_are_rejected(algorithm: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        algorithm(SOLVER, **options)


def test_the_smallest_mean_loss_of_an_epoch_is_used() -> None:
    losses = torch.tensor([4.0, 2.0, 1.0, 3.0, 5.0, 5.0])
    assert smallest_epoch_loss(losses, batches_per_epoch=2) == 2.0
    assert np.isnan(smallest_epoch_loss(torch.zeros(0), batches_per_epoch=0))


def test_fedkd_exchanges_logits_in_the_first_round_only(federation: Federation) -> None:
    running = advance(start_run(federation, fedkd(SOLVER)))
    state, payload_up = serialize(running.state), running.engine.mailbox.traffic.payload_up
    advance(running, 1)
    assert serialize(running.state) == state
    assert running.engine.mailbox.traffic.payload_up == payload_up
    assert running.engine.mailbox.traffic.payload_down == 0


@pytest.mark.parametrize("name", ["adafd", "adafd-heterogeneous", "toy-adafd"])
def test_the_algorithms_of_every_distillation_recipe_can_be_built(name: str) -> None:
    config = load_recipe(name)
    assert build_algorithm(config).name == "adafd"
    for baseline in config.baselines:
        assert build_algorithm(baseline_config(config, baseline)).name
