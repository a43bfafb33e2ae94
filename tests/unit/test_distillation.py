"""Federated distillation between unlike models, and what happens when something goes wrong in the middle of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.conftest import RunRounds
from tests.runs import make_plan
from tests.sizes import NO_DROPOUT, SMALL

from motet.algorithms import adafd, dsfl, fedavg_logits, fedkd, mhat
from motet.algorithms.distillation import Teaching, least
from motet.algorithms.distillation_weights import Account, Exponential, Own, shares
from motet.algorithms.logit_pooling import TopClasses, shortened, whole
from motet.algorithms.public_data import public_of
from motet.algorithms.secure_distillation import Learnt, SummedDistillation
from motet.benchmark.table_metrics import TableMetric
from motet.codecs import float16, int8
from motet.codecs.chain import Channel, CodecChain
from motet.core.errors import ConfigError, PrivacyError, RunError
from motet.core.params import Params
from motet.core.program import Algorithm, Round
from motet.core.rng import Seed
from motet.core.script import Note, client_methods, rewrite_sums, run_script
from motet.core.work import Job, JobFailure
from motet.datasets.corpus import Corpus
from motet.experiment.build.component_builders import build_algorithm, build_privacy
from motet.experiment.build.federation import Federation
from motet.experiment.build.federation_builder import build_federation, federate_corpus
from motet.experiment.build.traffic_estimate import estimate_client_bytes
from motet.experiment.commands.dry_run import dry_run
from motet.experiment.loop.run_loop import FederatedRun
from motet.experiment.recipe.recipe_files import baseline_config, load_recipe
from motet.experiment.recipe.run_config import ComponentConfig, EvaluationConfig, RunConfig
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.jobs import Fit, Infer, LRHorizon
from motet.learning.solver import Solver
from motet.models.load_model import ModelConfig
from motet.partitions.partition import ClientRows
from motet.report.progress import SilentProgress
from motet.report.weight_plots import draw_weights
from motet.secure import SECURE
from motet.transport.mailbox import Mailbox
from motet.transport.requests import Request
from motet.transport.wait_policy import WaitPolicy
from motet.wire import deserialize, serialize

SOLVER = Solver(lr=0.01, batch=16, epochs=2)
WIDE = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 32, **NO_DROPOUT}


@pytest.fixture(scope="module")
def unlike() -> Federation:
    """Three architectures and two ways of cutting texts into tokens; the server has a fourth model."""
    groups = [
        {"clients": 2, "model": {"name": "tiny", "config": SMALL}},
        {"clients": 1, "model": {"name": "bilstm", "config": {"width": 16, "hidden": 16}}},
        {"clients": 1, "model": {"name": "minilm", "from_scratch": True, "config": WIDE}},
    ]
    top = {
        "data": {"name": "toy-classification", "limit": 128, "test_limit": 32, "public_share": 0.25},
        "model": {"name": "tiny", "max_tokens": 24, "config": {**SMALL, "num_hidden_layers": 1}},
    }
    return build_federation(RunConfig.from_settings("unlike", {**top, "groups": groups}))


def begun(federation: Federation, algorithm: Algorithm, **plan: Any) -> FederatedRun:
    return FederatedRun(
        make_plan(federation, algorithm, 2, **plan), SerialExecutor(torch.device("cpu")), None, SilentProgress()
    )


def first_round(federation: Federation, index: int = 0) -> Round:
    return Round(
        index, 2, tuple(federation.clients), federation.seed.derive("round", index), federation.server_context(index)
    )


def played(
    running: FederatedRun, remarks: list[Note] | None = None, index: int = 0, mailbox: Mailbox | None = None
) -> FederatedRun:
    federation = running.plan.federation
    rnd = first_round(federation, index)
    ask = (mailbox or running.mailbox).ask
    note = remarks.append if remarks is not None else lambda remark: None
    running.state = run_script(running.plan.algorithm.round(running.state, rnd), ask, running.executor.run, note)
    running.memories.commit_round()
    running.done = index + 1
    return running


# ---- unlike models ---------------------------------------------------------------------------------------------------


def test_all_read_the_same_public_texts_each_with_its_own_tokenizer(unlike: Federation) -> None:
    sites = [unlike.participant(client) for client in unlike.clients] + [unlike.server_participant]
    rows = [site.split("public").rows.tolist() for site in sites]
    assert all(r == rows[0] for r in rows)
    assert len(rows[0]) == 32
    assert not set(rows[0]) & {
        row for client in unlike.clients for row in unlike.participant(client).split("train").rows.tolist()
    }
    cut = {site.model.tokenizer.tokenize("drizzle") == ["drizzle"] for site in sites}
    assert cut == {True, False}


def test_unlike_models_teach_one_another_and_no_parameter_travels(unlike: Federation) -> None:
    running = played(begun(unlike, adafd(SOLVER)))
    sizes = {running.memories.get("adafd", client).layout.size for client in unlike.clients}
    assert len(sizes) == 3
    rows, classes, clients = 32, 4, 4
    traffic = running.mailbox.traffic
    assert traffic.payload_up == clients * (rows * classes * 4 + 8)  # the 8: a client says that it has heard
    assert traffic.payload_down == clients * rows * classes * 4
    assert not running.personal
    assert running.look()["accuracy"] >= 0
    assert running.state.params.layout == unlike.server.model.layout


def test_traffic_does_not_depend_on_the_models(corpus: Corpus) -> None:
    moved, sizes = [], []
    for width in (16, 64):
        choice = ModelConfig("tiny", 24, config={**SMALL, "hidden_size": width})
        made = federate_corpus(choice, corpus, ComponentConfig("uniform", {"clients": 2}), Seed(3), public_share=0.2)
        traffic = played(begun(made, adafd(SOLVER))).mailbox.traffic
        moved.append((traffic.payload_up, traffic.payload_down))
        sizes.append(made.model.layout.size)
    assert moved[0] == moved[1]
    assert sizes[1] > 3 * sizes[0]


def test_clients_come_nearer_to_the_server_by_studying(federation: Federation) -> None:
    gaps = []
    for rate in (0.0, 0.01):
        running = played(begun(federation, adafd(replace(SOLVER, lr=0.01), distil_lr=rate)))
        site = federation.server_participant
        public = site.split("public")
        said = []
        for params in (running.model_params(), running.model_params(federation.clients[0])):
            script = federation.server_context(1).infer(params, public)
            said.append(run_script(script, running.mailbox.run_exchange, running.executor.run)["logits"].softmax(-1))
        gaps.append(float((said[0] - said[1]).abs().mean()))
    assert gaps[1] < gaps[0]


# ---- two ways to sum, and shorter opinions ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("maker", "options"),
    [
        (adafd, {}), (adafd, {"weighting": "rnwc"}), (fedavg_logits, {}), (dsfl, {}), (dsfl, {"variant": "original"}),
        (mhat, {}), (fedkd, {}),
    ],
)  # fmt: skip
def test_a_sum_is_all_that_the_server_needs(maker: Any, options: dict[str, Any], federation: Federation) -> None:
    plain = Solver(optimizer="sgd", lr=0.1, batch=16)  # which does not make much of rounding
    read = played(begun(federation, maker(plain, **options)))
    summed = played(begun(federation, maker(plain, **options, exchange="sum")))
    assert set(client_methods(summed.plan.algorithm).values()) == {"sum"}
    assert torch.allclose(read.state.params.flat, summed.state.params.flat, atol=1e-5)


@pytest.mark.parametrize("protocol", ["secagg", "light_secagg"])
@pytest.mark.parametrize(("weighting", "beta"), [("enwc", 5.0), ("enwc", 15.0), ("rnwc", 5.0)])
def test_under_masks_opinions_are_pooled_as_without(
    protocol: str, weighting: Any, beta: float, federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights of e^−20 are as good as others: what counts is a client's share of all of them."""
    seen: list[Params] = []
    teach = Teaching.teach

    def watched(self: Teaching, server: Any, params: Params, pool: Params) -> Any:
        seen.append(pool)
        return teach(self, server, params, pool)

    monkeypatch.setattr(Teaching, "teach", watched)
    algorithm = adafd(SOLVER, weighting=weighting, beta=beta, exchange="sum")
    plain, hidden = begun(federation, algorithm), begun(federation, algorithm, secure=SECURE[protocol](range=16.0))
    played(plain)
    script = rewrite_sums(
        hidden.plan.components.secure, hidden.plan.algorithm.round(hidden.state, first_round(federation))
    )
    run_script(script, hidden.mailbox.run_exchange, hidden.executor.run)
    assert torch.allclose(seen[0].flat, seen[1].flat, atol=1e-4)
    assert seen[0].norm() > 0.1


