"""The label of a row, or one made for it where the task has none, so that labels can shift in every formulation (FedNLP)."""

from __future__ import annotations

import itertools

import numpy as np

from motet.core.errors import ConfigError
from motet.datasets.corpus import Corpus
from motet.partitions.traits import Trait

# Types that FedNLP leaves away. They mean this in OntoNotes only, so other tag sets keep all of theirs.
ASIDE = {"CARDINAL", "DATE", "MONEY", "QUANTITY", "ORDINAL", "TIME", "LANGUAGE", "WORK_OF_ART", "LAW", "PERCENT"}
ONTONOTES = {"CARDINAL", "NORP", "WORK_OF_ART"}
ASKING = ("what", "who", "whom", "whose", "when", "where", "which", "why", "how")
LEVELS = 5  # of a score


def label_trait(corpus: Corpus) -> Trait:
    """Labels; for tagging the entity types of a sentence, for questions their source, for scores one of five levels."""
    if "label" in corpus.columns:
        return Trait(*corpus.factorize("label"), {"by": "label"})
    match corpus.task:
        case "tagging":
            return entity_types(corpus)
        case "regression":
            return score_levels(corpus)
        case "qa":
            return _sources(corpus) or question_words(corpus)
    found = _sources(corpus)
    if found is None:
        raise ConfigError(
            f"partition: {corpus.name} is for {corpus.task}, which has no labels to shift. What works: feature (what texts are "
            f"about), vocabulary, length, quantity, or a column of its own ({', '.join(corpus.columns)}) with partition.by=…"
        )
    return found


def entity_types(corpus: Corpus) -> Trait:
    """The sorted set of a sentence's entity types, joined by '-'; NULL if there is none."""
    rows = [sorted({tag.partition("-")[2] for tag in tags} - {""}) for tags in corpus.column("tags")]
    every = {kind for row in rows for kind in row}
    aside = ASIDE if every >= ONTONOTES else set()
    labels = ["-".join(kind for kind in row if kind not in aside) or "NULL" for row in rows]
    return Trait.from_values(labels, {"by": "entity types", "left_away": sorted(aside & every)})


def question_words(corpus: Corpus) -> Trait:
    """What a question asks for: its first asking word. (FedNLP's rule, the source, needs more than one source.)"""
    rows = (question.lower().replace("'", " ").split() for question in corpus.column("question"))
    asked = [next((w.strip('¿?,."') for w in words if w.strip('¿?,."') in ASKING), "other") for words in rows]
    return Trait.from_values(asked, {"by": "question word"})


def score_levels(corpus: Corpus) -> Trait:
    """Five levels of the score, as many training rows in each as ties allow."""
    scores = np.asarray(corpus.column("score"), np.float64)
    cuts = np.unique(np.quantile(scores[: corpus.num_train], np.linspace(0, 1, LEVELS + 1)[1:-1]))
    codes = np.searchsorted(cuts, scores, side="left")
    edges = ["", *(f"{c:g}" for c in cuts), ""]
    names = [f"{a or 'lowest'} to {b or 'highest'}" for a, b in itertools.pairwise(edges)]
    return Trait(np.array(names), codes, {"by": "score", "cuts": cuts.tolist()})


def _sources(corpus: Corpus) -> Trait | None:
    if "domain" not in corpus.columns:
        return None
    names, codes = corpus.factorize("domain")
    return Trait(names, codes, {"by": "domain"}) if len(np.unique(codes[: corpus.num_train])) > 1 else None
