"""Contract suites for components of other packages. Call them from your own tests.

    from motet.testing import check_algorithm

    def test_my_algorithm_keeps_the_contract():
        check_algorithm(my_algorithm, mu=0.1)

Each function raises an AssertionError that says which rule is broken, and what to do.
"""

from __future__ import annotations

from motet.testing.algorithm_checks import check_algorithm
from motet.testing.component_checks import check_codec, check_dataset, check_partition, check_task, check_tracker
from motet.testing.small_federation import make_federation

__all__ = [
    "check_algorithm",
    "check_codec",
    "check_dataset",
    "check_partition",
    "check_task",
    "check_tracker",
    "make_federation",
]
