"""Inspect the corpus of a recipe, and stop for what is almost certainly a mistake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from motet.datasets.corpus import Corpus
from motet.datasets.corpus_readers import CORPUS_READERS
from motet.datasets.fednlp_data_file import FEDNLP_TASK_REASON
from motet.datasets.file_formats import HDF5_SUFFIXES
from motet.datasets.inspection.corpus_inspection import CorpusInspection, inspect_corpus
from motet.datasets.inspection.findings import find_problems, require_no_mistakes
from motet.datasets.load_corpus import BUILTIN_CORPORA, DataConfig

ShowInspection = Callable[[CorpusInspection], None]


def check_corpus(
    corpus: Corpus, config: DataConfig, *, is_one_client: bool = False, on_inspection: ShowInspection | None = None
) -> CorpusInspection:
    """Inspect a corpus that was loaded from `config`. Raise an error for mistakes that data.accept does not name.

    `is_one_client`: these are the rows of one client in a deployment. `on_inspection` is called before any error.
    """
    inspection = inspect_corpus(corpus, is_published=is_published(corpus, config))
    if on_inspection is not None:
        on_inspection(inspection)
    findings = find_problems(inspection, is_one_client=is_one_client, limit=config.limit)
    require_no_mistakes(corpus.name, findings, config.accept)
    return inspection


def is_published(corpus: Corpus, config: DataConfig) -> bool:
    """True if the corpus is not the user's own: it has a name, or a file of a named corpus or of FedNLP was read."""
    if config.name is not None or corpus.report.task_reason == FEDNLP_TASK_REASON:
        return True
    is_stored = Path(config.path or "").suffix.lower() in HDF5_SUFFIXES  # only these keep the name of their corpus
    return is_stored and (corpus.name in BUILTIN_CORPORA or corpus.name in CORPUS_READERS)
