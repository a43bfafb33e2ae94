"""The number of positions for which a model has an embedding. Models with rotary embeddings have no such limit."""

from __future__ import annotations

from torch import nn

from motet.core.errors import ConfigError

_NAMES = ("wpe", "embed_positions", "position_embeddings")


def check_positions(module: nn.Module, needed: int, cause: str, advice: str) -> None:
    """Raise an error if generation needs more positions than the model has: it would end in the middle of a run."""
    num_positions = count_positions(module)
    if num_positions is not None and needed > num_positions:
        raise ConfigError(
            f"{cause}, so generation needs {needed} positions, but the model has {num_positions}. {advice}"
        )


def count_positions(module: nn.Module) -> int | None:
    """Return the length of the longest text, or None if positions are not learned."""
    for name, submodule in module.named_modules():
        if isinstance(submodule, nn.Embedding) and name.rpartition(".")[2] in _NAMES:
            # The positions of RoBERTa begin after that of padding.
            reserved = 0 if submodule.padding_idx is None else submodule.padding_idx + 1
            return submodule.num_embeddings - int(getattr(submodule, "offset", reserved))
    return None
