"""FedSplitBERT (Lit et al., "Federated Split BERT for Heterogeneous Text Classification", IJCNN 2022).

The model is split at the critical layer c. Layers 1…c are averaged, W^g ← Σ nᵢ·Wᵢ^g / Σ nᵢ (or by another server
optimizer). The layers above c, the pooler and the classifier stay on each client, Wᵢ^l, for the whole run. With c =
0 this is isolated training. With c = all it is FedAvg, and the pooler and the classifier are averaged too. The paper
uses 6 of 12 layers (`half`). Its 16-bit quantization is a codec on the weights: `codec: float16` with `sends:
weights`.

Where we differ: the paper does not say how embeddings are treated, and its byte counts leave them out. So they are
frozen by default; set `embeddings` to `local` or `global` to train them. With μ > 0, the proximal term of FedProx
also keeps a client's local layers close to their values at the start of the round.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from motet.algorithms.fedavg import FedAvg, Sends, Weighting
from motet.core.errors import ConfigError
from motet.core.layers import Layers
from motet.learning.solver import Solver
from motet.optim import SGD, ServerOptimizer

CriticalLayer = int | Literal["half", "all"]
EmbeddingMode = Literal["frozen", "local", "global"]


def split_layers(algorithm: FedAvg, c: CriticalLayer, embeddings: EmbeddingMode = "frozen") -> FedAvg:
    """Share only the lowest c layers of any algorithm of the FedAvg family."""
    if isinstance(c, int) and c < 0:
        raise ConfigError(f"fedsplit: c is {c}; expected a number of layers >= 0, 'half' or 'all'.")
    frozen = Layers.parse("embeddings") if embeddings == "frozen" else Layers.none()
    return replace(algorithm, shared=_shared_layers(c, embeddings), frozen=frozen, name="fedsplit")


def _shared_layers(c: CriticalLayer, embeddings: EmbeddingMode) -> Layers:
    if c == "all":
        return ~Layers.parse("embeddings") if embeddings == "local" else Layers.all()
    terms = [f"lower {c}"] if c else []
    return Layers.parse(*terms, *(["embeddings"] if embeddings == "global" else []))


def fedsplit(
    solver: Solver = Solver(),
    c: CriticalLayer = "half",
    embeddings: EmbeddingMode = "frozen",
    mu: float = 0.0,
    server: ServerOptimizer = SGD(),
    weighting: Weighting = "examples",
    sends: Sends = "updates",
) -> FedAvg:
    """Shared lower layers and local upper layers (FedSplitBERT). Combine with FedProx (mu) or FedAdam (server)."""
    fedavg = FedAvg(replace(solver, proximal_mu=mu), server, weighting=weighting, sends=sends)
    return split_layers(fedavg, c, embeddings)
