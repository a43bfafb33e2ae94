"""Recipes and the configuration of a run: defaults, overrides, errors, baselines and cohorts."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from motet.algorithms.fedavg import FedAvg
from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.experiment.build.component_builders import build_algorithm, build_channel, build_secure, resolve_defaults
from motet.experiment.build.executor_builder import resolve_device
from motet.experiment.loop.client_sampling import evenly_spaced, sample_cohort
from motet.experiment.recipe.recipe_files import (
    baseline_config,
    build_recipe,
    list_recipes,
    load_recipe,
    merge_settings,
)
from motet.experiment.recipe.run_config import CohortConfig, ComponentConfig, RunConfig
from motet.optim import Adam, Momentum
from motet.partitions.partition import NumberedClients


def algorithm_with(*settings: str) -> FedAvg:
    algorithm = build_algorithm(load_recipe("toy-classification", settings))
    assert isinstance(algorithm, FedAvg)
    return algorithm


@pytest.mark.parametrize("name", list_recipes())
def test_every_shipped_recipe_can_be_built_and_describes_itself(name: str) -> None:
    config = load_recipe(name)
    build_secure(config, build_algorithm(config), build_channel(config))
    for baseline in config.baselines:
        build_algorithm(baseline_config(config, baseline))
    assert list_recipes()[name], "the first line describes the recipe"


def test_numbers_that_yaml_reads_as_text_are_numbers() -> None:
    assert algorithm_with("solver.lr=5e-5").solver.lr == 5e-5
    assert algorithm_with("server.lr=1e-1").server.lr == 0.1


def test_an_algorithm_keeps_its_defaults_unless_they_are_overridden() -> None:
    config = RunConfig.from_settings("t", {"algorithm": "fedavg"})
    solver = build_algorithm(config).solver  # type: ignore[attr-defined]
    assert (solver.optimizer, solver.learning_rate, solver.clip, solver.warmup) == ("sgd", 0.1, 1.0, 0.06)
    fedopt = build_algorithm(RunConfig.from_settings("t", {"algorithm": "fedopt"}))
    assert fedopt.server == Momentum(lr=1.0, momentum=0.9)  # type: ignore[attr-defined]
    assert fedopt.solver.optimizer == "adamw"  # type: ignore[attr-defined]


def test_another_client_optimizer_brings_its_default_learning_rate() -> None:
    config = RunConfig.from_settings("t", {"algorithm": "fedavg", "solver": {"optimizer": "adamw"}})
    assert build_algorithm(config).solver.learning_rate == 5e-5  # type: ignore[attr-defined]


def test_a_server_option_changes_only_that_option() -> None:
    assert algorithm_with("server.momentum=0.5").server == Momentum(lr=1.0, momentum=0.5)
    assert algorithm_with("server.type=adam", "server.lr=0.1").server == Adam(lr=0.1)


def test_naming_another_algorithm_drops_the_options_of_the_first() -> None:
    merged = merge_settings({"algorithm": {"type": "fedprox", "mu": 0.1}}, {"algorithm": {"type": "fedopt"}})
    assert merged == {"algorithm": {"type": "fedopt"}}
    assert merge_settings({"algorithm": "fedprox"}, {"algorithm": {"mu": 0.1}}) == {
        "algorithm": {"type": "fedprox", "mu": 0.1}
    }
    assert merge_settings({"algorithm": {"type": "fedprox", "mu": 1}}, {"algorithm": "fedopt"}) == {
        "algorithm": {"type": "fedopt"}
    }


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            ["algorithm.type=fedprox", "algorithm.mue=3"],
            "fedprox: unknown option 'mue'; it takes mu, weighting, shared. Did you mean 'mu'?",
        ),
        (["algorithm.type=fedavgg"], "no 'fedavgg'. Did you mean 'fedavg'? All 37 names: motet list algorithms"),
        (
            ["solver.learning_rate=1"],
            "unknown option 'learning_rate'. Did you mean 'lr'? All 16 names: motet list keys",
        ),
        (["learning-rate=1"], "recipe: unknown option 'learning-rate'. Did you mean 'solver.lr'?"),
        (["epochs=1"], "recipe: unknown option 'epochs'. Did you mean 'solver.epochs'?"),
        (["model.max_length=1"], "model: unknown option 'max_length'; it takes name, max_tokens"),
        (["model.type=tiny"], "model: unknown option 'type'; it takes name, max_tokens, freeze, from_scratch"),
        (["num_clients=3"], "Did you mean 'partition.clients'?"),
        (["algorithm.type=fedprox", "algorithm.batch_size=1"], "Did you mean 'solver.batch'?"),
        (["data.zzzz=1"], "others (motet list keys)."),
        (["algorithm.type=isolated", "server.lr=1"], "isolated has no server optimizer"),
        (["solver.lr=fast"], "solver.lr is 'fast'; expected a number"),
        (["evaluation.clients=0"], "evaluation.clients is 0; expected at least one client"),
        (["checkpoint.seconds=-1"], "checkpoint.seconds is -1.0; expected a number of seconds, 0 or more"),
        (["model.max_tokens=3"], "model.max_tokens is 3; it must be at least 4"),
        (["solver.batch=2.5"], "solver.batch is 2.5; expected a whole number"),
        (["solver.shuffle=maybe"], "solver.shuffle is 'maybe'; expected true or false"),
        (
            ["solver.optimizer=adamm"],
            "solver.optimizer is 'adamm'; it must be one of sgd, adamw. Did you mean 'adamw'?",
        ),
        (["solver.bacth=3"], "solver: unknown option 'bacth'"),
        (["server.type=adamm"], "server.type: there is no 'adamm'"),
        (
            ["codec=float61"],
            "there is no 'float61'; there are float16, bfloat16, int8, int4, top_k, clip. Did you mean 'float16'?",
        ),
        (["codec=[int8, float16]"], "codec: int8 must be the last of its chain"),
        (
            ["codec=[top_k: {shares: 0.1}]"],
            "codec top_k: unknown option 'shares'; it takes share, feedback. Did you mean 'share'?",
        ),
        (["codec=top_k"], "give each direction its codecs: codec: {up: [top_k], down: [float16]}"),
        (["codec.up=top_k", "algorithm.sends=weights"], "top_k cannot encode weights"),
    ],
)
def test_an_error_names_the_wrong_value_and_what_was_expected(settings: list[str], expected: str) -> None:
    with pytest.raises(ConfigError) as error:
        config = load_recipe("toy-classification", settings)
        build_channel(config)
        build_algorithm(config)
    assert expected in str(error.value)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["rounds=0"], "rounds is 0; expected at least 1"),
        (["rounds"], "'rounds' is not a setting; write section.key=value"),
        (["cohort.size=0"], "cohort.size is 0"),
        (["cohort.sampler=dice"], "cohort.sampler is 'dice'"),
        (["wait_policy.quorum=2"], "wait_policy.quorum is 2.0"),
        (["moodel.name=x"], "recipe: unknown option 'moodel'"),
        (["model.nam=x"], "model: unknown option 'nam'; it takes name, max_tokens"),
        (["evaluation.every=0"], "evaluation.every is 0"),
        (["model=tiny"], "model is 'tiny'; expected options, such as model.name=tiny"),
        (["partition=[1]"], "partition is [1]; expected a name, or a section"),
    ],
)
def test_a_recipe_that_cannot_be_read_is_explained(settings: list[str], expected: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_recipe("toy-classification", settings)
    assert expected in str(error.value)


def test_a_recipe_file_is_read_and_a_broken_one_explained(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("rounds: 3\ndata: {name: toy-classification}\nmodel: {name: tiny}\n")
    config = load_recipe(str(path))
    assert (config.recipe, config.rounds) == ("mine", 3)
    for text, expected in (("rounds: [", "is not valid YAML"), ("- 1", "expected sections")):
        path.write_text(text)
        with pytest.raises(ConfigError, match=expected):
            load_recipe(str(path))
    with pytest.raises(ConfigError, match="does not exist: there is no"):
        load_recipe(str(tmp_path / "other.yaml"))


def test_a_resolved_configuration_survives_a_round_trip_through_yaml() -> None:
    config = resolve_defaults(load_recipe("toy-classification", ["algorithm.type=fedprox", "algorithm.mu=0.3"]))
    settings = yaml.safe_load(yaml.safe_dump(config.to_dict()))
    loaded = RunConfig.from_settings(settings.pop("recipe"), settings)
    assert loaded == config
    assert resolve_defaults(loaded).digest == config.digest
    assert config.solver["lr"] == 0.002
    assert config.server == {"type": "sgd", "lr": 1.0}


def test_the_digest_depends_on_the_training_and_not_on_the_machine() -> None:
    digest = load_recipe("toy-classification").digest
    elsewhere = load_recipe("toy-classification", ["device=cpu", "transport.workers=1", "evaluation.every=2"])
    assert elsewhere.digest == digest
    assert load_recipe("toy-classification", ["seed=1"]).digest != digest


def test_a_baseline_has_the_same_data_and_the_solver_of_its_algorithm() -> None:
    config = load_recipe("quickstart")
    fedavg = baseline_config(config, "fedavg")
    assert fedavg.data == config.data
    assert fedavg.partition == config.partition
    solver = build_algorithm(fedavg).solver  # type: ignore[attr-defined]
    assert solver.optimizer == "sgd"
    assert solver.batch == config.solver["batch"]


def test_a_baseline_of_the_same_algorithm_keeps_the_solver() -> None:
    config = load_recipe("adafd", ["solver.lr=0.001"])
    assert baseline_config(config, "rnwc").solver["lr"] == 0.001
    assert baseline_config(config, "mhat").solver.get("lr") != 0.001


@pytest.mark.parametrize("nothing", ["null", "{}"])
def test_empty_baselines_remove_all_baselines(nothing: str) -> None:
    assert load_recipe("adafd", [f"baselines={nothing}"]).baselines == {}


def test_cohorts_are_the_same_for_every_algorithm_and_change_with_the_round() -> None:
    clients = NumberedClients(100)
    config = CohortConfig(10)
    cohort = sample_cohort(config, clients, 0, Seed(1))
    assert len(set(cohort)) == 10
    assert list(cohort) == sorted(cohort)
    assert cohort == sample_cohort(config, clients, 0, Seed(2))
    assert cohort != sample_cohort(config, clients, 1, Seed(1))


def test_seeded_cohorts_depend_on_the_seed_of_the_run() -> None:
    config = CohortConfig(10, "seeded")
    first, second = (sample_cohort(config, NumberedClients(100), 0, Seed(seed)) for seed in (1, 2))
    assert first != second


def test_even_cohorts_are_the_clients_that_evaluate_their_models() -> None:
    clients, config = NumberedClients(100), CohortConfig(4, "even")
    cohorts = {sample_cohort(config, clients, round, Seed(round)) for round in range(3)}
    assert cohorts == {tuple(clients[i] for i in (0, 25, 50, 75))} == {evenly_spaced(clients, 4)}
    assert evenly_spaced(clients, None) == evenly_spaced(clients, 500) == tuple(clients)


@pytest.mark.parametrize("size", [None, 500])
def test_a_cohort_of_all_clients_keeps_their_order(size: int | None) -> None:
    clients = NumberedClients(100)
    assert sample_cohort(CohortConfig(size), clients, 3, Seed(1)) == tuple(clients)


def test_an_unknown_device_is_rejected() -> None:
    with pytest.raises(ConfigError, match="expected auto, cpu, cuda"):
        resolve_device("gpu0")
    assert resolve_device("auto").type in ("cpu", "cuda")


def test_a_component_is_a_name_or_a_section() -> None:
    assert ComponentConfig.from_settings("label", "uniform", "partition") == ComponentConfig("label")
    assert ComponentConfig.from_settings({"alpha": 1}, "uniform", "partition") == ComponentConfig(
        "uniform", {"alpha": 1}
    )
    assert ComponentConfig.from_settings(None, "uniform", "partition") == ComponentConfig("uniform")


def test_large_seeds_keep_all_their_digits() -> None:
    assert load_recipe("quickstart", [f"seed={2**53 + 1}"]).seed == 2**53 + 1


@pytest.mark.parametrize("name", ["", "..", "../other", "/tmp/other", "a/b", "a\\b", ".hidden", "\x1b[2J", "x" * 101])
def test_a_baseline_cannot_lead_out_of_the_folder_of_its_run(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name of a folder"):
        build_recipe({"baselines": {name: {"algorithm": "fedavg"}}}, {})


def test_names_in_a_recipe_may_have_dots() -> None:
    """Labels of 20 Newsgroups have dots. A key with a dot is a path only at the top, and where it was renamed."""
    settings = {"task": {"class_weights": {"comp.graphics": 2.0}}, "baselines": {"lr 0.1": {"solver.lr": 0.1}}}
    config = build_recipe({**settings, "solver.lr": 0.5}, {"task.class_weights": {"sci.med": 3.0}})
    assert config.task.options["class_weights"] == {"comp.graphics": 2.0, "sci.med": 3.0}
    assert config.solver["lr"] == 0.5
    assert baseline_config(config, "lr 0.1").solver["lr"] == 0.1
