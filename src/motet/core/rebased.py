"""Trainable parameters together with a change of the frozen weights below them."""

from __future__ import annotations

from dataclasses import dataclass

from motet.core.messages import message
from motet.core.params import Params


@message
@dataclass(frozen=True, eq=False)
class RebasedParams:
    """Adapters on a base that differs from the pretrained one.

    `base_update` has a matrix [out, in] for some adapted layers, by the path of the layer. It is added to the frozen
    weight with the scaling of the adapters, like a product B A.
    """

    params: Params
    base_update: Params | None = None


ModelParams = Params | RebasedParams  # a model as algorithms return and train it


def split_base(model: ModelParams) -> tuple[Params, Params | None]:
    return (model.params, model.base_update) if isinstance(model, RebasedParams) else (model, None)
