from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from motet.algorithms.fedavg import FedAvg
from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.experiment.build.builders import build_algorithm, build_channel, build_secure, device_of, resolved
from motet.experiment.loop.client_sampling import pick
from motet.experiment.recipe.recipe_files import baseline_of, load_recipe, merged, recipes
from motet.experiment.recipe.run_config import CohortConfig, ComponentConfig, RunConfig
from motet.optim import Adam, Momentum
from motet.partitions.partition import Numbered


def built(*settings: str) -> FedAvg:
    algorithm = build_algorithm(load_recipe("toy-classification", settings))
    assert isinstance(algorithm, FedAvg)
    return algorithm


@pytest.mark.parametrize("name", recipes())
def test_every_shipped_recipe_is_sound_and_short(name: str) -> None:
    config = load_recipe(name)
    build_secure(config, build_algorithm(config))
    for baseline in config.baselines:
        build_algorithm(baseline_of(config, baseline))
    assert recipes()[name], "the first line says what it is"


def test_numbers_that_yaml_reads_as_text_are_numbers() -> None:
    assert built("solver.lr=5e-5").solver.lr == 5e-5
    assert built("server.lr=1e-1").server.lr == 0.1


def test_an_algorithm_keeps_its_own_defaults_where_nothing_is_said() -> None:
    config = RunConfig.of("t", {"algorithm": "fedavg"})
    solver = build_algorithm(config).solver  # type: ignore[attr-defined]
    assert (solver.optimizer, solver.learning_rate, solver.clip, solver.warmup) == ("sgd", 0.1, 1.0, 0.06)
    fedopt = build_algorithm(RunConfig.of("t", {"algorithm": "fedopt"}))
    assert fedopt.server == Momentum(lr=1.0, momentum=0.9)  # type: ignore[attr-defined]
    assert fedopt.solver.optimizer == "adamw"  # type: ignore[attr-defined]


def test_changing_the_client_optimiser_takes_its_own_rate() -> None:
    assert (
        build_algorithm(
            RunConfig.of("t", {"algorithm": "fedavg", "solver": {"optimizer": "adamw"}})
        ).solver.learning_rate
        == 5e-5
    )  # type: ignore[attr-defined]


def test_a_server_option_changes_that_and_nothing_else() -> None:
    assert built("server.momentum=0.5").server == Momentum(lr=1.0, momentum=0.5)
    assert built("server.type=adam", "server.lr=0.1").server == Adam(lr=0.1)


