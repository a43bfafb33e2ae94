"""Embedding tables, one per client: the same gradients as torch's, in an order that is fixed on a GPU too."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from motet.learning.packed import client_embedding
from motet.learning.packed.client_embedding import embed, embed_per_client, sum_grads, sum_with_product
from motet.learning.packed.grad_targets import GradTarget


@pytest.mark.parametrize("shape", [(3, 40), (3, 4, 10), (1, 1, 25)], ids=str)
def test_a_product_gives_the_gradients_that_torch_adds_row_by_row(shape: tuple[int, ...]) -> None:
    tables = torch.randn(shape[0], 5, 6, dtype=torch.float64, requires_grad=True)
    ids, grad = torch.randint(0, 5, shape), torch.randn(*shape, 6, dtype=torch.float64)
    rows = [torch.nn.functional.embedding(i, table) for i, table in zip(ids, tables, strict=True)]
    (expected,) = torch.autograd.grad(torch.stack(rows), tables, grad)
    torch.testing.assert_close(sum_with_product(grad, ids, 5), expected)


@pytest.mark.parametrize("shape", [(3, 40), (2, 4, 10)], ids=str)
def test_a_kernel_adds_the_gradients_where_the_optimizer_reads_them(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables in the clients' vectors, where the first use of a table writes and the second adds."""
    pytest.importorskip("triton")
    kernels = import_module("motet.learning.packed.triton_embedding")
    monkeypatch.setattr(client_embedding, "kernels_for", lambda *_: kernels)
    monkeypatch.setattr(kernels, "_TILE_COLUMNS", 16)
    words, width, clients = 70, 20, shape[0]
    random = torch.Generator().manual_seed(0)
    ids = torch.randint(0, words, shape, generator=random)
    grad = torch.randn(*shape, width, generator=random)
    ids[:, ..., :12] = 7  # a frequent word
    is_padding = ids == 5
    tables = torch.zeros(clients, words, width, dtype=torch.float64, requires_grad=True)
    rows = [torch.nn.functional.embedding(i, table, 5) for i, table in zip(ids, tables, strict=True)]
    (expected,) = torch.autograd.grad(torch.stack(rows), tables, grad.double())
    vectors = torch.full((clients, 3 + words * width), torch.nan)
    target = GradTarget(vectors[:, 3:].view(clients, words, width))
    for _ in range(2):
        assert sum_grads(grad, ids, words, is_padding, target) is None
    torch.testing.assert_close(
        target.view.double(), 2 * expected, rtol=1e-6, atol=1e-5
    )  # float32 sums of up to 80 numbers
    assert vectors[:, :3].isnan().all()
    torch.testing.assert_close(sum_grads(grad, ids, words, is_padding), expected.float())


class _Operations(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_embedding, "kernels_for", lambda *_: None)


def _operations(words: int, reads: int, clients: int) -> set[str]:
    """Return the operations that add gradients on a GPU. None is needed: fake tensors have only shapes."""
    with FakeTensorMode(), _Operations() as operations:
        ids = torch.zeros(clients, reads, dtype=torch.int64, device="cuda")
        grads = sum_grads(torch.zeros(clients, reads, 4, device="cuda"), ids, words)
        assert grads is not None
        assert grads.shape == (clients, words, 4)
    return operations.names


@pytest.mark.usefixtures("without_kernels")
@pytest.mark.parametrize("clients", [1, 8])
@pytest.mark.parametrize(("words", "reads"), [(2, 100), (32, 5000), (512, 30 * 512)])
def test_a_gpu_adds_the_gradients_of_rows_that_are_read_often_in_a_fixed_order(
    words: int, reads: int, clients: int
) -> None:
    assert "embedding_dense_backward" not in _operations(words, reads, clients)


@pytest.mark.usefixtures("without_kernels")
def test_the_gradients_of_a_vocabulary_are_no_product() -> None:
    assert "embedding_dense_backward" in _operations(30000, 2048, 8)


@pytest.mark.parametrize("padding_row", [None, 1])
def test_one_table_for_all_rows_is_looked_up_as_in_torch(padding_row: int | None, monkeypatch: Any) -> None:
    table, ids = torch.randn(5, 6, requires_grad=True), torch.randint(0, 5, (4, 7))
    is_padding = None if padding_row is None else (ids == padding_row).unsqueeze(0)
    (expected,) = torch.autograd.grad((embed(table, ids, padding_row) ** 2).sum(), table)
    monkeypatch.setattr("motet.learning.packed.client_embedding._sum_sorted", sum_with_product)
    rows = embed_per_client(table.unsqueeze(0), ids.unsqueeze(0), is_padding)[0]
    torch.testing.assert_close(torch.autograd.grad((rows**2).sum(), table)[0], expected)
