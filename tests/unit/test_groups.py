"""Clients with a task, a model or a corpus of their own, in one federation."""

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


def config(groups: list[dict[str, Any]], **more: Any) -> RunConfig:
    top = {
        "model": TINY,
        "transport": {"workers": 0},
        "rounds": 2,
        "solver": {"lr": 0.01, "batch": 8, "optimizer": "adamw"},
    }
    return RunConfig.from_settings("test", {**top, **more, "groups": groups})


@pytest.fixture(scope="module")
def tasks() -> RunConfig:
    groups = [
        {"corpus": "toy-classification", "clients": 2, "data": SIZES},
        {"corpus": "toy-tagging", "clients": 1, "data": SIZES},
    ]
    return config(groups)


@pytest.fixture(scope="module")
def mixed(tasks: RunConfig) -> Federation:
    return build_federation(tasks)


@pytest.fixture(scope="module")
def unlike() -> Federation:
    """One corpus; two clients with one layer, one with the server's two, one with an LSTM."""
    groups = [
        {"clients": 2, "model": {"config": {**SMALL, "num_hidden_layers": 1}}},
        {"clients": 1},
        {"name": "recurrent", "model": {"name": "bilstm"}},
    ]
    made = config(groups, data={"name": "toy-classification", **SIZES}, partition={"type": "uniform", "clients": 4})
    return build_federation(made)


def test_without_groups_a_federation_is_one_group() -> None:
    alone = RunConfig.from_settings(
        "test", {"model": TINY, "data": {"name": "toy-classification", **SIZES}, "partition": {"clients": 3}}
    )
    federation = build_federation(alone)
    assert [g.name for g in federation.groups] == ["toy-classification"]
    assert list(federation.clients) == ["client-0", "client-1", "client-2"]
    assert federation.groups[0].model is federation.server.model
    assert federation.groups[0].features is federation.server.features