def test_naming_another_algorithm_drops_the_options_of_the_first() -> None:
    given = merged({"algorithm": {"type": "fedprox", "mu": 0.1}}, {"algorithm": {"type": "fedopt"}})
    assert given == {"algorithm": {"type": "fedopt"}}
    assert merged({"algorithm": "fedprox"}, {"algorithm": {"mu": 0.1}}) == {"algorithm": {"type": "fedprox", "mu": 0.1}}
    assert merged({"algorithm": {"type": "fedprox", "mu": 1}}, {"algorithm": "fedopt"}) == {
        "algorithm": {"type": "fedopt"}
    }


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            ["algorithm.type=fedprox", "algorithm.mue=3"],
            "fedprox: unknown option 'mue'; it takes mu, weighting, shared. Did you mean 'mu'?",
        ),
        (["algorithm.type=fedavgg"], "algorithm.type: there is no 'fedavgg'"),
        (["algorithm.type=isolated", "server.lr=1"], "isolated has no server optimiser"),
        (["solver.lr=fast"], "solver.lr is 'fast'; expected a number"),
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
            "codec: there is no 'float61'; there is float16, bfloat16, int8, int4, top_k, clip. Did you mean 'float16'?",
        ),
        (["codec=[int8, float16]"], "codec: int8 must be the last of its chain"),
        (
            ["codec=[top_k: {shares: 0.1}]"],
            "codec top_k: unknown option 'shares'; it takes share, feedback. Did you mean 'share'?",
        ),
        (["codec=top_k"], "say which way each codec is for: codec: {up: [top_k], down: [float16]}"),
        (["codec.up=top_k", "algorithm.sends=weights"], "top_k cannot code weights"),
    ],
)
def test_what_is_wrong_is_said_with_what_was_expected(settings: list[str], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config = load_recipe("toy-classification", settings)
        build_channel(config)
        build_algorithm(config)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["rounds=0"], "rounds is 0; at least 1 is needed"),
        (["rounds"], "'rounds' is no setting; write section.key=value"),
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
def test_a_recipe_that_cannot_be_read_is_explained(settings: list[str], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_recipe("toy-classification", settings)
    assert says in str(refused.value)


def test_a_recipe_file_is_read_and_a_broken_one_explained(tmp_path: Path) -> None:
    good = tmp_path / "mine.yaml"
    good.write_text("rounds: 3\ndata: {name: toy-classification}\nmodel: {name: tiny}\n")
    assert (load_recipe(str(good)).recipe, load_recipe(str(good)).rounds) == ("mine", 3)
    for text, says in (("rounds: [", "is no YAML"), ("- 1", "expected sections"), ("", "")):
        good.write_text(text)
        if says:
            with pytest.raises(ConfigError, match=says):
                load_recipe(str(good))
    with pytest.raises(ConfigError, match="there is no recipe file"):
        load_recipe(str(tmp_path / "other.yaml"))


def test_a_resolved_configuration_reads_back_as_itself() -> None:
    config = resolved(load_recipe("toy-classification", ["algorithm.type=fedprox", "algorithm.mu=0.3"]))
    given = yaml.safe_load(yaml.safe_dump(config.plain()))
    again = RunConfig.of(given.pop("recipe"), given)
    assert again == config
    assert resolved(again).digest == config.digest
    assert config.solver["lr"] == 0.002
    assert config.server == {"type": "apply", "lr": 1.0}


def test_the_digest_tells_what_is_learnt_from_where_it_runs() -> None:
    base = load_recipe("toy-classification")
    assert (
        load_recipe("toy-classification", ["device=cpu", "transport.workers=1", "evaluation.every=2"]).digest
        == base.digest
    )
    assert load_recipe("toy-classification", ["seed=1"]).digest != base.digest


def test_a_baseline_has_the_same_data_and_its_own_solver() -> None:
    config = load_recipe("quickstart")
    fedavg = baseline_of(config, "fedavg")
    assert fedavg.data == config.data
    assert fedavg.partition == config.partition
    solver = build_algorithm(fedavg).solver  # type: ignore[attr-defined]
    assert solver.optimizer == "sgd"
    assert solver.batch == config.solver["batch"]


def test_a_baseline_of_the_same_algorithm_keeps_the_solver() -> None:
    config = load_recipe("adafd", ["solver.lr=0.001"])
    assert baseline_of(config, "rnwc").solver["lr"] == 0.001
    assert baseline_of(config, "mhat").solver.get("lr") != 0.001
    assert load_recipe("adafd", ["baselines=null"]).baselines == {}


def test_cohorts_are_the_same_for_every_algorithm_and_change_with_the_round() -> None:
    names = Numbered(100)
    choice = CohortConfig(10)
    first = pick(choice, names, 0, Seed(1))
    assert len(set(first)) == 10
    assert list(first) == sorted(first)
    assert first == pick(choice, names, 0, Seed(2))
    assert first != pick(choice, names, 1, Seed(1))
    seeded = CohortConfig(10, "seeded")
    assert pick(seeded, names, 0, Seed(1)) != pick(seeded, names, 0, Seed(2))
    assert pick(CohortConfig(500), names, 3, Seed(1)) == pick(CohortConfig(), names, 9, Seed(1)) == tuple(names)


def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected auto, cpu, cuda"):
        device_of("gpu0")
    assert device_of("auto").type in ("cpu", "cuda")


def test_a_choice_is_a_name_or_a_section() -> None:
    assert ComponentConfig.of("label", "uniform", "partition") == ComponentConfig("label")
    assert ComponentConfig.of({"alpha": 1}, "uniform", "partition") == ComponentConfig("uniform", {"alpha": 1})
    assert ComponentConfig.of(None, "uniform", "partition") == ComponentConfig("uniform")
