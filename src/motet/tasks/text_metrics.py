"""Metrics of generated text, from rouge-score, sacrebleu and nltk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from motet.core.messages import message
from motet.tasks.rouge_tokenizer import create_rouge_scorer, has_unspaced_words, split_sentences

BETA = 1.2  # of FedNLP's ROUGE-L: recall counts more than precision
ROUGE_TYPES = ("rougeL", "rouge1", "rouge2", "rougeLsum")
SAMPLE_SIZE = 200  # references that decide the tokenizer of BLEU
_ROUGE_WORDS = "Unicode words, single letters in scripts without spaces"


@message
@dataclass(frozen=True)
class TextMetrics:
    """ROUGE-1/2/L/Lsum F1, ROUGE-L with β = 1.2, corpus BLEU-4 and METEOR, all from 0 to 1.

    `stemming` is for ROUGE, as in ROUGE-1.5.5 with option -m. ROUGE-L with β = 1.2 is FedNLP's, without stemming.
    """

    stemming: bool = True
    bleu_tokenizer: str = "13a"

    def compute(self, generated: Sequence[str], references: Sequence[str]) -> dict[str, float]:
        """Return the metrics of texts: corpus BLEU, and the means of all others."""
        if not generated:
            return dict.fromkeys((*ROUGE_TYPES, "rougeL_b12", "bleu", "meteor"), 0.0)
        rouge = self._rouge_rows(generated, references).mean(0)
        bleu = self._bleu().corpus_score(list(generated), [list(references)]).score / 100
        meteor = np.mean([_meteor(*pair) for pair in zip(generated, references, strict=True)])
        names = (*ROUGE_TYPES, "rougeL_b12")
        return {**dict(zip(names, rouge.tolist(), strict=True)), "bleu": float(bleu), "meteor": float(meteor)}

    def score_texts(self, generated: Sequence[str], references: Sequence[str]) -> np.ndarray:
        """Return ROUGE-L of each text, then the statistics of the other metrics (see `metric_statistics`)."""
        bleu, rows = self._bleu(effective_order=True), []
        rouge = self._rouge_rows(generated, references)
        pairs = zip(generated, references, strict=True)
        for (text, reference), (r_l, r_1, r_2, r_lsum, r_b12) in zip(pairs, rouge, strict=True):
            ngrams = bleu.sentence_score(text, [reference])
            counts = (*ngrams.counts, *ngrams.totals, ngrams.sys_len, ngrams.ref_len)
            rows.append([r_l, r_1, r_2, _meteor(text, reference), *counts, r_lsum, r_b12])
        return np.array(rows, np.float32).reshape(len(rows), -1)

    def describe(self) -> dict[str, str]:
        """Return how each metric is computed: its tokenizer, its stemmer, its smoothing."""
        stemmer = "Porter stemmer" if self.stemming else "no stemmer"
        rouge = dict.fromkeys(ROUGE_TYPES, f"rouge-score; {_ROUGE_WORDS}; {stemmer}")
        return {
            **rouge,
            "rougeLsum": f"{rouge['rougeLsum']}; sentences are lines, or end at punctuation",
            "rougeL_b12": f"rouge-score; {_ROUGE_WORDS}; no stemmer; β = {BETA}",
            "bleu": f"sacrebleu; tokenizer {self.bleu_tokenizer}, exponential smoothing, case-sensitive",
            "meteor": "NLTK; words between spaces; exact words and stems, no synonyms",
        }

    def _bleu(self, effective_order: bool = False) -> Any:
        from sacrebleu.metrics.bleu import BLEU

        return BLEU(tokenize=self.bleu_tokenizer, effective_order=effective_order)

    def _rouge_rows(self, generated: Sequence[str], references: Sequence[str]) -> np.ndarray:
        """Return one row per text: F1 of ROUGE_TYPES, then ROUGE-L with β = 1.2."""
        scorer = create_rouge_scorer(ROUGE_TYPES, self.stemming)
        unstemmed = create_rouge_scorer(["rougeL"], stemming=False) if self.stemming else scorer
        rows = np.zeros((len(generated), len(ROUGE_TYPES) + 1))
        for i, (text, reference) in enumerate(zip(generated, references, strict=True)):
            lines = ["\n".join(split_sentences(t)) for t in (reference, text)]
            scores = scorer.score(*lines)
            lcs = unstemmed.score(*lines)["rougeL"]
            rows[i] = [*(scores[name].fmeasure for name in ROUGE_TYPES), _f_beta(lcs.precision, lcs.recall)]
        return rows


def choose_bleu_tokenizer(references: Iterable[str]) -> str:
    """Return sacrebleu's tokenizer for these texts: 13a, or char for scripts without spaces between words."""
    return "char" if has_unspaced_words("".join(islice(references, SAMPLE_SIZE))) else "13a"


def _f_beta(precision: float, recall: float) -> float:
    denominator = recall + BETA**2 * precision
    return (1 + BETA**2) * precision * recall / denominator if denominator else 0.0


class _NoSynonyms:
    """Replaces WordNet, which METEOR would have to download. Without synonyms, exact words and stems match."""

    def synsets(self, word: str) -> list[str]:
        return []


def _meteor(text: str, reference: str) -> float:
    from nltk.translate.meteor_score import single_meteor_score

    return float(single_meteor_score(reference.split(), text.split(), wordnet=_NoSynonyms()))
