"""`single_thread`: one thread inside, and as many as before afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from threadpoolctl import threadpool_info

from motet.core.threads import single_thread


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("blas", [False, True])
def test_torch_has_one_thread_inside_and_as_many_as_before_afterwards(blas: bool) -> None:
    with single_thread(blas=blas):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_an_error_restores_the_threads_too() -> None:
    with pytest.raises(ValueError, match="inside"), single_thread(blas=True):
        raise ValueError("inside")
    assert torch.get_num_threads() == 2


def test_blas_limits_the_libraries_of_numpy() -> None:
    with single_thread(blas=True):
        assert {library["num_threads"] for library in threadpool_info()} == {1}
