"""`motet data inspect`: inspect any file or folder without a recipe, and propose one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from motet.core.errors import DataError
from motet.datasets.corpus import Corpus
from motet.datasets.corpus_readers import CORPUS_READERS
from motet.datasets.inspection.check_corpus import is_published
from motet.datasets.inspection.column_guess import guess_columns
from motet.datasets.inspection.corpus_inspection import CorpusInspection, inspect_corpus
from motet.datasets.inspection.finding import Finding
from motet.datasets.inspection.findings import accept_setting, find_problems, select_mistakes
from motet.datasets.inspection.table_preview import preview_table
from motet.datasets.inspection.unused_columns import describe_unused
from motet.datasets.load_corpus import DataConfig
from motet.experiment.commands.corpus_commands import read_source
from motet.experiment.recipe.corpus_source import CorpusSource

CHARACTERS_PER_TOKEN = 4  # of English in a subword vocabulary
MIN_TOKENS, MAX_TOKENS = 16, 256
DEFAULT_CLIENTS, COHORT_SIZE, MIN_CLIENTS = 10, 10, 2
LEARNING_RATES = {"seq2seq": 5e-4, "lm": 3e-3}
MODELS = {"seq2seq": "bert2bert:minilm", "lm": "tiny", "instruct": "tiny", "preference": "tiny"}


@dataclass(frozen=True)
class PathInspection:
    """An inspected file or folder, with a recipe that trains on it."""

    inspection: CorpusInspection
    findings: list[Finding]
    recipe: str
    guess: str = ""  # the settings that name columns and were guessed
    unused: str = ""  # columns of a table that the corpus does not use
    accept: tuple[str, ...] = ()  # kinds of mistakes that are intended

    @property
    def mistakes(self) -> list[Finding]:
        """The mistakes that stop a run."""
        return select_mistakes(self.findings, self.accept)

    @property
    def accepted(self) -> list[Finding]:
        """The mistakes that data.accept names."""
        return [finding for finding in self.findings if finding.is_mistake and finding not in self.mistakes]

    @property
    def obstacle(self) -> str:
        """Why no recipe is proposed, and what to do; empty if there is nothing in its way."""
        if not self.mistakes:
            return ""
        setting = accept_setting(self.mistakes, self.accept)
        hint = f", or if they are intended, add {setting} to this command" if setting else ""
        return f"A run stops for mistakes, so no recipe is proposed. Fix them and inspect the data again{hint}."

    @property
    def warnings(self) -> list[Finding]:
        return [finding for finding in self.findings if not finding.is_mistake]


def inspect_path(path: str, source: Path | None, overrides: Sequence[str]) -> PathInspection:
    """Inspect a path or a corpus by name. Mistakes do not stop it.

    If the columns of a table have other names than Motet's, they are guessed from their names and values.
    """
    read, corpus, guess = _read_path(path, source, overrides)
    data = read.config
    inspection = inspect_corpus(corpus, is_published=is_published(corpus, data))
    return PathInspection(
        inspection=inspection,
        findings=find_problems(inspection),
        recipe=propose_recipe(data, read.task, inspection),
        guess=guess,
        unused=_describe_unused(data, inspection, is_guess=bool(guess)),
        accept=data.accept,
    )


def _describe_unused(data: DataConfig, inspection: CorpusInspection, is_guess: bool) -> str:
    if data.path is None or data.name is not None:
        return ""
    return describe_unused(preview_table(Path(data.path), data.read_options), inspection.report.columns, is_guess)


def _read_path(path: str, source: Path | None, overrides: Sequence[str]) -> tuple[CorpusSource, Corpus, str]:
    """Return where the corpus was read, the corpus, and the guessed settings.

    A folder with the name of a published corpus is read as that corpus, if it has its files.
    """
    given = read_source(path, source, overrides)
    if given.config.name is None and (published := _find_published(Path(path))) is not None and not overrides:
        try:
            return published, published.load(), ""
        except DataError:
            pass  # your own folder with the same name
    try:
        return given, given.load(), ""
    except DataError as error:
        settings = guess_settings(given.config)
        if not settings:
            raise
        guessed = read_source(path, source, [*settings, *overrides])
        try:
            return guessed, guessed.load(), ", ".join(settings)
        except DataError:
            raise error from None


def _find_published(path: Path) -> CorpusSource | None:
    """Return the source of the published corpus that a folder is named after."""
    name = path.resolve().name.lower().replace("_", "-")
    glue_name = f"glue-{name.replace('-', '')}"
    if name in CORPUS_READERS:
        return CorpusSource({"name": name, "path": str(path)})
    return CorpusSource({"name": glue_name, "path": str(path.parent)}) if glue_name in CORPUS_READERS else None


def guess_settings(data: DataConfig) -> list[str]:
    """Return settings that name the columns of your own table; empty if there is too much doubt."""
    if data.path is None or data.name is not None:
        return []
    guess = guess_columns(preview_table(Path(data.path), data.read_options))
    return [] if guess is None else guess.overrides


def propose_recipe(data: DataConfig, task: str | None, inspection: CorpusInspection) -> str:
    """Return a recipe in YAML with a model and settings that suit the size of the corpus."""
    name = inspection.task
    recipe: dict[str, Any] = {"rounds": 20, "data": _changed_settings(data)}
    if task is not None:
        recipe["task"] = task
    recipe["model"] = {"name": MODELS.get(name, "minilm"), "max_tokens": _propose_max_tokens(inspection)}
    recipe["partition"] = _propose_partition(inspection)
    if (inspection.num_clients or 0) > 2 * COHORT_SIZE:
        recipe["cohort"] = {"size": COHORT_SIZE}
    recipe["algorithm"] = "fedopt"
    recipe["solver"] = {"lr": LEARNING_RATES.get(name, 2e-4), "batch": 16}
    recipe["evaluation"] = {"every": 5}
    return yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True, default_flow_style=None)


def _changed_settings(data: DataConfig) -> dict[str, Any]:
    """Return the settings that are not defaults, as a recipe has them."""
    default = DataConfig()
    settings = {f.name: getattr(data, f.name) for f in fields(data)}
    changed = {name: value for name, value in settings.items() if value != getattr(default, name)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in changed.items()}


def _propose_max_tokens(inspection: CorpusInspection) -> int:
    """Return a power of two that 95 % of the texts fit in, within limits."""
    tokens = inspection.lengths.percentile_95 / CHARACTERS_PER_TOKEN
    size = MIN_TOKENS
    while size < min(tokens, MAX_TOKENS):
        size *= 2
    return size


def _propose_partition(inspection: CorpusInspection) -> Any:
    if inspection.num_clients is not None and inspection.num_clients >= MIN_CLIENTS:
        return "natural"
    clients = min(DEFAULT_CLIENTS, inspection.train.rows)
    has_labels = inspection.task == "classification"
    return (
        {"type": "label", "clients": clients, "alpha": 1.0} if has_labels else {"type": "uniform", "clients": clients}
    )
