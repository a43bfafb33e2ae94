"""Read the tokens of a batch from the update of the embeddings: only rows of tokens that occur in the batch change.

This is the simplest inversion of gradients of text. It finds which tokens a client has, not their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from motet.codecs.clip import limit_norm
from motet.core.params import Params
from motet.core.script import ClientId
from motet.experiment.build.federation import Federation
from motet.learning.data.features import Examples
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.modules.model import Model
from motet.learning.solver import Solver
from motet.privacy.dp_sum import PrivateSum

MAX_CLIENTS = 32
# One step of plain gradient descent on the whole batch: the update is the gradient.
ONE_STEP = Solver(steps=1, batch=1024, optimizer="sgd", lr=1.0, clip=0.0, schedule="constant", warmup=0.0)


@dataclass(frozen=True)
class TokenRecovery:
    """The share of a client's tokens among as many rows with the largest change; None if there is no such view."""

    texts: int
    tokens: int  # different ones, in the texts of the attacked client
    clients: int  # in the mean
    by_chance: float
    from_update: float
    from_mean: float
    from_noisy_mean: float | None = None


def recover_tokens(
    federation: Federation,
    executor: SerialExecutor,
    privacy: PrivateSum | None,
    batch: int,
    cohort_size: int,
    seed: int,
) -> TokenRecovery | None:
    """Attack the first client, with `batch` texts per client. None if the embeddings are not trained."""
    name = find_token_embeddings(federation.model)
    if name is None:
        return None
    clients = [federation.clients[index] for index in range(min(cohort_size, MAX_CLIENTS, len(federation.clients)))]
    batches = [_take_batch(federation, client, batch) for client in clients]
    updates = [_update(federation, executor, *pair) for pair in zip(clients, batches, strict=True)]
    special: list[int] = federation.model.tokenizer.all_special_ids
    tokens = _distinct_tokens(batches[0], special)
    clip = 1.0 if privacy is None else privacy.clip
    # As a longer training would be clipped.
    scaled = [update * (clip / max(update.norm(), 1e-30)) for update in updates]
    mean = torch.stack([update.flat for update in scaled]).mean(0)

    def recovered_from(flat: Tensor) -> float:
        rows = Params(updates[0].layout, flat).tensors()[name].norm(dim=1)
        rows[special] = 0  # every text has them
        return float(np.isin(rows.topk(len(tokens)).indices.numpy(), tokens).mean())

    noisy = None if privacy is None else _add_noise(privacy, scaled[0].flat, mean, len(scaled), seed)
    return TokenRecovery(
        texts=len(batches[0]),
        tokens=len(tokens),
        clients=len(clients),
        by_chance=len(tokens) / len(updates[0].tensors()[name]),
        from_update=recovered_from(scaled[0].flat),
        from_mean=recovered_from(mean),
        from_noisy_mean=None if noisy is None else recovered_from(noisy),
    )


def find_token_embeddings(model: Model) -> str | None:
    """Return the name of the parameter with one row per token; None if it is not trained."""
    layout, vocabulary = model.initial_params.layout, len(model.tokenizer.get_vocab())
    candidates = zip(layout.names, layout.shapes, layout.roles, strict=True)
    matrices = [
        n for n, shape, role in candidates if "embeddings" in role and len(shape) == 2 and shape[0] >= vocabulary
    ]
    return matrices[0] if matrices else None


def _add_noise(privacy: PrivateSum, own: Tensor, mean: Tensor, clients: int, seed: int) -> Tensor:
    """Return what the server sees under the noise of the run: the noisy mean, or with local noise the noisy update."""
    is_local = privacy.trust_model == "local"
    target, deviation = (own, 1.0) if is_local else (mean, 1 / clients)
    noise = torch.randn(target.shape, generator=torch.Generator().manual_seed(seed))
    return limit_norm(target, privacy.clip) + noise * privacy.noise_multiplier * privacy.clip * deviation


def _take_batch(federation: Federation, client: ClientId, batch: int) -> Examples:
    examples = federation.participant(client).split("train")
    return Examples(examples.features, examples.rows[:batch])


def _update(federation: Federation, executor: SerialExecutor, client: ClientId, examples: Examples) -> Params:
    context, start = federation.context(client, 0, "audit.train"), federation.model.initial_params
    result = executor.run_work(context.fit(start, ONE_STEP, examples=examples))
    return Params(start.layout, (result.params - start).flat)


def _distinct_tokens(examples: Examples, special: Sequence[int]) -> np.ndarray:
    """Return the tokens of the texts, without special ones."""
    batch = examples.batch(np.arange(len(examples)))
    tokens = np.unique(batch["input_ids"][batch["attention_mask"].bool()].numpy())
    return tokens[~np.isin(tokens, special)]