def test_a_group_inherits_the_top_level_unless_it_overrides_it() -> None:
    made = config(
        [{"clients": 1}, {"clients": 2, "model": "bilstm"}, {"corpus": "toy-lm", "task": "lm", "partition": "natural"}],
        data={"name": "toy-classification", "text": "text", "limit": 50},
        partition={"type": "label", "alpha": 0.5},
    )
    first, second, third = made.groups
    assert (first.model, first.data, first.partition) == (made.model, made.data, made.partition)
    assert (second.model.name, second.model.max_tokens, second.model.config) == ("bilstm", 24, {})
    assert (third.data.name, third.data.limit, third.data.text) == (
        "toy-lm",
        50,
        None,
    )  # another corpus has other columns
    assert third.partition.options == {}
    assert RunConfig.from_settings("test", made.to_dict()) == made


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ([{"client": 2}], r"groups\[0\]: unknown option 'client'.*Did you mean 'clients'"),
        ([{"clients": 0}], "expected at least one"),
        ("two", "expected a list"),
        ([{"clients": 2}, {"clients": 9, "model": {"nam": "tiny"}}], r"groups\[1\].model: unknown option 'nam'"),
    ],
)
def test_an_error_in_a_group_names_its_position(groups: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config(groups, data={"name": "toy-classification"})


def test_client_counts_that_do_not_add_up_are_rejected() -> None:
    data = {"name": "toy-classification", **SIZES}
    with pytest.raises(ConfigError, match=r"divided over 18 clients \(natural\), and its groups ask for 3, 4"):
        build_federation(config([{"clients": 3}, {"clients": 4, "model": "bilstm"}], data=data, partition="natural"))
    with pytest.raises(ConfigError, match="the rest, the rest"):
        build_federation(config([{}, {"model": "bilstm"}], data=data))


def test_groups_of_one_corpus_divide_it_in_order(unlike: Federation) -> None:
    assert [len(g.clients) for g in unlike.groups] == [2, 1, 1]
    assert [g.name for g in unlike.groups] == ["tiny", "tiny#2", "recurrent"]
    assert list(unlike.clients) == ["client-0", "client-1", "client-2", "client-3"]
    rows = [set(unlike.participant(client).split("train").rows.tolist()) for client in unlike.clients]
    assert sum(map(len, rows)) == len(set.union(*rows)) == 60
    assert [unlike.group_for(c).name for c in unlike.clients] == ["tiny", "tiny", "tiny#2", "recurrent"]


def test_models_of_the_same_choice_are_one(unlike: Federation) -> None:
    assert unlike.groups[1].model is unlike.server.model
    assert len(unlike.models_with_features) == 3


def test_words_mean_the_same_in_all_tasks(mixed: Federation) -> None:
    first, second = (g.model.tokenizer.get_vocab() for g in mixed.groups)
    assert first == second
    assert list(mixed.clients) == ["toy-classification/client-0", "toy-classification/client-1", "toy-tagging/client-0"]


def test_a_client_that_is_in_no_group_is_said(mixed: Federation) -> None:
    with pytest.raises(ConfigError, match="no client 'toy-tagging/client-1'; there are 3, toy-classification/client-0"):
        mixed.participant("toy-tagging/client-1")


def test_what_models_have_in_common_has_one_name_and_one_shape() -> None:
    a, b = (
        Params.from_tensors({"x": torch.ones(2), "y": torch.zeros(3)}),
        Params.from_tensors({"x": torch.zeros(2), "y": torch.zeros(4)}),
    )
    assert common_params([a, b]).layout.names == ("x",)
    assert torch.equal(common_params([a, b]).flat, torch.ones(2))
    assert a.exclude(common_params([a, b]).layout).layout.names == ("y",)


def test_the_encoder_is_averaged_and_each_task_keeps_its_head(mixed: Federation) -> None:
    running = run_rounds(mixed, fedavg(SOLVER))
    names = running.state.params.layout.names
    assert names
    assert all(n.startswith("bert.") and "pooler" not in n for n in names)
    for client in mixed.clients:
        own = running.storage.client_states.get("fedavg", client)
        assert any("classifier" in n for n in own.layout.names)
        assert not set(own.layout.names) & set(names)
        deployed = running.model_for(client)
        assert torch.equal(deployed.restrict(names_of(deployed, names)).flat, running.state.params.flat)
    assert running.plan.has_personal_models


def names_of(params: Params, names: tuple[str, ...]) -> Any:
    return params.layout.select([params.layout.names.index(n) for n in names])


def test_several_tasks_are_judged_by_the_mean_of_their_headlines(mixed: Federation) -> None:
    running = run_rounds(mixed, fedavg(SOLVER), 1)
    result = running.evaluator.evaluate_split("global")
    assert isinstance(mixed.task, MultiTaskMetrics)
    groups = result.groups
    assert result.scores == {"score": (groups["toy-classification"]["accuracy"] + groups["toy-tagging"]["f1"]) / 2}


def test_models_with_nothing_in_common_cannot_be_averaged() -> None:
    groups = [{"clients": 1}, {"clients": 1, "model": "bilstm"}]
    federation = build_federation(config(groups, data={"name": "toy-classification", **SIZES}))
    with pytest.raises(ConfigError, match="have no layers in common"):
        fedavg(SOLVER).init(federation.initial_models())
    assert isolated(SOLVER).init(federation.initial_models()).params.layout.names == ()


def test_unlike_models_train_alone_and_the_server_s_centrally(unlike: Federation) -> None:
    alone = run_rounds(unlike, isolated(SOLVER), 1)
    sizes = {c: alone.storage.client_states.get("isolated", c).layout.size for c in unlike.clients}
    assert len(set(sizes.values())) == 3
    assert alone.evaluator.evaluate_split("global").scores["accuracy"] >= 0
    whole = run_rounds(unlike, centralized(SOLVER), 1, evaluation=EvaluationConfig(save_example_scores=True))
    assert whole.state.params.layout == unlike.server.model.layout
    assert not whole.plan.has_personal_models
    assert list(whole.evaluator.evaluate_clients().scores) == ["client-2"]  # the one that has the server's architecture
    results = whole.evaluator.evaluate_clients(per_example=True)
    assert list(results.scores) == ["client-2"]
    assert set(results.example_scores) == {"client-2"}


def test_a_central_model_is_not_exported_for_a_client_of_another_architecture(tmp_path: Path) -> None:
    groups = [{"clients": 1, "model": {"config": {**SMALL, "num_hidden_layers": 1}}}, {"clients": 1}]
    data = {"name": "toy-classification", **SIZES}
    made = config(groups, data=data, partition={"type": "uniform", "clients": 2}, algorithm="centralized", rounds=1)
    run_recipe(made, tmp_path / "run")
    assert export_models(tmp_path / "run", tmp_path / "own", "client-1") == [tmp_path / "own"]
    with pytest.raises(ConfigError, match="differs in architecture from that of client-0; leave the client out"):
        export_models(tmp_path / "run", tmp_path / "others", "client-0")


def test_no_union_is_there_for_several_corpora(mixed: Federation) -> None:
    with pytest.raises(ConfigError, match="no split 'union'"):
        run_rounds(mixed, centralized(SOLVER), 1)


def test_a_rehearsal_tells_of_every_group(tasks: RunConfig, mixed: Federation) -> None:
    facts = dry_run(tasks, mixed).facts
    assert "primary metric f1" in facts["toy-tagging: task"]
    assert "layers 0-1" in facts["in common"]
    assert facts["clients"].startswith("3, 3 per round")


def test_a_mixed_run_leaves_a_summary_of_each_group_and_every_client_s_model(tasks: RunConfig, tmp_path: Path) -> None:
    finished = run_recipe(tasks, tmp_path / "run")
    said = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert [g["headline"] for g in said["groups"]] == ["accuracy", "f1"]
    assert said["headline"] == "score"
    assert said["final"]["score"] == pytest.approx(sum(g["final"]["score"] for g in said["groups"]) / 2)
    assert said["groups"][1]["clients_final"]["mean"] == said["groups"][1]["clients_final"]["worst_decile"]
    assert not (finished.folder / "model").exists()
    with pytest.raises(ConfigError, match="such as --client toy-classification/client-0"):
        export_models(finished.folder, tmp_path / "none", None)
    export_models(finished.folder, tmp_path / "tagger", "toy-tagging/client-0")
    assert "BertForTokenClassification" in (tmp_path / "tagger" / "config.json").read_text()


def test_a_mixed_run_goes_on_as_if_it_had_not_stopped(tasks: RunConfig, tmp_path: Path) -> None:
    federation = build_federation(tasks)
    executor = SerialExecutor(torch.device("cpu"))
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    plan = build_plan(tasks, federation, build_components(tasks))
    whole = FederatedRun(plan, executor, folder=tmp_path / "whole")
    whole.run_rounds()
    first = FederatedRun(plan, executor, folder=tmp_path / "parts")
    first.run_rounds(until=1)
    first.save()
    second = FederatedRun(plan, executor, folder=tmp_path / "parts")
    assert second.resume()
    assert second.rounds == 1
    second.run_rounds()
    assert serialize(second.state) == serialize(whole.state)
    for client in federation.clients:
        own, other = (r.storage.client_states.get("fedavg", client) for r in (second, whole))
        assert serialize(own) == serialize(other)
