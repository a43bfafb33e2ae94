"""Parameters as flat vectors: arithmetic, selections, updates and weighted sums."""

from __future__ import annotations

import pytest
import torch

from motet.core.errors import LayoutError, RunError
from motet.core.layers import Layers
from motet.core.params import Params
from motet.core.weighted import RunningSum, Weighted
from motet.experiment.build.federation import Federation
from motet.wire import deserialize, serialize


def random_params(seed: int) -> Params:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"a": (3, 4), "b": (5,), "c": ()}
    return Params.from_tensors({name: torch.randn(shape, generator=generator) for name, shape in shapes.items()})


X, Y = random_params(0), random_params(1)


def test_arithmetic_is_elementwise() -> None:
    for name in X.layout.names:
        assert torch.equal((X + Y)[name], X[name] + Y[name])
        assert torch.equal((X - Y)[name], X[name] - Y[name])
        assert torch.equal((X * 2)[name], X[name] * 2)
    assert X.norm() == pytest.approx(float(X.flat.norm()), rel=1e-6)


def test_a_bound_is_known_for_differences_and_not_sent() -> None:
    after, start = X * torch.nan, Y * 1  # whoever reads the numbers sees that they are not finite
    after.record_bound(3)
    assert after.is_finite()
    assert not (after - start).is_finite()
    start.record_bound(4)
    assert (after - start).bound == 7
    assert (after - start).is_finite()
    assert (after + start).bound == (after * 2).bound == deserialize(serialize(after)).bound == torch.inf
    for too_large in (torch.nan, torch.inf, 3e38):
        after.record_bound(too_large)
        assert not (after - start).is_finite()


def test_parameters_of_different_models_cannot_be_added() -> None:
    with pytest.raises(LayoutError, match="names, such as b"):
        X + Params.from_tensors({"a": torch.zeros(3, 4), "c": torch.zeros(())})
    with pytest.raises(LayoutError, match=r"a \[3, 4\] against \[4, 3\]"):
        X - Params.from_tensors({"a": torch.zeros(4, 3), "b": torch.zeros(5), "c": torch.zeros(())})


def test_a_vector_of_the_wrong_length_is_rejected() -> None:
    with pytest.raises(LayoutError, match="cannot hold 18 numbers"):
        Params(X.layout, torch.zeros(17))


def test_a_selection_and_its_complement_make_up_the_model(federation: Federation) -> None:
    initial = federation.model.initial_params
    lower = Layers.parse("embeddings", "layers 0")
    selected, others = initial.select_layers(lower), initial.exclude_layers(lower)
    assert 0 < selected.layout.size < initial.layout.size
    assert selected.layout.size + others.layout.size == initial.layout.size
    assert torch.equal(initial.zeros_like().updated(selected, others).flat, initial.flat)


def test_scalars_are_summed_exactly() -> None:
    count = Params.from_scalars(hits=2**40 + 1)
    assert float((count + count)["hits"]) == 2 * (2**40 + 1)


# ---- updated() ------------------------------------------------------------------------------------------------------

SHAPES = {"a": (2,), "b": (1, 2), "c": (1,)}


def constant_params(**values: float) -> Params:
    return Params.from_tensors({name: torch.full(SHAPES[name], value) for name, value in values.items()})


ZEROS = constant_params(a=0.0, b=0.0, c=0.0)


def test_an_update_replaces_only_the_tensors_it_has(federation: Federation) -> None:
    initial = federation.model.initial_params
    doubled = initial.updated(initial.select_layers(Layers.parse("head")) * 2)
    assert torch.equal(doubled["classifier.weight"], initial["classifier.weight"] * 2)
    assert torch.equal(doubled["bert.pooler.dense.weight"], initial["bert.pooler.dense.weight"])


def test_later_updates_win() -> None:
    result = ZEROS.updated(constant_params(a=1, b=1), None, constant_params(b=2))
    assert result.layout == ZEROS.layout
    assert result.flat.tolist() == [1, 1, 2, 2, 0]
    assert result.flat.tolist() == ZEROS.updated(constant_params(a=1, b=1)).updated(constant_params(b=2)).flat.tolist()
    assert ZEROS.flat.tolist() == [0] * 5


def test_nothing_is_copied_if_one_operand_has_all_the_values() -> None:
    full = constant_params(a=1, b=2, c=3)
    assert ZEROS.updated() is ZEROS
    assert ZEROS.updated(None) is ZEROS
    assert ZEROS.updated(constant_params(a=5), full).flat.data_ptr() == full.flat.data_ptr()


def test_updates_must_fit_the_model() -> None:
    with pytest.raises(LayoutError, match="the model has no d"):
        ZEROS.updated(Params.from_tensors({"d": torch.zeros(1)}))
    with pytest.raises(LayoutError, match=r"b has shape \[2, 1\], but the model's has \[1, 2\]"):
        ZEROS.updated(constant_params(a=1), Params.from_tensors({"b": torch.zeros(2, 1)}))
    with pytest.raises(LayoutError, match="c has shape"):
        ZEROS.updated(Params.from_tensors({"a": torch.zeros(2), "b": torch.zeros(1, 2), "c": torch.zeros(2)}))


# ---- weighted sums --------------------------------------------------------------------------------------------------


def test_a_running_sum_returns_the_weighted_mean_and_does_not_modify_its_terms() -> None:
    before = X.flat.clone()
    running = RunningSum()
    running.add("one", Weighted(X, 1))
    running.add("two", Weighted(Y, 3))
    assert torch.allclose(running.value().value.flat, (X.flat + 3 * Y.flat) / 4)
    assert torch.equal(X.flat, before)


def test_a_mean_needs_a_reply_with_a_positive_weight() -> None:
    running = RunningSum()
    running.add("one", Weighted(X, 0))
    with pytest.raises(RunError, match="sum to 0"):
        running.value()
    with pytest.raises(RunError, match="nothing to sum"):
        RunningSum().value()


def test_a_bundle_carries_several_values_in_one_sum() -> None:
    update = Params.from_tensors(
        {"w": torch.tensor([1.0, 2.0]), "b": torch.tensor(3.0)}, {"w": "layers.0", "b": "head"}
    )
    bundle = Params.bundle(update=update, control=2.0 * update, counts=Params.from_scalars(steps=7.0))
    assert bundle.flat.dtype == torch.float32  # scalars must not double the size of the message
    assert bundle.layout.size == 7
    assert bundle.layout.roles == ("layers.0", "head", "layers.0", "head", "head")
    parts = (0.5 * bundle).unbundle()
    assert list(parts) == ["update", "control", "counts"]
    assert parts["update"].layout == update.layout
    assert torch.equal(parts["control"].flat, update.flat)
    assert float(parts["counts"]["steps"]) == 3.5
