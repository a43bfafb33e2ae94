"""Checks that a reply must pass before it may change a model: the right type, a matching shape, finite numbers."""

from __future__ import annotations

import math
from typing import Any

from motet.core.errors import MotetError, RunError
from motet.core.params import Params, is_finite
from motet.core.weighted import Weighted
from motet.transport.requests import ValueWithUtility
from motet.wire import list_buffers

# What decoding, checking or adding an invalid reply raises.
INVALID_REPLY = (MotetError, ArithmeticError, RuntimeError, TypeError, AttributeError)
MAX_UTILITY = 1e12  # a billion examples with a loss of 1,000
NOT_FINITE = "the reply contains numbers that are not finite; try a smaller solver.lr, or set solver.clip."


def check_sum_term(value: Any, first_term: Params | None) -> Weighted:
    """Return `value` if it can be summed with `first_term` (None if it is the first); else raise an error."""
    if not isinstance(value, Weighted):
        raise RunError(f"the reply is a {type(value).__name__}; expected parameters with a weight.")
    if not isinstance(value.value, Params):
        kind = type(value.value).__name__
        raise RunError(f"the reply is a Weighted {kind}; expected Params. Params.bundle(…) holds several values.")
    if not (math.isfinite(value.weight) and value.weight >= 0):
        raise RunError(f"the reply has weight {value.weight}; expected a finite number of at least 0.")
    if first_term is not None:
        first_term.check_same_layout(value.value)
        dtype, expected = value.value.flat.dtype, first_term.flat.dtype
        if dtype != expected:
            raise RunError(f"the reply has numbers of type {dtype}; expected {expected}, as in the other replies.")
    if not value.value.is_finite():
        raise RunError(NOT_FINITE)
    return value


class TermChecker:
    """Checks the terms of one sum. The first term decides about their shape and precision."""

    def __init__(self) -> None:
        self.reference: Params | None = None  # the layout and type of the first term, without its numbers

    def check(self, value: Any) -> Weighted:
        term = check_sum_term(value, self.reference)
        if self.reference is None:
            layout = term.value.layout
            self.reference = Params(layout, term.value.flat.new_zeros(()).expand(layout.size))
        return term


def split_utility(value: Any) -> tuple[Any, float | None]:
    """Return the value of a reply without its utility, and the utility, or None if the client reports none.

    A utility that is possible may still be a lie, so the cohorts clip it.
    """
    if not isinstance(value, ValueWithUtility):
        return value, None
    if not 0 <= value.utility <= MAX_UTILITY:
        raise RunError(f"the reply has a utility of {value.utility}; expected a number from 0 to {MAX_UTILITY:g}.")
    return value.value, float(value.utility)


def check_finite(value: Any) -> None:
    """Raise an error if any tensor in `value`, at any depth, contains NaN or infinity."""
    if any(not (isinstance(buffer, bytes) or is_finite(buffer)) for buffer in list_buffers(value)):
        raise RunError(NOT_FINITE)
