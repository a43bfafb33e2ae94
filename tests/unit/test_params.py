from __future__ import annotations

import pytest
import torch

from motet.core.errors import LayoutError, RunError
from motet.core.layers import Layers
from motet.core.params import Params
from motet.core.weighted import RunningSum, Weighted
from motet.experiment.build.federation import Federation


def pair() -> tuple[Params, Params]:
    g = torch.Generator().manual_seed(0)
    shapes = {"a": (3, 4), "b": (5,), "c": ()}
    made = [Params.from_tensors({n: torch.randn(s, generator=g) for n, s in shapes.items()}) for _ in range(2)]
    return made[0], made[1]


def test_arithmetic_is_that_of_the_tensors() -> None:
    x, y = pair()
    for name in x.layout.names:
        assert torch.equal((x + y)[name], x[name] + y[name])
        assert torch.equal((x - y)[name], x[name] - y[name])
        assert torch.equal((x * 2)[name], x[name] * 2)
    assert x.norm() == pytest.approx(float(x.flat.norm()), rel=1e-6)


def test_parameters_of_different_models_do_not_add() -> None:
    x, _ = pair()
    with pytest.raises(LayoutError, match="names, such as b"):
        x + Params.from_tensors({"a": torch.zeros(3, 4), "c": torch.zeros(())})
    with pytest.raises(LayoutError, match=r"a \[3, 4\] against \[4, 3\]"):
        x - Params.from_tensors({"a": torch.zeros(4, 3), "b": torch.zeros(5), "c": torch.zeros(())})


def test_a_vector_of_the_wrong_length_is_no_params() -> None:
    x, _ = pair()
    with pytest.raises(LayoutError, match="cannot hold 18 numbers"):
        Params(x.layout, torch.zeros(17))


def test_a_choice_and_its_rest_make_the_whole(federation: Federation) -> None:
    fresh = federation.model.initial_params
    low = Layers.parse("embeddings", "layers 0")
    chosen, rest = fresh.select_layers(low), fresh.exclude_layers(low)
    assert 0 < chosen.layout.size < fresh.layout.size
    assert chosen.layout.size + rest.layout.size == fresh.layout.size
    assert torch.equal(fresh.zeros_like().updated(chosen).updated(rest).flat, fresh.flat)


def test_with_replaces_values_and_refuses_strangers(federation: Federation) -> None:
    fresh = federation.model.initial_params
    doubled = fresh.updated(fresh.select_layers(Layers.parse("head")) * 2)
    assert torch.equal(doubled["classifier.weight"], fresh["classifier.weight"] * 2)
    assert torch.equal(doubled["bert.pooler.dense.weight"], fresh["bert.pooler.dense.weight"])
    with pytest.raises(LayoutError, match="the model has no stranger"):
        fresh.updated(Params.from_tensors({"stranger": torch.zeros(2)}))


def test_a_running_sum_is_the_sum_and_leaves_its_terms_alone() -> None:
    x, y = pair()
    kept = x.flat.clone()
    running = RunningSum()
    running.add("one", Weighted(x, 1))
    running.add("two", Weighted(y, 3))
    mean = running.value().value
    assert torch.allclose(mean.flat, (x.flat + 3 * y.flat) / 4)
    assert torch.equal(x.flat, kept)


def test_a_mean_of_nothing_is_an_error() -> None:
    x, _ = pair()
    running = RunningSum()
    running.add("one", Weighted(x, 0))
    with pytest.raises(RunError, match="sum to 0"):
        running.value()
    with pytest.raises(RunError, match="nothing to sum"):
        RunningSum().value()


def test_counts_add_exactly() -> None:
    big = Params.from_scalars(hits=2**40 + 1)
    assert float((big + big)["hits"]) == 2 * (2**40 + 1)


# ---- put together from several: what a client is sent, what it kept, and the rest

WHOLE = Params.from_tensors({"a": torch.zeros(2), "b": torch.zeros(1, 2), "c": torch.zeros(1)})


def named(**values: float) -> Params:
    shapes = {"a": (2,), "b": (1, 2), "c": (1,)}
    return Params.from_tensors({name: torch.full(shapes[name], value) for name, value in values.items()})


def test_the_last_has_the_last_word() -> None:
    made = WHOLE.updated(named(a=1, b=1), None, named(b=2))
    assert made.layout == WHOLE.layout
    assert made.flat.tolist() == [1, 1, 2, 2, 0]
    assert made.flat.tolist() == WHOLE.updated(named(a=1, b=1)).updated(named(b=2)).flat.tolist()
    assert WHOLE.flat.tolist() == [0] * 5


def test_nothing_is_copied_where_nothing_is_mixed() -> None:
    whole = named(a=1, b=2, c=3)
    assert WHOLE.updated() is WHOLE and WHOLE.updated(None) is WHOLE
    assert WHOLE.updated(named(a=5), whole).flat.data_ptr() == whole.flat.data_ptr()


def test_what_the_model_has_not_is_refused() -> None:
    with pytest.raises(LayoutError, match="the model has no d"):
        WHOLE.updated(Params.from_tensors({"d": torch.zeros(1)}))
    with pytest.raises(LayoutError, match="b has shape"):
        WHOLE.updated(named(a=1), Params.from_tensors({"b": torch.zeros(2, 1)}))
    with pytest.raises(LayoutError, match="c has shape"):
        WHOLE.updated(Params.from_tensors({"a": torch.zeros(2), "b": torch.zeros(1, 2), "c": torch.zeros(2)}))
