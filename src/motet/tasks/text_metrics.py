"""Metrics of generated text, from rouge-score, sacrebleu and nltk."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

BETA = 1.2  # of FedNLP's ROUGE-L: recall counts more than precision


def generation_metrics(generated: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Return mean ROUGE-1/2/L F1, mean ROUGE-L with β = 1.2, corpus BLEU-4 and mean METEOR, all from 0 to 1."""
    if not generated:
        return {"rougeL": 0.0, "rouge1": 0.0, "rouge2": 0.0, "rougeL_b12": 0.0, "bleu": 0.0, "meteor": 0.0}
    from rouge_score.rouge_scorer import RougeScorer
    from sacrebleu.metrics.bleu import BLEU

    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"])
    pairs = list(zip(generated, references, strict=True))
    rouge = [scorer.score(reference, text) for text, reference in pairs]
    means = {name: float(np.mean([r[name].fmeasure for r in rouge])) for name in ("rougeL", "rouge1", "rouge2")}
    weighted = [_f_beta(r["rougeL"].precision, r["rougeL"].recall) for r in rouge]
    bleu = BLEU(effective_order=False).corpus_score(list(generated), [list(references)]).score / 100
    meteor = float(np.mean([_meteor(text, reference) for text, reference in pairs]))
    return {**means, "rougeL_b12": float(np.mean(weighted)), "bleu": float(bleu), "meteor": meteor}


def score_generated_texts(generated: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """Return ROUGE-L of each text, then the statistics of the other metrics (see `sufficient_statistics`)."""
    from rouge_score.rouge_scorer import RougeScorer
    from sacrebleu.metrics.bleu import BLEU

    scorer, bleu = RougeScorer(["rougeL", "rouge1", "rouge2"]), BLEU(effective_order=True)
    rows = []
    for text, reference in zip(generated, references, strict=True):
        rouge = [score.fmeasure for score in scorer.score(reference, text).values()]
        ngrams = bleu.sentence_score(text, [reference])
        rows.append([*rouge, _meteor(text, reference), *ngrams.counts, *ngrams.totals, ngrams.sys_len, ngrams.ref_len])
    return np.array(rows, np.float32).reshape(len(rows), -1)


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
