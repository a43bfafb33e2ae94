"""Labels for label skew in every task: the label of a row, or a pseudo-label where the task has none (FedNLP)."""

from __future__ import annotations

import itertools

import numpy as np

from motet.core.errors import ConfigError
from motet.datasets.corpus import Corpus
from motet.partitions.traits import Trait

# Entity types that FedNLP ignores in OntoNotes. The same names may mean something else in other tag sets.
IGNORED_TYPES = {
    "CARDINAL",
    "DATE",
    "LANGUAGE",
    "LAW",
    "MONEY",
    "ORDINAL",
    "PERCENT",
    "QUANTITY",
    "TIME",
    "WORK_OF_ART",
}
ONTONOTES_TYPES = {"CARDINAL", "NORP", "WORK_OF_ART"}  # types that identify the tag set of OntoNotes
QUESTION_WORDS = ("what", "who", "whom", "whose", "when", "where", "which", "why", "how")
SCORE_LEVELS = 5


def label_trait(corpus: Corpus) -> Trait:
    """Return labels; for tagging the entity types of a sentence, for QA the source, for regression a score level."""
    if "label" in corpus.columns:
        return Trait(*corpus.factorize("label"), {"by": "label"})
    match corpus.task:
        case "tagging":
            return entity_type_trait(corpus)
        case "regression":
            return score_level_trait(corpus)
        case "qa":
            return _domain_trait(corpus) or question_word_trait(corpus)
    trait = _domain_trait(corpus)
    if trait is None:
        raise ConfigError(
            f"partition: {corpus.name} is a corpus for {corpus.task}, whose rows do not have one label each. Use "
            "feature, vocabulary, length or quantity, or "
            f"one of its columns ({', '.join(corpus.columns)}) with partition.by=…"
        )
    return trait


def entity_type_trait(corpus: Corpus) -> Trait:
    """Return the sorted entity types of each sentence, joined by '-', or NULL if there are none."""
    rows = [sorted({tag.partition("-")[2] for tag in tags} - {""}) for tags in corpus.column("tags")]
    types = {entity_type for row in rows for entity_type in row}
    ignored = IGNORED_TYPES if types >= ONTONOTES_TYPES else set()
    labels = ["-".join(entity_type for entity_type in row if entity_type not in ignored) or "NULL" for row in rows]
    return Trait.from_values(labels, {"by": "entity types", "ignored": sorted(ignored & types)})


def question_word_trait(corpus: Corpus) -> Trait:
    """Return the first question word. FedNLP uses the source of a question, which needs more than one source."""
    rows = (question.lower().replace("'", " ").split() for question in corpus.column("question"))
    words = [next((w.strip('¿?,."') for w in row if w.strip('¿?,."') in QUESTION_WORDS), "other") for row in rows]
    return Trait.from_values(words, {"by": "question word"})


def score_level_trait(corpus: Corpus) -> Trait:
    """Return the quintile of each score; ties may make the levels unequal."""
    scores = np.asarray(corpus.column("score"), np.float64)
    cuts = np.unique(np.quantile(scores[: corpus.num_train], np.linspace(0, 1, SCORE_LEVELS + 1)[1:-1]))
    codes = np.searchsorted(cuts, scores, side="left")
    edges = ["lowest", *(f"{c:g}" for c in cuts), "highest"]
    names = [f"{a} to {b}" for a, b in itertools.pairwise(edges)]
    return Trait(np.array(names), codes, {"by": "score", "cuts": cuts.tolist()})


def _domain_trait(corpus: Corpus) -> Trait | None:
    if "domain" not in corpus.columns:
        return None
    names, codes = corpus.factorize("domain")
    return Trait(names, codes, {"by": "domain"}) if len(np.unique(codes[: corpus.num_train])) > 1 else None
