"""Parameters put together from several: what a client is sent, what it kept, and the rest."""

from __future__ import annotations

import pytest
import torch

from motet.core.errors import LayoutError
from motet.core.params import Params

WHOLE = Params.of({"a": torch.zeros(2), "b": torch.zeros(1, 2), "c": torch.zeros(1)})


def named(**values: float) -> Params:
    shapes = {"a": (2,), "b": (1, 2), "c": (1,)}
    return Params.of({name: torch.full(shapes[name], value) for name, value in values.items()})


def test_the_last_has_the_last_word() -> None:
    made = WHOLE.with_(named(a=1, b=1), None, named(b=2))
    assert made.layout == WHOLE.layout
    assert made.flat.tolist() == [1, 1, 2, 2, 0]
    assert made.flat.tolist() == WHOLE.with_(named(a=1, b=1)).with_(named(b=2)).flat.tolist()
    assert WHOLE.flat.tolist() == [0] * 5


def test_nothing_is_copied_where_nothing_is_mixed() -> None:
    whole = named(a=1, b=2, c=3)
    assert WHOLE.with_() is WHOLE and WHOLE.with_(None) is WHOLE
    assert WHOLE.with_(named(a=5), whole).flat.data_ptr() == whole.flat.data_ptr()


def test_what_the_model_has_not_is_refused() -> None:
    with pytest.raises(LayoutError, match="the model has no d"):
        WHOLE.with_(Params.of({"d": torch.zeros(1)}))
    with pytest.raises(LayoutError, match="b has another shape"):
        WHOLE.with_(named(a=1), Params.of({"b": torch.zeros(2, 1)}))
    with pytest.raises(LayoutError, match="c has another shape"):
        WHOLE.with_(Params.of({"a": torch.zeros(2), "b": torch.zeros(1, 2), "c": torch.zeros(2)}))
