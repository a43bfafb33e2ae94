"""A corpus as the command line describes it: a name or a path, and settings as in a recipe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.datasets.load_corpus import DATASET_REGISTRY, DataConfig, load_corpus
from motet.experiment.recipe.config_parsing import convert_options, instantiate, list_parameters
from motet.experiment.recipe.key_synonyms import find_key
from motet.experiment.recipe.recipe_files import parse_overrides
from motet.experiment.recipe.run_config import ComponentConfig


@dataclass(frozen=True)
class CorpusSource:
    """From where a corpus is read, as plain values."""

    data: Mapping[str, Any]  # the section of a recipe
    task: str | None = None  # None: the task of the corpus
    seed: int = 0

    @staticmethod
    def from_settings(name: str, path: Path | None, settings: Mapping[str, Any], seed: int = 0) -> CorpusSource:
        """Return the source of a corpus that is given by its name or its path. `path` holds the files of a name."""
        location = {"name": name} if name in DATASET_REGISTRY or not Path(name).exists() else {"path": name}
        if path is not None:
            location["path"] = str(path)
        task = ComponentConfig.from_settings(settings.get("task"), "auto", "task")
        return CorpusSource(complete_data(settings, location), task.chosen_type, seed)

    @property
    def config(self) -> DataConfig:
        return instantiate(DataConfig, self.data, "data")

    def load(self) -> Corpus:
        return load_corpus(self.config, Seed(self.seed), self.task)


def parse_sections(overrides: Iterable[str], sections: Sequence[str], problem: str) -> dict[str, Any]:
    """Parse overrides that may set only these sections. `problem` says what is wrong with others."""
    settings = parse_overrides(overrides)
    if unused := next((section for section in settings if section not in sections), None):
        expected = ", ".join(f"{section}.…" for section in sections)
        key = f"data.{unused}" if unused in list_parameters(DataConfig) else find_key(unused)
        advice = f"Did you mean {key}=…?" if key.partition(".")[0] in sections else "Remove it."
        raise ConfigError(f"'{unused}' {problem}; expected only {expected}. {advice}")
    return settings


def complete_data(settings: Mapping[str, Any], location: Mapping[str, str]) -> dict[str, Any]:
    """Return the section `data` of some settings, with the name or the path of the corpus."""
    given = settings.get("data", {})
    convert_options(DataConfig, given, "data")  # raises an error if it is not a section
    return {**given, **location}
