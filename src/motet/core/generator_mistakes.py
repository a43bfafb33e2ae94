"""Explains what happens if `yield from` is forgotten before a call such as `ctx.fit` or `total`, which are generators."""

from __future__ import annotations

import traceback
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import PurePath
from types import GeneratorType
from typing import Any

from motet.core.errors import ConfigError


def reject_generator(step: Any, owner: Generator[Any, Any, Any]) -> Any:
    """Return a step of a generator; one that is a generator itself becomes an error at the line that yields it."""
    if not isinstance(step, GeneratorType):
        return step
    return owner.throw(TypeError(f"a 'generator' object is yielded by itself: {step.__name__}(…)"))


@contextmanager
def explain_generators() -> Iterator[None]:
    """Turn the error of a method that uses a generator like its result into a sentence that names the method."""
    try:
        yield
    except (AttributeError, TypeError) as error:
        if "'generator'" not in str(error):
            raise
        frame, line = list(traceback.walk_tb(error.__traceback__))[-1]
        place = f"{frame.f_code.co_qualname} ({PurePath(frame.f_code.co_filename).name}, line {line})"
        raise ConfigError(
            f"{place}: {error}. Write 'yield from' before every call of total, gather, ctx.fit and ctx.infer, such as: "
            "result = yield from ctx.fit(…)"
        ) from error
