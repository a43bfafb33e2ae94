"""The layers of a model that trains one client at a time: only embeddings differ from torch's."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from motet.learning.packed.client_embedding import embed


class RepeatableEmbedding(nn.Embedding):
    """An embedding with gradients that are the same in every run on a GPU."""

    def forward(self, ids: Tensor) -> Tensor:
        return embed(self.weight, ids, self.padding_idx)


def install_plain_layers(module: nn.Module, original: nn.Module, leaves: Mapping[int, nn.Parameter]) -> None:
    """Replace the parameters of every trained layer. `leaves` are the new ones, by the id of the original's parameter."""
    for submodule, source in zip(module.modules(), original.modules(), strict=True):
        if type(submodule) is nn.Embedding and submodule.max_norm is None and not submodule.scale_grad_by_freq:
            submodule.__class__ = RepeatableEmbedding
        for name, parameter in list(source._parameters.items()):
            if parameter is not None and id(parameter) in leaves:
                submodule._parameters[name] = leaves[id(parameter)]
