"""Groups of clients with different tasks, models or corpora in one federation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.runs import run_rounds
from tests.sizes import SMALL

from motet.algorithms import centralized, fedavg, isolated
from motet.core.errors import ConfigError
from motet.core.params import Params, common_params
from motet.experiment.build.component_builders import build_components
from motet.experiment.build.federation import Federation, MultiTaskMetrics
from motet.experiment.build.federation_builder import build_federation
from motet.experiment.build.run_plan import build_plan
from motet.experiment.commands.dry_run import dry_run
from motet.experiment.commands.model_export import export_models
from motet.experiment.commands.recipe_runner import run_recipe
from motet.experiment.loop.run_loop import FederatedRun
from motet.experiment.recipe.run_config import EvaluationConfig, RunConfig
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.solver import Solver
from motet.wire import serialize

SOLVER = Solver(lr=0.01, batch=8)
TINY = {"name": "tiny", "max_tokens": 24, "config": SMALL}
SIZES = {"limit": 60, "test_limit": 24}


def make_config(groups: list[dict[str, Any]], **settings: Any) -> RunConfig:
    defaults = {
        "model": TINY,
        "transport": {"workers": 0},
        "rounds": 2,
        "solver": {"lr": 0.01, "batch": 8, "optimizer": "adamw"},
    }
    return RunConfig.from_settings("test", {**defaults, **settings, "groups": groups})


@pytest.fixture(scope="module")
def multi_task_config() -> RunConfig:
    groups = [
        {"corpus": "toy-classification", "clients": 2, "data": SIZES},
        {"corpus": "toy-tagging", "clients": 1, "data": SIZES},
    ]
    return make_config(groups)


@pytest.fixture(scope="module")
def multi_task(multi_task_config: RunConfig) -> Federation:
    return build_federation(multi_task_config)


@pytest.fixture(scope="module")
def multi_model() -> Federation:
    """One corpus; two clients with one layer, one with two layers like the server, one with an LSTM."""
    groups = [
        {"clients": 2, "model": {"config": {**SMALL, "num_hidden_layers": 1}}},
        {"clients": 1},
        {"name": "recurrent", "model": {"name": "bilstm"}},
    ]
    data, partition = {"name": "toy-classification", **SIZES}, {"type": "uniform", "clients": 4}
    return build_federation(make_config(groups, data=data, partition=partition))


def test_without_groups_a_federation_is_one_group() -> None:
    settings = {"model": TINY, "data": {"name": "toy-classification", **SIZES}, "partition": {"clients": 3}}
    federation = build_federation(RunConfig.from_settings("test", settings))
    assert [g.name for g in federation.groups] == ["toy-classification"]
    assert list(federation.clients) == ["client-0", "client-1", "client-2"]
    assert federation.groups[0].model is federation.server.model
    assert federation.groups[0].features is federation.server.features


def test_a_group_inherits_the_top_level_unless_it_overrides_it() -> None:
    config = make_config(
        [{"clients": 1}, {"clients": 2, "model": "bilstm"}, {"corpus": "toy-lm", "task": "lm", "partition": "natural"}],
        data={"name": "toy-classification", "text": "text", "limit": 50},
        partition={"type": "label", "alpha": 0.5},
    )
    first, second, third = config.groups
    assert (first.model, first.data, first.partition) == (config.model, config.data, config.partition)
    assert (second.model.name, second.model.max_tokens, second.model.config) == ("bilstm", 24, {})
    assert (third.data.name, third.data.limit) == ("toy-lm", 50)
    assert third.data.text is None, "another corpus has other columns"
    assert third.partition.options == {}
    assert RunConfig.from_settings("test", config.to_dict()) == config


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([{"client": 2}], r"groups\[0\]: unknown option 'client'.*Did you mean 'clients'"),
        ([{"clients": 0}], "expected at least one"),
        ("two", "expected a list"),
        ([{"clients": 2}, {"clients": 9, "model": {"nam": "tiny"}}], r"groups\[1\].model: unknown option 'nam'"),
    ],
)
def test_an_error_in_a_group_names_its_position(groups: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_config(groups, data={"name": "toy-classification"})


def test_client_counts_that_do_not_add_up_are_rejected() -> None:
    data = {"name": "toy-classification", **SIZES}
    with pytest.raises(ConfigError, match=r"divided over 18 clients \(natural\), and its groups ask for 3, 4"):
        build_federation(
            make_config([{"clients": 3}, {"clients": 4, "model": "bilstm"}], data=data, partition="natural")
        )
    with pytest.raises(ConfigError, match="the rest, the rest"):
        build_federation(make_config([{}, {"model": "bilstm"}], data=data))


def test_groups_of_one_corpus_divide_it_in_order(multi_model: Federation) -> None:
    assert [len(g.clients) for g in multi_model.groups] == [2, 1, 1]
    assert [g.name for g in multi_model.groups] == ["tiny", "tiny#2", "recurrent"]
    assert list(multi_model.clients) == ["client-0", "client-1", "client-2", "client-3"]
    rows = [set(multi_model.participant(client).split("train").rows.tolist()) for client in multi_model.clients]
    assert sum(map(len, rows)) == len(set.union(*rows)) == 60
    assert [multi_model.group_for(c).name for c in multi_model.clients] == ["tiny", "tiny", "tiny#2", "recurrent"]


def test_groups_with_the_same_model_settings_share_one_model(multi_model: Federation) -> None:
    assert multi_model.groups[1].model is multi_model.server.model
    assert len(multi_model.models_with_features) == 3


def test_all_tasks_share_one_vocabulary(multi_task: Federation) -> None:
    first, second = (g.model.tokenizer.get_vocab() for g in multi_task.groups)
    assert first == second
    assert list(multi_task.clients) == [
        "toy-classification/client-0",
        "toy-classification/client-1",
        "toy-tagging/client-0",
    ]


def test_an_unknown_client_is_rejected(multi_task: Federation) -> None:
    with pytest.raises(ConfigError, match="no client 'toy-tagging/client-1'; there are 3, toy-classification/client-0"):
        multi_task.participant("toy-tagging/client-1")


def test_common_parameters_have_the_same_name_and_shape_in_all_models() -> None:
    a = Params.from_tensors({"x": torch.ones(2), "y": torch.zeros(3)})
    b = Params.from_tensors({"x": torch.zeros(2), "y": torch.zeros(4)})
    assert common_params([a, b]).layout.names == ("x",)
    assert torch.equal(common_params([a, b]).flat, torch.ones(2))
    assert a.exclude(common_params([a, b]).layout).layout.names == ("y",)


def test_the_encoder_is_averaged_and_each_task_keeps_its_head(multi_task: Federation) -> None:
    run = run_rounds(multi_task, fedavg(SOLVER))
    names = run.state.params.layout.names
    assert names
    assert all(n.startswith("bert.") and "pooler" not in n for n in names)
    for client in multi_task.clients:
        own = run.storage.client_states.get("fedavg", client)
        assert any("classifier" in n for n in own.layout.names)
        assert not set(own.layout.names) & set(names)
        deployed = run.model_for(client)
        assert torch.equal(deployed.restrict(select_names(deployed, names)).flat, run.state.params.flat)
    assert run.plan.has_personal_models


def select_names(params: Params, names: tuple[str, ...]) -> Any:
    return params.layout.select([params.layout.names.index(n) for n in names])


def test_several_tasks_are_scored_by_the_mean_of_their_primary_metrics(multi_task: Federation) -> None:
    run = run_rounds(multi_task, fedavg(SOLVER), 1)
    result = run.evaluator.evaluate_split("global")
    assert isinstance(multi_task.task, MultiTaskMetrics)
    groups = result.groups
    assert result.scores == {"score": (groups["toy-classification"]["accuracy"] + groups["toy-tagging"]["f1"]) / 2}


def test_models_with_nothing_in_common_cannot_be_averaged() -> None:
    groups = [{"clients": 1}, {"clients": 1, "model": "bilstm"}]
    federation = build_federation(make_config(groups, data={"name": "toy-classification", **SIZES}))
    with pytest.raises(ConfigError, match="have no layers in common"):
        fedavg(SOLVER).init(federation.initial_models())
    assert isolated(SOLVER).init(federation.initial_models()).params.layout.names == ()


def test_different_models_train_in_isolation_and_the_servers_model_centrally(multi_model: Federation) -> None:
    isolated_run = run_rounds(multi_model, isolated(SOLVER), 1)
    sizes = {c: isolated_run.storage.client_states.get("isolated", c).layout.size for c in multi_model.clients}
    assert len(set(sizes.values())) == 3
    assert isolated_run.evaluator.evaluate_split("global").scores["accuracy"] >= 0
    central = run_rounds(multi_model, centralized(SOLVER), 1, evaluation=EvaluationConfig(save_example_scores=True))
    assert central.state.params.layout == multi_model.server.model.layout
    assert not central.plan.has_personal_models
    results = central.evaluator.evaluate_clients(per_example=True)
    assert list(results.scores) == ["client-2"], "only this client has the server's architecture"
    assert set(results.example_scores) == {"client-2"}


def test_a_central_model_is_not_exported_for_a_client_with_another_architecture(tmp_path: Path) -> None:
    groups = [{"clients": 1, "model": {"config": {**SMALL, "num_hidden_layers": 1}}}, {"clients": 1}]
    data = {"name": "toy-classification", **SIZES}
    partition = {"type": "uniform", "clients": 2}
    config = make_config(groups, data=data, partition=partition, algorithm="centralized", rounds=1)
    run_recipe(config, tmp_path / "run")
    assert export_models(tmp_path / "run", tmp_path / "own", "client-1").folders == [tmp_path / "own"]
    with pytest.raises(ConfigError, match="client-0 has a model of another architecture; leave the client out"):
        export_models(tmp_path / "run", tmp_path / "others", "client-0")


def test_several_corpora_have_no_union_to_train_on(multi_task: Federation) -> None:
    with pytest.raises(ConfigError, match="no split 'union'"):
        run_rounds(multi_task, centralized(SOLVER), 1)


def test_a_dry_run_describes_every_group(multi_task_config: RunConfig, multi_task: Federation) -> None:
    facts = dry_run(multi_task_config, multi_task).facts
    assert "primary metric f1" in facts["toy-tagging: task"]
    assert "layers 0-1" in facts["in common"]
    assert facts["clients"].startswith("3, 3 per round")


def test_a_multi_task_run_has_a_summary_of_each_group_and_a_model_for_each_client(
    multi_task_config: RunConfig, tmp_path: Path
) -> None:
    finished = run_recipe(multi_task_config, tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert [g["primary_metric"] for g in summary["groups"]] == ["accuracy", "f1"]
    assert summary["primary_metric"] == "score"
    assert summary["final"]["score"] == pytest.approx(sum(g["final"]["score"] for g in summary["groups"]) / 2)
    assert summary["groups"][1]["clients_final"]["mean"] == summary["groups"][1]["clients_final"]["worst_decile"]
    assert not (finished.folder / "model").exists()
    with pytest.raises(ConfigError, match="such as --client toy-classification/client-0"):
        export_models(finished.folder, tmp_path / "none", None)
    export_models(finished.folder, tmp_path / "tagger", "toy-tagging/client-0")
    assert "BertForTokenClassification" in (tmp_path / "tagger" / "config.json").read_text()


def test_an_interrupted_multi_task_run_resumes_with_the_same_result(
    multi_task_config: RunConfig, tmp_path: Path
) -> None:
    federation = build_federation(multi_task_config)
    executor = SerialExecutor(torch.device("cpu"))
    for name in ("expected", "interrupted"):
        (tmp_path / name).mkdir()
    plan = build_plan(multi_task_config, federation, build_components(multi_task_config))
    expected = FederatedRun(plan, executor, folder=tmp_path / "expected")
    expected.run_rounds()
    first = FederatedRun(plan, executor, folder=tmp_path / "interrupted")
    first.run_rounds(until=1)
    first.save()
    second = FederatedRun(plan, executor, folder=tmp_path / "interrupted")
    assert second.resume()
    assert second.rounds == 1
    second.run_rounds()
    assert serialize(second.state) == serialize(expected.state)
    for client in federation.clients:
        state, expected_state = (r.storage.client_states.get("fedavg", client) for r in (second, expected))
        assert serialize(state) == serialize(expected_state)
