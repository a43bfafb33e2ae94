"""How good is what was written? The field's own libraries: rouge-score, sacrebleu, nltk's METEOR."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

BETA = 1.2  # of the ROUGE-L that FedNLP reports: recall counts a little more than precision


def generation_scores(said: Sequence[str], gold: Sequence[str]) -> dict[str, float]:
    """ROUGE-1/2/L as mean F1, ROUGE-L with β = 1.2, corpus BLEU-4 and METEOR (both from 0 to 1)."""
    if not said:
        return {"rougeL": 0.0, "rouge1": 0.0, "rouge2": 0.0, "rougeL_b12": 0.0, "bleu": 0.0, "meteor": 0.0}
    from rouge_score.rouge_scorer import RougeScorer
    from sacrebleu.metrics.bleu import BLEU

    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"])
    found = [scorer.score(truth, text) for truth, text in zip(gold, said, strict=True)]
    means = {name: float(np.mean([f[name].fmeasure for f in found])) for name in ("rougeL", "rouge1", "rouge2")}
    weighted = [_f_beta(f["rougeL"].precision, f["rougeL"].recall) for f in found]
    bleu = BLEU(effective_order=False).corpus_score(list(said), [list(gold)]).score / 100
    meteor = float(np.mean([_meteor(text, truth) for text, truth in zip(said, gold, strict=True)]))
    return {**means, "rougeL_b12": float(np.mean(weighted)), "bleu": float(bleu), "meteor": meteor}


def generation_example_scores(said: Sequence[str], gold: Sequence[str]) -> np.ndarray:
    """ROUGE-L of each text, and its tallies."""
    from rouge_score.rouge_scorer import RougeScorer
    from sacrebleu.metrics.bleu import BLEU

    scorer, bleu = RougeScorer(["rougeL", "rouge1", "rouge2"]), BLEU(effective_order=True)
    rows = []
    for text, truth in zip(said, gold, strict=True):
        overlaps = [score.fmeasure for score in scorer.score(truth, text).values()]
        grams = bleu.sentence_score(text, [truth])
        rows.append([*overlaps, _meteor(text, truth), *grams.counts, *grams.totals, grams.sys_len, grams.ref_len])
    return np.array(rows, np.float32).reshape(len(rows), -1)


def _f_beta(precision: float, recall: float) -> float:
    below = recall + BETA**2 * precision
    return (1 + BETA**2) * precision * recall / below if below else 0.0


class _NoSynonyms:
    """METEOR's synonyms come from WordNet, which must be downloaded; without it exact words and stems are matched."""

    def synsets(self, word: str) -> list[str]:
        return []


def _meteor(said: str, truth: str) -> float:
    from nltk.translate.meteor_score import single_meteor_score

    return float(single_meteor_score(truth.split(), said.split(), wordnet=_NoSynonyms()))