def test_a_client_that_decides_alone_is_said(federation: Federation) -> None:
    remarks: list[Note] = []
    played(begun(federation, adafd(SOLVER, beta=2000.0)), remarks)
    assert any("of the weight, and decides alone" in r.text for r in remarks)
    remarks.clear()
    played(begun(federation, adafd(SOLVER)), remarks)
    assert not any(r.text for r in remarks)


def test_what_cannot_be_pooled_privately_is_refused() -> None:
    given = {
        "algorithm": {"type": "adafd", "exchange": "sum"},
        "privacy": {"type": "central", "clip": 1.0, "noise": 1.0},
    }
    config = RunConfig.from_settings("x", given)
    with pytest.raises(PrivacyError, match=r"weighs clients by their losses.*algorithm\.weighting=equal"):
        build_privacy(config, build_algorithm(config))
    alike = RunConfig.from_settings("x", {**given, "algorithm": {**given["algorithm"], "weighting": "equal"}})
    assert build_privacy(alike, build_algorithm(alike)) is not None


def test_a_language_model_that_cannot_be_asked_is_said_before_anybody_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    top = {"data": {"name": "toy-classification", "limit": 40, "test_limit": 10, "public_share": 0.25}, "device": "cpu"}
    model = {"name": "tiny", "max_tokens": 24, "config": SMALL}
    asks = {"type": "adafd", "weighting": "llmwc", "llm": {"model": "some-model"}}
    config = RunConfig.from_settings("told", {**top, "model": model, "partition": {"clients": 2}, "algorithm": asks})
    with pytest.raises(ConfigError, match="neither OPENAI_API_KEY nor OPENAI_BASE_URL"):
        dry_run(config, build_federation(config))


