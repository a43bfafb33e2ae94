"""The options of server optimizers. Their steps are checked in tests/golden/test_paper_numbers.py."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from motet.core.errors import ConfigError
from motet.optim import SERVER_OPTIMIZERS

OPTIONS = [(kind, field.name) for kind, optimizer in SERVER_OPTIMIZERS.items() for field in fields(optimizer)]  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "name"), OPTIONS)
@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("much", "'much'; expected a number. Write it without quotes."),
        (None, "None; expected a number"),
        (-0.5, "-0.5; it must be a "),
        (True, "True; expected a number"),
        (float("nan"), "nan; it must be a "),
        (float("inf"), "inf; it must be a "),
    ],
)
def test_an_invalid_option_is_rejected(kind: str, name: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"server.{name} is {message}"):
        SERVER_OPTIMIZERS[kind](**{name: value})
