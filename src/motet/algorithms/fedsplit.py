"""FedSplitBERT (Lit et al., "Federated Split BERT for Heterogeneous Text Classification", IJCNN 2022).

The model is split at the critical layer c. Layers 1…c are learnt together, W^g ← Σ nᵢ·Wᵢ^g / Σ nᵢ (or another server rule in
the same place); layers above c, pooler and classifier stay with each client, Wᵢ^l, for the whole run. c = 0 is isolated
training, c = all layers FedAvg, then with pooler and classifier; half of them are the paper's 6 of 12. Its 16 bits are a codec
on weights: `codec: float16` with `sends: weights`.

The paper does not say what becomes of the embeddings; its bytes leave them out. So they are frozen here unless one asks for
`local` or `global`. With μ > 0 the pull of FedProx also holds a client's own layers near where it last left them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from motet.algorithms.fedavg import FedAvg, Sends, Weighting
from motet.core.errors import ConfigError
from motet.core.layers import Layers
from motet.learning.solver import Solver
from motet.optim import Apply, ServerOptimizer

Critical = int | Literal["half", "all"]
Embeddings = Literal["frozen", "local", "global"]


def split(algorithm: FedAvg, c: Critical, embeddings: Embeddings = "frozen") -> FedAvg:
    """Any algorithm of FedAvg's family, of which only the lowest c layers leave the client."""
    if isinstance(c, int) and c < 0:
        raise ConfigError(
            f"fedsplit: c is {c}; it is a number of layers from 0, where nothing is shared, or 'half' or 'all'."
        )
    frozen = Layers.parse("embeddings") if embeddings == "frozen" else Layers.none()
    return replace(algorithm, shared=_shared(c, embeddings), frozen=frozen, name="fedsplit")


def _shared(c: Critical, embeddings: Embeddings) -> Layers:
    if c == "all":
        return ~Layers.parse("embeddings") if embeddings == "local" else Layers.all()
    terms = [f"lower {c}"] if c else []
    return Layers.parse(*terms, *(["embeddings"] if embeddings == "global" else []))


def fedsplit(
    solver: Solver = Solver(),
    c: Critical = "half",
    embeddings: Embeddings = "frozen",
    mu: float = 0.0,
    server: ServerOptimizer = Apply(),
    weighting: Weighting = "examples",
    sends: Sends = "updates",
) -> FedAvg:
    """Lower layers learnt together, upper ones one's own (FedSplitBERT); mu makes it FedProx, server FedAdam or FedYogi."""
    return split(FedAvg(replace(solver, proximal_mu=mu), server, weighting=weighting, sends=sends), c, embeddings)
