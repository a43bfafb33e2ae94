"""Robust rules against their definitions, and runs with malicious clients."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.joined_clients import SMALL
from tests.runs import make_plan, make_round
from tests.sums import TOLERANT, VectorProgram, make_runtime, make_vectors, run_sum

from motet.algorithms import fedavg
from motet.core.errors import ConfigError, PrivacyError, RunError
from motet.core.params import Params
from motet.core.rng import Seed
from motet.core.script import Exchange, Note, rewrite_sums, run_script
from motet.core.weighted import RunningSum, Weighted
from motet.experiment.build.component_builders import build_components
from motet.experiment.build.federation import Federation
from motet.experiment.build.root_set import find_root_examples, reply_from_root
from motet.experiment.commands.recipe_runner import run_recipe
from motet.experiment.recipe.run_config import RunConfig
from motet.learning.context import Participant
from motet.learning.data.features import Examples
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.solver import Solver
from motet.robust import ROBUST, bulyan, krum, median, norm_bound
from motet.robust import aggregation_rules as rules
from motet.robust.robust_sum import RobustCollector, RobustSum
from motet.secure import light_secagg, secagg
from motet.secure.sum_messages import MaskedTotal
from motet.transport.in_process import InProcessTransport
from motet.transport.mailbox import Mailbox

HONEST = torch.tensor([[1.0, 2.0], [1.2, 1.8], [0.8, 2.2], [1.1, 2.1], [0.9, 1.9]])
ROWS = torch.cat([HONEST, torch.tensor([[100.0, -100.0], [-50.0, 70.0]])])  # the last two lie
DISTRIBUTED = {"type": "distributed", "clip": 1.0, "noise": 1.0}
SELECTING = ("krum", "multi_krum", "bulyan")
ALL_RULES = [name for name in ROBUST if name not in ("none", "norm_bound", "fltrust")]


def test_the_median_is_taken_of_each_number() -> None:
    assert rules.median(ROWS).row.tolist() == pytest.approx([1.0, 2.0])
    assert rules.median(HONEST[:4]).row.tolist() == pytest.approx([1.05, 2.05])  # of an even count


def test_the_trimmed_mean_leaves_out_the_largest_and_the_smallest_numbers() -> None:
    expected = np.sort(ROWS.numpy(), axis=0)[2:5].mean(0)
    assert rules.trimmed_mean(ROWS, 2).row.tolist() == pytest.approx(expected.tolist())
    assert rules.trimmed_mean(ROWS, 0).row.tolist() == pytest.approx(ROWS.mean(0).tolist())


def test_krum_returns_the_row_with_the_closest_neighbors() -> None:
    distances = np.square(ROWS.numpy()[:, None] - ROWS.numpy()[None]).sum(-1)
    scores = np.sort(distances, axis=1)[:, : len(ROWS) - 2 - 2 + 1].sum(1)
    result = rules.krum(ROWS, 2)
    assert result.used == (int(scores.argmin()),)
    assert torch.equal(result.row, ROWS[int(scores.argmin())])


def test_multi_krum_averages_the_rows_with_the_closest_neighbors() -> None:
    result = rules.multi_krum(ROWS, 2)
    assert result.used == (0, 1, 2, 3, 4)
    assert result.row.tolist() == pytest.approx(HONEST.mean(0).tolist())


def test_bulyan_averages_the_numbers_next_to_the_median_of_what_it_selects() -> None:
    rows = torch.cat([HONEST, HONEST + 0.01, torch.tensor([[100.0, -100.0]])])
    result = rules.bulyan(rows, 1)
    assert result.used is not None and len(result.used) == 9 and 10 not in result.used
    selected = np.sort(rows[list(result.used)].numpy(), axis=0)
    assert result.row.tolist() == pytest.approx(selected[1:-1].mean(0).tolist(), abs=0.05)


def test_the_geometric_median_minimizes_the_sum_of_distances() -> None:
    point = rules.geometric_median(ROWS).row
    best = float((ROWS - point).norm(dim=1).sum())
    for step in torch.randn(200, 2, generator=torch.Generator().manual_seed(0)) * 0.1:
        assert float((ROWS - point - step).norm(dim=1).sum()) >= best - 1e-3
    collinear = torch.tensor([[0.0], [1.0], [10.0]])
    assert rules.geometric_median(collinear).row.tolist() == pytest.approx([1.0], abs=1e-3)


def test_centered_clipping_pulls_rows_to_the_radius() -> None:
    rows = torch.tensor([[0.0], [0.0], [0.0], [100.0]])
    expected = 0.0
    for _ in range(rules.CLIPPING_ITERATIONS):  # v ← v + mean(clip(x − v, 1))
        expected += (3 * max(-1.0, -expected) + 1.0) / 4
    assert rules.centered_clipping(rows, radius=1.0).row.tolist() == pytest.approx([expected])


@pytest.mark.parametrize("name", ALL_RULES)
def test_every_rule_ignores_two_liars_and_large_vectors_in_blocks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "BLOCK", 3)
    generator = torch.Generator().manual_seed(1)
    honest = torch.randn(10, generator=generator) + 0.1 * torch.randn(11, 10, generator=generator)
    liars = 1000 * torch.randn(2, 10, generator=generator)
    row = rules.RULES[name](torch.cat([honest, liars]), 2).row
    assert (row - honest.mean(0)).norm() < 0.5


def test_fltrust_weights_rows_by_their_cosine_with_the_reference_and_gives_them_its_length() -> None:
    rows, reference = torch.tensor([[3.0, 0.0], [0.0, 2.0], [-50.0, -1.0], [1.0, 1.0]]), torch.tensor([0.0, 0.5])
    trust = np.array([0.0, 1.0, 0.0, np.sqrt(0.5)])
    units = rows.numpy() / np.linalg.norm(rows.numpy(), axis=1, keepdims=True)
    expected = (trust[:, None] * units * 0.5).sum(0) / trust.sum()
    result = rules.fltrust(rows, reference)
    assert result.row.tolist() == pytest.approx(expected.tolist(), rel=1e-6)
    assert result.used == (1, 3)
    assert rules.fltrust(-rows[1:2], reference).row.tolist() == [0.0, 0.0]


# ---- In a sum -------------------------------------------------------------------------------------------------------


def run_robust_sum(robust: Any, vectors: dict[str, Weighted]) -> tuple[Weighted, list[Note]]:
    program, notes = VectorProgram(vectors), list[Note]()
    mailbox = Mailbox(InProcessTransport(make_runtime([program])), TOLERANT)
    script = rewrite_sums(robust, program.round())
    return run_script(script, mailbox.run_exchange, lambda job: None, notes.append), notes


def test_one_client_cannot_take_over_the_mean() -> None:
    """Once, a claimed weight of 10¹² or an update times −100 was enough."""
    vectors = make_vectors(8)
    liar = "client-000"
    honest = torch.stack([v.value.flat for c, v in vectors.items() if c != liar])
    vectors[liar] = Weighted(Params.from_tensors({"x": torch.full((7,), 1e4)}), 1e12)
    plain = run_sum(VectorProgram(vectors).round(), Mailbox(InProcessTransport(make_runtime([VectorProgram(vectors)]))))
    assert plain.value.norm() > 1e4, "the attack works without a defense"
    for name in ALL_RULES:
        mean, notes = run_robust_sum(ROBUST[name](), vectors)
        assert mean.value.norm() <= honest.norm(dim=1).max() * 1.5, name
        assert name not in SELECTING or any(liar in note.text for note in notes), name
    bounded, _ = run_robust_sum(norm_bound(max_norm=1.0, max_weight=1.0), vectors)
    assert bounded.value.norm() <= 1.0
    assert bounded.weight == 8.0


@pytest.mark.parametrize("protocol", [secagg, light_secagg])
def test_a_rule_over_the_sums_of_groups_works_under_masks(protocol: Any) -> None:
    """One lying client spoils the mean of its group, and the median over groups ignores it."""
    vectors = make_vectors(15)
    program = VectorProgram(vectors)
    honest = torch.stack([v.value.flat for v in vectors.values()])
    secure = protocol(range=64.0, max_weight=64.0)
    liar = Weighted(Params(vectors["client-000"].value.layout, torch.full((7,), 60.0)), 60.0)
    lying = VectorProgram({**vectors, "client-000": liar})

    def run(vectors: VectorProgram, robust: Any) -> Weighted:
        mailbox = Mailbox(InProcessTransport(make_runtime([vectors, secure])), TOLERANT)
        script = rewrite_sums(robust.make_summation(Seed(1), _no_reference), vectors.round())
        return run_sum(rewrite_sums(secure, script), mailbox)

    grouped = median(groups=5)
    result = run(lying, grouped)
    assert result.value.norm() <= honest.norm(dim=1).max() * 1.5
    assert run(program, grouped).weight == pytest.approx(sum(v.weight for v in vectors.values()))
    with pytest.raises(ConfigError, match="groups of 2, and a secure sum hides a client only among 3"):
        median(groups=5).check_groups(14, 3)
    with pytest.raises(ConfigError, match=r"is 4 in as many groups, and robust.groups is 5.*needs 9 groups"):
        ROBUST["trimmed_mean"](attackers=0.25, groups=5).count_attackers(15)


def _no_reference(exchange: Any) -> Any:
    raise AssertionError("only FLTrust trains on the server")


def test_counts_are_averaged_and_each_client_counts_once_in_a_rule() -> None:
    collector = RobustCollector(median())
    for client, number in (("a", 1.0), ("b", 2.0), ("c", 30.0)):
        collector.add(client, Weighted(Params.from_scalars(count=number), 1.0))
    assert float(collector.value().value["count"]) == 11.0


def test_replies_with_another_layout_or_nan_are_rejected_before_the_rule() -> None:
    vectors = make_vectors(6)
    vectors["client-001"] = Weighted(Params.from_tensors({"y": torch.ones(3)}), 1.0)
    vectors["client-002"] = Weighted(Params.from_tensors({"x": torch.full((7,), float("nan"))}), 1.0)
    mean, _ = run_robust_sum(median(), vectors)
    assert mean.value.is_finite()


@pytest.mark.parametrize(
    ("robust", "clients", "message"),
    [
        (krum(attackers=0.3), 6, "needs 7 clients"),
        (bulyan(attackers=0.2), 10, "needs 11 clients"),
        (ROBUST["trimmed_mean"](attackers=0.49), 4, "needs 5 clients"),
    ],
)
def test_a_cohort_that_is_too_small_for_the_rule_is_rejected(robust: Any, clients: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        robust.count_attackers(clients)


def test_a_plan_with_too_few_clients_is_rejected(federation: Federation) -> None:
    plan = make_plan(federation, fedavg())
    components = type(plan.components)(fedavg(), robust=krum(attackers=0.3))
    with pytest.raises(ConfigError, match="needs 7 clients"):
        type(plan)(federation=federation, components=components, rounds=1)


# ---- In a recipe ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"robust": "krumm"}, "Did you mean 'krum'"),
        ({"robust": {"type": "krum", "attackers": 0.5}}, r"robust.attackers is 0\.5"),
        ({"robust": {"type": "norm_bound", "max_norm": 0}}, r"robust.max_norm is 0"),
        ({"robust": "median", "secure": "secagg"}, r"secagg hides them\. Compare the sums of groups"),
        ({"robust": "norm_bound", "secure": "secagg"}, r"secagg hides them\. Or bound them with secure\.range"),
        ({"robust": "fltrust", "secure": "secagg"}, "secagg hides them"),
        ({"robust": {"type": "median", "groups": 2}}, "a rule needs at least 3 groups"),
        ({"robust": {"type": "median", "groups": 3}}, "then sees every reply, which is better"),
        (
            {"robust": {"type": "median", "groups": 3}, "secure": "secagg", "privacy": DISTRIBUTED},
            "counts ε for one sum over all clients",
        ),
        ({"robust": "fltrust", "privacy": {**DISTRIBUTED, "type": "local"}}, "which privacy.type=local hides"),
        (
            {"robust": "median", "privacy": {"type": "central", "clip": 1.0, "noise": 1.0}},
            "central noise is calibrated",
        ),
        ({"robust": "median", "algorithm": "adafd"}, "reads the replies of individual clients"),
        (
            {"robust": "norm_bound", "algorithm": {"type": "fedavg", "sends": "weights"}},
            r"set algorithm\.sends=updates",
        ),
    ],
)
def test_settings_that_cannot_work_are_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, PrivacyError), match=message):
        build_components(RunConfig.from_settings("r", settings))


def test_a_recipe_with_local_noise_may_use_any_rule() -> None:
    settings = {"robust": "median", "privacy": {"type": "local", "clip": 1.0, "noise": 1.0}}
    assert isinstance(build_components(RunConfig.from_settings("r", settings)).robust, RobustSum)


def test_a_recipe_without_the_section_keeps_its_digest() -> None:
    with_default = RunConfig.from_settings("r", {"robust": "none"})
    assert with_default.digest == RunConfig.from_settings("r", {}).digest
    assert RunConfig.from_settings("r", {"robust": "median"}).digest != with_default.digest


def test_an_opened_sum_with_a_number_that_no_client_may_send_is_discarded() -> None:
    secure = secagg(range=1.0, max_weight=1.0)
    masking = secure.masking
    words = np.array([2**31 - 1, 5, 0, 0], np.uint32)
    one = secure.encoding.fixed_point.encode(
        torch.tensor([3.0], dtype=torch.float64), 1.0, 4, 2**32, np.random.default_rng(0)
    )
    words[2:] = one
    layout = Params.from_tensors({"x": torch.zeros(2)}).layout
    total = MaskedTotal(("a", "b", "c"), layout, is_double=False, words=torch.from_numpy(words.view(np.int32)))
    with pytest.raises(RunError, match="the sum is discarded"):
        secure.encoding.decode(words, total, "vectors.send_vector", 4, masking)


def run_lying_clients(tmp_path: Path, **sections: Any) -> Any:
    """Run a federation in which two of six clients send their updates times −10."""
    settings = {
        "rounds": 2,
        "data": {"name": "toy-classification", "limit": 240, "test_limit": 60, "public_share": 0.15},
        "model": {"name": "tiny", "max_tokens": 16, "config": SMALL},
        "partition": {"type": "uniform", "clients": 6},
        "solver": {"optimizer": "adamw", "lr": 0.01, "batch": 16, "epochs": 4},
        "attack": {"type": "sign_flip", "share": 0.3, "scale": 10},
        "transport": {"type": "in_process", "workers": 0},
        "device": "cpu",
        **sections,
    }
    return run_recipe(RunConfig.from_settings("r", settings), tmp_path / "run")


def test_fltrust_learns_although_clients_lie_and_the_server_trains_on_texts_of_its_own(tmp_path: Path) -> None:
    plain = run_lying_clients(tmp_path / "mean")
    robust = run_lying_clients(tmp_path / "fltrust", robust="fltrust")
    assert robust.summary["final"]["loss"] < math.log(4) < plain.summary["final"]["loss"], "a guess among 4 classes"
    with pytest.raises(ConfigError, match=r"it has 0 of them.*hold some back with data.public_share"):
        run_lying_clients(tmp_path / "none", robust="fltrust", data={"name": "toy-classification", "limit": 60})


def test_fltrust_does_not_train_on_the_test_set_of_a_server(federation: Federation) -> None:
    group = federation.server
    tested = Examples(group.features, group.global_test_rows)
    splits = {"train": tested, "global": tested}
    server = Participant(task=group.task, model=group.model, splits=splits, size=10)
    with pytest.raises(ConfigError, match=r"give data\.test, so that the rows of data\.path are not the test set"):
        find_root_examples(server, clients_keep_data=True)
    own = replace(server, splits={**splits, "train": Examples(group.features, group.train.rows)})
    assert len(find_root_examples(own, clients_keep_data=True)) == len(group.train.rows)


def test_the_server_of_fltrust_lowers_its_learning_rate_with_the_clients(federation: Federation) -> None:
    """All updates get the length of the server's, so that else the rate of the clients would have no effect."""
    solver = Solver(optimizer="sgd", lr=0.1, batch=1000, warmup=0.0)  # one step
    exchange = Exchange("fedavg.train", {"a": federation.model.initial_params}, "sum", RunningSum)

    def measure_reply(span: Any, index: int) -> float:
        script = reply_from_root(
            fedavg(replace(solver, schedule_span=span)), make_round(federation, index, 4), exchange
        )
        return run_script(script, lambda e: None, SerialExecutor(torch.device("cpu")).run).value.norm()

    lengths = [measure_reply("run", index) / measure_reply("round", index) for index in range(4)]
    assert lengths == pytest.approx([1.0, 0.75, 0.5, 0.25], rel=1e-3)