def test_losses_too_large_for_beta_leave_the_least_of_them(federation: Federation) -> None:
    rule = Own(Exponential(beta=5.0))
    assert shares(rule.weights({"a": Account(160.0, 1), "b": Account(200.0, 1)})[0]).tolist() == pytest.approx(
        [1.0, 0.0]
    )
    with pytest.raises(RunError, match=r"weights of all 4 clients are too small to be summed.*algorithm\.beta"):
        played(begun(federation, adafd(SOLVER, beta=2000.0, exchange="sum")))


def test_a_client_that_was_not_there_when_weights_were_told_counts_for_nothing(federation: Federation) -> None:
    algorithm = adafd(SOLVER, exchange="sum")
    assert isinstance(algorithm, SummedDistillation)
    ctx = federation.server_context(1)
    own = Learnt(ctx.initial_params, public_of(ctx).blank(), 1.0, round=0)
    for memory in (None, ctx.initial_params, own):
        vote, kept = algorithm.vote(ctx, 1.0, memory)
        assert vote.weight == 0
        assert kept.layout == ctx.initial_params.layout
    assert algorithm.vote(federation.server_context(0), 2.0, own)[0].weight == 500


@pytest.mark.parametrize(
    ("maker", "options", "said"),
    [
        (adafd, {"temperature": 0.0}, "temperature is 0"),
        (adafd, {"temperature": -1.0}, "temperature is -1"),
        (adafd, {"epsilon": 0.0, "weighting": "rnwc"}, "epsilon is 0"),
        (adafd, {"epsilon": -5.0}, "epsilon is -5"),
        (dsfl, {"sharpness": 0.0}, "sharpness is 0"),
    ],
)
def test_what_cannot_be_meant_is_refused(maker: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        maker(SOLVER, **options)


@pytest.mark.parametrize(
    ("maker", "options", "said"),
    [
        (adafd, {"weighting": "llmwc"}, "weighting=llmwc compares what all clients tell"),
        (adafd, {"top_classes": 2}, "best 2 classes do not add up"),
        (fedkd, {"variant": "original"}, "weighting=classes compares"),
    ],
)
def test_what_a_sum_cannot_do_is_said(maker: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        maker(SOLVER, exchange="sum", **options)


def test_the_best_classes_of_each_text_are_kept_and_the_others_share_their_mean() -> None:
    logits = torch.randn(7, 10, generator=torch.Generator().manual_seed(0))
    short = deserialize(serialize(shortened(Params.from_tensors({"logits": logits}), 3)))
    assert isinstance(short, TopClasses)
    back = whole(short)["logits"]
    assert torch.equal(back.topk(3).indices, logits.topk(3).indices)
    assert torch.equal(back.topk(3).values, logits.topk(3).values)
    assert torch.allclose(back.sum(-1), logits.sum(-1), atol=1e-5)
    assert torch.equal(
        whole(shortened(Params.from_tensors({"logits": logits}), 9))["logits"], logits
    )  # the ninth and the mean of one are all ten
    with pytest.raises(RunError, match="names class 9 of 5"):
        whole(replace(short, count=5))


def test_shorter_opinions_cost_fewer_bytes(federation: Federation) -> None:
    rows, clients = 16, 4
    short = played(begun(federation, adafd(SOLVER, top_classes=1))).mailbox.traffic
    assert short.payload_up == clients * (rows * (2 * 4 + 1) + 8)
    half = Channel(up=CodecChain((float16(),)), down=CodecChain((float16(),)))
    halved = played(begun(federation, adafd(SOLVER), channel=half)).mailbox.traffic
    assert halved.payload_up == clients * (rows * 4 * 2 + 8)
    assert halved.payload_down == clients * rows * 4 * 2
    with pytest.raises(ConfigError, match="top_classes is 0"):
        adafd(SOLVER, top_classes=0)


@pytest.mark.parametrize(
    ("maker", "options"),
    [
        (adafd, {}), (adafd, {"top_classes": 1}), (adafd, {"exchange": "sum"}), (dsfl, {}), (fedavg_logits, {}), (fedkd, {}),
        (fedkd, {"exchange": "sum"}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("codecs", [(), (float16(),), (int8(),)], ids=["plain", "float16", "int8"])
def test_what_a_round_will_cost_is_what_it_costs(maker: Any, options: Any, codecs: Any, federation: Federation) -> None:
    channel = Channel(up=CodecChain(codecs), down=CodecChain(codecs))
    running = begun(federation, maker(SOLVER, **options), channel=channel)
    said = estimate_client_bytes(running.plan)
    traffic = played(running).mailbox.traffic
    clients = len(federation.clients)
    assert (clients * said.up, clients * said.down) == (traffic.payload_up, traffic.payload_down)
    assert said.up > 0
    assert (said.down > 0) == (maker is not fedkd)


def test_a_rehearsal_tells_the_traffic_of_opinions() -> None:
    top = {"data": {"name": "toy-classification", "limit": 40, "test_limit": 10, "public_share": 0.25}, "device": "cpu"}
    model = {"name": "tiny", "max_tokens": 24, "config": SMALL}
    config = RunConfig.from_settings("told", {**top, "model": model, "partition": {"clients": 2}, "algorithm": "adafd"})
    facts = dry_run(config, build_federation(config)).facts
    assert (
        facts["bytes a round"] == "0.3 kB down, 0.3 kB up"
    )  # 2 clients, 10 texts, 4 classes of 4 bytes; up also 8 a client


# ---- what goes wrong -------------------------------------------------------------------------------------------------


class Spoiling:
    """A executor on which training on certain rows fails."""

    capacity = 1

    def __init__(self, rows: np.ndarray) -> None:
        self.inner, self.rows, self.jobs = SerialExecutor(torch.device("cpu")), rows, list[Job]()

    @property
    def examples_processed(self) -> int:
        return self.inner.examples_processed

    def submit(self, key: Any, job: Job) -> None:
        self.inner.submit(key, job)

    def wait_completed(self) -> Any:
        key, job = self.inner.queue[0]
        self.jobs.append(job)
        if isinstance(job, Fit) and np.array_equal(job.examples.rows, self.rows):
            self.inner.queue.popleft()
            return [(key, JobFailure(RunError("training gave a loss of nan at step 1 of 2")))]
        return self.inner.wait_completed()

    def run(self, job: Job) -> Any:
        return self.inner.run(job)

    def close(self) -> None: ...


class Overheating(Spoiling):
    """A executor on which training on certain rows is so hot that it diverges by itself."""

    def wait_completed(self) -> Any:
        key, job = self.inner.queue[0]
        if isinstance(job, Fit) and np.array_equal(job.examples.rows, self.rows):
            hot = replace(job.solver, optimizer="sgd", lr=1e30, clip=0.0, epochs=8)
            self.inner.queue[0] = (key, replace(job, solver=hot))
        return self.inner.wait_completed()


def test_a_client_whose_loss_is_no_number_is_left_out_and_that_is_said(federation: Federation) -> None:
    unlucky = federation.clients[1]
    executor = Spoiling(federation.participant(unlucky).split("train").rows)
    remarks: list[Note] = []
    running = FederatedRun(make_plan(federation, adafd(SOLVER), 2), executor, None, SilentProgress())
    played(running, remarks)
    assert [r.text for r in remarks if r.text] == [
        f"round 1: {unlucky} is left out of the pool: its training loss is nan."
    ]
    weights = {r.source: r.values["weight"] for r in remarks if r.kind == "distillation"}
    assert unlucky not in weights
    assert len(weights) == 3
    assert sum(weights.values()) == pytest.approx(1)
    assert running.memories.get("adafd", unlucky).is_finite()  # it has learnt from the others


def test_one_that_cannot_learn_from_the_others_stays_as_it_was(federation: Federation) -> None:
    executor = Spoiling(federation.server_participant.split("public").rows)
    remarks: list[Note] = []
    running = FederatedRun(make_plan(federation, adafd(SOLVER), 2), executor, None, SilentProgress())
    played(running, remarks)
    assert any("4 clients could not learn" in r.text for r in remarks)
    assert all(running.memories.get("adafd", client).is_finite() for client in federation.clients)


LEFT_OUT = "round 1: 1 of 4 clients are left out of the pool: no training texts, or a loss that is not finite."


@pytest.mark.parametrize("exchange", ["gather", "sum"])
def test_a_client_without_texts_has_no_say_but_learns(exchange: Any, federation: Federation) -> None:
    group = federation.groups[0]
    parts = [group.train[k] for k in range(4)]
    parts[2] = parts[2][:0]
    poorer = replace(
        group,
        train=ClientRows.from_lists(parts),
        partition=replace(group.partition, train=ClientRows.from_lists(parts)),
    )
    made = replace(federation, groups=(poorer,))
    remarks: list[Note] = []
    running = played(begun(made, adafd(SOLVER, exchange=exchange)), remarks)
    fresh = made.model.initial_params.flat
    assert not torch.equal(running.memories.get("adafd", made.clients[2]).flat, fresh)
    said = [r.text for r in remarks if r.text]
    alone = "round 1: client-2 is left out of the pool: it has no training texts."
    assert said == [alone if exchange == "gather" else LEFT_OUT]


@pytest.mark.parametrize("exchange", ["gather", "sum"])
def test_a_training_that_really_diverges_leaves_its_client_out(exchange: Any, federation: Federation) -> None:
    """As the others alone: those who are left are pooled as if there were nobody else."""
    unlucky, rest = federation.clients[1], [c for c in federation.clients if c != federation.clients[1]]
    rows = federation.participant(unlucky).split("train").rows
    running = FederatedRun(
        make_plan(federation, adafd(SOLVER, exchange=exchange), 2), Overheating(rows), None, SilentProgress()
    )
    remarks: list[Note] = []
    played(running, remarks)
    without = begun(federation, adafd(SOLVER, exchange=exchange))
    rnd = Round(0, 2, tuple(rest), federation.seed.derive("round", 0), federation.server_context(0))
    state = run_script(
        without.plan.algorithm.round(without.state, rnd), without.mailbox.run_exchange, without.executor.run
    )
    assert torch.allclose(running.state.params.flat, state.params.flat, atol=1e-6)
    said = f"round 1: {unlucky} is left out of the pool: its training loss is nan."
    assert [r.text for r in remarks if r.text] == [said if exchange == "gather" else LEFT_OUT]
    assert running.memories.get("adafd", unlucky).is_finite()


@pytest.mark.parametrize("exchange", ["gather", "sum"])
def test_opinions_that_are_no_numbers_are_nobody_s(exchange: Any, federation: Federation) -> None:
    unlucky = federation.clients[2]
    running = begun(federation, adafd(SOLVER, exchange=exchange))
    executor, asked, spoken = running.executor, running.executor.wait_completed, list[Infer]()

    def spoilt() -> Any:
        """Clients speak one after another: the third inference is the third client's."""
        job = executor.queue[0][1]  # type: ignore[attr-defined]
        ((key, answer),) = asked()
        if isinstance(job, Infer):
            spoken.append(job)
            answer = {"logits": answer["logits"] * (float("inf") if len(spoken) == 3 else 1.0)}
        return [(key, answer)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executor, "wait_completed", spoilt)
        remarks: list[Note] = []
        played(running, remarks)
    assert len(spoken) == 4
    assert running.state.params.is_finite()
    if exchange == "gather":
        assert any(f"{unlucky} is left out of the pool" in r.text for r in remarks)
        assert unlucky not in {r.source for r in remarks if r.kind == "distillation"}


def test_nobody_with_a_loss_is_an_error(federation: Federation) -> None:
    group = federation.groups[0]
    none = ClientRows.from_lists([group.train[0][:0]] * 4)
    made = replace(federation, groups=(replace(group, train=none, partition=replace(group.partition, train=none)),))
    with pytest.raises(RunError, match="none of 4 clients has a finite training loss"):
        played(begun(made, adafd(SOLVER)))


class Forgetful:
    """A transport that loses what is sent to one client under one address."""

    def __init__(self, inner: Any, address: str, client: str) -> None:
        self.inner, self.lost = inner, (address, client)

    def send(self, request: Request) -> None:
        if (request.address, request.client) != self.lost:
            self.inner.send(request)

    def receive(self, timeout: float) -> Any:
        return self.inner.receive(timeout)

    def close(self) -> None: ...


def test_a_client_that_drops_out_between_the_exchanges_keeps_what_it_learnt_itself(federation: Federation) -> None:
    gone = federation.clients[3]
    running = begun(federation, adafd(SOLVER))
    mailbox = Mailbox(Forgetful(running.transport, "adafd.study", gone), WaitPolicy(quorum=0.5, timeout=1.0))
    played(running, mailbox=mailbox)
    assert mailbox.failures == [(0, gone, "did not reply")]
    alone = begun(federation, fedkd(SOLVER))  # trains, opines, and never studies
    played(alone)
    assert torch.equal(running.memories.get("adafd", gone).flat, alone.memories.get("fedkd", gone).flat)
    played(running, index=1)  # and it is back


@pytest.mark.parametrize("exchange", ["gather", "sum"])
def test_a_client_that_never_says_its_opinions_is_not_pooled(exchange: Any, federation: Federation) -> None:
    gone, rest = federation.clients[0], [c for c in federation.clients if c != federation.clients[0]]
    running = begun(federation, adafd(SOLVER, exchange=exchange))
    mailbox = Mailbox(Forgetful(running.transport, "adafd.opine", gone), WaitPolicy(quorum=0.5, timeout=1.0))
    played(running, mailbox=mailbox)
    assert (0, gone, "did not reply") in mailbox.failures
    without = begun(federation, adafd(SOLVER, exchange=exchange))
    rnd = Round(0, 2, tuple(rest), federation.seed.derive("round", 0), federation.server_context(0))
    state = run_script(
        without.plan.algorithm.round(without.state, rnd), without.mailbox.run_exchange, without.executor.run
    )
    assert torch.allclose(running.state.params.flat, state.params.flat, atol=1e-6)


def test_a_public_text_may_be_empty() -> None:
    words = ["good lovely", "bad awful", "", "fine happy", "poor sad", "great", "dull", "good", "bad", ""]
    columns = {"text": words, "label": ["yes", "no"] * 5}
    corpus = Corpus("own", "classification", columns, 8)
    made = federate_corpus(
        ModelConfig("tiny", 24, config=SMALL), corpus, ComponentConfig("uniform", {"clients": 2}), Seed(3)
    )
    public = np.array([2, 9])
    opened = replace(
        made, groups=(replace(made.groups[0], public_rows=public),), server=replace(made.server, public_rows=public)
    )
    running = played(begun(opened, adafd(SOLVER)))
    assert running.state.params.is_finite()
    assert not torch.equal(
        running.state.params.flat, opened.model.initial_params.flat
    )  # an empty text is judged, and learnt from
    assert running.mailbox.traffic.payload_up == 2 * (2 * 2 * 4 + 8)


def test_without_public_texts_it_is_refused(corpus: Corpus) -> None:
    made = federate_corpus(
        ModelConfig("tiny", 24, config=SMALL), corpus, ComponentConfig("uniform", {"clients": 2}), Seed(3)
    )
    with pytest.raises(ConfigError, match=r"needs public texts.*data.public_share=0\.2"):
        played(begun(made, adafd(SOLVER)))


def test_other_tasks_are_refused() -> None:
    top = {
        "data": {"name": "toy-regression", "limit": 40, "test_limit": 10, "public_share": 0.2},
        "partition": {"clients": 2},
    }
    made = build_federation(
        RunConfig.from_settings("numbers", {**top, "model": {"name": "tiny", "max_tokens": 24, "config": SMALL}})
    )
    with pytest.raises(ConfigError, match=r"classification and tagging\), not of regression"):
        played(begun(made, adafd(SOLVER)))


# ---- details of the paper --------------------------------------------------------------------------------------------


def test_the_least_of_the_epochs_means_counts() -> None:
    assert least(torch.tensor([4.0, 2.0, 1.0, 3.0, 5.0, 5.0]), 2) == 2.0
    assert least(torch.zeros(0), 0) != least(torch.zeros(0), 0)  # no step, no loss
    assert Account(float("nan"), 5).sound is False
    assert shares(torch.zeros(4, dtype=torch.float64)).tolist() == [0.25] * 4


def test_the_released_code_begins_every_epoch_anew(federation: Federation) -> None:
    client = federation.clients[0]
    rows = federation.participant(client).split("train").rows
    executor = Spoiling(np.zeros(0))
    played(
        FederatedRun(
            make_plan(federation, adafd(replace(SOLVER, epochs=3), released_code=True), 1),
            executor,
            None,
            SilentProgress(),
        )
    )
    fits = [job for job in executor.jobs if isinstance(job, Fit) and np.array_equal(job.examples.rows, rows)]
    steps = SOLVER.num_steps(len(rows)) // SOLVER.epochs
    assert [(fit.solver.epochs, fit.lr_horizon) for fit in fits] == [(1, LRHorizon(0, 3 * steps))] * 3


def test_one_shot_is_one_shot(federation: Federation) -> None:
    running = played(begun(federation, fedkd(SOLVER)))
    state, up = serialize(running.state), running.mailbox.traffic.payload_up
    played(running, index=1)
    assert serialize(running.state) == state
    assert running.mailbox.traffic.payload_up == up
    assert running.mailbox.traffic.payload_down == 0


def test_a_rule_stands_in_for_a_language_model(federation: Federation) -> None:
    remarks: list[Note] = []
    played(begun(federation, adafd(SOLVER, weighting="llmwc")), remarks)
    assert any("weights by rule" in r.text for r in remarks)


def test_weights_are_recorded_and_even_out_with_beta(federation: Federation, rounds: RunRounds) -> None:
    spreads = []
    for beta in (0.5, 50.0):
        running = begun(federation, adafd(SOLVER, beta=beta))
        running.play_rounds()
        weights = [r["value"] for r in running.record.rows if r["split"] == "distillation" and r["name"] == "weight"]
        assert len(weights) == 2 * 4
        spreads.append(max(weights[:4]) - min(weights[:4]))
    assert spreads[0] < spreads[1]
    with pytest.raises(ConfigError, match="beta is -1"):
        adafd(SOLVER, beta=-1)


def test_the_common_model_is_judged_on_every_client_s_own_texts(unlike: Federation, tmp_path: Path) -> None:
    plan = make_plan(unlike, adafd(SOLVER), 2, evaluation=EvaluationConfig(by_client=True))
    running = FederatedRun(plan, SerialExecutor(torch.device("cpu")), tmp_path, SilentProgress())
    running.play_rounds()
    rows = [r for r in running.record.rows if r["split"] == "common" and r["name"] == "accuracy" and r["round"] == 2]
    assert {r["who"] for r in rows} == {*unlike.clients, "server"}
    found = {r["who"]: r["value"] for r in rows}
    sizes = [len(unlike.participant(client).split("test")) for client in unlike.clients]
    mean = sum(found[c] * n for c, n in zip(unlike.clients, sizes, strict=True)) / sum(sizes)
    assert found["server"] == pytest.approx(mean)
    scores, tallies = TableMetric("shared accuracy").read_examples(
        tmp_path, 100 * sum(found[c] for c in unlike.clients) / len(sizes)
    )
    assert scores is not None and np.array_equal(np.unique(scores.owners, return_counts=True)[1], sizes)
    assert tallies is not None and tallies.rows.shape == (sum(sizes), 3 * len(unlike.task.labels))
    assert draw_weights(running.record.rows, "weights", tmp_path / "weights.png")
    assert (tmp_path / "weights.png").stat().st_size > 10_000
    assert not draw_weights([], "nothing", tmp_path / "none.png")


def test_every_recipe_of_distillation_is_understood() -> None:
    for name in ("adafd", "adafd-heterogeneous", "toy-adafd"):
        config = load_recipe(name)
        assert build_algorithm(config).name == "adafd"
        for baseline in config.baselines:
            build_algorithm(baseline_config(config, baseline))
