"""Components of other packages, found by entry points."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from motet.algorithms import ALGORITHM_REGISTRY
from motet.codecs import CODEC_REGISTRY
from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.datasets.load_corpus import DataConfig, load_corpus
from motet.experiment.build.component_builders import build_algorithm, build_channel, resolve_defaults
from motet.experiment.build.federation_builder import build_federation
from motet.experiment.commands.listings import list_entries
from motet.experiment.loop.tracking import find_trackers
from motet.experiment.recipe.run_config import RunConfig

MODULE = '''
from motet.algorithms import fedavg
from motet.codecs import float16
from motet.datasets.toy_corpora import toy_classification
from motet.learning.solver import Solver
from motet.partitions import uniform
from motet.tasks import classification

def average(solver: Solver = Solver(optimizer="sgd"), mu: float = 1.0):
    """An average from elsewhere."""
    return fedavg(solver)

def half():
    return float16()

def halves(corpus, seed):
    return uniform(corpus, seed, clients=2)

def texts():
    return toy_classification(train=20, test=10)

def no_corpus():
    return "text"

def labels(corpus):
    return classification(corpus)

def open_tracker(recipe, folder, config):
    raise NotImplementedError

constant = 3
'''
ENTRY_POINTS = """
[motet.algorithms]
average = elsewhere_plugin:average
broken = elsewhere_plugin_missing:average
constant = elsewhere_plugin:constant
fedavg = elsewhere_plugin:average

[motet.codecs]
half = elsewhere_plugin:half

[motet.datasets]
texts = elsewhere_plugin:texts
no-corpus = elsewhere_plugin:no_corpus

[motet.partitions]
halves = elsewhere_plugin:halves

[motet.tasks]
labels = elsewhere_plugin:labels

[motet.trackers]
log = elsewhere_plugin:open_tracker
"""


def install(folder: Path, name: str, entry_points: str) -> None:
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path with an installed package that offers one component of each kind, and broken ones."""
    install(tmp_path, "elsewhere", ENTRY_POINTS)
    (tmp_path / "elsewhere_plugin.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("packages")
def test_components_of_other_packages_are_listed() -> None:
    algorithms = list_entries("algorithms")
    assert algorithms["average"] == "An average from elsewhere."
    assert "ModuleNotFoundError: No module named 'elsewhere_plugin_missing'" in algorithms["broken"]
    assert algorithms["broken"].startswith("cannot be used: ")
    for table, name in (
        ("codecs", "half"),
        ("datasets", "texts"),
        ("partitions", "halves"),
        ("tasks", "labels"),
        ("trackers", "log"),
    ):
        assert name in list_entries(table)


@pytest.mark.usefixtures("packages")
def test_a_recipe_can_name_components_of_other_packages() -> None:
    settings = {
        "algorithm": {"type": "average", "mu": 2},
        "codec": "half",
        "data": {"name": "texts"},
        "partition": "halves",
        "task": "labels",
        "model": {"name": "tiny", "max_tokens": 16},
        "solver": {"batch": 4},
        "track": ["log"],
    }
    config = resolve_defaults(RunConfig.from_settings("r", settings))
    assert build_algorithm(config).name == "fedavg"
    assert build_channel(config).up.codecs[0].name == "float16"
    assert len(build_federation(config).clients) == 2
    assert list(find_trackers(config)) == ["log"]


@pytest.mark.usefixtures("packages")
def test_an_entry_that_cannot_be_used_is_an_error_of_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"algorithm.type: 'broken' of the package elsewhere cannot be imported from"):
        build_algorithm(RunConfig.from_settings("r", {"algorithm": "broken"}))
    with pytest.raises(ConfigError, match="'constant' of the package elsewhere is a int; expected a function"):
        ALGORITHM_REGISTRY.get("constant", "algorithm.type")
    with pytest.raises(ConfigError, match="the function of 'no-corpus' returned a str; expected a Corpus"):
        load_corpus(DataConfig(name="no-corpus"), Seed(0))


@pytest.mark.usefixtures("packages")
def test_an_unknown_name_is_an_error_that_also_suggests_names_of_other_packages() -> None:
    with pytest.raises(ConfigError, match=r"there is no 'averge'.*Did you mean 'average'"):
        build_algorithm(RunConfig.from_settings("r", {"algorithm": "averge"}))
    with pytest.raises(ConfigError, match=r"there is no corpus 'textes'\. Did you mean 'texts'"):
        load_corpus(DataConfig(name="textes"), Seed(0))


@pytest.mark.usefixtures("packages")
def test_a_package_cannot_replace_one_of_motets_own_components() -> None:
    assert ALGORITHM_REGISTRY.get("fedavg", "algorithm.type") is ALGORITHM_REGISTRY.builtin["fedavg"]


def test_a_name_that_two_packages_offer_is_an_error(packages: Path) -> None:
    install(packages, "another", "[motet.codecs]\nhalf = another_plugin:half\n")
    with pytest.raises(ConfigError, match=r"codec: 'half' is offered by several packages \(another and elsewhere\)"):
        CODEC_REGISTRY.get("half", "codec")


def test_messages_of_other_packages_are_known_to_a_process_that_uses_none_of_them(tmp_path: Path) -> None:
    """A client decodes the server's task, with the loss of the task, before it knows its package."""
    (tmp_path / "messages_plugin.py").write_text(
        "from dataclasses import dataclass\nfrom motet.core.messages import message\n\n"
        "@message\n@dataclass(frozen=True)\nclass FocalLoss:\n    gamma: float = 2.0\n"
    )
    install(tmp_path, "messages", "[motet.tasks]\nbroken = missing:task\nfocal = messages_plugin:FocalLoss\n")
    program = (
        "import sys\nfrom motet.wire import deserialize, serialize\n"
        "if sys.argv[1] == 'write':\n    from messages_plugin import FocalLoss\n"
        "    print(serialize(FocalLoss(3.0)).hex())\n"
        "else:\n    print(deserialize(bytes.fromhex(sys.argv[2])))\n"
    )

    def run(*arguments: str) -> str:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
        command = [sys.executable, "-c", program, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()

    assert run("read", run("write")) == "FocalLoss(gamma=3.0)"
